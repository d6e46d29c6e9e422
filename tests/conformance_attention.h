/* Complex attention: cope_attention, mobius_attention, angular_attention. Included by conformance.c. */

/* [B, H, N, dh] complex q and k, real or complex v, optional key mask */
typedef struct complex_attention {
    cmha_attention_args args;
    cmha_real *x[3], *dx[3]; /* q, k, v as rows [Re | Im], or real rows */
} complex_attention;

static cmha_heads complex_view(const complex_attention *c, cmha_real *data, int real) {
    const cmha_attention_args *a = &c->args;
    return real ? cmha_heads_by_head(data, a->heads, a->n_q, a->d_v, 0)
                : cmha_heads_by_head(data, a->heads, a->n_q, a->d_k, 1);
}

static void complex_open(kase *k, complex_attention *c) {
    static const char *const names[3] = {"in.q", "in.k", "in.v"};
    cmha_attention_args *a = &c->args;
    size_t rows, i;
    memset(c, 0, sizeof *c);
    a->complex_v = find(k, "in.v_re") != NULL;
    a->batch = axis(k, "in.q_re", 0);
    a->heads = a->kv_heads = axis(k, "in.q_re", 1);
    a->n_q = a->n_k = axis(k, "in.q_re", 2);
    a->d_k = a->d_v = axis(k, "in.q_re", 3);
    a->causal = whole_or(k, "cfg.causal", 0) != 0;
    if (find(k, "in.key_mask")) a->key_mask = bits(k, "in.key_mask", a->batch * a->n_k);
    a->temperature = find(k, "param.log_temp") != NULL;
    if (a->temperature) a->parameters[0] = reals(k, "param.log_temp", a->heads);
    rows = a->batch * a->heads * a->n_q;
    for (i = 0; i < 3; i++) {
        int real = i == 2 && !a->complex_v;
        c->x[i] = real ? reals(k, names[i], rows * a->d_v) : planes(k, names[i], rows, a->d_k);
        c->dx[i] = zeros(k, rows * a->d_k * 2);
    }
}

static void complex_run(kase *k, complex_attention *c) {
    static const char *const names[3] = {"grad.in.q", "grad.in.k", "grad.in.v"};
    const cmha_attention_args *a = &c->args;
    size_t rows = a->batch * a->heads * a->n_q, width = a->complex_v ? 2 * a->d_v : a->d_v, i;
    cmha_real *y = zeros(k, rows * width), *scratch = zeros(k, cmha_attention_scratch(a, 1)), *dy;
    cmha_real *dlog_temp = zeros(k, a->heads);
    cmha_lse *lse = (cmha_lse *)take(k, rows, sizeof *lse);
    cmha_attention_views x;
    memset(&x, 0, sizeof x);
    x.q = complex_view(c, c->x[0], 0), x.k = complex_view(c, c->x[1], 0),
    x.v = complex_view(c, c->x[2], !a->complex_v);
    x.y = complex_view(c, y, !a->complex_v);
    cmha_attention_forward(a, &x, lse, scratch);
    if (a->complex_v) compare_planes(k, "out.y", y, rows, a->d_v, 0);
    else compare(k, "out.y", y, rows * width);
    if (!gradients_wanted(k)) return;
    dy = a->complex_v ? planes_cotangent(k, "cot.y", rows, a->d_v) : cotangent(k, "cot.y", rows * width);
    x.dy = complex_view(c, dy, !a->complex_v);
    x.dq = complex_view(c, c->dx[0], 0), x.dk = complex_view(c, c->dx[1], 0),
    x.dv = complex_view(c, c->dx[2], !a->complex_v);
    cmha_attention_backward(a, &x, lse, NULL, &dlog_temp, scratch);
    if (a->temperature) compare_gradient(k, "grad.param.log_temp", dlog_temp, a->heads);
    for (i = 0; i < 3; i++)
        if (i == 2 && !a->complex_v) compare_gradient(k, names[i], c->dx[i], rows * a->d_v);
        else compare_planes(k, names[i], c->dx[i], rows, a->d_k, 1);
}

static void op_cope_attention(kase *k) {
    complex_attention c;
    cmha_cope_options o;
    complex_open(k, &c);
    memset(&o, 0, sizeof o);
    o.score = (cmha_cope_score)choice(k, "cfg.variant", "phase|magnitude|real|hybrid|hybrid_norm");
    o.alpha = (cmha_real)number(k, "cfg.alpha");
    o.eps = (cmha_real)number(k, "cfg.eps");
    o.repo_scale = whole_or(k, "cfg.compat_repo_scale", 0) != 0;
    if (o.score == CMHA_COPE_SCORE_HYBRID_NORM) {
        o.norm_max = (cmha_norm_max)(choice(k, "cfg.norm_max", "row|head|global") + 1);
        o.norm_max_grad = whole_or(k, "cfg.norm_max_grad", 0) != 0;
    }
    cmha_cope_set_args(&c.args, &o);
    complex_run(k, &c);
}

static void op_mobius_attention(kase *k) {
    complex_attention c;
    complex_open(k, &c);
    c.args.kind = CMHA_ATTENTION_COMPLEX;
    c.args.softmax = (cmha_softmax_kind)choice(k, "cfg.softmax", "ri_product|real|ri_split|yang8|abs");
    c.args.bilinear = choice(k, "cfg.product", "hermitian|bilinear");
    c.args.scale = (cmha_real)number(k, "cfg.scale");
    c.args.magnitude = c.args.scale < 0 ? -1 : 1; /* of the scaled O */
    complex_run(k, &c);
}

static void op_angular_attention(kase *k) {
    complex_attention c;
    complex_open(k, &c);
    c.args.kind = CMHA_ATTENTION_ANGULAR;
    c.args.softmax = CMHA_SOFTMAX_REAL;
    c.args.eps = (cmha_real)number(k, "cfg.eps");
    c.args.scale = (cmha_real)(1 / sqrt((double)c.args.d_k));
    complex_run(k, &c);
}
