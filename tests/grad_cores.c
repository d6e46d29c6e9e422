/* Gradients of the linear and the lag core, as kernels and on a tape. */
#ifndef CMHA_DOUBLE
#define CMHA_DOUBLE
#endif
#include "grad.h"

/* One call: q, k [B, H, n, 2d], v, y [B, H, n, width], and how to run it */
typedef struct call {
    const char *name;
    size_t B, H, n, d, width;
    cmha_linear_attention_args linear;
    cmha_lag_args lag;
    int is_lag;
    cmha_real *x[3], *dx[3], *y, *dy, *saved, *scratch;
    size_t n_x[3], n_y;
} call;

static cmha_context context;

static cmha_heads value_view(const call *c, cmha_real *y) {
    cmha_heads view = cmha_heads_by_head(y, c->H, c->n, c->width, 0);
    if (c->width == 2 * c->d) view.imag = c->d;
    return view;
}

static cmha_attention_views call_views(const call *c, cmha_real *const *dx) {
    cmha_attention_views x;
    x.q = cmha_heads_by_head(c->x[0], c->H, c->n, c->d, 1),
    x.dq = cmha_heads_by_head(dx[0], c->H, c->n, c->d, 1);
    x.k = cmha_heads_by_head(c->x[1], c->H, c->n, c->d, 1),
    x.dk = cmha_heads_by_head(dx[1], c->H, c->n, c->d, 1);
    x.v = value_view(c, c->x[2]), x.dv = value_view(c, dx[2]);
    x.y = value_view(c, c->y), x.dy = value_view(c, c->dy);
    return x;
}

static void call_forward(call *c) {
    cmha_attention_views x = call_views(c, c->dx);
    if (c->is_lag) cmha_lag_attention_forward(&c->lag, &x, c->saved, c->scratch);
    else cmha_linear_attention_forward(&c->linear, &x, c->saved, c->scratch);
}

static void call_backward(call *c, cmha_real *const *dx) {
    cmha_attention_views x = call_views(c, dx);
    if (c->is_lag) cmha_lag_attention_backward(&c->lag, &x, c->saved, c->scratch);
    else cmha_linear_attention_backward(&c->linear, &x, c->saved, c->scratch);
}

static double call_loss(void *user) {
    call *c = (call *)user;
    call_forward(c);
    return grad_dot(c->y, c->dy, c->n_y);
}

/* A second pass doubles the gradients, and each gradient alone is the one among all */
static void call_accumulates(call *c) {
    cmha_real *once[3], *only[3];
    int i, k;
    size_t j;
    for (i = 0; i < 3; i++) {
        once[i] = check_zeros(c->n_x[i]);
        memcpy(once[i], c->dx[i], c->n_x[i] * sizeof(cmha_real));
    }
    call_forward(c);
    call_backward(c, c->dx);
    for (i = 0; i < 3; i++) {
        for (k = 0; k < 3; k++) only[k] = k == i ? check_zeros(c->n_x[i]) : NULL;
        call_backward(c, only);
        CHECK_THAT(check_distance(only[i], once[i], c->n_x[i]) <=
                       1e-12 * (1 + check_largest(once[i], c->n_x[i])),
                   "%s: the gradient of input %d alone is another", c->name, i);
        for (j = 0; j < c->n_x[i]; j++) only[i][j] *= 2;
        CHECK_THAT(check_distance(only[i], c->dx[i], c->n_x[i]) <=
                       1e-12 * (1 + check_largest(only[i], c->n_x[i])),
                   "%s: the backward does not accumulate into input %d", c->name, i);
        free(only[i]);
    }
    for (i = 0; i < 3; i++) free(once[i]);
}

static void call_run(call c) {
    static const char *const names[3] = {"q", "k", "v"};
    grad_input in[3];
    char label[96];
    int i;
    c.n_x[0] = c.n_x[1] = c.B * c.H * c.n * 2 * c.d, c.n_x[2] = c.n_y = c.B * c.H * c.n * c.width;
    for (i = 0; i < 3; i++) c.x[i] = check_array(c.n_x[i], 1.2), c.dx[i] = check_zeros(c.n_x[i]);
    c.y = check_zeros(c.n_y), c.dy = check_array(c.n_y, 1);
    c.saved = check_zeros(c.is_lag ? c.B * c.H * c.n : cmha_linear_attention_saved(&c.linear));
    c.scratch = check_zeros(c.is_lag ? cmha_lag_attention_scratch(&c.lag)
                                     : cmha_linear_attention_scratch(&c.linear, 0) +
                                           cmha_linear_attention_scratch(&c.linear, 1));
    call_forward(&c);
    call_backward(&c, c.dx);
    for (i = 0; i < 3; i++) in[i].name = names[i], in[i].x = c.x[i], in[i].grad = c.dx[i], in[i].n = c.n_x[i];
    snprintf(label, sizeof label, "%s n %zu output %d causal %d topk %zu temp %g%s", c.name, c.n,
             (int)c.linear.output, c.linear.causal, c.lag.topk, (double)c.lag.temp,
             c.lag.key_mask ? " masked" : "");
    grad_check(label, call_loss, &c, in, 3, 30);
    call_accumulates(&c);
    for (i = 0; i < 3; i++) free(c.x[i]), free(c.dx[i]);
    free(c.y), free(c.dy), free(c.saved), free(c.scratch);
}

static void check_linear(size_t n, cmha_linear_kind kind, int output, int causal, int masked) {
    static unsigned char mask[512];
    call c;
    size_t i;
    memset(&c, 0, sizeof c);
    c.name = kind == CMHA_LINEAR_COPE ? "CoPE linear" : "angular linear";
    c.B = 2, c.H = 2, c.n = n, c.d = 3, c.width = kind == CMHA_LINEAR_COPE ? 3 : 6;
    c.linear.batch = c.B, c.linear.heads = c.H, c.linear.n = n, c.linear.d = c.d, c.linear.kind = kind;
    c.linear.output = (cmha_cope_output)output, c.linear.causal = causal, c.linear.threads = 2;
    c.linear.alpha = 0.4, c.linear.eps = 0.2, c.linear.den_eps = 0.1;
    for (i = 0; i < sizeof mask; i++) mask[i] = i % 3 != 0;
    if (masked) c.linear.key_mask = mask;
    call_run(c);
}

/* A sequence whole or with padding at its end, and one with holes */
static void check_lag(size_t n, size_t d, double temp, size_t topk, int masked) {
    static unsigned char mask[128];
    call c;
    size_t t;
    memset(&c, 0, sizeof c);
    c.name = "lag", c.is_lag = 1;
    c.B = masked ? 2 : 1, c.H = 2, c.n = n, c.d = d, c.width = 2 * d;
    for (t = 0; t < n; t++) mask[t] = t < n - n / 3, mask[n + t] = t % 4 != 1 && t != 6;
    if (masked) c.lag.key_mask = mask;
    c.lag.batch = c.B, c.lag.heads = 2, c.lag.n = n, c.lag.d = d, c.lag.temp = temp, c.lag.topk = topk,
    c.lag.eps = 0.1, c.lag.threads = 2;
    call_run(c);
}

/* ---------------------------------------------- on a tape ----------------------------------------------- */

enum { FUSED_LINEAR, COPE, ANGULAR, LAG, FUSED_LAG, MASKED_LAG, TRIALS };

typedef struct trial {
    int which, n_in;
    cmha_tape tape;
    cmha_real *x[3], *dx[3], *cot;
    size_t shape[3][3], n[3];
} trial;

static cmha_tensor *trial_forward(trial *t) {
    static const unsigned char mask[22] = {1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 1, 1, 0, 1, 1, 1, 1, 0, 1, 0};
    cmha_tensor *in[3] = {0};
    cmha_linear_attention_args l;
    cmha_lag_args g;
    int i;
    memset(&l, 0, sizeof l), memset(&g, 0, sizeof g);
    l.kind = t->which == COPE ? CMHA_LINEAR_COPE : CMHA_LINEAR_ANGULAR, l.output = CMHA_COPE_OUTPUT_HYBRID,
    l.alpha = 0.3;
    l.heads = g.heads = 2, l.eps = g.eps = 0.2, l.den_eps = 0.1, g.temp = 3, g.topk = 5, l.causal = 1;
    if (t->which == MASKED_LAG) g.key_mask = mask;
    cmha_tape_reset(&t->tape);
    for (i = 0; i < t->n_in; i++) in[i] = cmha_tensor_wrap(&t->tape, 3, t->shape[i], t->x[i], t->dx[i]);
    if (t->which >= LAG) return cmha_lag_attention(&t->tape, &g, in[0], in[1], in[2]);
    return cmha_linear_attention(&t->tape, &l, in[0], in[1], in[2]);
}

static cmha_status dot_backward(cmha_tape *tape, cmha_record *record) {
    const cmha_real *cot = (const cmha_real *)record->user;
    cmha_real *g = cmha_tape_grad(tape, record->in[0]);
    size_t i;
    if (!g) return cmha_tape_status(tape);
    for (i = 0; i < record->in[0]->size; i++) g[i] += record->out->grad[0] * cot[i];
    return CMHA_OK;
}

static double trial_loss(void *user) {
    trial *t = (trial *)user;
    cmha_tensor *y = trial_forward(t);
    return y ? grad_dot(y->data, t->cot, y->size) : NAN;
}

/* Seeds of 2 and -1 must add up to the gradient of 1 */
static int trial_backward(trial *t, cmha_real seed) {
    size_t one = 1;
    cmha_tensor *y = trial_forward(t), *loss = y ? cmha_tensor_new(&t->tape, 1, &one, 0) : NULL;
    if (!CHECK_THAT(loss != NULL, "tape %d: %s", t->which, cmha_error(&context))) return 0;
    loss->data[0] = grad_dot(y->data, t->cot, y->size);
    loss = cmha_tape_push(&t->tape, "dot", loss, &y, 1, dot_backward, t->cot);
    return CHECK_IS(cmha_tape_backward(&t->tape, loss, seed), CMHA_OK);
}

static void check_tape(int which) {
    static const char *const names[3] = {"q", "k", "v"};
    trial t;
    grad_input in[3];
    size_t B = 2, N = 11, Hd = 6;
    int i, fused = which == FUSED_LINEAR || which == FUSED_LAG;
    char label[32];
    memset(&t, 0, sizeof t);
    t.which = which, t.n_in = fused ? 1 : 3;
    CHECK_OK(cmha_tape_init(&t.tape, &context, 1));
    for (i = 0; i < t.n_in; i++) {
        t.shape[i][0] = B, t.shape[i][1] = N,
        t.shape[i][2] = fused                     ? 6 * Hd
                        : i == 2 && which == COPE ? 10
                                                  : 2 * Hd;
        t.n[i] = B * N * t.shape[i][2];
        t.x[i] = check_array(t.n[i], 1.2), t.dx[i] = check_zeros(t.n[i]);
        in[i].name = names[i], in[i].x = t.x[i], in[i].grad = t.dx[i], in[i].n = t.n[i];
    }
    t.cot = check_array(B * N * 2 * Hd, 1);
    snprintf(label, sizeof label, "tape %d", which);
    if (trial_backward(&t, 2) && trial_backward(&t, -1)) grad_check(label, trial_loss, &t, in, t.n_in, 24);
    for (i = 0; i < t.n_in; i++) free(t.x[i]), free(t.dx[i]);
    free(t.cot);
    cmha_tape_close(&t.tape);
}

int main(int argc, char **argv) {
    cmha_context_config config;
    int causal, output, masked, which;
    (void)argc;
    cmha_blas_restart(argv);
    memset(&config, 0, sizeof config);
    config.threads = 2;
    CHECK_OK(cmha_context_init(&context, &config));
    for (causal = 0; causal < 2; causal++)
        for (masked = 0; masked < 2; masked++) {
            for (output = 0; output < 4; output++)
                check_linear(7, CMHA_LINEAR_COPE, output, causal, masked),
                    check_linear(70, CMHA_LINEAR_COPE, output, causal, masked);
            check_linear(7, CMHA_LINEAR_ANGULAR, 0, causal, masked),
                check_linear(131, CMHA_LINEAR_ANGULAR, 0, causal, masked);
        }
    check_linear(2, CMHA_LINEAR_COPE, CMHA_COPE_OUTPUT_HYBRID, 1, 0);
    for (masked = 0; masked < 2; masked++) {
        check_lag(2, 2, 1, 0, masked), check_lag(13, 3, 1, 0, masked), check_lag(13, 9, 4, 5, masked);
        check_lag(40, 2, 50, 0, masked), check_lag(40, 2, 50, 12, masked);
    }
    for (which = 0; which < TRIALS; which++) check_tape(which);
    cmha_context_close(&context);
    return check_end();
}
