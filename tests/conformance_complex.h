/* The operations on complex tensors that are no attention: CRAT's layers, regularisers
   and clipping. Part of conformance.c. */

static cmha_complex_linear_args linear_sizes(size_t T, size_t I, size_t O, int adjoint) {
    cmha_complex_linear_args a;
    a.T = T, a.n_in = I, a.n_out = O, a.adjoint = adjoint, a.threads = 1;
    return a;
}

/* The cotangent of an operation that a case runs on a tape */
static cmha_status given_cotangent(cmha_tape *tape, cmha_record *r) {
    const cmha_real *dy = (const cmha_real *)r->user;
    cmha_real *g = cmha_tape_grad(tape, r->in[0]);
    size_t i;
    for (i = 0; g && i < r->in[0]->size; i++) g[i] += dy[i];
    return CMHA_OK;
}

static void walk_back(kase *k, cmha_tape *tape, cmha_tensor *y, cmha_real *dy) {
    size_t one = 1;
    cmha_tensor *loss = cmha_tensor_new(tape, 1, &one, 0);
    loss = cmha_tape_push(tape, "cotangent", loss, &y, 1, given_cotangent, dy);
    if (cmha_tape_backward(tape, loss, 1)) leave(k, CASE_FAIL, "%s", cmha_error(k->context));
}

static void op_complex_linear(kase *k) {
    size_t T = rows(k, "in.x_re"), I = axis(k, "in.x_re", -1), O = axis(k, "param.w_re", 0);
    int biased = find(k, "param.b_re") != NULL;
    cmha_real *x = planes(k, "in.x", T, I), *w = planes(k, "param.w", 1, O * I), *y = zeros(k, 2 * T * O),
              *dy;
    cmha_real *dx = zeros(k, 2 * T * I), *dw = zeros(k, 2 * O * I), *db = zeros(k, 2 * O),
              *scratch = zeros(k, 4 * T * O);
    cmha_complex_linear_args a = linear_sizes(T, I, O, 0);
    cmha_complex_linear_forward(&a, x, w, biased ? planes(k, "param.b", 1, O) : NULL, y, scratch);
    compare_planes(k, "out.y", y, T, O, 0);
    if (!gradients_wanted(k)) return;
    dy = planes_cotangent(k, "cot.y", T, O);
    const cmha_grads grads = {dx, dw, biased ? db : NULL};
    cmha_complex_linear_backward(&a, x, w, dy, &grads, scratch);
    compare_planes(k, "grad.in.x", dx, T, I, 1);
    compare_planes(k, "grad.param.w", dw, 1, O * I, 1);
    if (biased) compare_planes(k, "grad.param.b", db, 1, O, 1);
}

static void op_lowrank_complex_linear(kase *k) {
    size_t T = rows(k, "in.x_re"), I = axis(k, "in.x_re", -1), O = axis(k, "param.u_re", 0),
           R = axis(k, "param.u_re", 1);
    int biased = find(k, "param.b_re") != NULL;
    cmha_real *x = planes(k, "in.x", T, I), *u = planes(k, "param.u", 1, O * R),
              *v = planes(k, "param.v", 1, I * R), *dy;
    cmha_real *h = zeros(k, 2 * T * R), *y = zeros(k, 2 * T * O),
              *scratch = zeros(k, 4 * T * (O > R ? O : R));
    cmha_real *dx = zeros(k, 2 * T * I), *du = zeros(k, 2 * O * R), *dv = zeros(k, 2 * I * R),
              *db = zeros(k, 2 * O);
    cmha_real *dh = zeros(k, 2 * T * R);
    cmha_complex_linear_args in = linear_sizes(T, I, R, 1), out = linear_sizes(T, R, O, 0);
    cmha_complex_linear_forward(&in, x, v, NULL, h, scratch);
    cmha_complex_linear_forward(&out, h, u, biased ? planes(k, "param.b", 1, O) : NULL, y, scratch);
    compare_planes(k, "out.y", y, T, O, 0);
    if (!gradients_wanted(k)) return;
    dy = planes_cotangent(k, "cot.y", T, O);
    const cmha_grads grads_out = {dh, du, db}, grads_in = {dx, dv, NULL};
    cmha_complex_linear_backward(&out, h, u, dy, &grads_out, scratch);
    cmha_complex_linear_backward(&in, x, v, dh, &grads_in, scratch);
    compare_planes(k, "grad.in.x", dx, T, I, 1);
    compare_planes(k, "grad.param.u", du, 1, O * R, 1);
    compare_planes(k, "grad.param.v", dv, 1, I * R, 1);
    if (biased) compare_planes(k, "grad.param.b", db, 1, O, 1);
}

static void op_complex_rotate(kase *k) {
    size_t T = rows(k, "in.z_re"), D = axis(k, "in.z_re", -1);
    cmha_real *z = planes(k, "in.z", T, D), *theta = reals(k, "in.theta", T * D), *y = zeros(k, 2 * T * D);
    cmha_real *dz = zeros(k, 2 * T * D), *dtheta = zeros(k, T * D);
    cmha_complex_rotate_forward(z, theta, T, D, y);
    compare_planes(k, "out.y", y, T, D, 0);
    if (!gradients_wanted(k)) return;
    cmha_complex_rotate_backward(z, theta, planes_cotangent(k, "cot.y", T, D), T, D, dz, dtheta);
    compare_planes(k, "grad.in.z", dz, T, D, 1);
    compare_gradient(k, "grad.in.theta", dtheta, T * D);
}

static void op_cgelu(kase *k) {
    size_t T = rows(k, "in.z_re"), D = axis(k, "in.z_re", -1), n = 2 * T * D;
    cmha_real *z = planes(k, "in.z", T, D), *y = zeros(k, n), *dz = zeros(k, n);
    cmha_activation_forward(z, n, CMHA_ACTIVATION_GELU_ERF, y);
    compare_planes(k, "out.y", y, T, D, 0);
    if (!gradients_wanted(k)) return;
    cmha_activation_backward(z, planes_cotangent(k, "cot.y", T, D), n, CMHA_ACTIVATION_GELU_ERF, dz);
    compare_planes(k, "grad.in.z", dz, T, D, 1);
}

/* One of the complex norms: y, dz and the gradients of the parameters, which
   have names of their own in each op */
static void complex_norm(kase *k, cmha_complex_norm_kind kind, const cmha_real *gamma, const cmha_real *beta,
                         cmha_real *dgamma, cmha_real *dbeta) {
    size_t T = rows(k, "in.z_re"), D = axis(k, "in.z_re", -1);
    cmha_real *z = planes(k, "in.z", T, D), *y = zeros(k, 2 * T * D), *dz = zeros(k, 2 * T * D);
    double *stats = (double *)take(k, 5 * T, sizeof *stats);
    cmha_complex_norm_args a;
    a.kind = kind, a.T = T, a.D = D, a.eps = (cmha_real)number(k, "cfg.eps");
    cmha_complex_norm_forward(&a, z, gamma, beta, y, stats);
    compare_planes(k, "out.y", y, T, D, 0);
    if (!gradients_wanted(k)) return;
    const cmha_grads grads = {dz, dgamma, dbeta};
    cmha_complex_norm_backward(&a, z, gamma, stats, planes_cotangent(k, "cot.y", T, D), &grads);
    compare_planes(k, "grad.in.z", dz, T, D, 1);
}

static void op_cln(kase *k) {
    size_t D = axis(k, "in.z_re", -1);
    cmha_real *dgamma = zeros(k, 2 * D), *dbeta = zeros(k, 2 * D);
    complex_norm(k, CMHA_COMPLEX_NORM_CLN, planes(k, "param.gamma", 1, D), planes(k, "param.beta", 1, D),
                 dgamma, dbeta);
    compare_planes(k, "grad.param.gamma", dgamma, 1, D, 1);
    compare_planes(k, "grad.param.beta", dbeta, 1, D, 1);
}

static void op_crms(kase *k) {
    size_t D = axis(k, "in.z_re", -1);
    cmha_real *dgamma = zeros(k, D);
    complex_norm(k, CMHA_COMPLEX_NORM_CRMS, reals(k, "param.gamma", D), NULL, dgamma, NULL);
    compare_gradient(k, "grad.param.gamma", dgamma, D);
}

static void op_complex_whiten(kase *k) {
    static const char *const names[3] = {"param.gamma_rr", "param.gamma_ri", "param.gamma_ii"};
    size_t D = axis(k, "in.z_re", -1), i;
    int affine = find(k, names[0]) != NULL;
    cmha_real *gamma = zeros(k, 3 * D), *dgamma = zeros(k, 3 * D), *dbeta = zeros(k, 2 * D);
    char grad[96];
    for (i = 0; affine && i < 3; i++) memcpy(gamma + i * D, reals(k, names[i], D), D * sizeof *gamma);
    complex_norm(k, CMHA_COMPLEX_NORM_WHITEN, affine ? gamma : NULL,
                 affine ? planes(k, "param.beta", 1, D) : NULL, dgamma, dbeta);
    for (i = 0; affine && i < 3; i++) {
        snprintf(grad, sizeof grad, "grad.%s", names[i]);
        compare_gradient(k, grad, dgamma + i * D, D);
    }
    if (affine) compare_planes(k, "grad.param.beta", dbeta, 1, D, 1);
}

/* A case that is left early leaks its tape; the run has failed then */
static void regulariser(kase *k, int phases) {
    size_t T = rows(k, "in.z_re"), D = axis(k, "in.z_re", -1), shape[2];
    cmha_real *dz = zeros(k, 2 * T * D), lam = (cmha_real)number(k, "cfg.lam");
    unsigned char *mask = find(k, "in.key_mask") ? bits(k, "in.key_mask", T) : NULL;
    cmha_tensor *z, *loss;
    cmha_tape tape;
    shape[0] = T, shape[1] = 2 * D;
    if (cmha_tape_init(&tape, k->context, 1)) leave(k, CASE_FAIL, "%s", cmha_error(k->context));
    z = cmha_tensor_wrap(&tape, 2, shape, planes(k, "in.z", T, D), dz);
    loss = phases ? cmha_phase_reg(&tape, z, mask, lam, (cmha_real)number(k, "cfg.eps"))
                  : cmha_mag_reg(&tape, z, mask, lam);
    if (!loss) leave(k, CASE_FAIL, "%s", cmha_error(k->context));
    compare(k, "out.loss", loss->data, 1);
    if (gradients_wanted(k)) {
        walk_back(k, &tape, loss, cotangent(k, "cot.loss", 1));
        compare_planes(k, "grad.in.z", dz, T, D, 1);
    }
    cmha_tape_close(&tape);
}

static void op_phase_reg(kase *k) { regulariser(k, 1); }
static void op_mag_reg(kase *k) { regulariser(k, 0); }

static void op_componentwise_clip(kase *k) {
    static const cmha_clip_mode modes[] = {CMHA_CLIP_NORM, CMHA_CLIP_GLOBAL, CMHA_CLIP_VALUE};
    static const char *const parts[2] = {"re", "im"};
    size_t count = whole(k, "cfg.count"), n, i, part;
    cmha_parameter *p = (cmha_parameter *)take(k, count, sizeof *p);
    char name[96];
    for (i = 0; i < count; i++) {
        for (part = 0; part < 2; part++) {
            snprintf(name, sizeof name, "in.g%zu_%s", i, parts[part]);
            n = need(k, name)->count;
            if (!part) p[i].tensor.grad = zeros(k, 2 * n), p[i].tensor.size = 2 * n, p[i].is_complex = 1;
            memcpy(p[i].tensor.grad + part * n, reals(k, name, n), n * sizeof(cmha_real));
        }
    }
    cmha_componentwise_clip(modes[choice(k, "cfg.mode", "norm|global|value")], (cmha_real)number(k, "cfg.c"),
                            p, count);
    for (i = 0; i < 2 * count; i++) {
        n = p[i / 2].tensor.size / 2;
        snprintf(name, sizeof name, "out.g%zu_%s", i / 2, parts[i % 2]);
        compare(k, name, p[i / 2].tensor.grad + i % 2 * n, n);
    }
}

static void op_multifreq_pe(kase *k) {
    size_t K = axis(k, "param.omega", 0), d = axis(k, "param.omega", 1), n = whole(k, "cfg.N"),
           pos0 = whole(k, "cfg.pos0");
    cmha_real *domega = zeros(k, K * d), *ddelta = zeros(k, K * d);
    cmha_tensor *omega, *delta, *y;
    cmha_tape tape;
    size_t shape[2];
    shape[0] = K, shape[1] = d;
    if (cmha_tape_init(&tape, k->context, 1)) leave(k, CASE_FAIL, "%s", cmha_error(k->context));
    omega = cmha_tensor_wrap(&tape, 2, shape, reals(k, "param.omega", K * d), domega);
    delta = cmha_tensor_wrap(&tape, 2, shape, reals(k, "param.delta", K * d), ddelta);
    y = cmha_multifreq(&tape, omega, delta, n, pos0);
    if (!y) leave(k, CASE_FAIL, "%s", cmha_error(k->context));
    compare(k, "out.y", y->data, n * d);
    if (gradients_wanted(k)) {
        walk_back(k, &tape, y, cotangent(k, "cot.y", n * d));
        compare_gradient(k, "grad.param.omega", domega, K * d);
        compare_gradient(k, "grad.param.delta", ddelta, K * d);
    }
    cmha_tape_close(&tape);
}

static void op_linear(kase *k) {
    size_t T = rows(k, "in.x"), I = axis(k, "in.x", -1), O = axis(k, "param.weight", 0), xs[2], ws[2];
    int biased = find(k, "param.bias") != NULL;
    cmha_real *dx = zeros(k, T * I), *dw = zeros(k, O * I), *db = zeros(k, O);
    cmha_tensor *x, *w, *b = NULL, *y;
    cmha_tape tape;
    xs[0] = T, xs[1] = I, ws[0] = O, ws[1] = I;
    if (cmha_tape_init(&tape, k->context, 1)) leave(k, CASE_FAIL, "%s", cmha_error(k->context));
    x = cmha_tensor_wrap(&tape, 2, xs, reals(k, "in.x", T * I), dx);
    w = cmha_tensor_wrap(&tape, 2, ws, reals(k, "param.weight", O * I), dw);
    if (biased) b = cmha_tensor_wrap(&tape, 1, &O, reals(k, "param.bias", O), db);
    y = cmha_linear(&tape, x, w, b);
    if (!y) leave(k, CASE_FAIL, "%s", cmha_error(k->context));
    compare(k, "out.y", y->data, T * O);
    if (gradients_wanted(k)) {
        walk_back(k, &tape, y, cotangent(k, "cot.y", T * O));
        compare_gradient(k, "grad.in.x", dx, T * I);
        compare_gradient(k, "grad.param.weight", dw, O * I);
        if (biased) compare_gradient(k, "grad.param.bias", db, O);
    }
    cmha_tape_close(&tape);
}
