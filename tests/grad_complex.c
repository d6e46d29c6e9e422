/* Gradients of the complex building blocks, the kernels and the operations on a tape: backward
   against differences of forward, that backward accumulates, and that a gradient does not
   depend on which others are wanted. */
#ifndef CMHA_DOUBLE
#define CMHA_DOUBLE
#endif
#include "grad.h"

enum { MAX_IN = 4 };

/* A function under test: inputs x, output y, cotangent dy. forward and backward know what it is; so does
   build, for an operation on a tape. */
typedef struct probe {
    const char *name;
    size_t T, I, O; /* rows, complex numbers in and out; their meaning is the function's business */
    int option, n_in;
    size_t n[MAX_IN], ny, shape[MAX_IN][CMHA_MAX_RANK];
    int rank[MAX_IN];
    cmha_real *x[MAX_IN], *dx[MAX_IN], *y, *dy, *scratch;
    double *stats;
    void (*forward)(struct probe *p);
    void (*backward)(struct probe *p);
    cmha_tensor *(*build)(struct probe *p, cmha_tensor **in);
    cmha_tape tape;
} probe;

static cmha_context context;
static const unsigned char mask[] = {1, 0, 1, 1, 0, 1, 1, 1};

typedef void (*probe_call)(probe *p);

static probe probe_of(const char *name, size_t T, size_t I, size_t O, int n_in, probe_call forward,
                      probe_call backward) {
    probe p;
    memset(&p, 0, sizeof p);
    p.name = name, p.T = T, p.I = I, p.O = O, p.n_in = n_in, p.forward = forward, p.backward = backward;
    return p;
}

static double probe_loss(void *user) {
    probe *p = (probe *)user;
    p->forward(p);
    return grad_dot(p->y, p->dy, p->ny);
}

/* Each gradient alone must be what it is among all of them */
static void probe_alone(probe *p) {
    cmha_real *all[MAX_IN], *alone;
    int i, j;
    memcpy(all, p->dx, sizeof all);
    for (i = 0; i < p->n_in; i++) {
        for (j = 0; j < p->n_in; j++) p->dx[j] = NULL;
        p->dx[i] = alone = check_zeros(p->n[i]);
        p->forward(p);
        p->backward(p);
        CHECK_THAT(check_distance(alone, all[i], p->n[i]) <= 1e-12 * (1 + check_largest(alone, p->n[i])),
                   "%s (%d): the gradient of input %d alone is another", p->name, p->option, i);
        free(alone);
    }
    memcpy(p->dx, all, sizeof all);
}

static void probe_accumulates(probe *p) {
    cmha_real *twice[MAX_IN];
    size_t j;
    int i;
    for (i = 0; i < p->n_in; i++) {
        twice[i] = check_zeros(p->n[i]);
        for (j = 0; j < p->n[i]; j++) twice[i][j] = 2 * p->dx[i][j];
    }
    p->forward(p);
    p->backward(p);
    for (i = 0; i < p->n_in; i++) {
        CHECK_THAT(check_distance(twice[i], p->dx[i], p->n[i]) <=
                       1e-12 * (1 + check_largest(twice[i], p->n[i])),
                   "%s (%d): the backward does not accumulate into input %d", p->name, p->option, i);
        free(twice[i]);
    }
}

static void probe_check(probe *p) {
    static const char *const names[MAX_IN] = {"x0", "x1", "x2", "x3"};
    grad_input in[MAX_IN];
    char label[96];
    int i;
    snprintf(label, sizeof label, "%s (%d) %zu x %zu x %zu", p->name, p->option, p->T, p->I, p->O);
    p->forward(p);
    p->backward(p);
    for (i = 0; i < p->n_in; i++)
        in[i].name = names[i], in[i].x = p->x[i], in[i].grad = p->dx[i], in[i].n = p->n[i];
    grad_check(label, probe_loss, p, in, p->n_in, 40);
    probe_alone(p);
    probe_accumulates(p);
}

static void probe_run(probe *p) {
    int i;
    for (i = 0; i < p->n_in; i++) p->x[i] = check_array(p->n[i], 1.3), p->dx[i] = check_zeros(p->n[i]);
    p->y = check_zeros(p->ny), p->dy = check_array(p->ny, 1);
    p->scratch = check_zeros(4096);
    p->stats = (double *)check_alloc(4096, sizeof *p->stats);
    probe_check(p);
    for (i = 0; i < p->n_in; i++) free(p->x[i]), free(p->dx[i]);
    free(p->y), free(p->dy), free(p->scratch), free(p->stats);
}

/* ----------------------------------------------- kernels ------------------------------------------------ */

static cmha_complex_linear_args linear_args(const probe *p) {
    cmha_complex_linear_args a = {0, 0, 0, 0, 0, 0};
    a.T = p->T, a.n_in = p->I, a.n_out = p->O, a.adjoint = p->option, a.threads = 2;
    return a;
}
static void linear_forward(probe *p) {
    cmha_complex_linear_args a = linear_args(p);
    cmha_complex_linear_forward(&a, p->x[0], p->x[1], p->n_in > 2 ? p->x[2] : NULL, p->y, p->scratch);
}
static void linear_backward(probe *p) {
    cmha_complex_linear_args a = linear_args(p);
    const cmha_grads grads = {p->dx[0], p->dx[1], p->n_in > 2 ? p->dx[2] : NULL};
    cmha_complex_linear_backward(&a, p->x[0], p->x[1], p->dy, &grads, p->scratch);
}

static void check_linear(size_t T, size_t I, size_t O) {
    probe p = probe_of("complex_linear", T, I, O, 0, linear_forward, linear_backward);
    p.n[0] = 2 * T * I, p.n[1] = 2 * O * I, p.n[2] = 2 * O, p.ny = 2 * T * O;
    for (p.option = 0; p.option < 2; p.option++)
        for (p.n_in = 2; p.n_in <= 3; p.n_in++) probe_run(&p);
}

static void rotate_forward(probe *p) { cmha_complex_rotate_forward(p->x[0], p->x[1], p->T, p->I, p->y); }
static void rotate_backward(probe *p) {
    cmha_complex_rotate_backward(p->x[0], p->x[1], p->dy, p->T, p->I, p->dx[0], p->dx[1]);
}
static void phasor_forward(probe *p) { cmha_phasor_forward(p->x[0], p->T, p->I, p->option / 10.0, p->y); }
static void phasor_backward(probe *p) {
    cmha_phasor_backward(p->x[0], p->dy, p->T, p->I, p->option / 10.0, p->dx[0]);
}

static void check_elementwise(size_t T, size_t D) {
    size_t W = 2 * D;
    probe r = probe_of("complex_rotate", T, D, D, 2, rotate_forward, rotate_backward);
    probe u = probe_of("phasor", T, D, D, 1, phasor_forward, phasor_backward);
    r.n[0] = r.ny = T * W, r.n[1] = T * D;
    u.n[0] = u.ny = T * W;
    probe_run(&r);
    for (u.option = 1; u.option < 12; u.option += 5) probe_run(&u);
}

static const cmha_real norm_eps = 1e-3;

static size_t gamma_size(int kind, size_t D) {
    return kind == CMHA_COMPLEX_NORM_CRMS ? D : kind == CMHA_COMPLEX_NORM_WHITEN ? 3 * D : 2 * D;
}
static cmha_complex_norm_args norm_args(int kind, size_t T, size_t D, cmha_real eps) {
    cmha_complex_norm_args a;
    a.kind = (cmha_complex_norm_kind)kind, a.T = T, a.D = D, a.eps = eps;
    return a;
}
static void norm_forward(probe *p) {
    cmha_complex_norm_args a = norm_args(p->option, p->T, p->I, norm_eps);
    cmha_complex_norm_forward(&a, p->x[0], p->n_in > 1 ? p->x[1] : NULL, p->n_in > 2 ? p->x[2] : NULL, p->y,
                              p->stats);
}
static void norm_backward(probe *p) {
    cmha_complex_norm_args a = norm_args(p->option, p->T, p->I, norm_eps);
    const cmha_grads grads = {p->dx[0], p->n_in > 1 ? p->dx[1] : NULL, p->n_in > 2 ? p->dx[2] : NULL};
    cmha_complex_norm_backward(&a, p->x[0], p->n_in > 1 ? p->x[1] : NULL, p->stats, p->dy, &grads);
}

static void check_norms(size_t T, size_t D) {
    probe p = probe_of("complex_norm", T, D, D, 0, norm_forward, norm_backward);
    p.n[0] = p.ny = 2 * T * D, p.n[2] = 2 * D;
    for (p.option = CMHA_COMPLEX_NORM_CLN; p.option <= CMHA_COMPLEX_NORM_WHITEN; p.option++)
        for (p.n_in = 1; p.n_in <= 3; p.n_in++) {
            p.n[1] = gamma_size(p.option, D);
            probe_run(&p);
        }
}

/* Rows whose covariance is close to singular: Im = 2 Re + a little */
static void correlated_forward(probe *p) {
    size_t t, j, D = p->I;
    cmha_complex_norm_args a = norm_args(CMHA_COMPLEX_NORM_WHITEN, p->T, D, 1e-4);
    cmha_real *z = p->scratch;
    for (t = 0; t < p->T; t++)
        for (j = 0; j < D; j++) {
            const cmha_real *x = p->x[0] + 2 * t * D;
            z[2 * t * D + j] = x[j];
            z[2 * t * D + D + j] = 2 * x[j] + 1e-2 * x[D + j];
        }
    cmha_complex_norm_forward(&a, z, NULL, NULL, p->y, p->stats);
}
static void correlated_backward(probe *p) {
    size_t t, j, D = p->I;
    cmha_complex_norm_args a = norm_args(CMHA_COMPLEX_NORM_WHITEN, p->T, D, 1e-4);
    cmha_real *dz = check_zeros(2 * p->T * D);
    const cmha_grads grads = {dz, NULL, NULL};
    cmha_complex_norm_backward(&a, p->scratch, NULL, p->stats, p->dy, &grads);
    for (t = 0; t < p->T; t++)
        for (j = 0; j < D; j++) {
            p->dx[0][2 * t * D + j] += dz[2 * t * D + j] + 2 * dz[2 * t * D + D + j];
            p->dx[0][2 * t * D + D + j] += 1e-2 * dz[2 * t * D + D + j];
        }
    free(dz);
}

static void relu_forward(probe *p) { cmha_activation_forward(p->x[0], p->T, CMHA_ACTIVATION_RELU, p->y); }
static void relu_backward(probe *p) {
    cmha_activation_backward(p->x[0], p->dy, p->T, CMHA_ACTIVATION_RELU, p->dx[0]);
}

static void check_kernels(void) {
    probe c = probe_of("whiten, correlated", 5, 9, 9, 1, correlated_forward, correlated_backward);
    probe r = probe_of("relu", 33, 1, 1, 1, relu_forward, relu_backward);
    c.n[0] = c.ny = 90, r.n[0] = r.ny = 33;
    check_linear(1, 1, 1), check_linear(3, 5, 4), check_linear(7, 2, 19);
    check_elementwise(1, 1), check_elementwise(4, 17);
    check_norms(3, 2), check_norms(4, 19), check_norms(2, 131);
    probe_run(&c), probe_run(&r);
}

/* ----------------------------------------- operations on a tape ----------------------------------------- */

static cmha_tensor *tape_output(probe *p, int wanted) {
    cmha_tensor *in[MAX_IN] = {0};
    int i;
    cmha_tape_reset(&p->tape);
    for (i = 0; i < p->n_in; i++)
        in[i] = cmha_tensor_wrap(&p->tape, p->rank[i], p->shape[i], p->x[i], wanted ? p->dx[i] : NULL);
    return p->build(p, in);
}

static void tape_forward(probe *p) {
    cmha_tensor *y = tape_output(p, 0);
    if (CHECK_THAT(y && y->size == p->ny, "%s: %s", p->name, cmha_error(&context)))
        memcpy(p->y, y->data, p->ny * sizeof *p->y);
}

static cmha_status dot_backward(cmha_tape *tape, cmha_record *record) {
    cmha_real *g = cmha_tape_grad(tape, record->in[0]);
    size_t i;
    for (i = 0; g && i < record->in[0]->size; i++)
        g[i] += record->out->grad[0] * ((const cmha_real *)record->user)[i];
    return cmha_tape_status(tape);
}

static void tape_backward(probe *p) {
    cmha_tensor *y = tape_output(p, 1), *loss;
    size_t one = 1;
    loss = cmha_tape_push(&p->tape, "dot", cmha_tensor_new(&p->tape, 1, &one, 0), &y, 1, dot_backward, p->dy);
    CHECK_THAT(!cmha_tape_backward(&p->tape, loss, 1), "%s: %s", p->name, cmha_error(&context));
}

/* Shapes are written as three sizes each, 0 for a missing axis */
static void tape_run(const char *name, cmha_tensor *(*build)(probe *, cmha_tensor **), int option, int n_in,
                     size_t shape[][3]) {
    probe p = probe_of(name, 0, 0, 0, n_in, tape_forward, tape_backward);
    cmha_tensor *y;
    size_t j;
    int i;
    p.build = build, p.option = option;
    CHECK_OK(cmha_tape_init(&p.tape, &context, 1));
    for (i = 0; i < n_in; i++) {
        for (p.n[i] = 1, j = 0; j < 3 && shape[i][j]; j++) p.n[i] *= p.shape[i][j] = shape[i][j];
        p.rank[i] = (int)j;
        p.x[i] = check_zeros(p.n[i]);
    }
    y = tape_output(&p, 0);
    CHECK_THAT(y != NULL, "%s: %s", name, cmha_error(&context));
    p.ny = y ? y->size : 0;
    for (i = 0; i < n_in; i++) free(p.x[i]);
    if (p.ny) probe_run(&p);
    cmha_tape_close(&p.tape);
}

static cmha_tensor *build_linear(probe *p, cmha_tensor **in) {
    return cmha_complex_linear(&p->tape, in[0], in[1], in[2]);
}
/* a gradient that is already there when the first one comes */
static cmha_tensor *build_twice(probe *p, cmha_tensor **in) {
    cmha_tensor *h = cmha_complex_linear(&p->tape, in[0], in[1], NULL);
    return cmha_add(&p->tape, cmha_complex_linear(&p->tape, h, in[1], NULL), h);
}
static cmha_tensor *build_lowrank(probe *p, cmha_tensor **in) {
    return cmha_complex_lowrank(&p->tape, in[0], in[1], in[2], in[3]);
}
static cmha_tensor *build_rotate(probe *p, cmha_tensor **in) {
    return cmha_complex_rotate(&p->tape, in[0], in[1]);
}
static cmha_tensor *build_norm(probe *p, cmha_tensor **in) {
    return cmha_complex_norm(&p->tape, in[0], (cmha_complex_norm_kind)p->option, in[1], in[2], norm_eps);
}
static cmha_tensor *build_phasor(probe *p, cmha_tensor **in) { return cmha_phasor(&p->tape, in[0], 0.3); }
static cmha_tensor *build_join(probe *p, cmha_tensor **in) {
    return cmha_complex_join(&p->tape, in[0], in[1]);
}
static cmha_tensor *build_real(probe *p, cmha_tensor **in) { return cmha_complex_part(&p->tape, in[0], 0); }
static cmha_tensor *build_imag(probe *p, cmha_tensor **in) { return cmha_complex_part(&p->tape, in[0], 1); }
/* option: positions and the first of them, 1000 n + pos0 */
static cmha_tensor *build_multifreq(probe *p, cmha_tensor **in) {
    return cmha_multifreq(&p->tape, in[0], in[1], (size_t)p->option / 1000, (size_t)p->option % 1000);
}
static cmha_tensor *build_add_rows(probe *p, cmha_tensor **in) {
    return cmha_add_rows(&p->tape, in[0], in[1]);
}
static cmha_tensor *build_phase(probe *p, cmha_tensor **in) {
    return cmha_phase_reg(&p->tape, in[0], p->option ? mask : NULL, 0.7, 0.2);
}
static cmha_tensor *build_mag(probe *p, cmha_tensor **in) {
    return cmha_mag_reg(&p->tape, in[0], p->option ? mask : NULL, 0.7);
}
static cmha_tensor *build_relu(probe *p, cmha_tensor **in) {
    return cmha_activate(&p->tape, in[0], CMHA_ACTIVATION_RELU);
}
static cmha_tensor *build_sublayer(probe *p, cmha_tensor **in) {
    return cmha_sublayer(&p->tape, in[0], CMHA_ACTIVATION_RELU, in[1], in[2], NULL, 1, 0);
}

static void check_tape_linear(void) {
    size_t dense[3][3] = {{2, 3, 10}, {2, 4, 5}, {2, 4}}, square[2][3] = {{2, 4, 6}, {2, 3, 3}};
    size_t low[4][3] = {{2, 3, 10}, {2, 4, 2}, {2, 5, 2}, {2, 4}},
           wide[3][3] = {{1, 130, 66}, {2, 40, 33}, {2, 40}};
    tape_run("complex_linear", build_linear, 0, 3, dense);
    tape_run("complex_linear, no bias", build_linear, 0, 2, dense);
    tape_run("complex_linear, threads", build_linear, 0, 3, wide);
    tape_run("complex_linear, twice", build_twice, 0, 2, square);
    tape_run("complex_lowrank", build_lowrank, 0, 4, low);
    tape_run("complex_lowrank, no bias", build_lowrank, 0, 3, low);
}

static void check_tape(void) {
    size_t z[2][3] = {{2, 4, 10}, {2, 4, 10}}, angles[2][3] = {{2, 4, 10}, {2, 4, 5}},
           parts[2][3] = {{2, 3, 5}, {2, 3, 5}};
    size_t norm[3][3] = {{2, 4, 10}, {2, 5}, {2, 5}}, waves[2][3] = {{3, 5}, {3, 5}},
           rows[2][3] = {{3, 4, 5}, {4, 5}};
    size_t ffn[3][3] = {{2, 3, 6}, {4, 6}, {4}}, one[2][3] = {{1, 1}, {1, 1}},
           broad[2][3] = {{2, 131}, {2, 131}};
    size_t rest[2][3] = {{8, 6}}, last[2][3] = {{5, 36}},
           single[2][3] = {{1, 1}, {1, 1}};
    int i;
    check_tape_linear();
    tape_run("complex_rotate", build_rotate, 0, 2, angles);
    for (i = CMHA_COMPLEX_NORM_CLN; i <= CMHA_COMPLEX_NORM_WHITEN; i++) {
        norm[1][0] = gamma_size(i, 1);
        tape_run("complex_norm", build_norm, i, 3, norm);
        tape_run("complex_norm, no beta", build_norm, i, 2, norm);
        tape_run("complex_norm, no gamma", build_norm, i, 1, norm);
    }
    tape_run("phasor", build_phasor, 0, 1, z);
    for (i = 0; i < 2; i++) {
        tape_run("phase_reg", build_phase, i, 1, z), tape_run("phase_reg", build_phase, i, 1, rest);
        tape_run("phase_reg", build_phase, i, 1, last);
        tape_run("mag_reg", build_mag, i, 1, z), tape_run("mag_reg", build_mag, i, 1, rest);
        tape_run("mag_reg", build_mag, i, 1, last);
    }
    tape_run("complex_join", build_join, 0, 2, parts);
    tape_run("complex_join, no im", build_join, 0, 1, parts);
    tape_run("complex_join, one number", build_join, 0, 2, single);
    tape_run("complex_real", build_real, 0, 1, z);
    tape_run("complex_imag", build_imag, 0, 1, z);
    tape_run("multifreq", build_multifreq, 7011, 2, waves);
    tape_run("multifreq, one number", build_multifreq, 1003, 2, one);
    tape_run("multifreq, long", build_multifreq, 70000, 2, waves);
    tape_run("multifreq, wide", build_multifreq, 4017, 2, broad);
    tape_run("add_rows", build_add_rows, 0, 2, rows);
    tape_run("relu", build_relu, 0, 1, z);
    tape_run("sublayer, relu", build_sublayer, 0, 3, ffn);
}

int main(int argc, char **argv) {
    (void)argc;
    cmha_blas_restart(argv);
    check_context(&context, 3, 1);
    check_kernels();
    check_tape();
    cmha_context_close(&context);
    return check_end();
}
