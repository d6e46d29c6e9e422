/* Attention of complex queries and keys: its definition, written out in double, against the tiles; the
   identities that hold between its forms; extremes. */
#include "oracle_phases.h"

static cmha_context context;

/* -------------------------------------------- the definition -------------------------------------------- */

/* max |a - b| over 1 + max |b| */
static double off(const cmha_real *a, const double *b, size_t n) {
    double worst = 0, largest = 0, d;
    size_t i;
    for (i = 0; i < n; i++) {
        d = fabs((double)a[i] - b[i]);
        if (!(d <= worst)) worst = d == d ? d : HUGE_VAL;
        if (fabs(b[i]) > largest) largest = fabs(b[i]);
    }
    return worst / (1 + largest);
}

static void against_oracle(const phase_form *f, const phase_shape *s, int hot) {
    double forward = check_tolerance(1e-12, 1e-5), backward = check_tolerance(1e-10, 5e-5);
    phase_problem p;
    phase_oracle o;
    char label[160];
    phase_label(f, s, label, sizeof label);
    phase_open(&p, f, s);
    if (hot) phase_heat(&p);
    phase_forward(&p);
    phase_backward(&p, p.dq, p.dk, p.dv);
    phase_oracle_run(&p, &o);
    if (hot)
        CHECK_THAT(off(p.dlog_temp, o.dlog_temp, s->H) <= backward, "%s: dlog_temp is %.3g off", label,
                   off(p.dlog_temp, o.dlog_temp, s->H));
    CHECK_THAT(off(p.y, o.y, p.ny) <= forward, "%s: y is %.3g off", label, off(p.y, o.y, p.ny));
    if (!p.several)
        CHECK_THAT(off(p.lse, o.lse, p.nl) <= forward, "%s: lse is %.3g off", label, off(p.lse, o.lse, p.nl));
    CHECK_THAT(off(p.dq, o.dq, p.nq) <= backward, "%s: dq is %.3g off", label, off(p.dq, o.dq, p.nq));
    CHECK_THAT(off(p.dk, o.dk, p.nkk) <= backward, "%s: dk is %.3g off", label, off(p.dk, o.dk, p.nkk));
    CHECK_THAT(off(p.dv, o.dv, p.nv) <= backward, "%s: dv is %.3g off", label, off(p.dv, o.dv, p.nv));
    phase_oracle_close(&o);
    phase_close(&p);
}

static void definition(void) {
    static const phase_shape shapes[] = {
        /* B  H Hkv n_q n_k d_k d_v tokens causal mask alibi window dropout threads */
        {2, 2, 1, 1, 1, 4, 3, 1, 0, 0, 0, 0, 0, 1},      {1, 4, 2, 63, 63, 5, 6, 0, 1, 0, 0, 0, 0, 2},
        {2, 2, 2, 64, 64, 8, 8, 1, 0, 1, 0, 0, 0, 2},    {1, 4, 1, 65, 65, 3, 5, 1, 1, 2, 1, 0, 0, 1},
        {2, 2, 1, 129, 129, 4, 4, 0, 1, 1, 0, 70, 0, 2}, {1, 2, 2, 200, 200, 7, 3, 1, 0, 2, 0, 0, 0, 1},
        {1, 2, 1, 200, 200, 4, 9, 1, 1, 0, 1, 64, 0, 2}, {2, 2, 1, 3, 200, 4, 4, 0, 1, 1, 0, 0, 0, 1},
        {1, 2, 1, 65, 129, 4, 4, 1, 1, 0, 0, 0, 0.3, 2}, {1, 2, 2, 129, 64, 4, 4, 0, 1, 0, 0, 0, 0, 1},
        {2, 4, 2, 66, 70, 4, 4, 1, 0, 2, 1, 0, 0.2, 3},
    };
    size_t i, s;
    for (i = 0; i < PHASE_FORMS; i++)
        for (s = 0; s < sizeof shapes / sizeof *shapes; s++)
            if (!check_quick() || (i + s) % 6 == 0)
                against_oracle(&phase_forms[i], &shapes[s], (int)(i + s) % 2);
}

/* ---------------------------------------------- identities ---------------------------------------------- */

/* log of the weights, whole: y with the identity as values. Returns [B, H, n, n] of
   softmax(es) `plane` (1: the imaginary part) */
static cmha_real *log_weights(phase_problem *p, int plane) {
    const cmha_attention_args *a = &p->args;
    size_t rows = p->nl, n = a->n_k, width = a->complex_v ? 2 * n : n, i, j;
    cmha_real *out = check_zeros(rows * n);
    memset(p->v, 0, p->nv * sizeof *p->v);
    for (i = 0; i < a->batch * a->kv_heads * n; i++) p->v[i * width + i % n] = 1;
    phase_forward(p);
    for (i = 0; i < rows; i++)
        for (j = 0; j < n; j++)
            out[i * n + j] = (cmha_real)log((double)p->y[i * width + (plane ? n : 0) + j]);
    return out;
}

/* Identity 7. With q = k, A is Hermitian: A_pq = conj(A_qp), and its diagonal is |q|^2. The scores
   inherit it: Re A and |A| are symmetric, Im A, from the imaginary softmax's weights and less the
   diagonal (which is zero), antisymmetric. */
static void hermitian(const char *name) {
    phase_shape s = {1, 2, 2, 67, 67, 3, 67, 0, 0, 0, 0, 0, 0, 2};
    const phase_form *f = phase_find(name);
    int odd = f->softmax == CMHA_SOFTMAX_RI_PRODUCT;
    double tolerance = check_tolerance(1e-11, 1e-4), worst = 0, diagonal = 0;
    phase_problem p;
    cmha_real *S;
    size_t h, i, j, c;
    phase_open(&p, f, &s);
    for (i = 0; i < p.nq; i++) p.q[i] *= (cmha_real)0.7;
    memcpy(p.k, p.q, p.nq * sizeof *p.q);
    S = log_weights(&p, odd);
    for (h = 0; h < 2; h++)
        for (i = 0; i < 67; i++) {
            cmha_real *row = S + (h * 67 + i) * 67, base = odd ? row[i] : -p.lse[h * 67 + i];
            double size = 0, want;
            for (j = 0; j < 67; j++) row[j] -= base;
            for (c = 0; c < 6; c++) size += pow((double)p.q[(h * 67 + i) * 6 + c], 2);
            want = f->cope == CMHA_COPE_SCORE_PHASE ? 1 : odd ? 0 : size;
            diagonal =
                fmax(diagonal,
                     fabs((double)row[i] -
                          want / (f->cope == CMHA_COPE_SCORE_PHASE ? hypot(1, 0.1 / size) : 1) / sqrt(3.0)));
        }
    for (h = 0; h < 2; h++)
        for (i = 0; i < 67; i++)
            for (j = 0; j < i; j++) {
                double one = (double)S[(h * 67 + i) * 67 + j], other = (double)S[(h * 67 + j) * 67 + i];
                worst = fmax(worst, fabs(odd ? one + other : one - other));
            }
    CHECK_THAT(worst <= tolerance && diagonal <= tolerance,
               "%s of q and q: %.3g from Hermitian, diagonal %.3g off", name, worst, diagonal);
    CHECK(check_largest(S, 67 * 67) > 0.1);
    free(S);
    phase_close(&p);
}

/* Identity 8. CoPE `real` and ordinary attention of the rows [Re | Im] are the same calls on the same
   numbers */
static void real_is_dot(int masked, double dropout) {
    phase_shape s = {2, 4, 2, 70, 133, 5, 6, 0, 1, 1, 0, 0, 0, 2};
    phase_problem p;
    cmha_attention_args a;
    cmha_real *y, *dq, *dk, *dv, *scratch;
    cmha_lse *pairs;
    cmha_attention_views x;
    s.mask = masked, s.dropout = dropout;
    phase_open(&p, phase_find("cope real"), &s);
    phase_forward(&p);
    phase_backward(&p, p.dq, p.dk, p.dv);
    a = p.args, a.kind = CMHA_ATTENTION_DOT, a.d_k = 10;
    y = check_zeros(p.ny), pairs = (cmha_lse *)check_alloc(p.nl, sizeof *pairs), dq = check_zeros(p.nq),
    dk = check_zeros(p.nkk), dv = check_zeros(p.nv);
    scratch = check_zeros(cmha_attention_scratch(&a, 1));
    x.q = cmha_heads_by_head(p.q, 4, 70, 10, 0), x.dq = cmha_heads_by_head(dq, 4, 70, 10, 0);
    x.k = cmha_heads_by_head(p.k, 2, 133, 10, 0), x.dk = cmha_heads_by_head(dk, 2, 133, 10, 0);
    x.v = cmha_heads_by_head(p.v, 2, 133, 6, 0), x.dv = cmha_heads_by_head(dv, 2, 133, 6, 0);
    x.y = cmha_heads_by_head(y, 4, 70, 6, 0), x.dy = cmha_heads_by_head(p.dy, 4, 70, 6, 0);
    cmha_attention_forward(&a, &x, pairs, scratch);
    cmha_attention_backward(&a, &x, pairs, p.dlse, NULL, scratch);
    CHECK(check_distance(y, p.y, p.ny) == 0 && phase_lse_distance(pairs, p.pairs, p.nl) == 0);
    CHECK(check_distance(dq, p.dq, p.nq) == 0 && check_distance(dk, p.dk, p.nkk) == 0 &&
          check_distance(dv, p.dv, p.nv) == 0);
    free(y), free(pairs), free(dq), free(dk), free(dv), free(scratch);
    phase_close(&p);
}

/* MöbiusAttention's REAL takes the complex values plane by plane: CoPE `real` of Re v, and of Im v. And
   without the conjugate it is itself with conjugate keys. */
static void planes_of_real(void) {
    phase_shape s = {1, 2, 1, 70, 70, 4, 3, 0, 1, 1, 0, 0, 0, 2};
    double tolerance = check_tolerance(1e-13, 1e-6);
    phase_problem p, r;
    cmha_real *both;
    size_t plane, i, j;
    phase_open(&p, phase_find("real"), &s);
    phase_forward(&p);
    for (plane = 0; plane < 2; plane++) {
        phase_open(&r, phase_find("cope real"), &s);
        memcpy(r.q, p.q, p.nq * sizeof *p.q), memcpy(r.k, p.k, p.nkk * sizeof *p.k),
            memcpy(r.mask, p.mask, 70);
        for (i = 0; i < 70; i++)
            for (j = 0; j < 3; j++) r.v[i * 3 + j] = p.v[i * 6 + plane * 3 + j];
        phase_forward(&r);
        for (i = 0; i < p.nl; i++)
            CHECK(check_distance(r.y + i * 3, p.y + i * 6 + plane * 3, 3) <= tolerance);
        phase_close(&r);
    }
    both = check_zeros(p.ny);
    memcpy(both, p.y, p.ny * sizeof *both);
    for (i = 0; i < 70; i++)
        for (j = 0; j < 4; j++) p.k[i * 8 + 4 + j] = -p.k[i * 8 + 4 + j];
    p.args.bilinear = 1;
    phase_forward(&p);
    CHECK(check_distance(both, p.y, p.ny) <= tolerance);
    free(both);
    phase_close(&p);
}

/* Identity 9. Does what happens to sequence 1, or (causal) to token `later` of sequence 0, show in the output
   of sequence 0 before it? */
static double leak(const char *name, int causal, int other_sequence) {
    enum { N = 70, LATER = 66, D = 4 };
    phase_shape s = {2, 2, 2, N, N, D, 3, 0, 0, 0, 0, 0, 0, 2};
    phase_problem p;
    cmha_real *before;
    double worst = 0;
    size_t h, first, row, i;
    s.causal = causal;
    phase_open(&p, phase_find(name), &s);
    row = p.ny / p.nl;
    before = check_zeros(p.ny);
    phase_forward(&p);
    memcpy(before, p.y, p.ny * sizeof *before);
    for (h = 0; h < 2; h++) {
        first = ((other_sequence ? 2 : 0) + h) * N + LATER;
        for (i = 0; i < 2 * D; i++) p.q[first * 2 * D + i] *= 9, p.k[first * 2 * D + i] *= 9;
    }
    phase_forward(&p);
    for (h = 0; h < 2; h++)
        worst = fmax(worst, check_distance(before + h * N * row, p.y + h * N * row,
                                           (other_sequence ? N : LATER) * row));
    free(before);
    phase_close(&p);
    return worst;
}

/* A sample in a batch is the sample alone */
static void batch_mates(const char *name, int expect) {
    phase_shape s = {3, 2, 1, 66, 66, 4, 3, 0, 0, 1, 0, 0, 0, 2}, one = s;
    phase_problem p, r;
    size_t b, nq, nk, nv, ny;
    double worst = 0;
    one.B = 1;
    phase_open(&p, phase_find(name), &s);
    phase_forward(&p), phase_backward(&p, p.dq, p.dk, p.dv);
    for (b = 0; b < 3; b++) {
        phase_open(&r, phase_find(name), &one);
        nq = r.nq, nk = r.nkk, nv = r.nv, ny = r.ny;
        memcpy(r.q, p.q + b * nq, nq * sizeof *r.q), memcpy(r.k, p.k + b * nk, nk * sizeof *r.k);
        memcpy(r.v, p.v + b * nv, nv * sizeof *r.v), memcpy(r.dy, p.dy + b * ny, ny * sizeof *r.dy);
        memcpy(r.mask, p.mask + b * 66, 66), memcpy(r.dlse, p.dlse + b * r.nl, r.nl * sizeof *r.dlse);
        phase_forward(&r), phase_backward(&r, r.dq, r.dk, r.dv);
        worst = fmax(worst, check_distance(r.y, p.y + b * ny, ny));
        worst =
            fmax(worst, check_distance(r.dq, p.dq + b * nq, nq) + check_distance(r.dk, p.dk + b * nk, nk));
        phase_close(&r);
    }
    CHECK_THAT(expect ? worst > 1e-4 : worst == 0, "%s: batch mates change the result by %.3g", name, worst);
    phase_close(&p);
}

static void leaks(void) {
    size_t i;
    for (i = 0; i < PHASE_FORMS; i++) {
        const phase_form *f = &phase_forms[i];
        int head = f->norm_max == CMHA_NORM_MAX_HEAD, global = f->norm_max == CMHA_NORM_MAX_GLOBAL;
        CHECK_THAT(!head && !global ? leak(f->name, 1, 0) == 0 : leak(f->name, 1, 0) > 1e-4,
                   "%s: the future, %.3g", f->name, leak(f->name, 1, 0));
        CHECK_THAT(!global ? leak(f->name, 0, 1) == 0 : leak(f->name, 0, 1) > 1e-4, "%s: batch mates, %.3g",
                   f->name, leak(f->name, 0, 1));
        batch_mates(f->name, global);
    }
}

/* Identities 14 and 28. Angular attention is ordinary attention of the unit phasors, and does not see how
   large a channel is, nor with arctan its sign */
static void phasors(const char *name) {
    phase_shape s = {2, 2, 1, 66, 129, 5, 3, 0, 1, 1, 0, 0, 0, 2};
    double tolerance = check_tolerance(1e-12, 1e-5);
    phase_problem p, r;
    cmha_real *x[2], *y;
    size_t n[2], i, j;
    int side;
    phase_open(&p, phase_find(name), &s);
    phase_forward(&p);
    phase_open(&r, phase_find("real"), &s);
    x[0] = r.q, x[1] = r.k, n[0] = p.nq, n[1] = p.nkk;
    memcpy(r.q, p.q, p.nq * sizeof *p.q), memcpy(r.k, p.k, p.nkk * sizeof *p.k),
        memcpy(r.v, p.v, p.nv * sizeof *p.v);
    memcpy(r.mask, p.mask, 2 * 129);
    for (side = 0; side < 2; side++)
        for (i = 0; i < n[side]; i += 10)
            for (j = i; j < i + 5; j++) {
                double re = (double)x[side][j], im = (double)x[side][j + 5];
                double angle = p.args.angle ? atan(im / re) : atan2(im, re);
                x[side][j] = (cmha_real)cos(angle), x[side][j + 5] = (cmha_real)sin(angle);
            }
    phase_forward(&r);
    CHECK_THAT(check_distance(p.y, r.y, p.ny) <= tolerance, "%s is %.3g from the phasors' attention", name,
               check_distance(p.y, r.y, p.ny));
    CHECK(check_distance(p.lse, r.lse, p.nl) <= 10 * tolerance);
    y = check_zeros(p.ny), memcpy(y, p.y, p.ny * sizeof *y);
    x[0] = p.q, x[1] = p.k;
    for (side = 0; side < 2; side++)
        for (i = 0; i < n[side]; i += 10)
            for (j = i; j < i + 5; j++) {
                cmha_real factor = (cmha_real)exp(5 * check_random() + 5);
                if (p.args.angle && check_below(2)) factor = -factor;
                x[side][j] *= factor, x[side][j + 5] *= factor;
            }
    phase_forward(&p);
    CHECK_THAT(check_distance(p.y, y, p.ny) <= tolerance, "rescaled channels change the angles by %.3g",
               check_distance(p.y, y, p.ny));
    free(y);
    phase_close(&p), phase_close(&r);
}

/* hybrid_norm does not see a common factor of all queries or keys, its gradient the inverse of it.
   A power of two is one exactly. */
static void scale_free(cmha_norm_max norm_max, double factor) {
    phase_shape s = {2, 2, 1, 66, 66, 4, 3, 0, 1, 1, 0, 0, 0, 2};
    phase_problem p;
    cmha_real *y, *dq, *dk;
    size_t i;
    phase_open(&p, phase_find("cope hybrid_norm row"), &s);
    p.args.norm_max = norm_max, p.args.eps = 0;
    y = check_zeros(p.ny), dq = check_zeros(p.nq), dk = check_zeros(p.nkk);
    phase_forward(&p), phase_backward(&p, dq, dk, p.dv);
    memcpy(y, p.y, p.ny * sizeof *y);
    for (i = 0; i < p.nq; i++) p.q[i] *= (cmha_real)factor;
    for (i = 0; i < p.nkk; i++) p.k[i] *= (cmha_real)factor;
    phase_forward(&p), phase_backward(&p, p.dq, p.dk, p.dv);
    for (i = 0; i < p.nq; i++) p.dq[i] *= (cmha_real)factor;
    for (i = 0; i < p.nkk; i++) p.dk[i] *= (cmha_real)factor;
    CHECK_THAT(check_distance(y, p.y, p.ny) <= check_tolerance(1e-10, 1e-5),
               "norm_max %d: y changes by %.3g with the scale", norm_max, check_distance(y, p.y, p.ny));
    CHECK_THAT(check_distance(dq, p.dq, p.nq) + check_distance(dk, p.dk, p.nkk) <=
                   check_tolerance(1e-9, 1e-4),
               "norm_max %d: gradients change by %.3g with the scale %g", norm_max,
               check_distance(dq, p.dq, p.nq) + check_distance(dk, p.dk, p.nkk), factor);
    free(y), free(dq), free(dk);
    phase_close(&p);
}

/* Where Re z = 0, of either sign, arctan takes the sign of Im z; 0 is absent */
static void on_the_axis(void) {
    static const double z[6][2] = {{0, 2}, {0, -2}, {-0.0, 2}, {-0.0, -2}, {0, 0}, {-3, 0}};
    static const double phase[6][2] = {{0, 1}, {0, -1}, {0, 1}, {0, -1}, {0, 0}, {1, 0}};
    phase_shape s = {1, 1, 1, 6, 6, 1, 1, 0, 0, 0, 0, 0, 0, 1};
    phase_problem p;
    size_t i, j;
    phase_open(&p, phase_find("arctan"), &s);
    for (i = 0; i < 12; i++) p.q[i] = p.k[i] = (cmha_real)z[i / 2][i % 2];
    phase_forward(&p);
    for (i = 0; i < 6; i++) {
        double sum = 0;
        for (j = 0; j < 6; j++) sum += exp(phase[i][0] * phase[j][0] + phase[i][1] * phase[j][1]);
        CHECK_NEAR(p.lse[i], log(sum), 1e-5);
    }
    phase_close(&p);
}

/* Identity 29. A temperature is a scale of the head's own, biases included, also of scores that are no
   products */
static void temperatures(void) {
    phase_shape s = {2, 4, 2, 66, 70, 3, 3, 0, 1, 1, 1, 0, 0.2, 2};
    size_t f, h, i, row;
    for (f = 0; f < PHASE_FORMS; f++) {
        phase_problem p;
        cmha_real *y, worst = 0;
        cmha_attention_args args;
        phase_open(&p, &phase_forms[f], &s), phase_heat(&p);
        phase_forward(&p);
        row = p.ny / 8, y = check_zeros(p.ny), memcpy(y, p.y, p.ny * sizeof *y);
        args = p.args;
        for (h = 0; h < 4; h++) {
            cmha_real cold = (cmha_real)exp(-(double)p.log_temp[h]);
            p.args.temperature = 0, p.args.scale = args.scale * cold;
            for (i = 0; i < 4; i++) p.slopes[i] *= cold;
            phase_forward(&p);
            for (i = 0; i < 4; i++) p.slopes[i] /= cold;
            for (i = 0; i < 8; i++)
                if (i % 4 == h)
                    worst = (cmha_real)fmax((double)worst, check_distance(p.y + i * row, y + i * row, row));
        }
        CHECK_THAT(worst <= (cmha_real)check_tolerance(1e-12, 2e-5), "%s: a temperature is %.3g off a scale",
                   phase_forms[f].name, (double)worst);
        free(y), phase_close(&p);
    }
}

/* ----------------------------------------------- extremes ----------------------------------------------- */

/* Products of 1e40 count as 1e30 (1 + log(|O| / 1e30)): at a temperature of 1e30 weights go as |O|. */
static void hot(void) {
    phase_shape s = {1, 1, 1, 1, 2, 1, 1, 0, 0, 0, 0, 0, 0, 1};
    phase_problem p;
    size_t f = 0;
    while (strcmp(phase_forms[f].name, "magnitude") != 0) f++;
    phase_open(&p, &phase_forms[f], &s), phase_heat(&p);
    p.args.scale = 1, p.log_temp[0] = (cmha_real)69.0775527898;
    p.q[0] = (cmha_real)check_tolerance(1e15, 1e20), p.k[0] = p.q[0], p.k[2] = p.q[0] / 2;
    p.q[1] = p.k[1] = p.k[3] = p.v[0] = p.v[1] = p.v[3] = 0, p.v[2] = 1;
    phase_forward(&p);
    CHECK_NEAR(p.y[0], check_tolerance(1 / (1 + exp(0.5)), 1. / 3), 1e-5);
    phase_close(&p);
}

static void check_problem_finite(phase_problem *p, const char *name, const char *what) {
    /* a temperature of 1e-30 makes gradients of 1e30 times the other side's numbers, one of 1e-13 of |O| */
    int wide = p->log_temp[0] > (p->args.norm_max ? 1 : 100);
    phase_forward(p);
    memset(p->dq, 0, p->nq * sizeof *p->dq), memset(p->dk, 0, p->nkk * sizeof *p->dk),
        memset(p->dv, 0, p->nv * sizeof *p->dv);
    phase_backward(p, p->dq, p->dk, p->dv);
    CHECK_THAT(check_finite(p->y, p->ny) && (p->several || check_finite(p->lse, p->nl)), "%s, %s: y or lse",
               name, what);
    CHECK_THAT(wide || check_finite(p->dq, p->nq), "%s, %s: dq", name, what);
    CHECK_THAT(wide || check_finite(p->dk, p->nkk), "%s, %s: dk", name, what);
    CHECK_THAT(check_finite(p->dv, p->nv), "%s, %s: dv", name, what);
    CHECK_THAT(check_finite(p->dlog_temp, p->args.heads), "%s, %s: dlog_temp", name, what);
}

static void set_all(cmha_real *x, size_t n, double factor) {
    size_t i;
    for (i = 0; i < n; i++)
        x[i] = (cmha_real)(factor * (0.2 + fabs(check_random())) * (check_random() < 0 ? -1 : 1));
}

/* hot: log_temp of the heads is that and less that, 0: there is none */
static void extremes(const phase_form *f, cmha_real hot) {
    static const struct {
        const char *what;
        double q, k, q_double, k_double; /* in float, in double */
    } cases[] = {
        {"scores of 1e4", 1e2, 1e2, 1e2, 1e2},
        {"products of 1e18", 1e9, 1e9, 1e9, 1e9},
        {"large q, small k", 1e18, 1e-18, 1e150, 1e-150},
        {"products near the largest number", 1e18, 1e18, 1e150, 1e150},
        {"products of 1e-30", 1e-15, 1e-15, 1e-15, 1e-15},
        {"denormal products", 1e-20, 1e-20, 1e-155, 1e-155},
        {"products that vanish", 1e-30, 1e-30, 1e-200, 1e-200},
        {"denormal q", 1e-40, 1, 1e-310, 1},
        {"denormal q and k", 1e-40, 1e-40, 1e-310, 1e-310},
        {"zeros", 0, 1, 0, 1},
        {"all zeros", 0, 0, 0, 0},
    };
    phase_shape s = {1, 2, 1, 66, 66, 3, 3, 0, 1, 1, 0, 0, 0, 1};
    phase_problem p;
    size_t i;
    phase_open(&p, f, &s);
    if (hot != 0) phase_heat(&p), p.log_temp[0] = hot, p.log_temp[1] = -hot;
    for (i = 0; i < sizeof cases / sizeof *cases; i++) {
        set_all(p.q, p.nq, check_tolerance(cases[i].q_double, cases[i].q));
        set_all(p.k, p.nkk, check_tolerance(cases[i].k_double, cases[i].k));
        check_problem_finite(&p, f->name, cases[i].what);
    }
    set_all(p.q, p.nq, 1), set_all(p.k, p.nkk, 1);
    memset(p.q + 5 * 6, 0, 60 * 6 * sizeof *p.q); /* rows of |A| = 0 among others */
    memset(p.k + 7 * 6, 0, 6 * sizeof *p.k);
    for (i = 0; i < p.nv; i += 2) p.v[i] = 0;
    for (i = 0; i < p.nkk; i += 5) p.k[i] = 0;
    check_problem_finite(&p, f->name, "zeros among others");
    if (f->kind == PHASE_COMPLEX && !(hot > 1))
        CHECK_THAT(check_largest(p.dq + 5 * 6, 6) < 1e3, "%s: a gradient of %.3g where |A| = 0", f->name,
                   check_largest(p.dq + 5 * 6, 6));
    set_all(p.q, p.nq, 1), set_all(p.k, p.nkk, 1), set_all(p.v, p.nv, check_tolerance(1e200, 1e30));
    set_all(p.dy, p.ny, 1e-3);
    check_problem_finite(&p, f->name, "huge values");
    phase_close(&p);
}

/* eps = 0 is allowed: nothing but the smallest numbers keeps the gradients finite then */
static void without_eps(const char *name) {
    phase_form f = *phase_find(name);
    f.eps = 0;
    extremes(&f, 0);
}

/* A NaN stays where it belongs: in the row of its query, or with its key in every row that sees it */
static void not_a_number(const phase_form *f) {
    enum { N = 66, AT = 64 };
    phase_shape s = {1, 1, 1, N, N, 3, 3, 0, 1, 0, 0, 0, 0, 1};
    size_t row, i;
    phase_problem p;
    int side;
    /* these see everything */
    if (f->norm_max == CMHA_NORM_MAX_HEAD || f->norm_max == CMHA_NORM_MAX_GLOBAL) return;
    for (side = 0; side < 2; side++) {
        phase_open(&p, f, &s);
        row = p.ny / N;
        if (side == 0) p.q[AT * 6 + 1] = (cmha_real)NAN;
        else p.k[AT * 6 + 4] = (cmha_real)NAN;
        phase_forward(&p), phase_backward(&p, p.dq, p.dk, p.dv);
        CHECK_THAT(check_finite(p.y, AT * row), "%s: NaN spreads", f->name);
        for (i = 0; i < row; i++)
            CHECK_THAT(p.y[AT * row + i] != p.y[AT * row + i], "%s: NaN was lost", f->name);
        CHECK_THAT(side == 1 ? p.y[(AT + 1) * row] != p.y[(AT + 1) * row]
                             : check_finite(p.y + (AT + 1) * row, row),
                   "%s: NaN in the row after it", f->name);
        phase_close(&p);
    }
}

/* The weights of huge scores: one key takes all; of tiny ones: all the same */
static void extreme_weights(void) {
    phase_shape s = {1, 1, 1, 2, 66, 2, 66, 0, 0, 0, 0, 0, 0, 1};
    phase_problem p;
    size_t i;
    phase_open(&p, phase_find("cope magnitude"), &s);
    set_all(p.q, p.nq, 1e9), set_all(p.k, p.nkk, 1e9);
    for (i = 0; i < 4; i++) p.k[65 * 4 + i] = (i < 2 ? -3 : 3) * (i % 2 ? p.q[i ^ 1] : p.q[i]);
    memset(p.v, 0, p.nv * sizeof *p.v);
    for (i = 0; i < 66; i++) p.v[i * 66 + i] = 1;
    phase_forward(&p);
    for (i = 0; i < 2; i++) CHECK(fabs((double)check_largest(p.y + i * 66, 66) - 1) < 1e-6);
    set_all(p.q, p.nq, 1e-20), set_all(p.k, p.nkk, 1e-20);
    phase_forward(&p);
    for (i = 0; i < 132; i++) CHECK_NEAR(p.y[i], 1 / 66.0, 1e-6);
    phase_close(&p);
}

/* ----------------------------------------- what may not matter ------------------------------------------ */

static void same_everywhere(const phase_form *f, const phase_shape *s, int threads) {
    phase_shape many = *s;
    phase_problem p, r;
    uint64_t seed = check_seed;
    many.threads = threads;
    phase_open(&p, f, s), phase_heat(&p);
    check_seed = seed;
    phase_open(&r, f, &many), phase_heat(&r);
    memcpy(r.log_temp, p.log_temp, sizeof p.log_temp);
    /* what lies in the scratch is of no account */
    check_fill(p.scratch, cmha_attention_scratch(&p.args, 0), 1);
    phase_forward(&p), phase_backward(&p, p.dq, p.dk, p.dv), phase_forward(&r),
        phase_backward(&r, r.dq, r.dk, r.dv);
    CHECK_THAT(check_distance(p.y, r.y, p.ny) == 0 && phase_lse_distance(p.pairs, r.pairs, p.nl) == 0,
               "%s: y with %d threads", f->name, threads);
    CHECK_THAT(check_distance(p.dq, r.dq, p.nq) == 0 && check_distance(p.dk, r.dk, p.nkk) == 0 &&
                   check_distance(p.dv, r.dv, p.nv) == 0 &&
                   check_distance(p.dlog_temp, r.dlog_temp, s->H) == 0,
               "%s: gradients with %d threads", f->name, threads);
    phase_close(&p), phase_close(&r);
}

/* Head-major and token-major arrays hold the same numbers */
static void same_layouts(const phase_form *f) {
    phase_shape s = {2, 4, 2, 66, 70, 3, 5, 0, 1, 1, 0, 0, 0.2, 2};
    static const int which[8] = {PHASE_Q, PHASE_K, PHASE_V, PHASE_Y, PHASE_Y, PHASE_Q, PHASE_K, PHASE_V};
    phase_problem p, r;
    cmha_real *from[8], *to[8];
    double worst = 0;
    int i;
    phase_open(&p, f, &s);
    s.tokens = 1;
    phase_open(&r, f, &s);
    memcpy(r.mask, p.mask, 2 * 70), memcpy(r.dlse, p.dlse, p.nl * sizeof *p.dlse);
    from[0] = p.q, from[1] = p.k, from[2] = p.v, from[3] = p.dy, from[4] = p.y, from[5] = p.dq,
    from[6] = p.dk, from[7] = p.dv;
    to[0] = r.q, to[1] = r.k, to[2] = r.v, to[3] = r.dy, to[4] = r.y, to[5] = r.dq, to[6] = r.dk,
    to[7] = r.dv;
    for (i = 0; i < 8; i++) {
        cmha_heads x = phase_view(&p, which[i], from[i], NULL), z = phase_view(&r, which[i], to[i], NULL);
        size_t H = which[i] == PHASE_K || which[i] == PHASE_V ? 2 : 4, N = H == 2 ? 70 : 66,
               d = which[i] < PHASE_V ? 3 : 5, b, h, n, c;
        if (i == 4)
            phase_forward(&p), phase_forward(&r), phase_backward(&p, p.dq, p.dk, p.dv),
                phase_backward(&r, r.dq, r.dk, r.dv);
        for (b = 0; b < 2; b++)
            for (h = 0; h < H; h++)
                for (n = 0; n < N; n++)
                    for (c = 0; c < (x.imag ? 2 * d : d); c++) {
                        size_t one = phase_at(x, b, h, n) + c,
                               two = phase_at(z, b, h, n) + (c < d ? c : z.imag + c - d);
                        if (i < 4) z.data[two] = x.data[one];
                        else worst = fmax(worst, fabs((double)x.data[one] - (double)z.data[two]));
                    }
    }
    /* BLAS may know strides */
    CHECK_THAT(worst <= check_tolerance(1e-13, 1e-5), "%s: %.3g between the layouts", f->name, worst);
    phase_close(&p), phase_close(&r);
}

/* What a masked key holds is of no account: no output, no gradient, none of its
   own. GLOBAL says that it looks there. */
static void masked_keys(const phase_form *f) {
    phase_shape s = {2, 2, 1, 66, 131, 3, 3, 0, 1, 1, 0, 0, 0, 2};
    phase_problem p;
    cmha_real *y, *dq, *dk, *dv;
    size_t i, j, v_width = f->complex_v ? 6 : 3;
    double own = 0;
    if (f->norm_max == CMHA_NORM_MAX_GLOBAL) return;
    phase_open(&p, f, &s);
    y = check_zeros(p.ny), dq = check_zeros(p.nq), dk = check_zeros(p.nkk), dv = check_zeros(p.nv);
    phase_forward(&p), phase_backward(&p, dq, dk, dv);
    memcpy(y, p.y, p.ny * sizeof *y);
    for (i = 0; i < 2 * 131; i++) {
        if (p.mask[i]) continue;
        for (j = 0; j < 6; j++)
            p.k[i * 6 + j] = (cmha_real)(check_random() * 3e38), own = fmax(own, fabs((double)dk[i * 6 + j]));
        for (j = 0; j < v_width; j++)
            p.v[i * v_width + j] = (cmha_real)1e20, own = fmax(own, fabs((double)dv[i * v_width + j]));
    }
    phase_forward(&p), phase_backward(&p, p.dq, p.dk, p.dv);
    CHECK_THAT(check_distance(y, p.y, p.ny) == 0, "%s: a masked key changes y by %.3g", f->name,
               check_distance(y, p.y, p.ny));
    CHECK_THAT(check_distance(dq, p.dq, p.nq) == 0 && check_distance(dk, p.dk, p.nkk) == 0 &&
                   check_distance(dv, p.dv, p.nv) == 0,
               "%s: a masked key changes gradients", f->name);
    CHECK_THAT(own == 0, "%s: a masked key has a gradient of %.3g", f->name, own);
    free(y), free(dq), free(dk), free(dv);
    phase_close(&p);
}

/* Of a sequence without any key: zeros, not NaN, whatever its arrays hold */
static void masked_out(const phase_form *f) {
    phase_shape s = {2, 2, 1, 66, 66, 3, 3, 0, 0, 2, 0, 0, 0, 2};
    phase_problem p;
    double gradients;
    phase_open(&p, f, &s);
    phase_forward(&p), phase_backward(&p, p.dq, p.dk, p.dv);
    gradients = check_largest(p.dk + p.nkk / 2, p.nkk / 2) + check_largest(p.dv + p.nv / 2, p.nv / 2);
    CHECK(check_largest(p.y + p.ny / 2, p.ny / 2) == 0 &&
          (p.several || phase_lse_size(p.pairs + p.nl / 2, p.nl - p.nl / 2) == 0));
    if (f->norm_max != CMHA_NORM_MAX_GLOBAL) CHECK(gradients + check_largest(p.dq + p.nq / 2, p.nq / 2) == 0);
    CHECK(check_largest(p.y, p.ny / 2) > 0 && check_finite(p.dq, p.nq));
    phase_close(&p);
}

/* No queries, no keys, no sequences, no channels */
static void nothing(const phase_form *f) {
    static const phase_shape shapes[] = {
        {2, 2, 1, 0, 5, 3, 3, 0, 1, 1, 0, 0, 0, 2}, {2, 2, 1, 5, 0, 3, 3, 0, 1, 0, 0, 0, 0, 2},
        {2, 2, 1, 0, 0, 3, 3, 1, 0, 0, 0, 0, 0, 1}, {0, 2, 1, 5, 5, 3, 3, 0, 1, 0, 0, 0, 0, 2},
        {1, 2, 1, 5, 5, 0, 3, 0, 1, 0, 0, 0, 0, 1}, {1, 2, 1, 5, 66, 3, 0, 1, 0, 0, 0, 0, 0, 1},
    };
    size_t i, j;
    for (i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        phase_problem p;
        phase_open(&p, f, &shapes[i]);
        check_problem_finite(&p, f->name, "nothing there");
        if (shapes[i].n_k == 0 && !shapes[i].tokens)
            CHECK(check_largest(p.y, p.ny) == 0 && phase_lse_size(p.pairs, p.nl) == 0);
        for (j = 0; j < p.nkk && shapes[i].n_q == 0; j++) CHECK(p.dk[j] == 0);
        phase_close(&p);
    }
}

/* lse is optional, and forms of several softmaxes leave it alone */
static void optional_lse(const phase_form *f) {
    phase_shape s = {1, 2, 1, 66, 66, 3, 3, 0, 1, 0, 0, 0, 0, 2};
    phase_problem p;
    cmha_real *y;
    cmha_lse *lse;
    cmha_attention_views x;
    size_t i;
    phase_open(&p, f, &s);
    phase_forward(&p);
    y = check_zeros(p.ny), lse = (cmha_lse *)check_alloc(p.nl, sizeof *lse);
    for (i = 0; i < p.nl; i++) lse[i].largest = lse[i].log_sum = 7, lse[i].in_double = 7;
    x = phase_views(&p), x.y.data = y;
    cmha_attention_forward(&p.args, &x, p.several ? lse : NULL, p.scratch);
    CHECK(check_distance(y, p.y, p.ny) == 0);
    for (i = 0; i < p.nl; i++) CHECK(lse[i].largest == 7 && lse[i].log_sum == 7 && lse[i].in_double == 7);
    free(y), free(lse);
    phase_close(&p);
}

/* On a tape, fused and from three tensors: what the kernel gives */
static void tape_is_kernel(const phase_form *f, int fused) {
    enum { B = 2, N = 66, H = 4, HKV = 2, D = 3 };
    size_t dims[3] = {B, N, 2 * H * D}, parts = fused ? H + 2 * HKV : H, row = 2 * parts * D, n, i;
    size_t v_row = (f->complex_v ? 2 : 1) * HKV * D, y_row = (f->complex_v ? 2 : 1) * H * D;
    cmha_attention_args a;
    cmha_tape tape;
    cmha_tensor *q, *k = NULL, *v = NULL, *y;
    cmha_heads x[3];
    cmha_attention_views views;
    cmha_real *out = check_zeros(B * N * y_row), *scratch;
    memset(&a, 0, sizeof a);
    a.batch = B, a.heads = H, a.kv_heads = HKV, a.n_q = a.n_k = N, a.d_k = a.d_v = D, a.causal = 1,
    a.dropout = (cmha_real)0.3;
    phase_args(&a, f);
    CHECK_OK(cmha_tape_init(&tape, &context, 0));
    dims[2] = row, q = cmha_tensor_new(&tape, 3, dims, 0), n = B * N * row, check_fill(q->data, n, 1);
    x[0] = cmha_heads_by_token(q->data, N, row, D, row / 2);
    x[1] = x[2] = x[0], x[1].data += H * D, x[2].data += (H + HKV) * D;
    if (!fused) {
        dims[2] = 2 * HKV * D, k = cmha_tensor_new(&tape, 3, dims, 0), check_fill(k->data, k->size, 1);
        dims[2] = v_row, v = cmha_tensor_new(&tape, 3, dims, 0), check_fill(v->data, v->size, 1);
        x[1] = cmha_heads_by_token(k->data, N, 2 * HKV * D, D, HKV * D);
        x[2] = f->complex_v ? cmha_heads_by_token(v->data, N, v_row, D, HKV * D)
                            : cmha_heads_by_token(v->data, N, v_row, D, 0);
    }
    y = cmha_attention(&tape, &a, q, k, v, NULL);
    CHECK_THAT(y && y->rank == 3 && y->shape[0] == B && y->shape[1] == N && y->shape[2] == y_row,
               "%s: shape of the result", f->name);
    a.dropout = 0; /* the tape does not record: no dropout either */
    scratch = check_zeros(cmha_attention_scratch(&a, 0));
    memset(&views, 0, sizeof views);
    views.q = x[0], views.k = x[1], views.v = x[2];
    views.y = f->complex_v ? cmha_heads_by_token(out, N, y_row, D, H * D)
                           : cmha_heads_by_token(out, N, y_row, D, 0);
    cmha_attention_forward(&a, &views, NULL, scratch);
    for (i = 0; y && i < y->size; i++) CHECK(y->data[i] == out[i]);
    free(out), free(scratch);
    cmha_tape_close(&tape);
}

/* Scratch grows by the same with every token, once the tiles are full */
static void memory_is_linear(const phase_form *f) {
    phase_shape s = {2, 4, 2, 0, 0, 16, 16, 0, 1, 0, 0, 0, 0, 2};
    cmha_attention_args a;
    size_t size[3];
    int backward, i;
    memset(&a, 0, sizeof a);
    a.batch = s.B, a.heads = s.H, a.kv_heads = s.Hkv, a.d_k = s.d_k, a.d_v = s.d_v, a.threads = s.threads;
    phase_args(&a, f);
    for (backward = 0; backward < 2; backward++) {
        for (i = 0; i < 3; i++) {
            a.n_q = a.n_k = (size_t)512 << i;
            size[i] = cmha_attention_scratch(&a, backward);
        }
        CHECK_THAT(size[1] > size[0] && size[2] - size[1] == 2 * (size[1] - size[0]),
                   "%s: scratch of %zu, %zu, %zu", f->name, size[0], size[1], size[2]);
        CHECK_THAT(size[2] < 2048u * 2048u, "%s: %zu of scratch", f->name, size[2]);
    }
}

int main(int argc, char **argv) {
    phase_shape s = {2, 4, 2, 70, 131, 4, 3, 1, 1, 1, 1, 0, 0.25, 1};
    size_t i;
    (void)argc;
    cmha_blas_restart(argv);
    check_context(&context, 2, 5);
    definition();
    hermitian("cope real"), hermitian("cope magnitude"), hermitian("cope phase"), hermitian("ri_product");
    real_is_dot(0, 0), real_is_dot(1, 0), real_is_dot(2, 0.25);
    planes_of_real();
    leaks();
    phasors("angular"), phasors("arctan");
    on_the_axis();
    temperatures();
    hot();
    for (i = CMHA_NORM_MAX_ROW; i <= CMHA_NORM_MAX_GLOBAL; i++)
        scale_free((cmha_norm_max)i, pow(2, check_tolerance(400, 50))),
            scale_free((cmha_norm_max)i, pow(2, -2));
    extreme_weights();
    without_eps("angular"), without_eps("angular score"), without_eps("both"), without_eps("cope phase"),
        without_eps("cope hybrid");
    for (i = 0; i < PHASE_FORMS; i++) {
        const phase_form *f = &phase_forms[i];
        extremes(f, 0), extremes(f, 1), extremes(f, 30), extremes(f, 1000), not_a_number(f);
        same_everywhere(f, &s, 2), same_everywhere(f, &s, 3);
        same_layouts(f), masked_keys(f), masked_out(f), nothing(f), optional_lse(f);
        tape_is_kernel(f, 0);
        if (f->complex_v) tape_is_kernel(f, 1);
        memory_is_linear(f);
    }
    cmha_context_close(&context);
    return check_end();
}
