"""Complex residual and mixture of experts for make_cases.py, which calls write_cases(); see make_cases_complex.py for the style."""
from make_cases import exp, gelu, rows_of, total
from make_cases_complex import A, OPS, TOLERANCE, Z, add_up, bilinear, case, cplx, hermitian, like, real


def complex_residual(cfg, t):
    factor = Z(t["alpha"][0], t["beta"][0])
    return {"y": A(t["z"].shape, [factor * z + f for z, f in zip(t["z"].data, t["f"].data)])}


def chosen(logits, k):
    """The k largest, ties to the lower index: exact ones only, since a near-tie would hang on rounding."""
    order = sorted(range(len(logits)), key=lambda e: (-logits[e].v, e))
    if k < len(order):
        gap = logits[order[k - 1]].v - logits[order[k]].v
        assert gap == 0 or gap > 1e-3, "the case sits on a tie"
    return order[:k]


def expert(t, e, z):
    h = [bilinear(w.data, z) + b for w, b in zip(t["w1"][e], t["b1"][e].data)]
    h = [Z(gelu(x.re), gelu(x.im)) for x in h]
    return [bilinear(w.data, h) + b for w, b in zip(t["w2"][e], t["b2"][e].data)]


def cmoe(cfg, t):
    rows = []
    for z in rows_of(t["z"]):
        logits = [hermitian(z, r.data).re + b for r, b in zip(t["router"], t["router_b"].data)]
        best = chosen(logits, int(cfg["k"]))
        weights = [exp(logits[e] - logits[best[0]].v) for e in best]
        outputs = [[y * (w / total(weights)) for y in expert(t, e, z)] for e, w in zip(best, weights)]
        rows.append([add_up(column) for column in zip(*outputs)])
    return {"y": like(t["z"], rows)}


OPS.update({"complex_residual": complex_residual, "cmoe": cmoe})
TOLERANCE["complex_residual"] = (2e-5, 2e-6)


def write_cases(d):
    def residual(name, seed, shape, alpha, beta, times=()):
        case(d, "complex_residual_" + name, "complex_residual", seed,
             {"in.z": cplx(*shape), "in.f": cplx(*shape), "param.alpha": one(alpha), "param.beta": one(beta)}, times)

    def one(value):
        return lambda c, name: c.given(name, [1], [value])

    residual("odd", 301, (2, 3, 5), 0.75, -1.5)
    residual("one_number", 302, (1, 1, 1), -2.0, 0.5)
    residual("no_skip", 303, (1, 4, 3), 0.0, 0.0)
    residual("turn_of_zeros", 304, (3, 1, 2), 0.0, 1.0, [(0, "z", 1)])

    def moe(name, seed, B, N, D, E, F, k, times=(), **given):
        tensors = {"in.z": cplx(B, N, D), "param.router": cplx(E, D), "param.router_b": real(E, scale=0.5),
                   "param.w1": cplx(E, F, D, scale=0.6), "param.b1": cplx(E, F, scale=0.3), "param.w2": cplx(E, D, F, scale=0.6),
                   "param.b2": cplx(E, D, scale=0.3)}
        tensors.update({"param." + n: make for n, make in given.items()})
        case(d, "cmoe_" + name, "cmoe", seed, tensors, times, k=k)

    moe("one_expert", 310, 1, 3, 2, 1, 3, 1)
    moe("all_of_three", 311, 2, 2, 3, 3, 5, 3)
    moe("one_channel", 312, 1, 5, 1, 4, 3, 2)
    moe("one_channel_one_hidden", 313, 1, 4, 1, 3, 1, 1)
    moe("one_token_odd_hidden", 314, 1, 1, 5, 4, 7, 2)
    moe("top_one_odd", 315, 2, 3, 3, 5, 3, 1)
    moe("top_three_of_seven", 316, 1, 4, 2, 7, 3, 3)
    # Tokens of zeros: their logits are the bias. First both chosen ones tie, then the last chosen one and the first that is not.
    moe("tie_of_chosen", 317, 1, 3, 2, 3, 3, 2, [(0, "z", 0, 0), (0, "z", 0, 2)],
        router_b=lambda c, name: c.given(name, [3], [0.5, 0.5, -0.5]))
    moe("tie_at_edge", 320, 1, 2, 2, 4, 3, 2, [(0, "z", 0, 1)], router_b=lambda c, name: c.given(name, [4], [-0.5, 0.25, 0.5, 0.25]))
    moe("idle_expert", 318, 1, 6, 2, 3, 2, 2, [(0, "router", 1)], router_b=lambda c, name: c.given(name, [3], [0.0, -64.0, 0.25]))
    moe("far_logits", 319, 1, 3, 2, 3, 2, 2, [(64, "router")])
