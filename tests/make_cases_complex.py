"""The complex half of make_cases.py, which calls write_cases(): complex layers, CoPE, Moebius, CRAT.

A complex number is a pair of the self-differentiating scalars of make_cases.py, an operation is the formula of FORMAT.md and
nothing else, from named tensors to named tensors: OPS[op](cfg, tensors) -> outputs.
"""
import math

from make_cases import A, S, Case, cos, dot, exp, gelu, lift, logsumexp, rows_of, sin, sqrt, total


class Z:
    """A complex number over S; the factor on the right may be real."""
    __slots__ = ("re", "im")

    def __init__(self, re, im):
        self.re, self.im = lift(re), lift(im)

    def __add__(a, b):
        return Z(a.re + b.re, a.im + b.im)

    def __sub__(a, b):
        return Z(a.re - b.re, a.im - b.im)

    def __mul__(a, b):
        if isinstance(b, Z):
            return Z(a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re)
        return Z(a.re * b, a.im * b)

    def __truediv__(a, b):
        return Z(a.re / b, a.im / b)

    def conj(self):
        return Z(self.re, -self.im)

    def square(self):
        return self.re * self.re + self.im * self.im


def add_up(terms):
    """The sum of some real or some complex numbers; at least one."""
    terms = list(terms)
    return Z(total(z.re for z in terms), total(z.im for z in terms)) if isinstance(terms[0], Z) else total(terms)


def bilinear(a, b):
    return add_up(x * y for x, y in zip(a, b))


def hermitian(a, b):
    return add_up(x * y.conj() for x, y in zip(a, b))


def modulus(z):
    """|z|, with gradient 0 where z = 0."""
    return sqrt(z.square()) if z.re.v or z.im.v else S(0.0)


def damped(z, e):
    """sqrt(|z|^2 + e^2)"""
    return sqrt(z.square() + e * e)


def phasors(rows, e):
    return [[z / damped(z, e) for z in row] for row in rows]


def reals(rows):
    return [[z.re for z in row] for row in rows]


def imags(rows):
    return [[z.im for z in row] for row in rows]


def like(x, rows):
    """An array of x's shape, but for the last axis, from its rows."""
    return A(x.shape[:-1] + [len(rows[0])], [e for row in rows for e in row])


def apart(values, chosen):
    """A choice among values must not hang on rounding: what is chosen lies clearly above the rest (or all are 0)."""
    order = sorted((v.v for v in values), reverse=True)
    if chosen < len(order) and order[0]:
        assert order[chosen - 1] - order[chosen] > 1e-3 * abs(order[0]), "the case sits on a tie"


# --------------------------------------------------------------------------------------------------------------- layers

def complex_linear(cfg, t):
    bias = t["b"].data if "b" in t else [Z(0, 0)] * t["w"].shape[0]
    return {"y": like(t["x"], [[bilinear(x, w.data) + b for w, b in zip(t["w"], bias)] for x in rows_of(t["x"])])}


def lowrank_complex_linear(cfg, t):
    (O, _), (I, r) = t["u"].shape, t["v"].shape
    bias = t["b"].data if "b" in t else [Z(0, 0)] * O
    columns = [[t["v"][i, j] for i in range(I)] for j in range(r)]
    rows = []
    for x in rows_of(t["x"]):
        inner = [hermitian(x, v) for v in columns]
        rows.append([bilinear(inner, u.data) + b for u, b in zip(t["u"], bias)])
    return {"y": like(t["x"], rows)}


def complex_rotate(cfg, t):
    return {"y": A(t["z"].shape, [z * Z(cos(a), sin(a)) for z, a in zip(t["z"].data, t["theta"].data)])}


def cgelu(cfg, t):
    return {"y": A(t["z"].shape, [Z(gelu(z.re), gelu(z.im)) for z in t["z"].data])}


def cln(cfg, t):
    rows = []
    for row in rows_of(t["z"]):
        mean = add_up(row) / len(row)
        c = [z - mean for z in row]
        r = sqrt(total(z.square() for z in c) / len(c) + float(cfg["eps"]))
        rows.append([z / r * g + b for z, g, b in zip(c, t["gamma"].data, t["beta"].data)])
    return {"y": like(t["z"], rows)}


def crms(cfg, t):
    rows = []
    for row in rows_of(t["z"]):
        r = sqrt(total(z.square() for z in row) / len(row) + float(cfg["eps"]))
        rows.append([z / r * g for z, g in zip(row, t["gamma"].data)])
    return {"y": like(t["z"], rows)}


def whitened(row, eps):
    """V^(-1/2) (Re c, Im c); the root of a positive 2x2 matrix V is (V + s) / sqrt(trace + 2 s), s = sqrt(det V)."""
    mean = add_up(row) / len(row)
    c = [z - mean for z in row]
    a, b, d = (total(terms) / len(c) for terms in ([z.re * z.re for z in c], [z.re * z.im for z in c], [z.im * z.im for z in c]))
    a, d = a + eps, d + eps
    s = sqrt(a * d - b * b)
    k = s * sqrt(a + d + s * 2.0)
    return [Z(((d + s) * z.re - b * z.im) / k, ((a + s) * z.im - b * z.re) / k) for z in c]


def complex_whiten(cfg, t):
    rows = [whitened(row, float(cfg["eps"])) for row in rows_of(t["z"])]
    if "beta" in t:
        affine = list(zip(*(t[n].data for n in ("gamma_rr", "gamma_ri", "gamma_ii", "beta"))))
        rows = [[Z(rr * h.re + ri * h.im, ri * h.re + ii * h.im) + b for h, (rr, ri, ii, b) in zip(row, affine)] for row in rows]
    return {"y": like(t["z"], rows)}


def counted(t):
    rows = rows_of(t["z"])
    return [row for row, m in zip(rows, t["key_mask"].data) if m] if "key_mask" in t else rows


def phase_reg(cfg, t):
    u = phasors(counted(t), float(cfg["eps"]))
    spread = [1.0 - modulus(add_up(column) / len(u)) for column in zip(*u)]
    return {"loss": A([1], [total(spread) / len(spread) * float(cfg["lam"])])}


def mag_reg(cfg, t):
    squares = [z.square() for row in counted(t) for z in row]
    return {"loss": A([1], [total(squares) / len(squares) * float(cfg["lam"])])}


# ------------------------------------------------------------------------------------------------------------ attention

def heads(cfg, t):
    """Per batch and head: the rows of q, k, v, and for each query the keys it may see."""
    B, H, N, _ = t["q"].shape
    causal = int(cfg.get("causal", 0))
    for b in range(B):
        open_keys = [n for n in range(N) if "key_mask" not in t or t["key_mask"][b, n]]
        seen = [[n for n in open_keys if n <= m or not causal] for m in range(N)]
        for h in range(H):
            yield tuple(rows_of(t[name][b, h]) for name in "qkv") + (seen,)


def softmax(scores):
    """[(key, score)] -> [(key, weight)]"""
    norm = logsumexp([s for _, s in scores]) if scores else None
    return [(n, exp(s - norm)) for n, s in scores]


def gather(weights, v):
    """The sum of weight times row of v; zeros without any key."""
    return [add_up(v[n][e] * w for n, w in weights) if weights else v[0][e] - v[0][e] for e in range(len(v[0]))]


def cope_peak(cfg, sizes):
    """The maximal |A|: a constant unless norm_max_grad = 1."""
    if not sizes:
        return S(1.0)  # a row without keys: not used
    top = max(sizes, key=lambda s: s.v)
    if not int(cfg["norm_max_grad"]):
        return S(top.v)
    apart(sizes, 1)
    return top


def cope_score(cfg, a, size_of_a, s, top):
    variant, alpha = cfg["variant"], float(cfg["alpha"])
    once_more = s if int(cfg["compat_repo_scale"]) else 1.0
    c = a.re / damped(a, float(cfg["eps"]))
    if variant == "magnitude":
        return size_of_a * s * once_more
    if variant == "phase":
        return c * s
    if variant == "real":
        return a.re * s * once_more
    if variant == "hybrid":
        return (size_of_a * once_more + c * alpha) * s
    assert variant == "hybrid_norm"
    return (size_of_a / (top + 1e-12) + c * alpha) * s


def cope_attention(cfg, t):
    parts, s, scope, rows = list(heads(cfg, t)), t["q"].shape[-1] ** -0.5, cfg["norm_max"], []
    scores = [[[hermitian(x, y) for y in k] for x in q] for q, k, _, _ in parts]
    sizes = [[[modulus(a) for a in row] for row in head] for head in scores]
    everything = [a for head in sizes for row in head for a in row]
    for (_, _, v, seen), head, size_of in zip(parts, scores, sizes):
        of_head = [size_of[m][n] for m, keys in enumerate(seen) for n in keys]
        for m, keys in enumerate(seen):
            domain = {"row": [size_of[m][n] for n in keys], "head": of_head, "global": everything}[scope]
            top = cope_peak(cfg, domain) if cfg["variant"] == "hybrid_norm" else None
            rows.append(gather(softmax([(n, cope_score(cfg, head[m][n], size_of[m][n], s, top)) for n in keys]), v))
    return {"y": like(t["q"], rows)}


def cope_linear(cfg, t):
    def positive(rows):
        return [[Z(*(x + 1.0 if x.v > 0 else exp(x) for x in (z.re, z.im))) for z in row] for row in rows]

    def value(num, den):
        c = num.re / damped(num, float(cfg["eps"]))
        return {"real": lambda: num.re, "magnitude": lambda: modulus(num), "phase": lambda: c,
                "hybrid": lambda: modulus(num) + c * float(cfg["alpha"])}[cfg["variant"]]() / den

    rows = []
    for q, k, v, seen in heads(cfg, t):
        q, k = positive(q), positive(k)
        for x, keys in zip(q, seen):
            w = [(n, hermitian(x, k[n])) for n in keys]
            den = total(a.re for _, a in w)
            rows.append([value(add_up(a * v[n][e] for n, a in w), den) for e in range(len(v[0]))])
    return {"y": like(t["q"], rows)}


def yang8(q, k, v, seen, scale):
    part = {"r": reals, "i": imags}

    def T(x, y, z):
        x, y, z = part[x](q), part[y](k), part[z](v)
        return [gather(softmax([(n, dot(x[m], y[n]) * scale) for n in keys]), z) for m, keys in enumerate(seen)]

    re, im = ([T(*p) for p in names.split()] for names in ("rrr rii iri iir", "rri rir irr iii"))
    return [[Z(a - b - c - d, e + f + g - h) for a, b, c, d, e, f, g, h in zip(*rows)] for rows in zip(*re, *im)]


def mobius_attention(cfg, t):
    product = {"bilinear": bilinear, "hermitian": hermitian}[cfg["product"]]
    form, scale, rows = cfg["softmax"], float(cfg["scale"]), []
    for q, k, v, seen in heads(cfg, t):
        if form == "yang8":
            rows += yang8(q, k, v, seen, scale)
            continue
        for x, keys in zip(q, seen):
            O = [(n, product(x, k[n]) * scale) for n in keys]
            if form == "abs":
                rows.append(gather(softmax([(n, modulus(o)) for n, o in O]), v))
                continue
            of_re = softmax([(n, o.re) for n, o in O])
            if form == "real":
                rows.append(gather(of_re, v))
                continue
            of_im = softmax([(n, o.im) for n, o in O])
            if form == "ri_product":
                rows.append(gather([(n, Z(a, b)) for (n, a), (_, b) in zip(of_re, of_im)], v))
            else:
                assert form == "ri_split"
                rows.append([Z(a.re, b.im) for a, b in zip(gather(of_re, v), gather(of_im, v))])
    return {"y": like(t["q"], rows)}


def angular_attention(cfg, t):
    rows = []
    for q, k, v, seen in heads(cfg, t):
        q, k = phasors(q, float(cfg["eps"])), phasors(k, float(cfg["eps"]))
        rows += [gather(softmax([(n, hermitian(x, k[n]).re / math.sqrt(len(x))) for n in keys]), v) for x, keys in zip(q, seen)]
    return {"y": like(t["q"], rows)}


def angular_linear(cfg, t):
    rows = []
    for q, k, v, seen in heads(cfg, t):
        q, k = phasors(q, float(cfg["eps"])), phasors(k, float(cfg["eps"]))
        for x, keys in zip(q, seen):
            w = [(n, hermitian(x, k[n]).re / len(x) + 1.0) for n in keys]
            den = total(a for _, a in w) + float(cfg["den_eps"])
            rows.append([e / den for e in gather(w, v)])
    return {"y": like(t["q"], rows)}


def lag_fft(cfg, t):
    topk, rows = int(cfg["topk"]), []
    for q, k, v, _ in heads(cfg, t):
        q, k, N = phasors(q, float(cfg["eps"])), phasors(k, float(cfg["eps"])), len(q)
        R = [total(hermitian(q[m], k[m - lag]).re for m in range(lag, N)) / (math.sqrt(len(q[0])) * (N - lag)) for lag in range(N)]
        lags = range(N)
        if 0 < topk < N:
            lags = sorted(lags, key=lambda lag: -R[lag].v)[:topk]
            apart(R, topk)
        a = softmax([(lag, R[lag] * float(cfg["temp"])) for lag in lags])
        for m in range(N):
            w = [(m - lag, x) for lag, x in a if lag <= m]
            rows.append([e / total(x for _, x in w) for e in gather(w, v)] if w else gather(w, v))
    return {"y": like(t["q"], rows)}


# ---------------------------------------------------------------------------------------- maps, tables, and what is left

def cope_embed(cfg, t):
    x, imag = t["x"], []
    N, d = x.shape
    for p in range(N):
        for c in range(d):
            angle = p * float(cfg["base"]) ** (-2 * (c // 2) / d)
            wave = math.cos if cfg["imag"] == "sin_cos" and c % 2 else math.sin
            imag.append(S(float(cfg["gamma"]) * wave(angle)))
    return {"z": A([N, d], [Z(a, b) for a, b in zip(x.data, imag)])}


def multifreq_pe(cfg, t):
    K, d = t["omega"].shape
    rows = [[total(sin(t["omega"][k, i] * float(p) + t["delta"][k, i]) for k in range(K)) / math.sqrt(K) for i in range(d)]
            for p in range(int(cfg["pos0"]), int(cfg["pos0"]) + int(cfg["N"]))]
    return {"y": A([len(rows), d], [e for row in rows for e in row])}


def mobius_map(cfg, t):
    def quotient(u, w):
        e = float(cfg["eps"])
        over = {"reg": lambda: w.square() + e * e, "exact": w.square, "unit": lambda: damped(w, e)}[cfg["quotient"]]()
        return u * w.conj() / over

    coefficients = list(zip(*(t[n].data for n in "abcd")))
    return {"y": like(t["rho"], [[quotient(z * a + b, z * c + d) for z, (a, b, c, d) in zip(row, coefficients)]
                                 for row in rows_of(t["rho"])])}


def geometry(sigma, tol):
    """The class; and the case must stay 30 % of tol away from every boundary that is asked about on the way to it."""
    def asked(value, bound):
        assert abs(value - bound) >= 0.3 * tol, "the case sits on a boundary"
        return value > bound

    if asked(abs(sigma.imag), tol * (1 + abs(sigma))):
        return 4
    if not asked(abs(sigma - 4), tol):
        return 0
    if not asked(abs(sigma), tol):
        return 1
    if not asked(sigma.real, 0):
        return 4
    return 3 if asked(sigma.real, 4) else 2


def mobius_classify(cfg, t):
    a, b, c, d = ([complex(z.re.v, z.im.v) for z in t[n].data] for n in "abcd")
    sigma = [(w + z) ** 2 / (w * z - x * y) for w, x, y, z in zip(a, b, c, d)]
    return {"sigma": A([len(sigma)], [Z(s.real, s.imag) for s in sigma]),
            "class": A([len(sigma)], [geometry(s, float(cfg["tol"])) for s in sigma])}


def componentwise_clip(cfg, t):
    names, limit = ["g%d" % i for i in range(int(cfg["count"]))], float(cfg["c"])
    planes = {(n, p): [getattr(z, p).v for z in t[n].data] for n in names for p in ("re", "im")}

    def shrink(x, norm):
        return [e * min(1.0, limit / norm) for e in x] if norm else x

    norms = {key: math.sqrt(math.fsum(e * e for e in x)) for key, x in planes.items()}
    for n, p in planes:
        if cfg["mode"] == "value":
            planes[n, p] = [max(-limit, min(limit, e)) for e in planes[n, p]]
        elif cfg["mode"] == "norm":
            planes[n, p] = shrink(planes[n, p], norms[n, p])
        else:
            assert cfg["mode"] == "global"
            planes[n, p] = shrink(planes[n, p], math.sqrt(math.fsum(norms[m, p] ** 2 for m in names)))
    return {n: A(t[n].shape, [Z(*e) for e in zip(planes[n, "re"], planes[n, "im"])]) for n in names}


OPS = {f.__name__: f for f in (
    complex_linear, lowrank_complex_linear, complex_rotate, cgelu, cln, crms, complex_whiten, phase_reg, mag_reg, cope_embed,
    cope_attention, cope_linear, mobius_map, mobius_attention, mobius_classify, multifreq_pe, angular_attention, angular_linear,
    lag_fft, componentwise_clip)}

FORWARD_ONLY = ("mobius_classify", "componentwise_clip")
TOLERANCE = {"cln": (5e-5, 4e-6), "mobius_classify": (2e-4, 2e-5)}  # float32, FORMAT.md section 3
for _op in ("complex_linear", "lowrank_complex_linear", "complex_rotate", "cgelu", "crms", "mag_reg", "cope_embed", "multifreq_pe",
            "componentwise_clip"):
    TOLERANCE[_op] = (2e-5, 2e-6)


# ---------------------------------------------------------------------------------------------------------------- cases

def real(*shape, scale=1.0, offset=0.0):
    return lambda c, name: c.real(name, shape, scale, offset)


def pairs(re, im):
    return A(re.shape, [Z(*e) for e in zip(re.data, im.data)])


def cplx(*shape, scale=1.0, offset=0.0):
    """Normal in both parts; the offset is complex."""
    offset = complex(offset)
    return lambda c, name: pairs(c.real(name + "_re", shape, scale, offset.real), c.real(name + "_im", shape, scale, offset.imag))


def these(*values):
    """A complex vector."""
    n, values = [len(values)], [complex(v) for v in values]
    re, im = [v.real for v in values], [v.imag for v in values]
    return lambda c, name: pairs(c.given(name + "_re", n, re), c.given(name + "_im", n, im))


def mask(*rows):
    """Batches as strings of 0 and 1."""
    return lambda c, name: c.ints(name, [len(rows), len(rows[0])], [int(e) for row in rows for e in row])


def qkv(B, H, N, dh, *rows, v=cplx, scale=1.0):
    tensors = {"in.q": cplx(B, H, N, dh, scale=scale), "in.k": cplx(B, H, N, dh, scale=scale), "in.v": v(B, H, N, dh)}
    if rows:
        tensors["in.key_mask"] = mask(*rows)
    return tensors


def numbers(x):
    return [e for y in x.data for e in numbers(y)] if isinstance(x, A) else [x.re, x.im] if isinstance(x, Z) else [x]


def case(directory, name, op, seed, tensors, times=(), **cfg):
    """times: (factor, tensor, index...): that part of an input times a power of two, or 0."""
    c, t = Case("own_" + name, op, seed, *TOLERANCE.get(op, (1e-4, 4e-6)), **cfg), {}
    for full, make in tensors.items():
        t[full.split(".")[1]] = make(c, full)
    for factor, tensor, *at in times:
        for number in numbers(t[tensor][tuple(at)]):
            number.v = number.v * factor + 0.0  # no negative zeros
    for output, array in OPS[op](cfg, t).items():
        if isinstance(array.data[0], Z):
            c.out(output + "_re", A(array.shape, [z.re for z in array.data]))
            c.out(output + "_im", A(array.shape, [z.im for z in array.data]))
        else:
            c.out(output, array)
    return c.write(directory, grad=op not in FORWARD_ONLY)


def layer_cases(d):
    case(d, "complex_linear_3_to_1_bias", "complex_linear", 101, {"in.x": cplx(2, 3, 3), "param.w": cplx(1, 3), "param.b": cplx(1)})
    case(d, "complex_linear_1_to_5", "complex_linear", 102, {"in.x": cplx(1, 5, 1), "param.w": cplx(5, 1)}, [(0, "x", 0, 2)])
    case(d, "complex_linear_one_token_bias", "complex_linear", 103,
         {"in.x": cplx(3, 1, 7), "param.w": cplx(2, 7), "param.b": cplx(2)}, [(0, "w", 1)])
    case(d, "lowrank_complex_linear_rank3", "lowrank_complex_linear", 104,
         {"in.x": cplx(1, 3, 7), "param.u": cplx(5, 3), "param.v": cplx(7, 3), "param.b": cplx(5)})
    case(d, "lowrank_complex_linear_rank_above_both", "lowrank_complex_linear", 105,
         {"in.x": cplx(3, 1, 2), "param.u": cplx(3, 4), "param.v": cplx(2, 4)}, [(0, "x", 1)])
    case(d, "lowrank_complex_linear_one_feature", "lowrank_complex_linear", 106,
         {"in.x": cplx(1, 2, 1), "param.u": cplx(1, 2), "param.v": cplx(1, 2), "param.b": cplx(1)})
    case(d, "complex_rotate_zeros", "complex_rotate", 107, {"in.z": cplx(1, 3, 3), "in.theta": real(1, 3, 3, scale=3.0)},
         [(0, "z", 0, 0), (0, "theta", 0, 1), (0, "z", 0, 2, 1)])
    case(d, "complex_rotate_many_turns", "complex_rotate", 108, {"in.z": cplx(3, 1, 7), "in.theta": real(3, 1, 7, scale=100.0)})
    case(d, "cgelu_odd", "cgelu", 109, {"in.z": cplx(1, 5, 3, scale=4.0)}, [(0, "z", 0, 0), (0.0625, "z", 0, 1)])
    case(d, "cgelu_tails", "cgelu", 110, {"in.z": cplx(3, 1, 4, offset=6 - 6j)})
    case(d, "cln_one_token_large_eps", "cln", 111, {"in.z": cplx(2, 1, 3, scale=0.5, offset=-1 + 2j), "param.gamma": cplx(3),
                                                    "param.beta": cplx(3)}, eps="0.25")
    case(d, "cln_zero_token", "cln", 112, {"in.z": cplx(1, 5, 2), "param.gamma": cplx(2, offset=1), "param.beta": cplx(2)},
         [(0, "z", 0, 1), (0, "z", 0, 4, 1)], eps="0.01")
    case(d, "cln_odd_offset", "cln", 113, {"in.z": cplx(2, 3, 7, scale=0.2, offset=5 - 3j), "param.gamma": cplx(7),
                                           "param.beta": cplx(7)}, eps="0.001")
    case(d, "crms_one_feature", "crms", 114, {"in.z": cplx(1, 3, 1), "param.gamma": real(1)}, [(0, "z", 0, 1)], eps="0.01")
    case(d, "crms_batch_of_three", "crms", 115, {"in.z": cplx(3, 2, 7, scale=0.05), "param.gamma": real(7)}, eps="0.001")
    case(d, "complex_whiten_one_token", "complex_whiten", 116, {"in.z": cplx(3, 1, 3)}, eps="0.01")
    whiten = {"param.gamma_rr": real, "param.gamma_ri": real, "param.gamma_ii": real, "param.beta": cplx}
    case(d, "complex_whiten_affine_odd", "complex_whiten", 117,
         {"in.z": cplx(2, 3, 5, offset=2 + 1j), **{n: f(5) for n, f in whiten.items()}}, eps="0.02")
    case(d, "complex_whiten_degenerate", "complex_whiten", 118,  # two features: the parts are collinear; a token of zeros
         {"in.z": cplx(1, 3, 2), **{n: f(2) for n, f in whiten.items()}}, [(0, "z", 0, 2)], eps="0.05")
    case(d, "complex_whiten_one_feature", "complex_whiten", 119, {"in.z": cplx(1, 2, 1), **{n: f(1) for n, f in whiten.items()}},
         eps="0.1")
    case(d, "phase_reg_one_feature", "phase_reg", 120, {"in.z": cplx(1, 3, 1)}, lam="2.0", eps="0.05")
    case(d, "phase_reg_masked_sequence", "phase_reg", 121, {"in.z": cplx(3, 5, 3), "in.key_mask": mask("01101", "00000", "10000")},
         [(0, "z", 0, 2, 1), (0, "z", 1, 0)], lam="0.75", eps="0.1")
    case(d, "phase_reg_one_token", "phase_reg", 122, {"in.z": cplx(1, 1, 3)}, [(0, "z", 0, 0, 1)], lam="1.5", eps="0.5")
    case(d, "mag_reg_masked_sequence", "mag_reg", 123, {"in.z": cplx(3, 3, 3), "in.key_mask": mask("010", "000", "111")}, lam="3.0")
    case(d, "mag_reg_odd", "mag_reg", 124, {"in.z": cplx(1, 5, 3)}, [(0, "z", 0, 3)], lam="0.125")


def cope_cases(d):
    case(d, "cope_embed_odd_width", "cope_embed", 130, {"in.x": real(5, 3)}, gamma="1.5", base="100.0", imag="sin_dup")
    case(d, "cope_embed_sin_cos_odd_width", "cope_embed", 131, {"in.x": real(3, 7)}, gamma="-0.25", base="500.0", imag="sin_cos")
    case(d, "cope_embed_one_channel", "cope_embed", 132, {"in.x": real(4, 1)}, gamma="3.0", base="10000.0", imag="sin_cos")

    def attention(name, seed, variant, tensors, times=(), causal=0, compat=0, alpha="0.3", eps="0.001", top="row", grad=0):
        case(d, "cope_attention_" + name, "cope_attention", seed, tensors, times, variant=variant, alpha=alpha, norm_max=top,
             norm_max_grad=grad, compat_repo_scale=compat, causal=causal, eps=eps)

    def like_cope(*args, **more):
        return qkv(*args, v=real, **more)

    attention("magnitude_causal_blank_row", 133, "magnitude", like_cope(1, 2, 5, 3, "01101"), causal=1)
    attention("magnitude_repo_scale_zeros", 134, "magnitude", like_cope(2, 1, 3, 5), [(0, "q", 0, 0, 1), (0, "k", 1, 0, 0)],
              compat=1)
    attention("phase_one_channel_blank_sequence", 135, "phase", like_cope(2, 1, 3, 1, "000", "101"), [(0, "q", 1, 0, 1)],
              eps="0.05")
    attention("phase_repo_scale_causal", 136, "phase", like_cope(1, 3, 4, 5), causal=1, compat=1, eps="0.1")
    attention("real_repo_scale_causal_mask", 137, "real", like_cope(2, 1, 5, 3, "11011", "00111"), causal=1, compat=1)
    attention("real_one_channel", 138, "real", like_cope(1, 1, 3, 1))
    attention("hybrid_causal_zeros_mask", 139, "hybrid", like_cope(1, 2, 5, 3, "10110"), [(0, "q", 0, 0, 3), (0, "k", 0, 1, 2)],
              causal=1, alpha="-0.4", eps="0.05")
    attention("hybrid_repo_scale_one_channel", 140, "hybrid", like_cope(1, 2, 3, 1), compat=1, alpha="1.5", eps="0.2")
    attention("norm_row_zeros", 141, "hybrid_norm", like_cope(1, 2, 3, 3, "101"), [(0, "q", 0, 0, 1), (0, "k", 0, 1)], eps="0.1")
    attention("norm_row_grad_causal_repo_scale", 142, "hybrid_norm", like_cope(1, 2, 5, 3), causal=1, compat=1, grad=1)
    attention("norm_row_grad_blank_rows", 143, "hybrid_norm", like_cope(2, 1, 5, 2, "00000", "00101"), causal=1, grad=1,
              alpha="0.8")
    # The largest key is the masked one of the first sequence: within reach of `global` only, and there the gradient reaches it
    loud = [(8, "k", 0, 0, 1)]
    attention("norm_head_mask", 144, "hybrid_norm", like_cope(2, 2, 3, 3, "101", "111"), loud, top="head")
    attention("norm_head_grad_mask", 145, "hybrid_norm", like_cope(2, 2, 3, 3, "101", "110"), loud, top="head", grad=1)
    attention("norm_head_grad_causal", 146, "hybrid_norm", like_cope(1, 2, 4, 1), causal=1, top="head", grad=1)
    attention("norm_global_mask", 147, "hybrid_norm", like_cope(2, 2, 3, 3, "101", "000"), loud, top="global")
    attention("norm_global_grad_loudest_masked", 148, "hybrid_norm", like_cope(2, 2, 3, 3, "101", "011"), loud, top="global",
              grad=1)
    attention("norm_global_grad_causal", 149, "hybrid_norm", like_cope(1, 3, 3, 2), causal=1, top="global", grad=1, alpha="-0.5")
    attention("norm_all_zero", 150, "hybrid_norm", like_cope(1, 1, 3, 2), [(0, "q", 0)], top="head", grad=1, eps="0.1")
    attention("one_token", 151, "hybrid_norm", like_cope(1, 2, 1, 3), grad=1)

    def linear(name, seed, variant, B, H, N, dk, times=(), causal=0, alpha="0.4", eps="0.05"):
        case(d, "cope_linear_" + name, "cope_linear", seed, like_cope(B, H, N, dk), times, variant=variant, causal=causal,
             alpha=alpha, eps=eps)

    linear("real_odd", 155, "real", 2, 1, 3, 3)
    linear("real_causal_zeros", 156, "real", 1, 1, 5, 3, [(0, "q", 0, 0, 1), (0, "k", 0, 0, 3)], causal=1)
    linear("magnitude_odd", 157, "magnitude", 1, 1, 5, 3)
    linear("magnitude_one_channel_causal", 158, "magnitude", 2, 1, 3, 1, causal=1)
    linear("phase_causal_odd", 159, "phase", 1, 2, 5, 3, causal=1, eps="0.2")
    linear("phase_zero_value", 160, "phase", 1, 1, 3, 2, [(0, "v", 0, 0, 0)], eps="0.5")
    linear("hybrid_odd", 161, "hybrid", 1, 2, 3, 3, alpha="-0.7")
    linear("hybrid_one_token", 162, "hybrid", 1, 3, 1, 5, causal=1)


def mobius_cases(d):
    def mobius(name, seed, quotient, N, D, eps, times=(), **others):
        tensors = {"in.rho": cplx(N, D), **{"param." + n: others.get(n, cplx(D)) for n in "abcd"}}
        case(d, "mobius_map_" + name, "mobius_map", seed, tensors, times, quotient=quotient, eps=eps)

    mobius("reg_odd_with_pole", 170, "reg", 5, 3, "0.05", [(0, "rho", 2), (0, "d", 1)])
    mobius("reg_eps_zero", 171, "reg", 3, 1, "0.0", d=cplx(1, offset=4))
    mobius("reg_zero_determinant", 172, "reg", 3, 2, "0.1",
           a=these(1 + 2j, -3), b=these(2j, 1.5), c=these(2 + 4j, 6), d=these(4j, -3))
    mobius("exact_one", 173, "exact", 1, 1, "0.0", d=cplx(1, offset=4))
    mobius("exact_odd", 174, "exact", 3, 5, "0.0", c=cplx(5, scale=0.25), d=cplx(5, offset=2 - 2j))
    mobius("unit_with_pole", 175, "unit", 4, 3, "0.1", [(0, "rho", 1), (0, "d", 0)])
    mobius("unit_eps_zero", 176, "unit", 1, 3, "0.0", d=cplx(3, offset=3j))

    def attention(name, seed, softmax, product, scale, tensors, times=(), causal=0):
        case(d, "mobius_attention_" + name, "mobius_attention", seed, tensors, times, softmax=softmax, product=product,
             causal=causal, scale=scale)

    attention("ri_product_hermitian_blank_row", 180, "ri_product", "hermitian", "0.7", qkv(1, 2, 5, 3, "01101"), causal=1)
    attention("ri_product_one_channel_blank_sequence", 181, "ri_product", "bilinear", "1.0", qkv(2, 1, 3, 1, "000", "110"))
    attention("ri_split_hermitian_causal", 182, "ri_split", "hermitian", "-0.6", qkv(1, 1, 5, 3), [(0, "q", 0, 0, 2)], causal=1)
    attention("ri_split_blank_sequence", 183, "ri_split", "bilinear", "0.4", qkv(2, 1, 3, 5, "101", "000"))
    attention("real_bilinear_causal_mask", 184, "real", "bilinear", "0.5", qkv(2, 1, 5, 3, "00110", "11111"), causal=1)
    attention("real_hermitian_one_token", 185, "real", "hermitian", "0.5", qkv(3, 1, 1, 5, "1", "0", "1"))
    attention("abs_hermitian_zeros", 186, "abs", "hermitian", "0.8", qkv(1, 2, 3, 3, "111"), [(0, "q", 0, 0, 1), (0, "k", 0, 1, 0)])
    attention("abs_one_channel_blank_row", 187, "abs", "bilinear", "1.25", qkv(1, 2, 5, 1, "00111"), causal=1)
    attention("yang8_mask", 188, "yang8", "bilinear", "0.6", qkv(2, 1, 3, 3, "011", "000"))
    attention("yang8_causal_blank_row", 189, "yang8", "bilinear", "0.9", qkv(1, 2, 5, 1, "01011"), causal=1)
    attention("yang8_one_token", 190, "yang8", "bilinear", "0.5", qkv(1, 2, 1, 3))

    def classify(name, seed, tol, matrices):
        case(d, "mobius_classify_" + name, "mobius_classify", seed,
             {"param." + n: these(*column) for n, column in zip("abcd", zip(*matrices))}, tol=tol)

    # Gauge factors and conjugations by [[1,1],[0,1]] and [[1,0],[1j,1]] change neither sigma nor the class
    def moved(matrix, factor):
        def times(x, y):
            return (x[0] * y[0] + x[1] * y[2], x[0] * y[1] + x[1] * y[3], x[2] * y[0] + x[3] * y[2], x[2] * y[1] + x[3] * y[3])
        m = times(times((1, 1, 0, 1), matrix), (1, -1, 0, 1))
        return tuple(e * factor for e in times(times((1, 0, 1j, 1), m), (1, 0, -1j, 1)))

    forms = [(1, 3, 0, 1), (1j, 0, 0, -1j), (1, 0, 0, 0.75 + 0.5j), (2, 0, 0, 1), (-2, 0, 0, 1), (1, 0, 0, 2j), (0, 1, -1, 1)]
    classify("all_classes_moved", 191, "0.05", [moved(m, f) for m, f in zip(forms, (2, -1j, 0.5, 1 + 1j, 4j, -2, 1 - 1j))])
    classify("one_loxodromic", 192, "0.01", [(-2, 0.5, 0.25, 1)])
    # A quarter off parabolic and circular: the tolerance decides
    near = [(1, 1, 0.0625, 1), (1, 1, -0.0625, 1), (0.25, 1, -1, 0), (1, 0, 0, -0.875), (1, 0, 0, 0.9375 + 0.0625j)]
    classify("tolerance_wide", 193, "0.4", near)
    classify("tolerance_narrow", 194, "0.001", near)


def angular_cases(d):
    case(d, "multifreq_pe_one_channel", "multifreq_pe", 200, {"param.omega": real(2, 1), "param.delta": real(2, 1)}, N=1, pos0=3)
    case(d, "multifreq_pe_odd_far", "multifreq_pe", 201, {"param.omega": real(5, 3), "param.delta": real(5, 3)}, N=5, pos0=12345)
    case(d, "multifreq_pe_zero_frequency", "multifreq_pe", 202, {"param.omega": real(2, 3), "param.delta": real(2, 3)},
         [(0, "omega", 0)], N=3, pos0=0)

    def attention(name, seed, tensors, times=(), causal=0, eps="0.1"):
        case(d, "angular_attention_" + name, "angular_attention", seed, tensors, times, eps=eps, causal=causal)

    attention("blank_row_causal", 205, qkv(1, 2, 5, 3, "00101"), causal=1)
    attention("one_channel_blank_sequence", 206, qkv(2, 1, 3, 1, "000", "110"))
    attention("zeros_mask", 207, qkv(1, 1, 5, 3, "11011"), [(0, "q", 0, 0, 1), (0, "k", 0, 0, 0), (0, "k", 0, 0, 4, 1)], eps="0.05")
    attention("one_masked_token", 208, qkv(2, 2, 1, 3, "0", "1"), causal=1, eps="1e-06")

    def linear(name, seed, tensors, times=(), causal=0, eps="0.1", den_eps="0.01"):
        case(d, "angular_linear_" + name, "angular_linear", seed, tensors, times, eps=eps, causal=causal, den_eps=den_eps)

    linear("odd_causal_zeros", 210, qkv(1, 1, 5, 3), [(0, "q", 0, 0, 3), (0, "k", 0, 0, 1)], causal=1, eps="0.05")
    linear("one_channel", 211, qkv(1, 2, 3, 1), den_eps="0.5")
    linear("one_token", 212, qkv(2, 1, 1, 3), causal=1)

    def lag(name, seed, tensors, topk=0, times=(), temp="2.0", eps="0.1"):
        case(d, "lag_fft_" + name, "lag_fft", seed, tensors, times, eps=eps, temp=temp, topk=topk)

    lag("odd", 220, qkv(1, 2, 5, 3))
    lag("nine_top_two", 273, qkv(1, 2, 9, 3), topk=2)  # seed: lags 3 and 5, 3 and 4, so that the first rows see no lag
    lag("three_top_two", 222, qkv(3, 1, 3, 2), topk=2, temp="5.0")
    lag("topk_above_n", 223, qkv(1, 1, 5, 1), topk=7, temp="0.5")
    lag("one_token_top_one", 224, qkv(2, 1, 1, 3), topk=1)
    lag("zeros_negative_temp", 225, qkv(1, 1, 6, 2), topk=3, times=[(0, "q", 0, 0, 2), (0, "k", 0, 0, 0)], temp="-1.5", eps="0.05")
    # The gradient of weights whose mean, or whose rows' own sums, rounding would swamp
    lag("zero_rows_top_one", 255, qkv(1, 1, 5, 2), topk=1, times=[(0, "q", 0, 0, 4), (0, "k", 0, 0, 0)], eps="1e-06")
    lag("saturated", 399, qkv(1, 1, 3, 3), temp="20.0", eps="0.001")

    def clip(name, seed, mode, limit, times, *shapes):
        case(d, "componentwise_clip_" + name, "componentwise_clip", seed,
             {"in.g%d" % i: cplx(*shape) for i, shape in enumerate(shapes)}, times, mode=mode, c=limit, count=len(shapes))

    clip("norm_one_tensor", 230, "norm", "0.5", [], [3, 3])
    clip("norm_nothing_to_do", 231, "norm", "50.0", [], [5], [1], [2, 1, 3])
    clip("global_with_zeros", 232, "global", "1.5", [(0, "g1")], [1], [5], [3, 1], [7])
    clip("global_all_zero", 233, "global", "1.0", [(0, "g0"), (0, "g1")], [3], [1])
    clip("value_large", 234, "value", "0.25", [(64, "g0", 0), (0, "g1")], [5, 1], [3], [1])


def write_cases(directory):
    layer_cases(directory)
    cope_cases(directory)
    mobius_cases(directory)
    angular_cases(directory)
