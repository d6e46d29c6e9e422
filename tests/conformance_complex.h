/* The operations on complex tensors that are no attention: CRAT's layers, regularisers and clipping. Part of conformance.c. */

static void op_complex_linear(kase *k) {
    size_t T = rows(k, "in.x_re"), I = axis(k, "in.x_re", -1), O = axis(k, "param.w_re", 0);
    int biased = find(k, "param.b_re") != NULL;
    cmha_real *x = planes(k, "in.x", T, I), *w = planes(k, "param.w", 1, O * I), *y = zeros(k, 2 * T * O), *dy;
    cmha_real *dx = zeros(k, 2 * T * I), *dw = zeros(k, 2 * O * I), *db = zeros(k, 2 * O), *scratch = zeros(k, 4 * T * O);
    cmha_complex_linear_forward(x, w, biased ? planes(k, "param.b", 1, O) : NULL, T, I, O, 0, y, scratch);
    compare_planes(k, "out.y", y, T, O, 0);
    if (!gradients_wanted(k)) return;
    dy = planes_cotangent(k, "cot.y", T, O);
    cmha_complex_linear_backward(x, w, dy, T, I, O, 0, dx, dw, biased ? db : NULL, scratch);
    compare_planes(k, "grad.in.x", dx, T, I, 1);
    compare_planes(k, "grad.param.w", dw, 1, O * I, 1);
    if (biased) compare_planes(k, "grad.param.b", db, 1, O, 1);
}

static void op_lowrank_complex_linear(kase *k) {
    size_t T = rows(k, "in.x_re"), I = axis(k, "in.x_re", -1), O = axis(k, "param.u_re", 0), R = axis(k, "param.u_re", 1);
    int biased = find(k, "param.b_re") != NULL;
    cmha_real *x = planes(k, "in.x", T, I), *u = planes(k, "param.u", 1, O * R), *v = planes(k, "param.v", 1, I * R), *dy;
    cmha_real *h = zeros(k, 2 * T * R), *y = zeros(k, 2 * T * O), *scratch = zeros(k, 4 * T * (O > R ? O : R));
    cmha_real *dx = zeros(k, 2 * T * I), *du = zeros(k, 2 * O * R), *dv = zeros(k, 2 * I * R), *db = zeros(k, 2 * O);
    cmha_real *dh = zeros(k, 2 * T * R);
    cmha_complex_linear_forward(x, v, NULL, T, I, R, 1, h, scratch);
    cmha_complex_linear_forward(h, u, biased ? planes(k, "param.b", 1, O) : NULL, T, R, O, 0, y, scratch);
    compare_planes(k, "out.y", y, T, O, 0);
    if (!gradients_wanted(k)) return;
    dy = planes_cotangent(k, "cot.y", T, O);
    cmha_complex_linear_backward(h, u, dy, T, R, O, 0, dh, du, db, scratch);
    cmha_complex_linear_backward(x, v, dh, T, I, R, 1, dx, dv, NULL, scratch);
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
    cmha_gelu_forward(z, n, CMHA_GELU_ERF, y);
    compare_planes(k, "out.y", y, T, D, 0);
    if (!gradients_wanted(k)) return;
    cmha_gelu_backward(z, planes_cotangent(k, "cot.y", T, D), n, CMHA_GELU_ERF, dz);
    compare_planes(k, "grad.in.z", dz, T, D, 1);
}

/* One of the complex norms: y, dz and the gradients of the parameters, which have names of their own in each op */
static void complex_norm(kase *k, cmha_complex_norm kind, const cmha_real *gamma, const cmha_real *beta, cmha_real *dgamma,
                         cmha_real *dbeta) {
    size_t T = rows(k, "in.z_re"), D = axis(k, "in.z_re", -1);
    cmha_real *z = planes(k, "in.z", T, D), *y = zeros(k, 2 * T * D), *dz = zeros(k, 2 * T * D);
    cmha_real eps = (cmha_real)number(k, "cfg.eps");
    double *stats = (double *)take(k, 5 * T, sizeof *stats);
    cmha_complex_norm_forward(kind, z, gamma, beta, T, D, eps, y, stats);
    compare_planes(k, "out.y", y, T, D, 0);
    if (!gradients_wanted(k)) return;
    cmha_complex_norm_backward(kind, z, gamma, stats, planes_cotangent(k, "cot.y", T, D), T, D, eps, dz, dgamma, dbeta);
    compare_planes(k, "grad.in.z", dz, T, D, 1);
}

static void op_cln(kase *k) {
    size_t D = axis(k, "in.z_re", -1);
    cmha_real *dgamma = zeros(k, 2 * D), *dbeta = zeros(k, 2 * D);
    complex_norm(k, CMHA_CLN, planes(k, "param.gamma", 1, D), planes(k, "param.beta", 1, D), dgamma, dbeta);
    compare_planes(k, "grad.param.gamma", dgamma, 1, D, 1);
    compare_planes(k, "grad.param.beta", dbeta, 1, D, 1);
}

static void op_crms(kase *k) {
    size_t D = axis(k, "in.z_re", -1);
    cmha_real *dgamma = zeros(k, D);
    complex_norm(k, CMHA_CRMS, reals(k, "param.gamma", D), NULL, dgamma, NULL);
    compare_gradient(k, "grad.param.gamma", dgamma, D);
}

static void op_complex_whiten(kase *k) {
    static const char *const names[3] = {"param.gamma_rr", "param.gamma_ri", "param.gamma_ii"};
    size_t D = axis(k, "in.z_re", -1), i;
    int affine = find(k, names[0]) != NULL;
    cmha_real *gamma = zeros(k, 3 * D), *dgamma = zeros(k, 3 * D), *dbeta = zeros(k, 2 * D);
    char grad[96];
    for (i = 0; affine && i < 3; i++) memcpy(gamma + i * D, reals(k, names[i], D), D * sizeof *gamma);
    complex_norm(k, CMHA_WHITEN, affine ? gamma : NULL, affine ? planes(k, "param.beta", 1, D) : NULL, dgamma, dbeta);
    for (i = 0; affine && i < 3; i++) {
        snprintf(grad, sizeof grad, "grad.%s", names[i]);
        compare_gradient(k, grad, dgamma + i * D, D);
    }
    if (affine) compare_planes(k, "grad.param.beta", dbeta, 1, D, 1);
}

static void op_phase_reg(kase *k) {
    size_t T = rows(k, "in.z_re"), D = axis(k, "in.z_re", -1);
    cmha_real *z = planes(k, "in.z", T, D), *dz = zeros(k, 2 * T * D), lam = (cmha_real)number(k, "cfg.lam"),
              eps = (cmha_real)number(k, "cfg.eps"), loss;
    unsigned char *mask = find(k, "in.key_mask") ? bits(k, "in.key_mask", T) : NULL;
    double *direction = (double *)take(k, 2 * D, sizeof *direction);
    loss = (cmha_real)cmha_phase_reg_forward(z, mask, T, D, lam, eps, direction);
    compare(k, "out.loss", &loss, 1);
    if (!gradients_wanted(k)) return;
    cmha_phase_reg_backward(z, mask, T, D, lam, eps, direction, *cotangent(k, "cot.loss", 1), dz);
    compare_planes(k, "grad.in.z", dz, T, D, 1);
}

static void op_mag_reg(kase *k) {
    size_t T = rows(k, "in.z_re"), D = axis(k, "in.z_re", -1);
    cmha_real *z = planes(k, "in.z", T, D), *dz = zeros(k, 2 * T * D), lam = (cmha_real)number(k, "cfg.lam"), loss;
    unsigned char *mask = find(k, "in.key_mask") ? bits(k, "in.key_mask", T) : NULL;
    loss = (cmha_real)cmha_mag_reg_forward(z, mask, T, D, lam);
    compare(k, "out.loss", &loss, 1);
    if (!gradients_wanted(k)) return;
    cmha_mag_reg_backward(z, mask, T, D, lam, *cotangent(k, "cot.loss", 1), dz);
    compare_planes(k, "grad.in.z", dz, T, D, 1);
}

static void op_componentwise_clip(kase *k) {
    static const cmha_clip_mode modes[] = {CMHA_CLIP_NORM, CMHA_CLIP_GLOBAL, CMHA_CLIP_VALUE};
    static const char *const parts[2] = {"re", "im"};
    size_t count = whole(k, "cfg.count"), *n = (size_t *)take(k, count, sizeof *n), i, part;
    cmha_real **x[2];
    char name[96];
    for (part = 0; part < 2; part++) {
        x[part] = (cmha_real **)take(k, count, sizeof *x[part]);
        for (i = 0; i < count; i++) {
            snprintf(name, sizeof name, "in.g%zu_%s", i, parts[part]);
            n[i] = need(k, name)->count;
            x[part][i] = reals(k, name, n[i]);
        }
    }
    cmha_componentwise_clip(modes[choice(k, "cfg.mode", "norm|global|value")], (cmha_real)number(k, "cfg.c"), count, n, x[0], x[1]);
    for (i = 0; i < 2 * count; i++) {
        snprintf(name, sizeof name, "out.g%zu_%s", i / 2, parts[i % 2]);
        compare(k, name, x[i % 2][i / 2], n[i / 2]);
    }
}

static void op_multifreq_pe(kase *k) {
    size_t K = axis(k, "param.omega", 0), d = axis(k, "param.omega", 1), n = whole(k, "cfg.N"), pos0 = whole(k, "cfg.pos0");
    cmha_real *omega = reals(k, "param.omega", K * d), *delta = reals(k, "param.delta", K * d), *y = zeros(k, n * d);
    cmha_real *domega = zeros(k, K * d), *ddelta = zeros(k, K * d);
    cmha_multifreq_forward(omega, delta, K, n, d, pos0, y);
    compare(k, "out.y", y, n * d);
    if (!gradients_wanted(k)) return;
    cmha_multifreq_backward(omega, delta, cotangent(k, "cot.y", n * d), K, n, d, pos0, domega, ddelta);
    compare_gradient(k, "grad.param.omega", domega, K * d);
    compare_gradient(k, "grad.param.delta", ddelta, K * d);
}
