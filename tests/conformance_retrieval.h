/* irw_fuse: CRAT's Imaginary Reflection Window, run as operations on a tape. Part of conformance.c. */

/* A parameter or input of the window as a tensor whose gradient can be
   compared; complex ones are [2, rows, cols] */
static cmha_tensor *window_tensor(kase *k, cmha_tape *tape, const char *name, int is_complex, size_t rows_,
                                  size_t columns) {
    size_t shape[3], n = rows_ * columns;
    shape[0] = 2, shape[1] = rows_, shape[2] = columns;
    return cmha_tensor_wrap(tape, is_complex ? 3 : 2, shape + !is_complex,
                            is_complex ? planes(k, name, 1, n) : reals(k, name, n),
                            zeros(k, n * (is_complex ? 2 : 1)));
}

static void window_gradient(kase *k, const char *name, const cmha_tensor *t, int is_complex) {
    if (is_complex) compare_planes(k, name, t->grad, 1, t->size / 2, 1);
    else compare_gradient(k, name, t->grad, t->size);
}

/* The base over the case's documents; the case's eps is that of their features as well */
static void window_base(kase *k, cmha_knowledge *base, size_t n, size_t dr, cmha_real eps) {
    cmha_real *docs = planes(k, "in.docs", n, dr), *features = zeros(k, n * 2 * dr);
    if (cmha_knowledge_init(base, k->context, n, dr, docs, NULL, NULL, NULL))
        leave(k, CASE_FAIL, "%s", cmha_error(k->context));
    cmha_phasor_forward(docs, n, dr, eps, features);
    base->features = features;
}

static void window_run(kase *k, cmha_tape *tape, const cmha_knowledge *base) {
    static const char *const names[6] = {"param.wm",       "param.bm", "param.wv",
                                         "param.w_logits", "param.wg", "param.bg"};
    static const char *const grads[6] = {"grad.param.wm",       "grad.param.bm", "grad.param.wv",
                                         "grad.param.w_logits", "grad.param.wg", "grad.param.bg"};
    size_t T = rows(k, "in.z_re"), D = axis(k, "in.z_re", -1), dr = axis(k, "in.docs_re", 1),
           M = whole(k, "cfg.M"), i;
    size_t size[6][2], shape[2];
    cmha_irw_weights w;
    cmha_retrieve_args args;
    cmha_tensor *t[6], *z, *y;
    cmha_fusion fusion = (cmha_fusion)choice(k, "cfg.fusion", "convex|additive");
    memset(&args, 0, sizeof args);
    args.queries = M, args.top = whole(k, "cfg.k"), args.tau = (cmha_real)number(k, "cfg.tau_r"),
    args.threshold = -1;
    args.eps = (cmha_real)number(k, "cfg.eps");
    size[0][0] = M * dr, size[0][1] = D, size[1][0] = 1, size[1][1] = M * dr, size[2][0] = D, size[2][1] = dr;
    size[3][0] = 1, size[3][1] = M, size[4][0] = D, size[4][1] = 2 * D + 2 * dr, size[5][0] = 1,
    size[5][1] = D;
    for (i = 0; i < 6; i++) t[i] = window_tensor(k, tape, names[i], i < 3, size[i][0], size[i][1]);
    shape[0] = T, shape[1] = 2 * D;
    z = cmha_tensor_wrap(tape, 2, shape, planes(k, "in.z", T, D), zeros(k, T * 2 * D));
    w.wm = t[0], w.bm = t[1], w.wv = t[2], w.w_logits = t[3], w.wg = t[4], w.bg = t[5];
    y = cmha_irw(tape, base, &args, (cmha_real)number(k, "cfg.tau"), fusion, z, &w);
    if (!y) leave(k, CASE_FAIL, "%s", cmha_error(k->context));
    compare_planes(k, "out.y", y->data, T, D, 0);
    if (!gradients_wanted(k)) return;
    walk_back(k, tape, y, planes_cotangent(k, "cot.y", T, D));
    compare_planes(k, "grad.in.z", z->grad, T, D, 1);
    for (i = 0; i < 6; i++) window_gradient(k, grads[i], t[i], i < 3);
}

/* A case that is left early leaks its tape and its base; the run has failed then */
static void op_irw_fuse(kase *k) {
    cmha_tape tape;
    cmha_knowledge base;
    window_base(k, &base, axis(k, "in.docs_re", 0), axis(k, "in.docs_re", 1),
                (cmha_real)number(k, "cfg.eps"));
    if (cmha_tape_init(&tape, k->context, 1)) leave(k, CASE_FAIL, "%s", cmha_error(k->context));
    window_run(k, &tape, &base);
    cmha_tape_close(&tape);
    cmha_knowledge_close(&base);
}
