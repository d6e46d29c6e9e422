/* What the complex building blocks must satisfy whatever their numbers are: against naive loops, invariances,
   and the edges (zeros, huge and tiny values, NaN, nothing at all). */
#include "check.h"

enum { T = 5, D = 19, I = 7, O = 6, R = 3 };

static cmha_context context;

/* ------------------------------------------------ linear ------------------------------------------------ */

/* y = W x + b, or W^H x + b with W [2, I, O], in double */
static void naive_linear(const cmha_real *x, const cmha_real *w, const cmha_real *b, size_t in, size_t out,
                         int adjoint, double *y) {
    size_t o, i;
    for (o = 0; o < out; o++) {
        double re = b ? (double)b[o] : 0, im = b ? (double)b[out + o] : 0;
        for (i = 0; i < in; i++) {
            size_t at = adjoint ? i * out + o : o * in + i;
            double wr = (double)w[at], wi = (double)w[in * out + at] * (adjoint ? -1 : 1);
            double xr = (double)x[i], xi = (double)x[in + i];
            re += wr * xr - wi * xi;
            im += wr * xi + wi * xr;
        }
        y[o] = re, y[out + o] = im;
    }
}

static void linear(int adjoint, int bias) {
    cmha_real *x = check_array(2 * T * I, 1), *w = check_array(2 * O * I, 1), *b = check_array(2 * O, 1),
              y[2 * T * O], scratch[4 * T * O];
    double want[2 * O], worst = 0;
    cmha_complex_linear_args a = {0, 0, 0, 0, 0, 0};
    size_t t, j;
    a.T = T, a.n_in = I, a.n_out = O, a.adjoint = adjoint, a.threads = 1;
    cmha_complex_linear_forward(&a, x, w, bias ? b : NULL, y, scratch);
    for (t = 0; t < T; t++) {
        naive_linear(x + 2 * t * I, w, bias ? b : NULL, I, O, adjoint, want);
        for (j = 0; j < 2 * O; j++) worst = fmax(worst, fabs((double)y[2 * t * O + j] - want[j]));
    }
    CHECK_NEAR(worst, 0, check_tolerance(1e-14, 5e-6));
    free(x), free(w), free(b);
}

/* U (V^H x) + b against the dense U V^H, formed here */
static void lowrank(void) {
    size_t sx[2] = {T, 2 * I}, su[3] = {2, O, R}, sv[3] = {2, I, R}, sw[3] = {2, O, I}, sb[2] = {2, O}, o, i,
           r;
    cmha_real *x = check_array(2 * T * I, 1), *u = check_array(2 * O * R, 1), *v = check_array(2 * I * R, 1);
    cmha_real *b = check_array(2 * O, 1), *w = check_zeros(2 * O * I);
    cmha_tensor *tx, *y, *z;
    cmha_tape tape;
    for (o = 0; o < O; o++)
        for (i = 0; i < I; i++) {
            double re = 0, im = 0;
            for (r = 0; r < R; r++) {
                double ur = (double)u[o * R + r], ui = (double)u[(O + o) * R + r];
                double vr = (double)v[i * R + r], vi = (double)v[(I + i) * R + r];
                re += ur * vr + ui * vi;
                im += ui * vr - ur * vi;
            }
            w[o * I + i] = (cmha_real)re, w[(O + o) * I + i] = (cmha_real)im;
        }
    CHECK_OK(cmha_tape_init(&tape, &context, 0));
    tx = cmha_tensor_wrap(&tape, 2, sx, x, NULL);
    y = cmha_complex_lowrank(&tape, tx, cmha_tensor_wrap(&tape, 3, su, u, NULL),
                             cmha_tensor_wrap(&tape, 3, sv, v, NULL),
                             cmha_tensor_wrap(&tape, 2, sb, b, NULL));
    z = cmha_complex_linear(&tape, tx, cmha_tensor_wrap(&tape, 3, sw, w, NULL),
                            cmha_tensor_wrap(&tape, 2, sb, b, NULL));
    if (CHECK(y && z && y->size == 2 * T * O && y->shape[1] == 2 * O))
        CHECK_NEAR(check_distance(y->data, z->data, y->size), 0, check_tolerance(1e-13, 2e-5));
    cmha_tape_close(&tape);
    free(x), free(u), free(v), free(b), free(w);
}

/* ------- norms; identity 17: CLN does not see a positive factor, its gradient is in grad_complex -------- */

static cmha_complex_norm_args norm_args(int kind, size_t rows, size_t width, cmha_real eps) {
    cmha_complex_norm_args a;
    a.kind = (cmha_complex_norm_kind)kind, a.T = rows, a.D = width, a.eps = eps;
    return a;
}

static void norm_of(cmha_complex_norm_kind kind, const cmha_real *z, cmha_real eps, cmha_real *y) {
    cmha_complex_norm_args a = norm_args((int)kind, T, D, eps);
    cmha_complex_norm_forward(&a, z, NULL, NULL, y, NULL);
}

static void norms(void) {
    enum { N = 2 * T * D };
    static cmha_real z[N], s[N], y[N], w[N], half[T * D], want[T * D], stats[2 * T], gamma[2 * D],
        beta[2 * D];
    cmha_complex_norm_args two = norm_args(CMHA_COMPLEX_NORM_SPLIT, T, D, (cmha_real)1e-5);
    size_t t, j, part;
    check_fill(z, N, 1), check_fill(gamma, 2 * D, 1), check_fill(beta, 2 * D, 1);
    for (j = 0; j < N; j++) s[j] = z[j] * 512;
    /* CLN and the rest do not see a positive factor, but for eps */
    norm_of(CMHA_COMPLEX_NORM_CLN, z, 0, y), norm_of(CMHA_COMPLEX_NORM_CLN, s, 0, w);
    CHECK_NEAR(check_distance(y, w, N), 0, check_tolerance(1e-14, 1e-6));
    norm_of(CMHA_COMPLEX_NORM_WHITEN, z, 0, y), norm_of(CMHA_COMPLEX_NORM_WHITEN, s, 0, w);
    CHECK_NEAR(check_distance(y, w, N), 0, check_tolerance(1e-13, 2e-6));
    norm_of(CMHA_COMPLEX_NORM_CRMS, z, 0, y); /* CRMS only scales: phases stay, mean |y|^2 = 1 */
    for (t = 0; t < T; t++)
        CHECK_NEAR(cmha_sum_squares(y + 2 * t * D, 2 * D) / D, 1, check_tolerance(1e-13, 1e-6));
    for (t = 0; t < T; t++)
        for (j = 0; j < D; j++) {
            const cmha_real *a = z + 2 * t * D + j, *b = y + 2 * t * D + j;
            CHECK_NEAR((double)a[0] * (double)b[D] - (double)a[D] * (double)b[0], 0,
                       check_tolerance(1e-14, 1e-6));
        }
    cmha_complex_norm_forward(&two, z, gamma, beta, y, NULL); /* two real LayerNorms */
    for (part = 0; part < 2; part++) {
        for (t = 0; t < T; t++) memcpy(half + t * D, z + (2 * t + part) * D, D * sizeof *half);
        const cmha_norm_args layer = {CMHA_NORM_LAYER, T, D, (cmha_real)1e-5};
        cmha_norm_forward(&layer, half, gamma + part * D, beta + part * D, want, stats);
        for (t = 0; t < T; t++)
            CHECK_NEAR(check_distance(want + t * D, y + (2 * t + part) * D, D), 0,
                       check_tolerance(1e-13, 3e-6));
    }
    norm_of(CMHA_COMPLEX_NORM_WHITEN, z, 0, y); /* covariance 1 */
    for (t = 0; t < T; t++) {
        const cmha_real *re = y + 2 * t * D, *im = re + D;
        double cross = 0;
        for (j = 0; j < D; j++) cross += (double)re[j] * (double)im[j];
        CHECK_NEAR(cmha_sum_squares(re, D) / D, 1, check_tolerance(1e-13, 1e-6));
        CHECK_NEAR(cmha_sum_squares(im, D) / D, 1, check_tolerance(1e-13, 1e-6));
        CHECK_NEAR(cross / D, 0, check_tolerance(1e-13, 1e-6));
    }
}

/* Rows of zeros, of one value, of Im = Re (a singular covariance), huge
   ones, one feature; eps = 0 and eps > 0 */
static void norm_edges(void) {
    enum { N = 2 * 5 * D };
    static cmha_real z[N], y[N], dy[N], dz[N], dgamma[3 * D], dbeta[2 * D], gamma[3 * D];
    static double stats[5 * 5];
    const cmha_grads grads = {dz, dgamma, dbeta};
    int kind, with_eps;
    size_t j;
    check_fill(z, N, 1), check_fill(dy, N, 1), check_fill(gamma, 3 * D, 1);
    for (j = 0; j < 2 * D; j++) z[j] = 0, z[2 * D + j] = 3, z[6 * D + j] *= (cmha_real)1e18;
    for (j = 0; j < D; j++) z[4 * D + j] = z[5 * D + j];
    for (kind = CMHA_COMPLEX_NORM_CLN; kind <= CMHA_COMPLEX_NORM_WHITEN; kind++)
        for (with_eps = 0; with_eps < 2; with_eps++) {
            cmha_real eps = with_eps ? (cmha_real)1e-5 : 0;
            cmha_complex_norm_args a = norm_args(kind, 5, D, eps), narrow = norm_args(kind, 2 * D, 1, eps);
            cmha_complex_norm_forward(&a, z, gamma, NULL, y, stats);
            cmha_complex_norm_backward(&a, z, gamma, stats, dy, &grads);
            CHECK_THAT(check_finite(y, N) && check_finite(dz, N) && check_finite(dgamma, 3 * D),
                       "norm %d, eps %g", kind, (double)eps);
            CHECK_THAT(check_largest(y, 2 * D) == 0, "norm %d of zeros", kind);
            CHECK_THAT(check_largest(y, N) < 20, "norm %d is %g", kind, check_largest(y, N));
            cmha_complex_norm_forward(&narrow, z, gamma, NULL, y, NULL); /* one feature */
            CHECK(check_finite(y, 4 * D));
            z[0] = (cmha_real)NAN;
            cmha_complex_norm_forward(&a, z, NULL, NULL, y, stats);
            CHECK(y[0] != y[0] && check_finite(y + 2 * D, N - 2 * D));
            z[0] = 0;
        }
    for (j = 0; j < D; j++) CHECK_NEAR(y[4 * D + j], y[5 * D + j], 1e-6); /* WHITEN of Im = Re */
}

/* ------------------------------------------ phasors, rotations ------------------------------------------ */

static void phasors(void) {
    static const double values[] = {0, 1e-42, 1e-38, 1e-30, 1e-10, 1e-6, 1, 1e10, 1e18, 1e30, 3e38};
    cmha_real z[2], u[2], du[2] = {1, (cmha_real)0.5}, dz[2];
    size_t i;
    int with_eps;
    for (i = 0; i < sizeof values / sizeof *values; i++)
        for (with_eps = 0; with_eps < 2; with_eps++) {
            cmha_real eps = with_eps ? (cmha_real)1e-6 : 0;
            double re, im, r;
            z[0] = (cmha_real)(0.6 * values[i]), z[1] = (cmha_real)(-0.8 * values[i]), dz[0] = dz[1] = 0;
            re = (double)z[0], im = (double)z[1], r = hypot(hypot(re, im), (double)eps);
            cmha_phasor_forward(z, 1, 1, eps, u);
            cmha_phasor_backward(z, du, 1, 1, eps, dz);
            CHECK_THAT(check_finite(u, 2) && check_finite(dz, 2), "phasor of %g, eps %g", values[i],
                       (double)eps);
            if (values[i] <= 1e-38 && !with_eps) continue; /* 0, and subnormal numbers count as 0 */
            CHECK_NEAR(u[0], re / r, 3e-7);
            CHECK_NEAR(u[1], im / r, 3e-7);
            CHECK_NEAR((double)dz[0] * r, 1 - re / r * (re / r + 0.5 * im / r), 1e-6);
        }
    z[0] = z[1] = 0;
    cmha_phasor_forward(z, 1, 1, 0, u);
    CHECK(u[0] == 0 && u[1] == 0);
    z[0] = (cmha_real)NAN;
    cmha_phasor_forward(z, 1, 1, 0, u);
    CHECK(u[0] != u[0]);
    z[0] = 0, z[1] = (cmha_real)NAN;
    cmha_phasor_forward(z, 1, 1, (cmha_real)1e-6, u);
    CHECK(u[1] != u[1]);
}

static void rotations(void) {
    static const double angles[] = {0, 1, -3.14159, 52.7, -1000, 12345.678, 1e6, -3e7};
    enum { N = sizeof angles / sizeof *angles };
    cmha_real z[2 * N], theta[N], y[2 * N], back[2 * N];
    size_t j;
    check_fill(z, 2 * N, 1);
    for (j = 0; j < N; j++) theta[j] = (cmha_real)angles[j];
    cmha_complex_rotate_forward(z, theta, 1, N, y);
    for (j = 0; j < N; j++) {
        double c = cos((double)theta[j]), s = sin((double)theta[j]), re = (double)z[j], im = (double)z[N + j];
        CHECK_NEAR(y[j], re * c - im * s, check_tolerance(1e-15, 5e-7));
        CHECK_NEAR(y[N + j], re * s + im * c, check_tolerance(1e-15, 5e-7));
        theta[j] = -theta[j];
    }
    cmha_complex_rotate_forward(y, theta, 1, N, back);
    CHECK_NEAR(check_distance(z, back, 2 * N), 0, check_tolerance(1e-15, 1e-6));
    theta[0] = (cmha_real)NAN, theta[1] = (cmha_real)INFINITY;
    cmha_complex_rotate_forward(z, theta, 1, N, y);
    CHECK(y[0] != y[0] && y[1] != y[1]);
}

static void conversions(void) {
    cmha_real *x = check_array(2 * T * D, 1);
    size_t shape[2] = {T, 2 * D};
    cmha_tensor *in, *z, *y;
    cmha_tape tape;
    CHECK_OK(cmha_tape_init(&tape, &context, 0));
    in = cmha_tensor_wrap(&tape, 2, shape, x, NULL);
    z = cmha_complex_join(&tape, cmha_complex_part(&tape, in, 0), cmha_complex_part(&tape, in, 1));
    CHECK(z && !memcmp(x, z->data, 2 * T * D * sizeof *x));
    y = cmha_complex_part(&tape, cmha_complex_join(&tape, cmha_complex_part(&tape, in, 0), NULL), 1);
    CHECK(y && check_largest(y->data, T * D) == 0);
    cmha_tape_close(&tape);
    free(x);
}

/* ---------------------------------------------- positions ----------------------------------------------- */

/* y [n, d] of omega and delta [K, d] */
static void positions_of(cmha_real *omega, cmha_real *delta, size_t K, size_t n, size_t d, size_t pos0,
                         cmha_real *y) {
    size_t shape[2];
    cmha_tensor *table;
    cmha_tape tape;
    shape[0] = K, shape[1] = d;
    CHECK_OK(cmha_tape_init(&tape, &context, 0));
    table = cmha_multifreq(&tape, cmha_tensor_wrap(&tape, 2, shape, omega, NULL),
                           cmha_tensor_wrap(&tape, 2, shape, delta, NULL), n, pos0);
    if (CHECK(table && table->size == n * d)) memcpy(y, table->data, n * d * sizeof *y);
    cmha_tape_close(&tape);
}

static void multifreq(void) {
    enum { N = 150, W = 10, K = 4 };
    static cmha_real omega[K * W], delta[K * W], y[N * W], table[N * W];
    static const size_t starts[] = {0, 37, 100000};
    size_t s, r, i, k;
    for (s = 0; s < 3; s++) { /* K = 1: the sinusoidal table, as exactly as omega is a cmha_real */
        cmha_multifreq_waves(1, W, 10000, omega, delta);
        positions_of(omega, delta, 1, N, W, starts[s], y);
        cmha_cope_table(CMHA_COPE_IMAG_SIN_COS, N, W, 10000, starts[s], table);
        CHECK_NEAR(check_distance(y, table, N * W), 0,
                   check_tolerance(1e-11, 1e-6 + 6e-8 * (double)(starts[s] + N)));
    }
    cmha_multifreq_waves(K, W, 10000, omega, delta);
    CHECK_NEAR(omega[W] / omega[0], 2, 1e-6);
    /* octaves around the table's omega */
    CHECK_NEAR((double)omega[W + 2] * (double)omega[2 * W + 2], pow(10000.0, -0.4), 1e-6);
    check_fill(omega, K * W, 2), check_fill(delta, K * W, 3);
    positions_of(omega, delta, K, N, W, 99990, y);
    for (r = 0; r < N; r++)
        for (i = 0; i < W; i++) {
            double want = 0;
            for (k = 0; k < K; k++)
                want += sin((double)omega[k * W + i] * (double)(99990 + r) + (double)delta[k * W + i]) / 2;
            CHECK_NEAR(y[r * W + i], want, check_tolerance(1e-10, 4e-7)); /* the angles' own rounding */
        }
    positions_of(omega, delta, 0, 2, 3, 5, y);
    CHECK(check_largest(y, 6) == 0);
}

/* ----------------- losses (identity 18: the phase loss is the mean of 1 - R), clipping ------------------ */

/* The loss of lam = 2, eps = 0 over n rows; dz (or NULL) += its gradient */
static double regularise(int phases, cmha_real *z, const unsigned char *mask, size_t n, cmha_real *dz) {
    size_t shape[2];
    cmha_tensor *in, *loss;
    cmha_tape tape;
    double value;
    shape[0] = n, shape[1] = 2 * D;
    CHECK_OK(cmha_tape_init(&tape, &context, 1));
    in = cmha_tensor_wrap(&tape, 2, shape, z, dz);
    loss = phases ? cmha_phase_reg(&tape, in, mask, 2, 0) : cmha_mag_reg(&tape, in, mask, 2);
    value = CHECK(loss != NULL) ? (double)loss->data[0] : NAN;
    CHECK_OK(cmha_tape_backward(&tape, loss, 1));
    cmha_tape_close(&tape);
    return value;
}

static void regularisers(void) {
    cmha_real *z = check_array(2 * T * D, 1), dz[2 * T * D];
    double want = 0, sum = 0;
    static const unsigned char mask[T] = {1, 0, 1, 1, 0}, nobody[T] = {0};
    size_t t, j;
    for (j = 0; j < D; j++) {
        double re = 0, im = 0;
        for (t = 0; t < T; t++) {
            double a = (double)z[2 * t * D + j], b = (double)z[2 * t * D + D + j];
            if (!mask[t]) continue;
            re += a / hypot(a, b) / 3, im += b / hypot(a, b) / 3;
            sum += a * a + b * b;
        }
        want += (1 - hypot(re, im)) / D;
    }
    CHECK_NEAR(regularise(1, z, mask, T, NULL), 2 * want, check_tolerance(1e-14, 1e-6));
    CHECK_NEAR(regularise(0, z, mask, T, NULL), 2 * sum / 3 / D, check_tolerance(1e-12 * sum, 1e-6));
    memset(dz, 0, sizeof dz);
    CHECK(regularise(1, z, nobody, T, dz) == 0 && regularise(0, z, nobody, T, dz) == 0);
    CHECK(check_largest(dz, 2 * T * D) == 0);
    for (t = 0; t < T; t++) /* one phase in every channel */
        for (j = 0; j < D; j++) {
            z[2 * t * D + j] = (cmha_real)(0.6 * (double)(t + 1));
            z[2 * t * D + D + j] = (cmha_real)(0.8 * (double)(t + 1));
        }
    CHECK_NEAR(regularise(1, z, NULL, T, dz), 0, check_tolerance(1e-14, 1e-6));
    CHECK_NEAR(check_largest(dz, 2 * T * D), 0, check_tolerance(1e-15, 1e-7));
    for (j = 0; j < 2 * D; j++) z[2 * D + j] = -z[j]; /* two opposite tokens: R = 0, and no gradient */
    memset(dz, 0, sizeof dz);
    CHECK_NEAR(regularise(1, z, NULL, 2, dz), 2, 1e-7);
    CHECK(check_largest(dz, 2 * T * D) == 0);
    free(z);
}

/* Far below eps u = z / eps: R is tiny, and its gradient as large as elsewhere. */
static void tiny_phases(void) {
    const size_t shape[2] = {2, 2};
    const cmha_real z[4] = {(cmha_real)0.6e-20, (cmha_real)0.8e-20, (cmha_real)0.6e-20, (cmha_real)0.8e-20};
    cmha_real dz[4] = {0, 0, 0, 0}, copy[4];
    cmha_tape tape;
    size_t i;
    memcpy(copy, z, sizeof copy);
    CHECK_OK(cmha_tape_init(&tape, &context, 1));
    cmha_tensor *loss = cmha_phase_reg(&tape, cmha_tensor_wrap(&tape, 2, shape, copy, dz), NULL, 1, 1);
    CHECK_OK(cmha_tape_backward(&tape, loss, 1));
    for (i = 0; i < 4; i++) CHECK_NEAR(dz[i], i % 2 ? -0.4 : -0.3, 1e-6);
    cmha_tape_close(&tape);
}

static void clipping(void) {
    cmha_real ab[14], *a = ab, *b = ab + 7, c[3], kept[7], limit = (cmha_real)0.5;
    cmha_parameter p[2]; /* a + ib, and c, which is real */
    size_t j;
    double real_norm, a_norm;
    memset(p, 0, sizeof p);
    p[0].tensor.grad = ab, p[0].tensor.size = 14, p[0].is_complex = 1, p[1].tensor.grad = c,
    p[1].tensor.size = 3;
    check_fill(a, 7, 3), memset(b, 0, 7 * sizeof *b), check_fill(c, 3, (cmha_real)0.01),
        memcpy(kept, a, sizeof kept);
    a_norm = sqrt(cmha_sum_squares(a, 7));
    cmha_componentwise_clip(CMHA_CLIP_NORM, limit, p, 2);
    CHECK_NEAR(sqrt(cmha_sum_squares(a, 7)), 0.5, 1e-6);
    CHECK(check_largest(b, 7) == 0 && check_largest(c, 3) <= 0.01);
    for (j = 0; j < 7; j++) CHECK_NEAR((double)a[j] * a_norm, (double)kept[j] * 0.5, 1e-5);
    memcpy(a, kept, sizeof kept), memcpy(b, kept, sizeof kept), check_fill(c, 3, 2);
    real_norm = sqrt(cmha_sum_squares(a, 7) + cmha_sum_squares(c, 3));
    cmha_componentwise_clip(CMHA_CLIP_GLOBAL, limit, p, 2);
    CHECK_NEAR((double)a[1] * real_norm, (double)kept[1] * 0.5, 1e-5);
    CHECK_NEAR((double)b[1] * a_norm, (double)kept[1] * 0.5, 1e-5);
    CHECK_NEAR(sqrt(cmha_sum_squares(a, 7) + cmha_sum_squares(c, 3)), 0.5, 1e-6);
    memcpy(a, kept, sizeof kept), memcpy(b, kept, sizeof kept), check_fill(c, 3, 2);
    cmha_componentwise_clip(CMHA_CLIP_WHOLE, limit, p, 2);
    CHECK_NEAR(sqrt(cmha_sum_squares(ab, 14) + cmha_sum_squares(c, 3)), 0.5, 1e-6);
    CHECK_NEAR((double)a[1] / (double)b[1], 1, 1e-6);
    memcpy(a, kept, sizeof kept), a[3] = (cmha_real)NAN;
    cmha_componentwise_clip(CMHA_CLIP_VALUE, limit, p, 1);
    for (j = 0; j < 7; j++)
        CHECK(j == 3 ? a[j] != a[j] : (double)a[j] == fmax(-0.5, fmin(0.5, (double)kept[j])));
    cmha_componentwise_clip(CMHA_CLIP_NORM, limit, NULL, 0);
}

/* ---------------------------------------------- on a tape ----------------------------------------------- */

/* Everything once, as a tiny network with a loss */
static cmha_tensor *network(cmha_tape *tape, cmha_real *x, cmha_real *dx, cmha_real *w, cmha_real *dw,
                            cmha_real *p, cmha_real *dp) {
    size_t sx[3] = {4, 33, 2 * 16}, sw[3] = {2, 16, 16}, sp[2] = {33, 32}, sg[2] = {2, 16}, sk[2] = {3, 32},
           st[3] = {4, 33, 16};
    cmha_tensor *z = cmha_tensor_wrap(tape, 3, sx, x, dx), *weight = cmha_tensor_wrap(tape, 3, sw, w, dw);
    cmha_tensor *rows, *gamma, *h, *theta;
    gamma = cmha_tensor_wrap(tape, 2, sg, p, dp);
    rows = cmha_multifreq(tape, cmha_tensor_wrap(tape, 2, sk, p, dp),
                          cmha_tensor_wrap(tape, 2, sk, p + 96, dp + 96), sp[0], 5);
    z = cmha_add_rows(tape, z, rows);
    h = cmha_complex_norm(tape, z, CMHA_COMPLEX_NORM_WHITEN, NULL, NULL, (cmha_real)1e-4);
    h = cmha_activate(tape, cmha_complex_linear(tape, h, weight, gamma), CMHA_ACTIVATION_RELU);
    theta = cmha_reshape(tape, cmha_complex_part(tape, h, 1), 3, st);
    h = cmha_complex_norm(tape, cmha_add(tape, h, z), CMHA_COMPLEX_NORM_CLN, gamma, gamma, (cmha_real)1e-4);
    h = cmha_complex_rotate(tape, h, theta);
    h = cmha_complex_lowrank(tape, h, weight, weight, NULL);
    h = cmha_complex_join(tape, cmha_complex_part(tape, h, 0),
                          cmha_complex_part(tape, cmha_phasor(tape, h, (cmha_real)1e-2), 0));
    return cmha_add(tape, cmha_sum(tape, cmha_mul(tape, h, z)),
                    cmha_add(tape, cmha_phase_reg(tape, h, NULL, 1, (cmha_real)1e-2),
                             cmha_mag_reg(tape, h, NULL, 1)));
}

enum { N_X = 4 * 33 * 32, N_W = 2 * 16 * 16, N_P = 192 };

static cmha_real network_run(int threads, cmha_real *x, cmha_real *w, cmha_real *p, cmha_real *grad) {
    cmha_context own;
    cmha_tape tape, dry;
    cmha_tensor *loss;
    cmha_real value;
    check_context(&own, threads, 3);
    CHECK_OK(cmha_tape_init(&tape, &own, 1));
    CHECK_OK(cmha_tape_init(&dry, &own, 1));
    loss = network(&tape, x, grad, w, grad + N_X, p, grad + N_X + N_W);
    CHECK_THAT(loss != NULL, "%s", cmha_error(&own));
    value = loss ? loss->data[0] : 0;
    CHECK_OK(cmha_tape_backward(&tape, loss, 1));
    dry.memory.measuring = 1; /* a dry run computes nothing and takes the same memory */
    CHECK_OK(cmha_tape_backward(&dry, network(&dry, x, grad, w, grad + N_X, p, grad + N_X + N_W), 1));
    CHECK_THAT(dry.memory.peak == tape.memory.peak, "%zu bytes, in a dry run %zu", tape.memory.peak,
               dry.memory.peak);
    cmha_tape_close(&tape), cmha_tape_close(&dry);
    cmha_context_close(&own);
    return value;
}

static void threads(void) {
    cmha_real *x = check_array(N_X, 1), *w = check_array(N_W, 0.3), *p = check_array(N_P, 1), *one, *many, a,
              b;
    one = check_zeros(N_X + N_W + N_P), many = check_zeros(N_X + N_W + N_P);
    a = network_run(1, x, w, p, one), b = network_run(3, x, w, p, many);
    CHECK_NEAR(a, b, check_tolerance(1e-12, 1e-4) * fabs((double)a));
    CHECK(check_largest(one, N_X) > 1e-3 && check_finite(one, N_X + N_W + N_P));
    CHECK_NEAR(check_distance(one, many, N_X + N_W + N_P), 0,
               check_tolerance(1e-11, 2e-3) * check_largest(one, N_X + N_W + N_P));
    free(x), free(w), free(p), free(one), free(many);
}

static cmha_tensor *shaped(cmha_tape *tape, size_t a, size_t b, size_t c) {
    size_t shape[3];
    shape[0] = a, shape[1] = b, shape[2] = c;
    return c == (size_t)-1 ? cmha_tensor_new(tape, 2, shape, 0) : cmha_tensor_new(tape, 3, shape, 0);
}

#define REFUSED(call)                                                    \
    do {                                                                 \
        CHECK((call) == NULL);                                           \
        CHECK_IS(cmha_tape_status(&tape), CMHA_ERR_SHAPE);               \
        CHECK(strlen(cmha_error(&context)) > 10);                        \
        cmha_tape_reset(&tape);                                          \
    } while (0)
#define PAIR (size_t)-1 /* of rank 2 */

static void refusals(void) {
    cmha_tape tape;
    CHECK_OK(cmha_tape_init(&tape, &context, 1));
    REFUSED(cmha_complex_linear(&tape, shaped(&tape, 2, 3, 5), shaped(&tape, 2, 4, 5), NULL));
    REFUSED(cmha_complex_linear(&tape, shaped(&tape, 2, 3, 6), shaped(&tape, 2, 4, 5), NULL));
    REFUSED(cmha_complex_linear(&tape, shaped(&tape, 2, 3, 6), shaped(&tape, 4, 3, PAIR), NULL));
    REFUSED(cmha_complex_linear(&tape, shaped(&tape, 2, 3, 6), shaped(&tape, 2, 4, 3),
                                shaped(&tape, 2, 3, PAIR)));
    REFUSED(cmha_complex_lowrank(&tape, shaped(&tape, 2, 3, 6), shaped(&tape, 2, 4, 2),
                                 shaped(&tape, 2, 4, 2), NULL));
    REFUSED(cmha_complex_rotate(&tape, shaped(&tape, 2, 3, 6), shaped(&tape, 2, 3, 6)));
    REFUSED(cmha_complex_norm(&tape, shaped(&tape, 2, 3, 6), CMHA_COMPLEX_NORM_CRMS,
                              shaped(&tape, 2, 3, PAIR), NULL, 0));
    REFUSED(cmha_complex_norm(&tape, shaped(&tape, 2, 3, 6), CMHA_COMPLEX_NORM_CLN, NULL,
                              shaped(&tape, 1, 3, PAIR), 0));
    REFUSED(cmha_phasor(&tape, shaped(&tape, 2, 3, 7), 0));
    REFUSED(cmha_complex_join(&tape, shaped(&tape, 2, 3, 7), shaped(&tape, 2, 4, 7)));
    REFUSED(cmha_complex_part(&tape, shaped(&tape, 2, 3, 7), 0));
    REFUSED(cmha_multifreq(&tape, shaped(&tape, 2, 3, PAIR), shaped(&tape, 3, 2, PAIR), 3, 0));
    REFUSED(cmha_add_rows(&tape, shaped(&tape, 2, 3, 4), shaped(&tape, 4, 3, PAIR)));
    REFUSED(cmha_phase_reg(&tape, shaped(&tape, 2, 3, 7), NULL, 1, 0));
    REFUSED(cmha_mag_reg(&tape, shaped(&tape, 2, 3, 7), NULL, 1));
    CHECK(!cmha_phasor(&tape, NULL, 0) && !cmha_complex_linear(&tape, NULL, NULL, NULL) &&
          !cmha_add_rows(&tape, NULL, NULL));
    CHECK_OK(cmha_tape_status(&tape));
    cmha_tape_close(&tape);
}

/* No rows, or rows of nothing */
static void nothing(void) {
    size_t sw[3] = {2, 3, 0};
    cmha_tensor *z, *e, *y;
    cmha_tape tape;
    CHECK_OK(cmha_tape_init(&tape, &context, 1));
    z = shaped(&tape, 2, 0, 6), e = shaped(&tape, 2, 3, 0);
    z->needs_grad = e->needs_grad = 1;
    y = cmha_complex_linear(&tape, e, cmha_tensor_new(&tape, 3, sw, 1), NULL); /* zeros */
    CHECK(y && check_largest(y->data, y->size) == 0);
    y = cmha_add(&tape, cmha_mag_reg(&tape, z, NULL, 1), cmha_phase_reg(&tape, e, NULL, 1, 0));
    y = cmha_add(&tape, y,
                 cmha_phase_reg(&tape, cmha_complex_norm(&tape, z, CMHA_COMPLEX_NORM_WHITEN, NULL, NULL, 0),
                                NULL, 1, 0));
    y = cmha_add(&tape, y, cmha_sum(&tape, cmha_phasor(&tape, e, 0)));
    y = cmha_add(&tape, y, cmha_sum(&tape, cmha_add_rows(&tape, z, shaped(&tape, 0, 6, PAIR))));
    CHECK_THAT(y && y->data[0] == 0, "%s", cmha_error(&context));
    CHECK_OK(cmha_tape_backward(&tape, y, 1));
    cmha_tape_close(&tape);
}

static void relu(void) {
    cmha_real x[4] = {-1, 0, 2, (cmha_real)NAN}, y[4], dy[4] = {5, 5, 5, 5}, dx[4] = {0};
    cmha_activation_forward(x, 4, CMHA_ACTIVATION_RELU, y);
    cmha_activation_backward(x, dy, 3, CMHA_ACTIVATION_RELU, dx);
    CHECK(y[0] == 0 && y[1] == 0 && y[2] == 2 && y[3] != y[3] && dx[0] == 0 && dx[1] == 0 && dx[2] == 5);
}

int main(int argc, char **argv) {
    (void)argc;
    cmha_blas_restart(argv);
    check_context(&context, 2, 1);
    linear(0, 0), linear(0, 1), linear(1, 0), linear(1, 1);
    lowrank();
    norms(), norm_edges();
    phasors(), rotations(), conversions();
    multifreq();
    regularisers(), tiny_phases(), clipping();
    threads(), refusals(), nothing(), relu();
    cmha_context_close(&context);
    return check_end();
}
