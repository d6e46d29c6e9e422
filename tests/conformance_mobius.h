/* The ops mobius_map, mobius_classify and cope_embed of FORMAT.md; part of conformance.c. */
#include "../examples/tools/mobius_geometry.h"

/* a, b, c, d as one [4, 2, D]: each complex vector is one row of planes */
static cmha_real *mobius_parameters(kase *k, size_t D) {
    static const char *const names[4] = {"param.a", "param.b", "param.c", "param.d"};
    cmha_real *abcd = zeros(k, 8 * D);
    size_t i;
    for (i = 0; i < 4; i++) memcpy(abcd + 2 * i * D, planes(k, names[i], 1, D), 2 * D * sizeof *abcd);
    return abcd;
}

static void op_mobius_map(kase *k) {
    static const char *const names[4] = {"grad.param.a", "grad.param.b", "grad.param.c", "grad.param.d"};
    static const cmha_quotient_kind kinds[3] = {CMHA_QUOTIENT_REG, CMHA_QUOTIENT_EXACT, CMHA_QUOTIENT_UNIT};
    cmha_quotient_kind kind = kinds[choice(k, "cfg.quotient", "reg|exact|unit")];
    size_t T = rows(k, "in.rho_re"), D = axis(k, "in.rho_re", -1), i;
    cmha_real eps = (cmha_real)number(k, "cfg.eps"), *rho = planes(k, "in.rho", T, D),
              *abcd = mobius_parameters(k, D);
    cmha_real *y = zeros(k, 2 * T * D), *drho = zeros(k, 2 * T * D), *dabcd = zeros(k, 8 * D);
    cmha_mobius_forward(rho, abcd, T, D, kind, eps, y);
    compare_planes(k, "out.y", y, T, D, 0);
    if (!gradients_wanted(k)) return;
    cmha_mobius_backward(rho, abcd, planes_cotangent(k, "cot.y", T, D), T, D, kind, eps, drho, dabcd);
    compare_planes(k, "grad.in.rho", drho, T, D, 1);
    for (i = 0; i < 4; i++) compare_planes(k, names[i], dabcd + 2 * i * D, 1, D, 1);
}

static void op_mobius_classify(kase *k) {
    size_t D = axis(k, "param.a_re", 0), i, wrong = 0;
    mobius_class *classes = (mobius_class *)take(k, D, sizeof *classes);
    cmha_real *sigma = zeros(k, 2 * D);
    int64_t *want = integers(k, "out.class", D);
    mobius_classify(mobius_parameters(k, D), D, number(k, "cfg.tol"), classes);
    for (i = 0; i < D; i++) {
        sigma[i] = (cmha_real)classes[i].sigma[0], sigma[D + i] = (cmha_real)classes[i].sigma[1];
        wrong += want[i] != (int64_t)classes[i].kind;
    }
    if (wrong) leave(k, CASE_FAIL, "%zu of %zu classes are wrong", wrong, D);
    k->compared[need(k, "out.class") - k->file.tensors] = 1;
    compare_planes(k, "out.sigma", sigma, 1, D, 0);
}

/* gamma * table with a learned gamma, as a model's tape has it. A case that is left early leaks its tape */
static void learned_gamma(kase *k, cmha_real *table, size_t n) {
    const size_t column[] = {n, 1}, one[] = {1, 1};
    cmha_real dgamma = 0;
    cmha_tensor *x, *gamma, *y;
    cmha_tape tape;
    if (cmha_tape_init(&tape, k->context, 1)) leave(k, CASE_FAIL, "%s", cmha_error(k->context));
    x = cmha_tensor_wrap(&tape, 2, column, table, NULL);
    gamma = cmha_tensor_wrap(&tape, 2, one, reals(k, "param.gamma", 1), &dgamma);
    y = cmha_linear(&tape, x, gamma, NULL);
    if (gradients_wanted(k)) {
        walk_back(k, &tape, y, cotangent(k, "cot.z_im", n));
        compare_gradient(k, "grad.param.gamma", &dgamma, 1);
    }
    memcpy(table, y->data, n * sizeof *table);
    cmha_tape_close(&tape);
}

static void op_cope_embed(kase *k) {
    size_t N = axis(k, "in.x", 0), d = axis(k, "in.x", 1), i;
    cmha_cope_imag kind =
        choice(k, "cfg.imag", "sin_dup|sin_cos") ? CMHA_COPE_IMAG_SIN_COS : CMHA_COPE_IMAG_SIN_DUP;
    cmha_real *x = reals(k, "in.x", N * d), *imag = zeros(k, N * d);
    cmha_cope_table(kind, N, d, number(k, "cfg.base"), 0, imag);
    if (find(k, "param.gamma")) learned_gamma(k, imag, N * d);
    else
        for (i = 0; i < N * d; i++) imag[i] *= (cmha_real)number(k, "cfg.gamma");
    compare_planes(k, "out.z", join(k, x, imag, N, d), N, d, 0);
    /* x passes through */
    if (gradients_wanted(k)) compare_gradient(k, "grad.in.x", cotangent(k, "cot.z_re", N * d), N * d);
}
