/* Gradients of the kernels that are not attention: backward against differences of
   forward, and that backward accumulates. */
#ifndef CMHA_DOUBLE
#define CMHA_DOUBLE
#endif
#include "grad.h"

#include "positions.h"

enum { MAX_ARRAYS = 4 };

/* A kernel pair under test: x[i] are its inputs, y its output, and forward/backward know how to call it */
typedef struct pair {
    const char *name;
    size_t T, I, O; /* rows, width in, width out: what they mean is the kernel's business */
    int option;
    cmha_real *x[MAX_ARRAYS], *dx[MAX_ARRAYS], *y, *dy, *stats;
    size_t n[MAX_ARRAYS], ny;
    int n_in;
    int32_t *ids;
    unsigned char *keep, *valid;
    size_t *positive;
    void (*forward)(struct pair *p);
    void (*backward)(struct pair *p);
} pair;

static double pair_loss(void *user) {
    pair *p = (pair *)user;
    p->forward(p);
    return grad_dot(p->y, p->dy, p->ny);
}

static void pair_open(pair *p) {
    int i;
    for (i = 0; i < p->n_in; i++) p->x[i] = check_array(p->n[i], 1.3), p->dx[i] = check_zeros(p->n[i]);
    p->y = check_zeros(p->ny), p->dy = check_array(p->ny, 1);
    p->stats = check_zeros(4096);
}

static void pair_close(pair *p) {
    int i;
    for (i = 0; i < p->n_in; i++) free(p->x[i]), free(p->dx[i]);
    free(p->y), free(p->dy), free(p->stats);
}

/* Twice into the same gradients must be twice the gradient */
static void pair_accumulates(pair *p) {
    int i;
    cmha_real *once[MAX_ARRAYS];
    size_t j;
    for (i = 0; i < p->n_in; i++) {
        once[i] = check_zeros(p->n[i]);
        memcpy(once[i], p->dx[i], p->n[i] * sizeof(cmha_real));
    }
    p->forward(p);
    p->backward(p);
    for (i = 0; i < p->n_in; i++) {
        for (j = 0; j < p->n[i]; j++) once[i][j] *= 2;
        CHECK_THAT(check_distance(once[i], p->dx[i], p->n[i]) <=
                       1e-12 * (1 + check_largest(once[i], p->n[i])),
                   "%s: the backward does not accumulate into input %d", p->name, i);
        free(once[i]);
    }
}

static void pair_check(pair *p) {
    static const char *const names[MAX_ARRAYS] = {"x0", "x1", "x2", "x3"};
    grad_input in[MAX_ARRAYS];
    char label[96];
    int i;
    snprintf(label, sizeof label, "%s %zu x %zu x %zu (%d)", p->name, p->T, p->I, p->O, p->option);
    p->forward(p);
    p->backward(p);
    for (i = 0; i < p->n_in; i++)
        in[i].name = names[i], in[i].x = p->x[i], in[i].grad = p->dx[i], in[i].n = p->n[i];
    grad_check(label, pair_loss, p, in, p->n_in, 60);
    pair_accumulates(p);
}

static cmha_norm_args norm_args(const pair *p, cmha_norm kind) {
    cmha_norm_args args = {kind, p->T, p->I, 1e-3};
    return args;
}
static void layernorm_forward(pair *p) {
    const cmha_norm_args args = norm_args(p, CMHA_NORM_LAYER);
    cmha_norm_forward(&args, p->x[0], p->x[1], p->option ? p->x[2] : NULL, p->y, p->stats);
}
static void layernorm_backward(pair *p) {
    const cmha_norm_args args = norm_args(p, CMHA_NORM_LAYER);
    const cmha_grads grads = {p->dx[0], p->dx[1], p->option ? p->dx[2] : NULL};
    cmha_norm_backward(&args, p->x[0], p->x[1], p->stats, p->dy, &grads);
}
static void rmsnorm_forward(pair *p) {
    const cmha_norm_args args = norm_args(p, CMHA_NORM_RMS);
    cmha_norm_forward(&args, p->x[0], p->x[1], NULL, p->y, p->stats);
}
static void rmsnorm_backward(pair *p) {
    const cmha_norm_args args = norm_args(p, CMHA_NORM_RMS);
    const cmha_grads grads = {p->dx[0], p->dx[1], NULL};
    cmha_norm_backward(&args, p->x[0], p->x[1], p->stats, p->dy, &grads);
}

static void check_norms(size_t T, size_t D) {
    pair l = {"layernorm", T, D, D, 1, {0},
              {0},
              0, 0, 0, {T * D, D, D},
              T * D, 3, 0, 0, 0, 0, layernorm_forward, layernorm_backward};
    pair r =
        {"rmsnorm",       T, D, D, 0, {0}, {0}, 0, 0, 0, {T * D, D}, T * D, 2, 0, 0, 0, 0, rmsnorm_forward,
         rmsnorm_backward};
    pair_open(&l), pair_check(&l), pair_close(&l);
    l.option = 0, l.n_in = 2;
    pair_open(&l), pair_check(&l), pair_close(&l);
    pair_open(&r), pair_check(&r), pair_close(&r);
}

static void gelu_forward(pair *p) {
    cmha_activation_forward(p->x[0], p->T, (cmha_activation)p->option, p->y);
}
static void gelu_backward(pair *p) {
    cmha_activation_backward(p->x[0], p->dy, p->T, (cmha_activation)p->option, p->dx[0]);
}
static const cmha_activation swiglu = CMHA_ACTIVATION_SWIGLU;
static void swiglu_forward(pair *p) { cmha_gated_forward(p->x[0], p->x[1], p->T, swiglu, p->y); }
static void swiglu_backward(pair *p) {
    cmha_gated_backward(p->x[0], p->x[1], p->dy, p->T, swiglu, p->dx[0], p->dx[1]);
}

static void check_activations(size_t n) {
    pair e = {"gelu", n, 1, 1, CMHA_ACTIVATION_GELU_ERF, {0},          {0}, 0, 0, 0, {n}, n, 1,
              0,      0, 0, 0, gelu_forward,  gelu_backward};
    pair s = {"swiglu",       n, 1, 1, 0, {0}, {0}, 0, 0, 0, {n, n}, n, 2, 0, 0, 0, 0, swiglu_forward,
              swiglu_backward};
    pair_open(&e), check_fill(e.x[0], n, 4), pair_check(&e), pair_close(&e);
    e.option = CMHA_ACTIVATION_GELU_TANH;
    pair_open(&e), check_fill(e.x[0], n, 4), pair_check(&e), pair_close(&e);
    pair_open(&s), check_fill(s.x[0], n, 6), pair_check(&s), pair_close(&s);
}

static void dropout_forward(pair *p) { cmha_dropout_forward(p->x[0], p->T, 0.3, 99, 5, p->y); }
/* "the same call on the cotangent"; it overwrites, so accumulate here */
static void dropout_backward(pair *p) {
    size_t i;
    cmha_dropout_forward(p->dy, p->T, 0.3, 99, 5, p->stats);
    for (i = 0; i < p->T; i++) p->dx[0][i] += p->stats[i];
}

static void embedding_forward(pair *p) { cmha_embedding_forward(p->x[0], p->ids, p->T, p->O, p->y); }
static void embedding_backward(pair *p) { cmha_embedding_backward(p->dy, p->ids, p->T, p->O, p->dx[0]); }

static void check_lookups(void) {
    static int32_t ids[] = {2, 0, 2, 2, 4, 0, 2};
    pair d = {"dropout",       301, 1, 1, 0, {0}, {0}, 0, 0, 0, {301}, 301, 1, 0, 0, 0, 0, dropout_forward,
              dropout_backward};
    pair e = {"embedding",       7, 5, 3, 0, {0}, {0}, 0, 0, 0, {15}, 21, 1, ids, 0, 0, 0, embedding_forward,
              embedding_backward};
    pair_open(&d), pair_check(&d), pair_close(&d);
    pair_open(&e), pair_check(&e);
    /* rows 1 and 3 are never looked up */
    CHECK(check_largest(e.dx[0] + 3, 3) == 0 && check_largest(e.dx[0] + 9, 3) == 0);
    pair_close(&e);
}

static void entropy_forward(pair *p) {
    const cmha_cross_entropy_args args = {p->T, p->I, p->ids, p->option};
    size_t counted;
    p->y[0] = cmha_cross_entropy_forward(&args, p->x[0], p->stats, &counted);
    CHECK(counted == (p->option == 0 ? p->T - 2 : p->T));
}
static void entropy_backward(pair *p) {
    const cmha_cross_entropy_args args = {p->T, p->I, p->ids, p->option};
    cmha_cross_entropy_backward(&args, p->x[0], p->stats, p->dy[0], p->dx[0]);
}

static void check_entropy(void) {
    static int32_t ids[] = {3, 0, 8, 1, 0};
    pair p = {"cross_entropy", 5, 9, 1, -1, {0}, {0}, 0, 0, 0, {45}, 1, 1, ids, 0, 0, 0, entropy_forward,
              entropy_backward};
    pair one = {"cross_entropy", 1, 2, 1, -1, {0}, {0}, 0, 0, 0, {2}, 1, 1, ids + 1, 0, 0, 0, entropy_forward,
                entropy_backward};
    pair_open(&p), pair_check(&p), pair_close(&p);
    p.option = 0; /* rows whose target is 0 do not count */
    pair_open(&p), pair_check(&p);
    CHECK(check_largest(p.dx[0] + 9, 9) == 0 && check_largest(p.dx[0] + 36, 9) == 0);
    pair_close(&p);
    pair_open(&one), pair_check(&one), pair_close(&one);
}

/* ----------------------------------------- phases and rotation ------------------------------------------ */

static void off_cut(cmha_real *x, size_t T, size_t P, cmha_layout layout) {
    size_t t, j;
    for (t = 0; t < T; t++)
        for (j = 0; j < P; j++) {
            cmha_real *re = x + t * 2 * P + (layout == CMHA_LAYOUT_HALF ? j : 2 * j),
                      *im = re + (layout == CMHA_LAYOUT_HALF ? P : 1);
            if (*re < 0.1 && fabs(*im) < 0.1) *im = *im < 0 ? -0.3 : 0.3;
        }
}

static void euler_forward(pair *p) { /* y = [modulus | phase] */
    const cmha_euler_args args = {p->T, p->I, (cmha_layout)p->option};
    cmha_euler_forward(&args, p->x[0], p->y, p->y + p->T * p->I);
}
static void euler_backward(pair *p) {
    const cmha_euler_args args = {p->T, p->I, (cmha_layout)p->option};
    cmha_euler_backward(&args, p->x[0], p->dy, p->dy + p->T * p->I, p->dx[0]);
}

static void check_euler(size_t T, size_t P, cmha_layout layout) {
    pair p = {"euler", T, P, 1, 0, {0},           {0},           0, 0, 0, {2 * T * P}, 2 * T * P,
              1,       0, 0, 0, 0, euler_forward, euler_backward};
    size_t i;
    double modulus;
    p.option = (int)layout;
    pair_open(&p);
    off_cut(p.x[0], T, P, layout);
    /* away from zero, where the phase's gradient is damped by 1e-12 / modulus^2 */
    for (i = 0; i < T * P; i++) {
        cmha_real *re = p.x[0] + (layout == CMHA_LAYOUT_HALF ? i / P * 2 * P + i % P : 2 * i),
                  *im = re + (layout == CMHA_LAYOUT_HALF ? P : 1);
        modulus = sqrt(*re * *re + *im * *im);
        if (modulus < 0.3) *re = 0.5;
    }
    pair_check(&p);
    pair_close(&p);
}

/* At modulus 0: phase 0, the modulus' gradient 0, the phase's finite */
static void check_euler_zero(void) {
    cmha_real x[4] = {0, 0, 3, -4}, modulus[2], phase[2], dm[2] = {1, 1}, dp[2] = {1e-3, 0},
              dx[4] = {0, 0, 0, 0};
    const cmha_euler_args args = {1, 2, CMHA_LAYOUT_INTERLEAVED};
    cmha_euler_forward(&args, x, modulus, phase);
    CHECK(modulus[0] == 0 && phase[0] == 0);
    CHECK_NEAR(modulus[1], 5, 1e-14);
    CHECK_NEAR(phase[1], atan2(-4, 3), 1e-14);
    cmha_euler_backward(&args, x, dm, dp, dx);
    CHECK(check_finite(dx, 4) && dx[0] == 0 && dx[1] == 0);
    CHECK_NEAR(dx[2], 0.6, 1e-14);
    CHECK_NEAR(dx[3], -0.8, 1e-14);
    dp[1] = 1;
    cmha_euler_backward(&args, x, dm, dp, NULL); /* nobody wants it */
    cmha_euler_backward(&args, x, NULL, dp, dx); /* only one of them */
    CHECK_NEAR(dx[2], 0.6 + 4 / 25.0, 1e-12);
    cmha_euler_forward(&args, x, NULL, phase);
    cmha_euler_forward(&args, x, modulus, NULL);
    CHECK_NEAR(modulus[1], 5, 1e-14);
}

/* x0 rows, x1 delta, x2 b; option bit 0: layout, bit 1: delta NULL, bit 2: b NULL. Rows are
   padded: ldx = 2P + 1, ldy = 2P + 3 */
static void rotate_table(pair *p, cmha_real *table) {
    double omega[512];
    cmha_frequencies(CMHA_FREQUENCY_ROPE, 50, p->I, NULL, omega);
    cmha_rotation_table(omega, p->I, p->T, 7, table);
}

static cmha_rotate_args rotate_args(const pair *p, const cmha_real *table) {
    cmha_rotate_args args;
    memset(&args, 0, sizeof args);
    args.P = p->I, args.layout = (cmha_layout)(p->option & 1), args.rotation = table;
    args.delta = p->option & 2 ? NULL : p->x[1], args.b = p->option & 6 ? NULL : p->x[2];
    args.rotary = p->option & 8 ? (p->I + 1) / 2 : 0;
    if (p->option & 16) args.polar = 1, args.delta = NULL, args.b = p->option & 4 ? NULL : p->x[1];
    return args;
}

static void rotate_forward(pair *p) {
    cmha_real *table = check_zeros(p->T * 2 * p->I);
    cmha_rotate_args args;
    rotate_table(p, table);
    args = rotate_args(p, table);
    cmha_rotate_forward(&args, p->x[0], 2 * p->I + 1, p->T, p->y, 2 * p->I + 3);
    free(table);
}

static void rotate_backward(pair *p) {
    cmha_real *table = check_zeros(p->T * 2 * p->I);
    double *dd = (double *)check_alloc(p->I, sizeof *dd), *db = (double *)check_alloc(p->I, sizeof *db);
    cmha_rotate_args args;
    size_t j;
    rotate_table(p, table);
    args = rotate_args(p, table);
    cmha_rotate_backward(&args, p->x[0], 2 * p->I + 1, p->T, p->dy, 2 * p->I + 3, p->dx[0],
                         args.delta ? dd : NULL, args.b ? db : NULL);
    for (j = 0; p->n_in > 1 && j < p->n[1]; j++) p->dx[1][j] += args.polar ? db[j] : dd[j];
    for (j = 0; j < p->I && p->n_in > 2; j++) p->dx[2][j] += db[j];
    free(table), free(dd), free(db);
}

static void check_rotate(size_t T, size_t P, int option) {
    size_t ldx = 2 * P + 1, ldy = 2 * P + 3, t;
    pair p = {"rotate", T, P, 1, 0, {0},
              {0},
              0, 0, 0, {T * ldx, P, P},
              T * ldy, 3, 0, 0, 0, 0, rotate_forward, rotate_backward};
    p.option = option;
    p.n_in = option & 2 ? 1 : option & 4 ? 2 : 3;
    pair_open(&p);
    for (t = 0; t < T; t++) off_cut(p.x[0] + t * ldx, 1, P, (cmha_layout)(option & 1));
    pair_check(&p);
    for (t = 0; t < T; t++)
        CHECK_THAT(p.dx[0][t * ldx + 2 * P] == 0, "rotate: the padding of row %zu got a gradient", t);
    pair_close(&p);
}

/* PoPE: rows of P numbers, and beta of those that rotate, a third of it beyond the clamp */
static void check_polar(size_t T, size_t P, int option) {
    size_t ldx = 2 * P + 1, rotary = option & 8 ? (P + 1) / 2 : P, t, j;
    pair p = {"polar", T, P, 1, 0, {0}, {0}, 0, 0, 0, {T * ldx, rotary, 0}, T * (2 * P + 3), 2, 0, 0, 0, 0,
              rotate_forward, rotate_backward};
    p.option = option | 16;
    p.n_in = option & 4 ? 1 : 2;
    pair_open(&p);
    for (j = 0; p.n_in > 1 && j < rotary; j++) p.x[1][j] -= j % 3 < 2 ? 3 : j % 2 ? -2 : 9;
    pair_check(&p);
    for (t = 0; t < T; t++)
        for (j = P; j < ldx; j++)
            CHECK_THAT(p.dx[0][t * ldx + j] == 0, "polar: number %zu of row %zu got a gradient", j, t);
    pair_close(&p);
}

/* lambda = 0: the gradient of the factorised form, g = e^{i theta} (Re t + i delta Im t) at
   theta = 0, t = dy e^{-i(b + angle)} */
static void check_rotate_zero(void) {
    cmha_real x[2] = {0, 0}, delta = 0.3, b = 0.4, y[2], dy[2] = {0.7, -1.1}, dx[2] = {0, 0}, table[2];
    double omega = 1, dd = 0, db = 0, angle = 0.4 + 5, tr, ti;
    cmha_rotate_args args;
    cmha_rotation_table(&omega, 1, 1, 5, table);
    memset(&args, 0, sizeof args);
    args.P = 1, args.rotation = table, args.delta = &delta, args.b = &b;
    cmha_rotate_forward(&args, x, 2, 1, y, 2);
    CHECK(y[0] == 0 && y[1] == 0);
    cmha_rotate_backward(&args, x, 2, 1, dy, 2, dx, &dd, &db);
    tr = dy[0] * cos(angle) + dy[1] * sin(angle);
    ti = dy[1] * cos(angle) - dy[0] * sin(angle);
    CHECK_NEAR(dx[0], tr, 1e-14);
    CHECK_NEAR(dx[1], 0.3 * ti, 1e-14);
    CHECK(dd == 0 && db == 0);
}

/* ------------------------------------------------- PCL -------------------------------------------------- */

static cmha_pcl_args pcl_arguments(pair *p) {
    cmha_pcl_args a;
    memset(&a, 0, sizeof a);
    a.N = p->T, a.P = p->I, a.tau = 0.3, a.w = p->x[1];
    if (p->option & 1) a.keep = p->keep;
    if (p->option & 2) a.positive = p->positive;
    if (p->option & 4) a.valid = p->valid;
    return a;
}

static void pcl_forward(pair *p) {
    cmha_pcl_args a = pcl_arguments(p);
    cmha_real *scratch = check_zeros(cmha_pcl_scratch(&a));
    p->y[0] = cmha_pcl_forward(&a, p->x[0], p->stats, scratch);
    free(scratch);
}

static void pcl_backward(pair *p) {
    cmha_pcl_args a = pcl_arguments(p);
    cmha_real *scratch = check_zeros(cmha_pcl_scratch(&a));
    cmha_pcl_backward(&a, p->x[0], p->stats, p->dy[0], p->dx[0], p->dx[1], scratch);
    free(scratch);
}

static int pcl_valid(const pair *p, size_t i) { return !(p->option & 4) || p->valid[i]; }

/* The definition, n^2 P cosines */
static double pcl_definition(pair *p) {
    size_t i, j, r, n = 0;
    double loss = 0;
    for (i = 0; i < p->T; i++) {
        double sum = 0, own = 0;
        size_t positive = p->option & 2 ? p->positive[i] : i;
        if (!pcl_valid(p, i)) continue;
        for (j = 0; j < p->T; j++) {
            double sim = 0;
            for (r = 0; r < p->I; r++)
                sim +=
                    p->x[1][r] * cos(p->x[0][i * p->I + r] -
                                     (p->option & 1 && !p->keep[j * p->I + r] ? 0 : p->x[0][j * p->I + r]));
            sim /= (double)p->I * 0.3;
            if (j == positive) own = sim;
            if (pcl_valid(p, j)) sum += exp(sim);
        }
        loss += log(sum) - own, n++;
    }
    return n ? loss / (double)n : 0;
}

static void check_pcl(size_t N, size_t P, int option) {
    pair p = {"pcl", N, P, 1, 0, {0}, {0}, 0, 0, 0, {N * P, P}, 1, 2, 0, 0, 0, 0, pcl_forward, pcl_backward};
    size_t i;
    p.option = option;
    p.keep = (unsigned char *)check_alloc(N * P, 1), p.valid = (unsigned char *)check_alloc(N, 1);
    p.positive = (size_t *)check_alloc(N, sizeof *p.positive);
    for (i = 0; i < N * P; i++) p.keep[i] = (unsigned char)(check_random() < 0);
    /* valid ones */
    for (i = 0; i < N; i++) p.valid[i] = (unsigned char)(i % 3 != 1), p.positive[i] = (i + 3) / 3 * 3 % N;
    for (i = 0; i < N && (option & 8); i++) p.positive[i] = (i + 1) % N; /* padding among them */
    pair_open(&p);
    check_fill(p.x[0], N * P, 3);
    p.dy[0] = 0.7;
    pcl_forward(&p);
    CHECK_THAT(fabs(p.y[0] - pcl_definition(&p)) < 1e-12,
               "pcl %zu x %zu (%d): %.15g, the definition says %.15g", N, P, option, p.y[0],
               pcl_definition(&p));
    if (N > 1) pair_check(&p);
    pair_close(&p);
    free(p.keep), free(p.valid), free(p.positive);
}

/* "any of which may be NULL": what is wanted must not depend on what is not */
static void check_unwanted(void) {
    enum { T = 3, I = 4 };
    cmha_real x[T * I], w[I * I], dy[T * I], stats[2 * T], y[T * I], a[T * I], b[T * I], c[I * I], d[I * I],
        e[I], f[I];
    const cmha_norm_args layer = {CMHA_NORM_LAYER, T, I, 1e-5}, rms = {CMHA_NORM_RMS, T, I, 1e-5};
    const cmha_grads some[4] = {{a, c, e}, {b, NULL, NULL}, {NULL, d, NULL}, {NULL, NULL, f}};
    int i;
    check_fill(x, T * I, 1), check_fill(w, I * I, 1), check_fill(dy, T * I, 1);
    memset(a, 0, sizeof a), memset(b, 0, sizeof b), memset(c, 0, sizeof c), memset(d, 0, sizeof d),
        memset(e, 0, sizeof e);
    memset(f, 0, sizeof f);
    cmha_norm_forward(&layer, x, w, NULL, y, stats);
    for (i = 0; i < 4; i++) cmha_norm_backward(&layer, x, w, stats, dy, &some[i]);
    CHECK(check_distance(a, b, T * I) < 1e-14 && check_distance(c, d, I * I) < 1e-14 &&
          check_distance(e, f, I) < 1e-14);
    cmha_norm_forward(&rms, x, w, NULL, y, stats);
    for (i = 0; i < 4; i++) cmha_norm_backward(&rms, x, w, stats, dy, &some[i]);
    CHECK(check_distance(a, b, T * I) < 1e-14 && check_distance(c, d, I * I) < 1e-14);
    cmha_gated_backward(x, dy, dy, T * I, swiglu, a, NULL);
    cmha_gated_backward(x, dy, dy, T * I, swiglu, b, c);
    CHECK(check_distance(a, b, T * I) < 1e-14);
    cmha_gated_backward(x, dy, dy, T * I, swiglu, NULL, d);
    CHECK(check_distance(c, d, T * I) < 1e-14);
}

int main(int argc, char **argv) {
    int i;
    (void)argc;
    cmha_blas_restart(argv);
    check_norms(1, 5), check_norms(4, 7), check_norms(3, 65);
    check_activations(1), check_activations(37), check_activations(300);
    check_unwanted();
    check_lookups();
    check_entropy();
    for (i = 0; i < 2; i++)
        check_euler(1, 1, (cmha_layout)i), check_euler(9, 5, (cmha_layout)i),
            check_euler(3, 32, (cmha_layout)i);
    check_euler_zero();
    for (i = 8; i < 14; i++) check_rotate(5, 7, i);
    check_rotate(2, 300, 9);
    check_polar(5, 7, 0), check_polar(5, 7, 8), check_polar(3, 4, 4), check_polar(2, 300, 8);
    check_polar(1, 1, 0);
    for (i = 0; i < 6; i++) check_rotate(1, 1, i), check_rotate(5, 3, i), check_rotate(70, 8, i);
    check_rotate_zero();
    CHECK_NEAR(positions_apart(), 0, 1e-15);
    for (i = 0; i < 16; i++) check_pcl(1, 3, i & 1), check_pcl(7, 3, i), check_pcl(66, 2, i);
    return check_end();
}
