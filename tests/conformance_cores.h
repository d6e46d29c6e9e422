/* Conformance operations of the linear and the lag core. Included by conformance.c. */
#ifndef CONFORMANCE_CORES_H
#define CONFORMANCE_CORES_H

/* The queries and keys of a case, their cotangents' places, and the views the kernels take */
typedef struct core_case {
    size_t B, H, N, d, rows, width; /* width: numbers in a row of v and y */
    cmha_real *v, *y, *dy, *dq, *dk, *dv;
    cmha_attention_views x;
} core_case;

static void core_open(kase *k, core_case *c, int real_values) {
    size_t parts = real_values ? 1 : 2;
    c->B = axis(k, "in.q_re", 0), c->H = axis(k, "in.q_re", 1), c->N = axis(k, "in.q_re", 2),
    c->d = axis(k, "in.q_re", 3);
    c->rows = c->B * c->H * c->N, c->width = parts * c->d;
    c->v = real_values ? reals(k, "in.v", c->rows * c->d) : planes(k, "in.v", c->rows, c->d);
    c->y = zeros(k, c->rows * c->width), c->dv = zeros(k, c->rows * c->width);
    c->dq = zeros(k, c->rows * 2 * c->d), c->dk = zeros(k, c->rows * 2 * c->d);
    c->dy = real_values ? cotangent(k, "cot.y", c->rows * c->d) : planes_cotangent(k, "cot.y", c->rows, c->d);
    memset(&c->x, 0, sizeof c->x);
    c->x.q = cmha_heads_by_head(planes(k, "in.q", c->rows, c->d), c->H, c->N, c->d, 1);
    c->x.k = cmha_heads_by_head(planes(k, "in.k", c->rows, c->d), c->H, c->N, c->d, 1);
    c->x.v = cmha_heads_by_head(c->v, c->H, c->N, c->width, 0);
    c->x.y = cmha_heads_by_head(c->y, c->H, c->N, c->width, 0);
    c->x.dy = cmha_heads_by_head(c->dy, c->H, c->N, c->width, 0);
    c->x.dq = cmha_heads_by_head(c->dq, c->H, c->N, c->d, 1);
    c->x.dk = cmha_heads_by_head(c->dk, c->H, c->N, c->d, 1);
    c->x.dv = cmha_heads_by_head(c->dv, c->H, c->N, c->width, 0);
    if (!real_values) c->x.v.imag = c->x.y.imag = c->x.dy.imag = c->x.dv.imag = c->d;
}

static void core_compare(kase *k, core_case *c, int real_values) {
    if (real_values) compare(k, "out.y", c->y, c->rows * c->d);
    else compare_planes(k, "out.y", c->y, c->rows, c->d, 0);
    if (!gradients_wanted(k)) return;
    compare_planes(k, "grad.in.q", c->dq, c->rows, c->d, 1);
    compare_planes(k, "grad.in.k", c->dk, c->rows, c->d, 1);
    if (real_values) compare_gradient(k, "grad.in.v", c->dv, c->rows * c->d);
    else compare_planes(k, "grad.in.v", c->dv, c->rows, c->d, 1);
}

static void linear_core(kase *k, cmha_linear_attention_args *a) {
    core_case c;
    cmha_real *saved;
    int real_values = a->kind == CMHA_LINEAR_COPE;
    core_open(k, &c, real_values);
    a->batch = c.B, a->heads = c.H, a->n = c.N, a->d = c.d;
    a->causal = whole(k, "cfg.causal") != 0;
    a->eps = (cmha_real)number(k, "cfg.eps");
    a->threads = k->context->threads;
    saved = zeros(k, cmha_linear_attention_saved(a));
    cmha_linear_attention_forward(a, &c.x, saved, zeros(k, cmha_linear_attention_scratch(a, 0)));
    cmha_linear_attention_backward(a, &c.x, saved, zeros(k, cmha_linear_attention_scratch(a, 1)));
    core_compare(k, &c, real_values);
}

static void op_cope_linear(kase *k) {
    cmha_linear_attention_args a;
    memset(&a, 0, sizeof a);
    a.kind = CMHA_LINEAR_COPE;
    a.output = (cmha_cope_output)choice(k, "cfg.variant", "real|magnitude|phase|hybrid");
    a.alpha = (cmha_real)number(k, "cfg.alpha");
    linear_core(k, &a);
}

static void op_angular_linear(kase *k) {
    cmha_linear_attention_args a;
    memset(&a, 0, sizeof a);
    a.kind = CMHA_LINEAR_ANGULAR;
    a.den_eps = (cmha_real)number(k, "cfg.den_eps");
    linear_core(k, &a);
}

static void op_lag_fft(kase *k) {
    cmha_lag_args a;
    core_case c;
    cmha_real *lags, *scratch;
    memset(&a, 0, sizeof a);
    core_open(k, &c, 0);
    a.batch = c.B, a.heads = c.H, a.n = c.N, a.d = c.d;
    a.temp = (cmha_real)number(k, "cfg.temp"), a.topk = whole(k, "cfg.topk"),
    a.eps = (cmha_real)number(k, "cfg.eps");
    a.threads = k->context->threads;
    lags = zeros(k, c.rows), scratch = zeros(k, cmha_lag_attention_scratch(&a));
    cmha_lag_attention_forward(&a, &c.x, lags, scratch);
    cmha_lag_attention_backward(&a, &c.x, lags, scratch);
    core_compare(k, &c, 0);
}

#endif
