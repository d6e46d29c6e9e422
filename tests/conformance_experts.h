/* CRAT's complex residual and mixture of experts. Part of conformance.c. */

static void op_complex_residual(kase *k) {
    size_t T = rows(k, "in.z_re"), D = axis(k, "in.z_re", -1);
    cmha_real *z = planes(k, "in.z", T, D), *f = planes(k, "in.f", T, D), *y = zeros(k, 2 * T * D);
    cmha_real *alpha = reals(k, "param.alpha", 1), *beta = reals(k, "param.beta", 1), sums[2];
    double dalpha = 0, dbeta = 0;
    cmha_real *dz = zeros(k, 2 * T * D), *dy;
    const cmha_complex_residual_args args = {T, D, *alpha, *beta};
    cmha_complex_residual_forward(&args, z, f, y);
    compare_planes(k, "out.y", y, T, D, 0);
    if (!gradients_wanted(k)) return;
    dy = planes_cotangent(k, "cot.y", T, D);
    cmha_complex_residual_backward(&args, z, dy, dz, &dalpha, &dbeta);
    compare_planes(k, "grad.in.z", dz, T, D, 1);
    compare_planes(k, "grad.in.f", dy, T, D, 1);
    sums[0] = (cmha_real)dalpha, sums[1] = (cmha_real)dbeta;
    compare_gradient(k, "grad.param.alpha", sums, 1);
    compare_gradient(k, "grad.param.beta", sums + 1, 1);
}

/* The router, the choice and the experts, and their gradients in the other direction */
static void op_cmoe(kase *k) {
    size_t T = rows(k, "in.z_re"), D = axis(k, "in.z_re", -1), E = axis(k, "param.w1_re", 0),
           F = axis(k, "param.w1_re", 1);
    size_t most = whole(k, "cfg.k"), top = most < E ? most : E, pairs = T * top,
           *plan = (size_t *)take(k, cmha_route_size(T, E, top), sizeof *plan);
    cmha_real *z = planes(k, "in.z", T, D), *router = planes(k, "param.router", 1, E * D);
    cmha_real *logits = zeros(k, T * E), *gate = zeros(k, pairs), *hidden = zeros(k, pairs * 2 * F),
              *y = zeros(k, 2 * T * D);
    cmha_real *dz = zeros(k, 2 * T * D), *dgate = zeros(k, pairs), *dlogits = zeros(k, T * E);
    cmha_real *drouter = zeros(k, 2 * E * D), *dbias = zeros(k, E);
    const cmha_route_args route = {T, D, E, top, NULL, 1};
    const cmha_grads grads = {dz, drouter, dbias};
    cmha_experts_args a;
    cmha_experts_weights w;
    cmha_experts_grads d;
    memset(&a, 0, sizeof a);
    a.T = T, a.D = D, a.F = F, a.E = E, a.top = top, a.threads = 2;
    a.plan = plan, a.gate = gate, a.hidden = hidden;
    w.w1 = planes(k, "param.w1", 1, E * F * D), w.b1 = planes(k, "param.b1", 1, E * F);
    w.w2 = planes(k, "param.w2", 1, E * D * F), w.b2 = planes(k, "param.b2", 1, E * D);
    d.z = dz, d.gate = dgate;
    d.w1 = zeros(k, 2 * E * F * D), d.b1 = zeros(k, 2 * E * F), d.w2 = zeros(k, 2 * E * D * F),
    d.b2 = zeros(k, 2 * E * D);
    cmha_router_forward(&route, z, router, reals(k, "param.router_b", E), logits);
    cmha_route_forward(&route, logits, plan, gate);
    cmha_experts_forward(&a, &w, z, y, zeros(k, cmha_experts_scratch(&a, 0)));
    compare_planes(k, "out.y", y, T, D, 0);
    if (!gradients_wanted(k)) return;
    cmha_experts_backward(&a, &w, z, planes_cotangent(k, "cot.y", T, D), &d,
                          zeros(k, cmha_experts_scratch(&a, 1)));
    cmha_route_backward(&route, plan, gate, dgate, dlogits);
    cmha_router_backward(&route, z, router, dlogits, &grads);
    compare_planes(k, "grad.in.z", dz, T, D, 1);
    compare_planes(k, "grad.param.router", drouter, 1, E * D, 1);
    compare_gradient(k, "grad.param.router_b", dbias, E);
    compare_planes(k, "grad.param.w1", d.w1, 1, E * F * D, 1);
    compare_planes(k, "grad.param.b1", d.b1, 1, E * F, 1);
    compare_planes(k, "grad.param.w2", d.w2, 1, E * D * F, 1);
    compare_planes(k, "grad.param.b2", d.b2, 1, E * D, 1);
}
