/* Gradients of the complex quotient, the Möbius map and the product by a complex vector:
   the kernels, and the same on a tape. */
#ifndef CMHA_DOUBLE
#define CMHA_DOUBLE
#endif
#include "grad.h"

typedef enum operation { QUOTIENT, MOBIUS, SCALE } operation;

typedef struct trial {
    operation op;
    cmha_quotient_kind kind;
    cmha_real eps;
    size_t T, D, n[2]; /* n: of the two inputs */
    cmha_real *x[2], *dx[2], *y, *dy;
    cmha_tape *tape; /* NULL: call the kernels */
} trial;

static cmha_context context;

static void kernel_forward(trial *p) {
    if (p->op == QUOTIENT) cmha_quotient_forward(p->x[0], p->x[1], p->T, p->D, p->kind, p->eps, p->y);
    else if (p->op == MOBIUS) cmha_mobius_forward(p->x[0], p->x[1], p->T, p->D, p->kind, p->eps, p->y);
    else cmha_elementwise_complex_forward(p->x[0], p->x[1], p->T, p->D, p->y);
}

static void kernel_backward(trial *p, cmha_real *dx, cmha_real *dw) {
    if (p->op == QUOTIENT)
        cmha_quotient_backward(p->x[0], p->x[1], p->dy, p->T, p->D, p->kind, p->eps, dx, dw);
    else if (p->op == MOBIUS)
        cmha_mobius_backward(p->x[0], p->x[1], p->dy, p->T, p->D, p->kind, p->eps, dx, dw);
    else cmha_elementwise_complex_backward(p->x[0], p->x[1], p->dy, p->T, p->D, dx, dw);
}

static cmha_status dot_backward(cmha_tape *tape, cmha_record *record) {
    const cmha_real *cot = (const cmha_real *)record->user;
    cmha_real *g = cmha_tape_grad(tape, record->in[0]);
    size_t i;
    for (i = 0; g && i < record->in[0]->size; i++) g[i] += record->out->grad[0] * cot[i];
    return cmha_tape_status(tape);
}

/* The operation on a tape as [1, T, 2D], and <dy, y> of it by an operation of the test's own */
static cmha_tensor *tape_loss(trial *p) {
    size_t one = 1, rows[3] = {1, p->T, 2 * p->D}, weight[3] = {p->n[1] / (2 * p->D), 2, p->D};
    cmha_tensor *x, *w, *y, *loss;
    cmha_tape_reset(p->tape);
    x = cmha_tensor_wrap(p->tape, 3, rows, p->x[0], p->dx[0]);
    w = cmha_tensor_wrap(p->tape, 3, p->op == QUOTIENT ? rows : weight, p->x[1], p->dx[1]);
    y = p->op == QUOTIENT ? cmha_quotient(p->tape, x, w, p->kind, p->eps)
        : p->op == MOBIUS ? cmha_mobius(p->tape, x, w, p->kind, p->eps)
                          : cmha_elementwise_complex(p->tape, x, w);
    if (!y) return puts(cmha_error(&context)), NULL;
    loss = cmha_tensor_new(p->tape, 1, &one, 0);
    loss->data[0] = (cmha_real)grad_dot(y->data, p->dy, y->size);
    return cmha_tape_push(p->tape, "dot", loss, &y, 1, dot_backward, p->dy);
}

static double trial_loss(void *user) {
    trial *p = (trial *)user;
    cmha_tensor *y;
    if (p->tape) return (y = tape_loss(p)) ? (double)y->data[0] : NAN;
    kernel_forward(p);
    return grad_dot(p->y, p->dy, 2 * p->T * p->D);
}

static void trial_backward(trial *p) {
    if (p->tape) CHECK_OK(cmha_tape_backward(p->tape, tape_loss(p), 1));
    else kernel_backward(p, p->dx[0], p->dx[1]);
}

static void trial_check(trial *p) {
    static const char *const names[3] = {"quotient", "mobius", "scale"};
    grad_input in[2];
    cmha_real *once = check_zeros(p->n[1]);
    char label[96];
    size_t i;
    snprintf(label, sizeof label, "%s%s kind %d eps %g, %zu x %zu", p->tape ? "tape " : "", names[p->op],
             (int)p->kind, (double)p->eps, p->T, p->D);
    trial_backward(p);
    for (i = 0; i < 2; i++)
        in[i].name = i ? "w" : "x", in[i].x = p->x[i], in[i].grad = p->dx[i], in[i].n = p->n[i];
    grad_check(label, trial_loss, p, in, 2, 24);
    memcpy(once, p->dx[1], p->n[1] * sizeof *once);
    trial_backward(p);
    for (i = 0; i < p->n[1]; i++) once[i] *= 2;
    CHECK_THAT(check_distance(once, p->dx[1], p->n[1]) <= 1e-12 * check_largest(once, p->n[1]),
               "%s: does not accumulate", label);
    if (!p->tape) { /* each gradient alone is the same gradient */
        kernel_backward(p, NULL, NULL);
        memset(p->dx[1], 0, p->n[1] * sizeof *once);
        kernel_backward(p, NULL, p->dx[1]), kernel_backward(p, NULL, p->dx[1]);
        CHECK_THAT(check_distance(once, p->dx[1], p->n[1]) <= 1e-12 * check_largest(once, p->n[1]),
                   "%s: dw alone differs", label);
    }
    free(once);
}

static void trial_run(operation op, cmha_quotient_kind kind, double eps, size_t T, size_t D,
                      cmha_tape *tape) {
    size_t n = 2 * T * D, n_w = op == QUOTIENT ? n : op == MOBIUS ? 8 * D : 2 * D;
    trial p = {op, kind, (cmha_real)eps, T, D, {n, n_w}, {0}, {0}, 0, 0, tape};
    /* where eps makes the map smooth */
    int i, pole = op == QUOTIENT && kind != CMHA_QUOTIENT_EXACT && eps > 0 && D > 1;
    for (i = 0; i < 2; i++) p.x[i] = check_array(p.n[i], 1.3), p.dx[i] = check_zeros(p.n[i]);
    p.y = check_zeros(n), p.dy = check_array(n, 1);
    if (pole) p.x[1][0] = p.x[1][D] = 0;
    trial_check(&p);
    for (i = 0; i < 2; i++) free(p.x[i]), free(p.dx[i]);
    free(p.y), free(p.dy);
}

/* ---- Saturated softmaxes (MöbiusAttention eq 9) ---- */

enum { TOKENS = 7, WIDTH = 4, NUMBERS = TOKENS * 2 * WIDTH };

/* The gradient of q by its definition in long double: of key j p_j sum_l p_l (dP_j - dP_l), where nothing
   cancels. Returns the largest |dP|. */
static double exact_dq(const double *q, const double *k, const double *v, const double *dy, double scale,
                       long double *dq) {
    long double p[TOKENS], dp[TOKENS];
    double most = 0;
    for (size_t i = 0; i < NUMBERS; i++) dq[i] = 0;
    for (size_t at = 0; at < 2 * TOKENS; at++) { /* each token's softmax of Re O, then of Im O */
        size_t t = at / 2, imag = at % 2, row = t * 2 * WIDTH;
        long double top = -1e30L, sum = 0;
        for (size_t j = 0; j <= t; j++) {
            p[j] = dp[j] = 0;
            for (size_t c = 0; c < WIDTH; c++) {
                const double *key = k + j * 2 * WIDTH + c, *value = v + j * 2 * WIDTH + c;
                long double re = q[row + c], im = q[row + WIDTH + c], gr = dy[row + c];
                long double gi = dy[row + WIDTH + c];
                p[j] += scale * (imag ? re * key[WIDTH] + im * key[0] : re * key[0] - im * key[WIDTH]);
                dp[j] += imag ? gi * value[0] - gr * value[WIDTH] : gr * value[0] + gi * value[WIDTH];
            }
            most = fmax(most, fabs((double)dp[j]));
            if (p[j] > top) top = p[j];
        }
        for (size_t j = 0; j <= t; j++) sum += p[j] = expl(p[j] - top);
        for (size_t j = 0; j <= t; j++) {
            long double slope = 0;
            for (size_t l = 0; l <= t; l++) slope += p[l] / sum * (dp[j] - dp[l]);
            slope *= p[j] / sum * scale;
            for (size_t c = 0; c < WIDTH; c++) {
                const double *key = k + j * 2 * WIDTH + c;
                dq[row + c] += slope * (imag ? key[WIDTH] : key[0]);
                dq[row + WIDTH + c] += slope * (imag ? key[0] : -key[WIDTH]);
            }
        }
    }
    return most;
}

/* Where one key has the weight 1 - w, p (dP - sum p dP) subtracts numbers that agree to w: the gradient is
   exact to some units in the last place of scale |dP|, not of itself. */
static void saturated(double scale) {
    cmha_attention_args a;
    cmha_attention_views x;
    double *one[8];
    cmha_heads *const views[8] = {&x.q, &x.k, &x.v, &x.y, &x.dy, &x.dq, &x.dk, &x.dv};
    long double dq[NUMBERS];
    memset(&a, 0, sizeof a);
    a.batch = a.heads = a.kv_heads = 1, a.n_q = a.n_k = TOKENS, a.d_k = a.d_v = WIDTH;
    a.scale = scale, a.causal = 1, a.complex_v = a.bilinear = 1;
    a.kind = CMHA_ATTENTION_COMPLEX, a.softmax = CMHA_SOFTMAX_RI_PRODUCT;
    for (size_t i = 0; i < 8; i++) {
        one[i] = check_zeros(NUMBERS);
        *views[i] = cmha_heads_by_head(one[i], 1, TOKENS, WIDTH, 1);
        if (i < 3 || i == 4) check_fill(one[i], NUMBERS, 1);
    }
    double *scratch = check_zeros(cmha_attention_scratch(&a, 0) + cmha_attention_scratch(&a, 1));
    cmha_attention_forward(&a, &x, NULL, scratch);
    cmha_attention_backward(&a, &x, NULL, NULL, NULL, scratch);
    double unit = exact_dq(one[0], one[1], one[2], one[4], scale, dq) * scale * 2.2e-16, off = 0;
    for (size_t i = 0; i < NUMBERS; i++) off = fmax(off, fabs((double)(one[5][i] - dq[i])));
    CHECK_THAT(off <= 16 * unit, "scale %g: dq is off by %g units of scale |dP|", scale, off / unit);
    CHECK(check_largest(one[5], NUMBERS) > 0);
    for (size_t i = 0; i < 8; i++) free(one[i]);
    free(scratch);
}

int main(void) {
    static const double eps[3] = {0, 1e-3, 0.5};
    static const size_t sizes[4][2] = {{1, 1}, {3, 5}, {5, 19}, {2, 258}};
    cmha_tape tape;
    int kind, e, s;
    check_context(&context, 2, 1);
    CHECK_OK(cmha_tape_init(&tape, &context, 1));
    for (s = 0; s < 4; s++)
        for (kind = 0; kind < 3; kind++)
            for (e = 0; e < 3; e++) {
                trial_run(QUOTIENT, (cmha_quotient_kind)kind, eps[e], sizes[s][0], sizes[s][1], NULL);
                trial_run(QUOTIENT, (cmha_quotient_kind)kind, eps[e], sizes[s][0], sizes[s][1], &tape);
                trial_run(MOBIUS, (cmha_quotient_kind)kind, eps[e], sizes[s][0], sizes[s][1], NULL);
                trial_run(MOBIUS, (cmha_quotient_kind)kind, eps[e], sizes[s][0], sizes[s][1], &tape);
            }
    for (s = 0; s < 4; s++) {
        trial_run(SCALE, CMHA_QUOTIENT_REG, 0, sizes[s][0], sizes[s][1], NULL);
        trial_run(SCALE, CMHA_QUOTIENT_REG, 0, sizes[s][0], sizes[s][1], &tape);
    }
    for (double scale = 0.5; scale < 1000; scale *= 2) saturated(scale);
    cmha_tape_close(&tape);
    cmha_context_close(&context);
    return check_end();
}
