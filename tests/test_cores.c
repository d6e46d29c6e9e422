/* The linear and the lag core against their definitions: sums over all pairs of
   tokens, in double, one at a time. */
#include "check.h"

enum { REAL, MAGNITUDE, PHASE, HYBRID };

/* Arrays of one call, head-major: q, k [B, H, n, 2d], v, y [B, H, n, width] */
typedef struct arrays {
    cmha_real *q, *k, *v, *y, *dy, *dq, *dk, *dv, *saved, *scratch;
    size_t B, H, n, d, width;
    unsigned char *mask;
} arrays;

static arrays arrays_open(size_t B, size_t H, size_t n, size_t d, int complex_values, double scale) {
    arrays a;
    size_t rows = B * H * n;
    memset(&a, 0, sizeof a);
    a.B = B, a.H = H, a.n = n, a.d = d, a.width = complex_values ? 2 * d : d;
    a.q = check_array(rows * 2 * d, scale), a.k = check_array(rows * 2 * d, scale),
    a.v = check_array(rows * a.width, 1);
    a.y = check_array(rows * a.width, 1), a.dy = check_array(rows * a.width, 1);
    a.dq = check_zeros(rows * 2 * d), a.dk = check_zeros(rows * 2 * d), a.dv = check_zeros(rows * a.width);
    a.mask = (unsigned char *)check_alloc(B * n, 1);
    memset(a.mask, 1, B * n);
    return a;
}

static void arrays_close(arrays *a) {
    free(a->q), free(a->k), free(a->v), free(a->y), free(a->dy), free(a->dq), free(a->dk), free(a->dv);
    free(a->saved), free(a->scratch), free(a->mask);
}

static cmha_heads complex_view(const arrays *a, cmha_real *x) {
    return cmha_heads_by_head(x, a->H, a->n, a->d, 1);
}
static cmha_heads value_view(const arrays *a, cmha_real *x) {
    return a->width == a->d ? cmha_heads_by_head(x, a->H, a->n, a->d, 0) : complex_view(a, x);
}

static cmha_attention_views array_views(const arrays *a) {
    cmha_attention_views x;
    x.q = complex_view(a, a->q), x.dq = complex_view(a, a->dq), x.k = complex_view(a, a->k),
    x.dk = complex_view(a, a->dk);
    x.v = value_view(a, a->v), x.dv = value_view(a, a->dv), x.y = value_view(a, a->y),
    x.dy = value_view(a, a->dy);
    return x;
}

static cmha_linear_attention_args linear_args(const arrays *a, cmha_linear_kind kind, int output,
        int causal) {
    cmha_linear_attention_args l;
    memset(&l, 0, sizeof l);
    l.batch = a->B, l.heads = a->H, l.n = a->n, l.d = a->d, l.kind = kind,
    l.output = (cmha_cope_output)output, l.causal = causal;
    l.alpha = (cmha_real)0.3, l.eps = (cmha_real)0.01, l.den_eps = (cmha_real)1e-6, l.key_mask = a->mask,
    l.threads = 2;
    return l;
}

static void run_linear(arrays *a, const cmha_linear_attention_args *l) {
    cmha_attention_views x = array_views(a);
    free(a->saved), free(a->scratch);
    a->saved = check_zeros(cmha_linear_attention_saved(l));
    a->scratch = check_zeros(cmha_linear_attention_scratch(l, 0));
    cmha_linear_attention_forward(l, &x, a->saved, a->scratch);
}

static void run_linear_backward(arrays *a, const cmha_linear_attention_args *l) {
    cmha_attention_views x = array_views(a);
    size_t rows = a->B * a->H * a->n;
    free(a->scratch);
    a->scratch = check_zeros(cmha_linear_attention_scratch(l, 1));
    memset(a->dq, 0, rows * 2 * a->d * sizeof *a->dq), memset(a->dk, 0, rows * 2 * a->d * sizeof *a->dk);
    memset(a->dv, 0, rows * a->width * sizeof *a->dv);
    cmha_linear_attention_backward(l, &x, a->saved, a->scratch);
}

/* ----------------------------------------- the sums themselves ------------------------------------------ */

static double elu1(double x) { return x > 0 ? x + 1 : exp(x); }

/* What key k weighs for query q, both [2d]: complex for CoPE */
static void pair_weight(const cmha_linear_attention_args *l, const cmha_real *q, const cmha_real *k,
                        double *re, double *im) {
    size_t j, d = l->d;
    double e = l->eps;
    *re = *im = 0;
    for (j = 0; j < d; j++) {
        double a = q[j], b = q[d + j], c = k[j], f = k[d + j];
        if (l->kind == CMHA_LINEAR_COPE) {
            a = elu1(a), b = elu1(b), c = elu1(c), f = elu1(f);
            *re += a * c + b * f, *im += b * c - a * f;
        } else {
            *re += (a * c + b * f) / sqrt((a * a + b * b + e * e) * (c * c + f * f + e * e)) / (double)d;
        }
    }
    if (l->kind == CMHA_LINEAR_ANGULAR) *re += 1;
}

static double cope_output(const cmha_linear_attention_args *l, double re, double im, double den) {
    double m = sqrt(re * re + im * im), c = re / sqrt(m * m + (double)l->eps * l->eps);
    int output = (int)l->output;
    return (output == REAL ? re : output == MAGNITUDE ? m : output == PHASE ? c : m + l->alpha * c) / den;
}

/* One row of y by its definition: identities 10 (CoPE) and 15 (angular) */
static void linear_row(const arrays *a, const cmha_linear_attention_args *l, size_t b, size_t h, size_t t,
        double *y) {
    size_t first = (b * a->H + h) * a->n, s, c;
    double den = 0, *num = (double *)check_alloc(2 * a->width, sizeof *num);
    for (s = 0; s < a->n; s++) {
        double re, im;
        if ((l->causal && s > t) || (l->key_mask && !l->key_mask[b * a->n + s])) continue;
        pair_weight(l, a->q + (first + t) * 2 * a->d, a->k + (first + s) * 2 * a->d, &re, &im);
        den += re;
        for (c = 0; c < a->width; c++)
            num[2 * c] += re * a->v[(first + s) * a->width + c],
                num[2 * c + 1] += im * a->v[(first + s) * a->width + c];
    }
    for (c = 0; c < a->width; c++) {
        if (den == 0) y[c] = 0;
        else
            y[c] = l->kind == CMHA_LINEAR_COPE ? cope_output(l, num[2 * c], num[2 * c + 1], den)
                                               : num[2 * c] / (den + l->den_eps);
    }
    free(num);
}

static double linear_error(const arrays *a, const cmha_linear_attention_args *l) {
    size_t row, c, rows = a->B * a->H * a->n;
    double worst = 0, *want = (double *)check_alloc(a->width, sizeof *want);
    for (row = 0; row < rows; row++) {
        linear_row(a, l, row / a->n / a->H, row / a->n % a->H, row % a->n, want);
        for (c = 0; c < a->width; c++) {
            double error = fabs(want[c] - a->y[row * a->width + c]);
            if (!(error <= worst)) worst = error == error ? error : HUGE_VAL;
        }
    }
    free(want);
    return worst;
}

static void check_linear_one(size_t n, cmha_linear_kind kind, int output, int causal, int masked) {
    arrays a = arrays_open(2, 3, n, 5, kind == CMHA_LINEAR_ANGULAR, 1.5);
    cmha_linear_attention_args l = linear_args(&a, kind, output, causal);
    size_t i;
    for (i = 0; i < 2 * n && masked; i++) a.mask[i] = check_random() > -0.3 && i != 0;
    run_linear(&a, &l);
    CHECK_THAT(linear_error(&a, &l) <= check_tolerance(1e-12, 2e-5),
               "linear core n %zu kind %d output %d causal %d masked %d: off by %g", n, (int)kind, output,
               causal, masked, linear_error(&a, &l));
    if (masked && causal && n) CHECK(check_largest(a.y, a.width) == 0); /* the first row sees no key */
    run_linear_backward(&a, &l);
    CHECK(check_finite(a.dq, 6 * n * 10) && check_finite(a.dk, 6 * n * 10) &&
          check_finite(a.dv, 6 * n * a.width));
    if (masked && n) CHECK(check_largest(a.dk, 2 * a.d) == 0 && check_largest(a.dv, a.width) == 0);
    arrays_close(&a);
}

static void check_linear_definition(void) {
    static const size_t lengths[] = {0, 1, 2, 63, 64, 65, 130};
    size_t i;
    int causal, masked, output;
    for (i = 0; i < sizeof lengths / sizeof *lengths; i++)
        for (causal = 0; causal < 2; causal++)
            for (masked = 0; masked < 2; masked++) {
                for (output = REAL; output <= HYBRID; output++)
                    check_linear_one(lengths[i], CMHA_LINEAR_COPE, output, causal, masked);
                check_linear_one(lengths[i], CMHA_LINEAR_ANGULAR, REAL, causal, masked);
            }
}

/* Values of another width than the keys */
static void check_value_width(void) {
    size_t n = 70, d = 3, d_v = 7, t, s, c;
    cmha_real *q = check_array(n * 2 * d, 1), *k = check_array(n * 2 * d, 1), *v = check_array(n * d_v, 1),
              *y = check_zeros(n * d_v);
    cmha_real *scratch;
    double worst = 0;
    cmha_linear_attention_args l;
    cmha_attention_views x;
    memset(&l, 0, sizeof l);
    l.batch = l.heads = 1, l.n = n, l.d = d, l.d_v = d_v, l.causal = 1;
    scratch = check_zeros(cmha_linear_attention_scratch(&l, 0));
    memset(&x, 0, sizeof x);
    x.q = cmha_heads_by_head(q, 1, n, d, 1), x.k = cmha_heads_by_head(k, 1, n, d, 1);
    x.v = cmha_heads_by_head(v, 1, n, d_v, 0), x.y = cmha_heads_by_head(y, 1, n, d_v, 0);
    cmha_linear_attention_forward(&l, &x, NULL, scratch);
    for (t = 0; t < n; t++)
        for (c = 0; c < d_v; c++) {
            double num = 0, den = 0, re, im;
            for (s = 0; s <= t; s++) {
                pair_weight(&l, q + t * 2 * d, k + s * 2 * d, &re, &im);
                num += re * v[s * d_v + c], den += re;
            }
            worst = fmax(worst, fabs(num / den - y[t * d_v + c]));
        }
    CHECK_NEAR(worst, 0, check_tolerance(1e-12, 1e-5));
    CHECK(cmha_linear_attention_state(&l) == 2 * d * (d_v + 1) && cmha_linear_attention_saved(&l) == n);
    free(q), free(k), free(v), free(y), free(scratch);
}

/* A sequence in pieces, and in one */
static void check_append(cmha_linear_kind kind, int output) {
    static const size_t pieces[] = {1, 3, 64, 65, 100, 0, 1};
    arrays a = arrays_open(2, 2, 234, 4, kind == CMHA_LINEAR_ANGULAR, 1);
    cmha_linear_attention_args l = linear_args(&a, kind, output, 1);
    size_t rows = a.B * a.H * a.n, done = 0, p, i;
    cmha_real *whole = check_zeros(rows * a.width), *state = check_zeros(cmha_linear_attention_state(&l));
    unsigned char piece_mask[200];
    l.key_mask = NULL;
    run_linear(&a, &l);
    memcpy(whole, a.y, rows * a.width * sizeof *whole);
    memset(a.y, 0, rows * a.width * sizeof *whole);
    for (p = 0; p < sizeof pieces / sizeof *pieces; p++, done += l.n) {
        cmha_attention_views x = array_views(&a);
        l.n = pieces[p], l.causal = 0; /* it is causal all the same */
        x.q.data += done * x.q.token, x.k.data += done * x.k.token;
        x.v.data += done * x.v.token, x.y.data += done * x.y.token;
        for (i = 0; i < 200; i++) piece_mask[i] = 1;
        l.key_mask = p % 2 && l.n < 100 ? piece_mask : NULL;
        cmha_linear_attention_append(&l, &x, state, a.scratch);
    }
    CHECK(done == a.n);
    CHECK_THAT(check_distance(whole, a.y, rows * a.width) <= check_tolerance(1e-13, 3e-6),
               "append kind %d: off by %g", (int)kind, check_distance(whole, a.y, rows * a.width));
    free(whole), free(state);
    arrays_close(&a);
}

/* Tokens behind a mask change nothing, whatever they hold, forward and backward */
static void check_padding(cmha_linear_kind kind, int causal) {
    size_t n = 50, padded = 90, t;
    arrays a = arrays_open(1, 1, n, 4, kind == CMHA_LINEAR_ANGULAR, 1),
           b = arrays_open(1, 1, padded, 4, kind == CMHA_LINEAR_ANGULAR, 30);
    cmha_linear_attention_args la = linear_args(&a, kind, REAL, causal), lb = linear_args(&b, kind, REAL,
        causal);
    memcpy(b.q, a.q, n * 8 * sizeof *a.q), memcpy(b.k, a.k, n * 8 * sizeof *a.k),
        memcpy(b.v, a.v, n * a.width * sizeof *a.v);
    memset(b.dy, 0, padded * b.width * sizeof *b.dy), memcpy(b.dy, a.dy, n * a.width * sizeof *a.dy);
    for (t = n; t < padded; t++) b.mask[t] = 0;
    run_linear(&a, &la), run_linear(&b, &lb);
    run_linear_backward(&a, &la), run_linear_backward(&b, &lb);
    CHECK_NEAR(check_distance(a.y, b.y, n * a.width), 0, check_tolerance(1e-13, 2e-6));
    CHECK_NEAR(check_distance(a.dq, b.dq, n * 8), 0, check_tolerance(1e-13, 2e-6));
    CHECK_NEAR(check_distance(a.dk, b.dk, n * 8), 0, check_tolerance(1e-13, 2e-6));
    CHECK_NEAR(check_distance(a.dv, b.dv, n * a.width), 0, check_tolerance(1e-13, 2e-6));
    CHECK(check_largest(b.dk + n * 8, (padded - n) * 8) == 0 &&
          check_largest(b.dv + n * a.width, (padded - n) * a.width) == 0);
    arrays_close(&a), arrays_close(&b);
}

/* Zeros, huge numbers and NaN; one thread and three */
static void check_linear_extremes(cmha_linear_kind kind) {
    arrays a = arrays_open(1, 4, 70, 3, kind == CMHA_LINEAR_ANGULAR, 1);
    cmha_linear_attention_args l = linear_args(&a, kind, REAL, 1);
    size_t values = 280 * a.width, i;
    cmha_real *y = check_zeros(values), *dk = check_zeros(280 * 6);
    run_linear(&a, &l), run_linear_backward(&a, &l);
    memcpy(y, a.y, values * sizeof *y), memcpy(dk, a.dk, 280 * 6 * sizeof *dk);
    l.threads = 1;
    run_linear(&a, &l), run_linear_backward(&a, &l);
    CHECK(!memcmp(y, a.y, values * sizeof *y) && !memcmp(dk, a.dk, 280 * 6 * sizeof *dk));
    l.eps = 0, l.den_eps = 0;
    for (i = 0; i < 30; i++) a.q[i] = a.k[i + 6] = 0;
    for (i = 60; i < 120; i++)
        a.q[i] *= kind == CMHA_LINEAR_ANGULAR ? (cmha_real)1e30 : -300,
            a.k[i] *= kind == CMHA_LINEAR_ANGULAR ? (cmha_real)1e-30 : -300;
    run_linear(&a, &l);
    CHECK(check_finite(a.y, values));
    a.q[12] = (cmha_real)NAN;
    run_linear(&a, &l);
    CHECK(check_finite(a.y, 2 * a.width) && a.y[2 * a.width] != a.y[2 * a.width]);
    free(y), free(dk);
    arrays_close(&a);
}

/* ----------------- the lag core; identity 16: it is the direct sum over pairs of tokens ----------------- */

static cmha_lag_args lag_args(const arrays *a, double temp, size_t topk) {
    cmha_lag_args l;
    memset(&l, 0, sizeof l);
    l.batch = a->B, l.heads = a->H, l.n = a->n, l.d = a->d, l.temp = (cmha_real)temp, l.topk = topk,
    l.eps = (cmha_real)1e-3, l.threads = 2;
    return l;
}

static void run_lag(arrays *a, const cmha_lag_args *l) {
    cmha_attention_views x = array_views(a);
    free(a->saved), free(a->scratch);
    a->saved = check_zeros(a->B * a->H * a->n);
    a->scratch = check_zeros(cmha_lag_attention_scratch(l));
    cmha_lag_attention_forward(l, &x, a->saved, a->scratch);
}

static void run_lag_backward(arrays *a, const cmha_lag_args *l) {
    cmha_attention_views x = array_views(a);
    cmha_lag_attention_backward(l, &x, a->saved, a->scratch);
}

static int token_present(const arrays *a, const cmha_lag_args *l, size_t unit, size_t t) {
    return !l->key_mask || l->key_mask[unit / a->H * a->n + t];
}

/* R of one lag; -infinity where it joins no two tokens */
static double direct_R(const arrays *a, const cmha_lag_args *l, size_t unit, size_t tau) {
    size_t t, j, d = a->d, pairs = 0;
    double sum = 0, e = l->eps;
    for (t = tau; t < a->n; t++) {
        if (!token_present(a, l, unit, t) || !token_present(a, l, unit, t - tau)) continue;
        pairs++;
        for (j = 0; j < d; j++) {
            const cmha_real *q = a->q + (unit * a->n + t) * 2 * d,
                            *k = a->k + (unit * a->n + t - tau) * 2 * d;
            double x = q[j], y = q[d + j], u = k[j], w = k[d + j];
            sum += (x * u + y * w) / sqrt((x * x + y * y + e * e) * (u * u + w * w + e * e));
        }
    }
    return pairs ? sum / (sqrt((double)d) * (double)pairs) : -HUGE_VAL;
}

/* Scores temp R of one head, -infinity where `topk` others are ahead or there is no R */
static void direct_scores(const arrays *a, const cmha_lag_args *l, size_t unit, double *s) {
    size_t tau, other, ahead;
    double *R = (double *)check_alloc(a->n, sizeof *R);
    for (tau = 0; tau < a->n; tau++) R[tau] = direct_R(a, l, unit, tau);
    for (tau = 0; tau < a->n; tau++) {
        for (other = 0, ahead = 0; other < a->n; other++)
            ahead += R[other] > R[tau] || (R[other] == R[tau] && other < tau);
        s[tau] = R[tau] == -HUGE_VAL || (l->topk && ahead >= l->topk) ? -HUGE_VAL : l->temp * R[tau];
    }
    free(R);
}

/* Column c of row t, as an average of the values it sees */
static double direct_y(const arrays *a, const cmha_lag_args *l, size_t unit, const double *s, size_t t,
                       size_t c) {
    double num = 0, den = 0, most = -HUGE_VAL, w;
    size_t tau;
    if (!token_present(a, l, unit, t)) return 0;
    for (tau = 0; tau <= t; tau++)
        if (token_present(a, l, unit, t - tau)) most = fmax(most, s[tau]);
    for (tau = 0; tau <= t && most > -HUGE_VAL; tau++) {
        if (!token_present(a, l, unit, t - tau)) continue;
        w = exp(s[tau] - most), num += w * a->v[(unit * a->n + t - tau) * a->width + c], den += w;
    }
    return den > 0 ? num / den : 0;
}

static double lag_error(const arrays *a, const cmha_lag_args *l) {
    size_t unit, t, c;
    double worst = 0, *s = (double *)check_alloc(a->n, sizeof *s);
    for (unit = 0; unit < a->B * a->H; unit++) {
        direct_scores(a, l, unit, s);
        for (t = 0; t < a->n; t++)
            for (c = 0; c < a->width; c++) {
                double error = fabs(direct_y(a, l, unit, s, t, c) - a->y[(unit * a->n + t) * a->width + c]);
                if (!(error <= worst)) worst = error == error ? error : HUGE_VAL;
            }
    }
    free(s);
    return worst;
}

enum { WHOLE, ENDS, SHORT, HOLES, FRONT, SINGLE, NONE, MASKS };

/* Two sequences: WHOLE no mask; ENDS padding of two lengths; SHORT padded and with holes; HOLES in the
   middle; FRONT padding before; SINGLE one token left; NONE nothing in the first, everything in the second */
static void lag_mask(arrays *a, cmha_lag_args *l, int kind) {
    size_t b, t, n = a->n;
    for (b = 0; b < a->B && kind != WHOLE; b++)
        for (t = 0; t < n; t++) {
            int hole = check_random() < -0.3;
            a->mask[b * n + t] = (unsigned char)(kind == ENDS    ? t < n - b * n / 3 - n / 4
                                                 : kind == SHORT ? t < n - n / 3 && !hole
                                                 : kind == HOLES ? !hole || t + 1 == n
                                                 : kind == FRONT ? t >= n / 3
                                                 : kind == SINGLE ? t == n / 2
                                                                  : b > 0);
            /* anything but 0 is present */
            if (a->mask[b * n + t]) a->mask[b * n + t] = (unsigned char)(1 + t % 2);
        }
    l->key_mask = kind == WHOLE ? NULL : a->mask;
}

/* Nothing comes from an absent token and nothing goes to it */
static void check_lag_absent(const arrays *a, const cmha_lag_args *l) {
    size_t row, wrong = 0, width = a->width;
    for (row = 0; row < a->B * a->H * a->n; row++)
        if (!token_present(a, l, row / a->n, row % a->n))
            wrong += check_largest(a->y + row * width, width) + check_largest(a->dq + row * width, width) +
                         check_largest(a->dk + row * width, width) +
                         check_largest(a->dv + row * width, width) !=
                     0;
    CHECK_THAT(!wrong, "lag core n %zu: %zu absent tokens have a result or a gradient", a->n, wrong);
}

static void check_lag_one(size_t n, size_t d, double temp, size_t topk, int mask) {
    arrays a = arrays_open(2, 2, n, d, 1, 1);
    cmha_lag_args l = lag_args(&a, temp, topk);
    double tolerance = check_tolerance(1e-11, 2e-5) * (1 + temp / 10);
    size_t row, j;
    lag_mask(&a, &l, mask);
    run_lag(&a, &l);
    CHECK_THAT(lag_error(&a, &l) <= tolerance, "lag core n %zu d %zu temp %g topk %zu mask %d: off by %g", n,
               d, temp, topk, mask, lag_error(&a, &l));
    for (row = 0; row < 4 * n; row++) /* what absent tokens hold must not matter */
        for (j = 0; j < 2 * d && !token_present(&a, &l, row / n, row % n); j++)
            a.q[row * 2 * d + j] = a.k[row * 2 * d + j] = a.v[row * 2 * d + j] = a.dy[row * 2 * d + j] =
                (cmha_real)NAN;
    run_lag(&a, &l);
    CHECK(lag_error(&a, &l) <= tolerance);
    run_lag_backward(&a, &l);
    CHECK(check_finite(a.dq, 8 * n * d) && check_finite(a.dk, 8 * n * d) && check_finite(a.dv, 8 * n * d));
    check_lag_absent(&a, &l);
    arrays_close(&a);
}

static void check_lag_definition(void) {
    static const size_t lengths[] = {0, 1, 2, 5, 64, 100}, tops[] = {0, 1, 3, 200};
    size_t i, k;
    int mask;
    for (i = 0; i < sizeof lengths / sizeof *lengths; i++)
        for (k = 0; k < sizeof tops / sizeof *tops; k++)
            for (mask = WHOLE; mask < MASKS; mask++) {
                check_lag_one(lengths[i], 3, 1, tops[k], mask);
                /* weights that differ by more than a transform can hold */
                check_lag_one(lengths[i], 11, 60, tops[k], mask);
                check_lag_one(lengths[i], 8, 2000, tops[k], mask);
            }
}

/* The token-major rows [row, row + n) of head h of `from`, as head h of the one sequence of `to` */
static void lag_rows_copy(const arrays *from, size_t b, size_t skip, arrays *to) {
    size_t h, row = from->width, n = to->n * row;
    for (h = 0; h < to->H; h++) {
        size_t at = ((b * from->H + h) * from->n + skip) * row;
        memcpy(to->q + h * n, from->q + at, n * sizeof *to->q),
            memcpy(to->k + h * n, from->k + at, n * sizeof *to->k);
        memcpy(to->v + h * n, from->v + at, n * sizeof *to->v),
            memcpy(to->dy + h * n, from->dy + at, n * sizeof *to->dy);
    }
}

/* Sequence b of `a`, its tokens skip.., against the same tokens alone */
static void check_lag_alone(const arrays *a, const cmha_lag_args *l, size_t b, size_t skip, size_t n,
                            double tolerance) {
    arrays one = arrays_open(1, a->H, n, a->d, 1, 1);
    cmha_lag_args lone = lag_args(&one, l->temp, l->topk);
    size_t h, m = n * a->width;
    lag_rows_copy(a, b, skip, &one);
    run_lag(&one, &lone), run_lag_backward(&one, &lone);
    for (h = 0; h < a->H; h++) {
        size_t at = ((b * a->H + h) * a->n + skip) * a->width;
        CHECK_NEAR(check_distance(one.y + h * m, a->y + at, m), 0, tolerance);
        CHECK_NEAR(check_distance(one.dq + h * m, a->dq + at, m), 0,
                   tolerance * (1 + check_largest(one.dq, a->H * m)));
        CHECK_NEAR(check_distance(one.dk + h * m, a->dk + at, m), 0,
                   tolerance * (1 + check_largest(one.dk, a->H * m)));
        CHECK_NEAR(check_distance(one.dv + h * m, a->dv + at, m), 0,
                   tolerance * (1 + check_largest(one.dv, a->H * m)));
    }
    arrays_close(&one);
}

/* A batch of two lengths equals each of them alone: to the bit with the padding at the
   end, to rounding with it in front */
static void check_lag_padding(double temp, size_t topk, int front) {
    arrays a = arrays_open(2, 3, 70, 5, 1, 1);
    cmha_lag_args l = lag_args(&a, temp, topk);
    size_t b, t, n[2] = {41, 64};
    for (b = 0; b < 2; b++)
        for (t = 0; t < a.n; t++) a.mask[b * a.n + t] = front ? t >= a.n - n[b] : t < n[b];
    l.key_mask = a.mask;
    run_lag(&a, &l), run_lag_backward(&a, &l);
    for (b = 0; b < 2; b++)
        check_lag_alone(&a, &l, b, front ? a.n - n[b] : 0, n[b],
                        front ? check_tolerance(1e-11, 1e-6) * (1 + temp) : 0);
    for (t = 0; t < 3 * a.n; t++) /* of the shorter sequence no lag that reaches out of it */
        if (t % a.n >= n[0]) CHECK(a.saved[t] < -(cmha_real)FLT_MAX);
    arrays_close(&a);
}

/* A mask of all ones is no mask, and rows with holes behind them are weighed by the
   tokens they see, however little that is */
static void check_lag_masks(void) {
    arrays a = arrays_open(1, 2, 30, 4, 1, 1);
    cmha_lag_args l = lag_args(&a, 3, 0);
    cmha_real *y = check_zeros(60 * 8);
    size_t t;
    run_lag(&a, &l);
    memcpy(y, a.y, 60 * 8 * sizeof *y);
    l.key_mask = a.mask;
    run_lag(&a, &l);
    CHECK(!memcmp(y, a.y, 60 * 8 * sizeof *y));
    for (t = 0; t < 30; t++) a.mask[t] = t != 3 && t != 17;
    /* lag 3 outweighs all others */
    for (t = 3; t < 60; t++) memcpy(a.q + t * 8, a.k + (t - 3) * 8, 8 * sizeof *a.q);
    l.temp = 200;
    run_lag(&a, &l);
    CHECK_NEAR(lag_error(&a, &l), 0, check_tolerance(1e-10, 4e-4));
    CHECK(check_largest(a.y + 20 * 8, 8) > 0 && check_largest(a.y + 6 * 8, 8) > 0 &&
          check_largest(a.y + 17 * 8, 8) == 0);
    free(y);
    arrays_close(&a);
}

/* A signal of period 7 has R = its maximum at every multiple of 7: of equal lags the lowest are chosen */
static void check_lag_ties(void) {
    arrays a = arrays_open(1, 1, 100, 4, 1, 1);
    cmha_lag_args l = lag_args(&a, 1, 5);
    size_t t;
    for (t = 7; t < a.n; t++) memcpy(a.q + t * 8, a.q + (t - 7) * 8, 8 * sizeof *a.q);
    memcpy(a.k, a.q, a.n * 8 * sizeof *a.q);
    l.eps = 0;
    run_lag(&a, &l);
    for (t = 0; t < a.n; t++) CHECK((a.saved[t] > -(cmha_real)FLT_MAX) == (t % 7 == 0 && t < 35));
    arrays_close(&a);
}

/* Phasors far shorter than 1, as where eps is large, are no ties */
static void check_lag_short(void) {
    arrays a = arrays_open(1, 2, 33, 3, 1, 1);
    cmha_lag_args l = lag_args(&a, 1, 5);
    double error;
    l.eps = (cmha_real)check_tolerance(1e6, 1e3);
    run_lag(&a, &l);
    error = lag_error(&a, &l);
    CHECK_THAT(error <= check_tolerance(1e-11, 2e-5), "lag core, short phasors: off by %g", error);
    for (size_t i = 0; i < 2 * a.n * 2 * a.d; i++) a.q[i] = 0; /* all R are 0: the lowest lags */
    run_lag(&a, &l);
    for (size_t t = 0; t < 2 * a.n; t++) CHECK((a.saved[t] > -(cmha_real)FLT_MAX) == (t % a.n < 5));
    arrays_close(&a);
}

/* Lags 3 and 5 are chosen: the first queries and the last keys have no partner, and rounding divided by eps
   is no gradient of theirs */
static void check_lag_partners(void) {
    arrays a = arrays_open(1, 1, 40, 4, 1, 1);
    cmha_lag_args l = lag_args(&a, 1, 2);
    size_t row = 2 * a.d, i;
    for (i = 0; i < a.n * row; i++) {
        if (i >= (a.n - 3) * row) a.k[i] = 0;
        a.q[i] = i < 3 * row ? 0 : a.k[i - 3 * row] + (i < 5 * row ? 0 : a.k[i - 5 * row]);
    }
    l.eps = (cmha_real)1e-12;
    run_lag(&a, &l), run_lag_backward(&a, &l);
    for (i = 0; i < a.n; i++) CHECK((a.saved[i] > -(cmha_real)FLT_MAX) == (i == 3 || i == 5));
    CHECK(check_largest(a.dq, 3 * row) == 0 && check_largest(a.dq + 3 * row, row) > 0);
    CHECK(check_largest(a.dk + (a.n - 3) * row, 3 * row) == 0);
    CHECK(check_largest(a.dk + (a.n - 4) * row, row) > 0);
    arrays_close(&a);
}

static void check_lag_extremes(void) {
    arrays a = arrays_open(1, 3, 40, 3, 1, 1);
    cmha_lag_args l = lag_args(&a, 1, 4);
    cmha_real *y = check_zeros(120 * 6);
    size_t i;
    run_lag(&a, &l);
    memcpy(y, a.y, 120 * 6 * sizeof *y);
    l.threads = 1;
    run_lag(&a, &l);
    CHECK(!memcmp(y, a.y, 120 * 6 * sizeof *y));
    l.eps = 0;
    for (i = 0; i < 120; i++) a.q[i] = 0, a.k[240 + i] *= (cmha_real)1e30;
    run_lag(&a, &l);
    CHECK(check_finite(a.y, 120 * 6));
    a.k[7] = (cmha_real)NAN;
    run_lag(&a, &l);
    CHECK(a.y[100] != a.y[100] && check_finite(a.y + 240, 480));
    free(y);
    arrays_close(&a);
}

/* ---------------------------------------- where the arrays lie ------------------------------------------ */

/* Softmax attention forwards and backwards, every array and the scratch `off` numbers behind a line of cache;
   returns y, dq, dk and dv, which go on from numbers that are not 0. */
static cmha_real *run_softmax(size_t n, size_t d, int complex_v, size_t off) {
    size_t H = 2, planes = complex_v ? 2 : 1, size = H * n * d * planes, i, scratch;
    cmha_attention_args a;
    cmha_attention_views x;
    cmha_heads *const views[8] = {&x.y, &x.dq, &x.dk, &x.dv, &x.q, &x.k, &x.v, &x.dy};
    size_t room = size + 32 - size % 16;
    cmha_rng rng = cmha_rng_make(7, n);
    cmha_real *memory, *at, *work;
    cmha_lse *lse = (cmha_lse *)calloc(H * n, sizeof *lse);
    memset(&a, 0, sizeof a);
    a.batch = 1, a.heads = a.kv_heads = H, a.n_q = a.n_k = n, a.d_k = a.d_v = d, a.scale = (cmha_real)0.4;
    a.causal = a.threads = 1, a.complex_v = complex_v, a.softmax = CMHA_SOFTMAX_RI_PRODUCT;
    a.kind = complex_v ? CMHA_ATTENTION_COMPLEX : CMHA_ATTENTION_DOT;
    scratch = cmha_attention_scratch(&a, 0) + cmha_attention_scratch(&a, 1);
    memory = (cmha_real *)calloc(8 * room + scratch + 64, sizeof *memory);
    at = memory + (64 - (uintptr_t)memory % 64) % 64 / sizeof *memory + off;
    for (i = 0; i < 8; i++) {
        *views[i] = cmha_heads_by_head(at + i * room, H, n, d, complex_v);
        for (size_t j = 0; j < size; j++) at[i * room + j] = (cmha_real)cmha_rng_normal(&rng);
    }
    work = at + 8 * room;
    cmha_attention_forward(&a, &x, lse, work);
    cmha_attention_backward(&a, &x, lse, NULL, NULL, work);
    at = (cmha_real *)calloc(4 * size, sizeof *at);
    for (i = 0; i < 4; i++) memcpy(at + i * size, views[i]->data, size * sizeof *at);
    free(memory), free(lse);
    return at;
}

static void check_alignment(size_t n, size_t d, int complex_v) {
    size_t size = 8 * n * d * (complex_v ? 2 : 1), off;
    cmha_real *aligned = run_softmax(n, d, complex_v, 0);
    CHECK(check_finite(aligned, size) && check_largest(aligned, size) > 0);
    for (off = 1; off < 8; off += 3) {
        cmha_real *moved = run_softmax(n, d, complex_v, off);
        CHECK(!memcmp(aligned, moved, size * sizeof *moved));
        free(moved);
    }
    free(aligned);
}

/* An allocator's memory lies anywhere that malloc's may; the library's numbers begin on lines of cache. */
static void check_blocks(void) {
    static const cmha_parameter_row row = {"w", {5, 7, 0, 0}, 0, 1, 0, 0};
    cmha_context context;
    cmha_parameters p;
    cmha_tape tape;
    size_t shape = 3;
    CHECK_OK(cmha_context_init(&context, NULL));
    CHECK_OK(cmha_parameters_init(&p, &context, &row, 1));
    CHECK_OK(cmha_tape_init(&tape, &context, 0));
    CHECK((uintptr_t)p.data % 64 == 0 && (uintptr_t)p.grad % 64 == 0);
    CHECK((uintptr_t)cmha_tensor_new(&tape, 1, &shape, 0)->data % 64 == 0);
    cmha_tape_close(&tape);
    cmha_parameters_close(&p);
    cmha_context_close(&context);
}

/* ------------------------------------------- memory and tape -------------------------------------------- */

static void check_memory(void) {
    size_t n, linear[3], lag[3];
    arrays a;
    int i;
    memset(&a, 0, sizeof a);
    a.B = 1, a.H = 2, a.d = 16;
    for (n = 1024, i = 0; n <= 4096; n *= 2, i++) {
        cmha_linear_attention_args l = linear_args(&a, CMHA_LINEAR_ANGULAR, REAL, 1);
        cmha_lag_args g = lag_args(&a, 1, 0);
        l.n = g.n = n;
        linear[i] = cmha_linear_attention_scratch(&l, 1), lag[i] = cmha_lag_attention_scratch(&g);
        CHECK(cmha_linear_attention_saved(&l) == 2 * n);
    }
    CHECK(linear[0] == linear[1] && linear[1] == linear[2]);
    CHECK(lag[1] <= 2 * lag[0] + 64 && lag[2] <= 2 * lag[1] + 64);
}

/* The fused projection and three tensors hold the same numbers in another order */
static void check_tape(cmha_context *context, int lag) {
    static const unsigned char mask[18] = {1, 1, 0, 1, 1, 1, 1, 0, 0, 1, 1, 1, 1, 1, 0, 0, 0, 0};
    size_t B = 2, N = 9, H = 2, d = 3, Hd = H * d, shape[3], i, part, t;
    cmha_tape tape;
    cmha_tensor *fused, *one[3], *y, *z;
    cmha_linear_attention_args l;
    cmha_lag_args g;
    memset(&l, 0, sizeof l), memset(&g, 0, sizeof g);
    l.kind = CMHA_LINEAR_ANGULAR, l.heads = g.heads = H, l.causal = 1, l.eps = g.eps = (cmha_real)1e-3,
    g.temp = 2, g.key_mask = mask;
    CHECK_OK(cmha_tape_init(&tape, context, 0));
    shape[0] = B, shape[1] = N, shape[2] = 6 * Hd;
    fused = cmha_tensor_new(&tape, 3, shape, 0);
    shape[2] = 2 * Hd;
    for (i = 0; i < 3; i++) {
        one[i] = cmha_tensor_new(&tape, 3, shape, 0);
        check_fill(one[i]->data, one[i]->size, 1);
        for (t = 0; t < B * N; t++)
            for (part = 0; part < 2; part++)
                memcpy(fused->data + t * 6 * Hd + part * 3 * Hd + i * Hd,
                       one[i]->data + t * 2 * Hd + part * Hd, Hd * sizeof *fused->data);
    }
    y = lag ? cmha_lag_attention(&tape, &g, fused, NULL, NULL)
            : cmha_linear_attention(&tape, &l, fused, NULL, NULL);
    z = lag ? cmha_lag_attention(&tape, &g, one[0], one[1], one[2])
            : cmha_linear_attention(&tape, &l, one[0], one[1], one[2]);
    CHECK(y && z && y->shape[2] == 2 * Hd && !memcmp(y->data, z->data, y->size * sizeof *y->data) &&
          check_largest(y->data, y->size) > 0);
    for (t = 0; t < B * N && lag; t++) CHECK((check_largest(y->data + t * 2 * Hd, 2 * Hd) > 0) == mask[t]);
    cmha_tape_close(&tape);
}

static void check_refusals(cmha_context *context) {
    size_t shape[3] = {1, 4, 12}, narrow[3] = {1, 4, 5}, few[3] = {1, 3, 12};
    cmha_linear_attention_args l;
    cmha_lag_args g;
    cmha_tape tape;
    int i;
    memset(&l, 0, sizeof l), memset(&g, 0, sizeof g);
    l.heads = g.heads = 2;
    CHECK_OK(cmha_tape_init(&tape, context, 0));
    for (i = 0; i < 7; i++) {
        cmha_tensor *q = cmha_tensor_new(&tape, 3, shape, 0), *thin = cmha_tensor_new(&tape, 3, narrow, 0),
                    *y;
        cmha_tensor *less = cmha_tensor_new(&tape, 3, few, 0);
        l.heads = i == 5 ? 0 : 2;
        /* CoPE's real values cannot be fused */
        y = i == 0   ? cmha_linear_attention(&tape, &l, q, NULL, NULL)
            : i == 1 ? cmha_linear_attention(&tape, &l, q, thin, q)
            : i == 2 ? cmha_linear_attention(&tape, &l, q, q, thin)
            : i == 3 ? cmha_linear_attention(&tape, &l, q, q, less)
            : i == 4 ? cmha_lag_attention(&tape, &g, thin, NULL, NULL)
            : i == 5 ? cmha_linear_attention(&tape, &l, q, q, q)
                     : cmha_lag_attention(&tape, &g, q, q, NULL);
        CHECK(!y && cmha_tape_status(&tape) == CMHA_ERR_SHAPE && cmha_error(context)[0]);
        cmha_tape_reset(&tape);
    }
    cmha_tape_close(&tape);
}

int main(int argc, char **argv) {
    cmha_context context;
    int causal, output;
    (void)argc;
    cmha_blas_restart(argv);
    CHECK_OK(cmha_context_init(&context, NULL));
    check_linear_definition();
    check_value_width();
    for (output = REAL; output <= HYBRID; output++) check_append(CMHA_LINEAR_COPE, output);
    check_append(CMHA_LINEAR_ANGULAR, REAL);
    for (causal = 0; causal < 2; causal++)
        check_padding(CMHA_LINEAR_COPE, causal), check_padding(CMHA_LINEAR_ANGULAR, causal);
    check_linear_extremes(CMHA_LINEAR_COPE), check_linear_extremes(CMHA_LINEAR_ANGULAR);
    check_lag_definition();
    check_lag_padding(1, 0, 0), check_lag_padding(40, 7, 0), check_lag_padding(1, 0, 1),
        check_lag_padding(40, 7, 1);
    check_lag_masks();
    check_lag_ties();
    check_lag_short();
    check_lag_partners();
    check_lag_extremes();
    check_memory();
    check_alignment(130, 16, 0), check_alignment(70, 24, 0), check_alignment(67, 16, 1);
    check_alignment(1030, 16, 0); /* in pieces */
    check_blocks();
    check_tape(&context, 0), check_tape(&context, 1);
    check_refusals(&context);
    cmha_context_close(&context);
    return check_end();
}
