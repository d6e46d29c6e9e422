"""CRAT's reflection window and complex residual, the third part of make_cases.py, which calls write_cases()."""
from make_cases import A, S, exp, f32, rows_of, total
from make_cases_complex import OPS, TOLERANCE, Z, add_up, bilinear, case, cplx, hermitian, like, pairs, phasors, real, softmax


class Constant:
    """A number of the file that is no variable: it gets no gradient."""
    __slots__ = ("v",)

    def __init__(self, v):
        self.v = v


def constants(n, d, different=None):
    """n complex rows, of which only the first `different` differ."""
    def make(c, name):
        parts = []
        for part in ("_re", "_im"):
            rows = [[f32(c.random.gauss(0, 1)) for _ in range(d)] for _ in range(different or n)]
            values = [v for i in range(n) for v in rows[i % len(rows)]]
            c.tensors[name + part] = A([n, d], [Constant(v) for v in values])
            parts.append(A([n, d], [S(v) for v in values]))
        return pairs(*parts)
    return make


def nearest(similarities, k):
    """The k largest, ties to the lower index; what is left out is clearly less, or exactly as much."""
    order = sorted(range(len(similarities)), key=lambda i: -similarities[i].v)
    if k < len(order):
        gap = similarities[order[k - 1]].v - similarities[order[k]].v
        assert gap == 0 or gap > 1e-3, "the case sits on a tie"
    return order[:k]


def irw_fuse(cfg, t):
    M, k, eps = int(cfg["M"]), int(cfg["k"]), float(cfg["eps"])
    docs = rows_of(t["docs"])
    units, weights, rows = phasors(docs, eps), softmax(list(enumerate(t["w_logits"].data))), []
    for z in rows_of(t["z"]):
        found = []
        for m, w in weights:
            q = [bilinear([Z(x.im, 0) for x in z], row) + b for row, b in zip(rows_of(t["wm"][m]), t["bm"][m].data)]
            u = phasors([q], eps)[0]
            sims = [hermitian(u, r).re / len(u) for r in units]
            mix = softmax([(i, sims[i] / float(cfg["tau_r"])) for i in nearest(sims, k)])
            found += [[r * (p * w) for r in docs[i]] for i, p in mix]
        rbar = [add_up(column) for column in zip(*found)]
        seen = [x.re for x in z] + [x.im for x in z] + [x.re for x in rbar] + [x.im for x in rbar]
        out = []
        for x, row, b, value in zip(z, rows_of(t["wg"]), t["bg"].data, rows_of(t["wv"])):
            gate = (total(w * s for w, s in zip(row, seen)) + b) / float(cfg["tau"])
            g = S(1.0) / (exp(-gate) + 1.0)
            v = bilinear(value, rbar) * g
            out.append((x * (S(1.0) - g) if cfg["fusion"] == "convex" else x) + v)
        rows.append(out)
    return {"y": like(t["z"], rows)}


def complex_residual(cfg, t):
    gain = Z(t["alpha"].data[0], t["beta"].data[0])
    return {"y": A(t["z"].shape, [z * gain + f for z, f in zip(t["z"].data, t["f"].data)])}


def window_cases(d):
    def window(name, seed, B, N, D, n, dr, M, k, times=(), different=None, tau_r="1.0", tau="1.0", fusion="convex", eps="0.1"):
        tensors = {"in.z": cplx(B, N, D), "in.docs": constants(n, dr, different), "param.wm": cplx(M, dr, D),
                   "param.bm": cplx(M, dr), "param.w_logits": real(M), "param.wv": cplx(D, dr),
                   "param.wg": real(D, 2 * D + 2 * dr, scale=0.5), "param.bg": real(D)}
        case(d, "irw_fuse_" + name, "irw_fuse", seed, tensors, times, M=M, k=k, tau_r=tau_r, tau=tau, fusion=fusion, eps=eps)

    window("one_of_everything", 300, 1, 1, 1, 1, 1, 1, 1)
    window("top_one_of_seven", 301, 2, 3, 3, 7, 3, 2, 1)
    window("one_document_one_feature", 302, 1, 5, 1, 1, 1, 3, 4, fusion="additive", tau="2.0")
    window("odd_additive", 303, 1, 3, 3, 9, 5, 3, 4, tau_r="0.5", tau="0.25", fusion="additive", eps="1e-06")
    window("wide_documents", 304, 1, 4, 2, 6, 11, 1, 3, tau_r="0.125")
    window("equal_documents", 305, 2, 2, 3, 11, 2, 2, 4, different=3, tau_r="0.5")
    window("zero_queries", 306, 1, 3, 3, 8, 3, 2, 3, times=[(0, "z", 0, 1), (0, "bm", 0)], tau_r="0.5")
    window("all_documents", 307, 1, 2, 5, 4, 3, 5, 4, tau_r="0.25", eps="0.01")


def residual_cases(d):
    def residual(name, seed, *shape, times=(), scale=1.0):
        tensors = {"in.z": cplx(*shape, scale=scale), "in.f": cplx(*shape), "param.alpha": real(1), "param.beta": real(1)}
        case(d, "complex_residual_" + name, "complex_residual", seed, tensors, times)

    residual("one_feature", 320, 3, 2, 1)
    residual("odd_turned", 321, 1, 5, 3, times=[(0, "alpha", 0), (0, "z", 0, 2)])
    residual("large", 322, 2, 1, 7, scale=50.0)


def write_cases(directory):
    OPS.update({f.__name__: f for f in (irw_fuse, complex_residual)})
    TOLERANCE["complex_residual"] = (2e-5, 2e-6)
    window_cases(directory)
    residual_cases(directory)
