#!/usr/bin/env python3
"""Writes tests/cases/*.safetensors: conformance cases of our own, in the format of shared/conformance/FORMAT.md.

An oracle independent of the C code: the naive formulas of FORMAT.md (n^2 P cosines, whole softmax rows) on scalars that
record their own derivatives, in float64, with nothing but the standard library. Exact to rounding, so rtol_f64 is 1e-9.

    python3 tests/make_cases.py [directory]

The complex operations are in make_cases_complex.py, the mixture of experts in make_cases_experts.py.
"""
import json
import math
import os
import random
import struct
import sys

TAPE = []


class S:
    """A number that remembers what it was computed from."""
    __slots__ = ("v", "parents", "grad")

    def __init__(self, v, parents=()):
        self.v, self.parents, self.grad = v, parents, 0.0
        if parents:
            TAPE.append(self)

    def __add__(a, b):
        b = lift(b)
        return S(a.v + b.v, ((a, 1.0), (b, 1.0)))

    def __mul__(a, b):
        b = lift(b)
        return S(a.v * b.v, ((a, b.v), (b, a.v)))

    def __truediv__(a, b):
        b = lift(b)
        return S(a.v / b.v, ((a, 1 / b.v), (b, -a.v / (b.v * b.v))))

    def __sub__(a, b):
        return a + lift(b) * -1.0

    def __neg__(a):
        return a * -1.0

    def __rsub__(a, b):
        return lift(b) - a

    def __rtruediv__(a, b):
        return lift(b) / a

    __radd__, __rmul__ = __add__, __mul__


def lift(x):
    return x if isinstance(x, S) else S(float(x))


def unary(f, df):
    def g(x):
        return S(f(x.v), ((x, df(x.v)),))
    return g


exp = unary(math.exp, math.exp)
log = unary(math.log, lambda x: 1 / x)
sin = unary(math.sin, math.cos)
cos = unary(math.cos, lambda x: -math.sin(x))
sqrt = unary(math.sqrt, lambda x: 0.5 / math.sqrt(x))
erf = unary(math.erf, lambda x: 2 / math.sqrt(math.pi) * math.exp(-x * x))
tanh = unary(math.tanh, lambda x: 1 - math.tanh(x) ** 2)


def atan2(y, x):
    r = x.v * x.v + y.v * y.v
    return S(math.atan2(y.v, x.v), ((y, x.v / r), (x, -y.v / r)))


def total(terms):
    terms = list(terms)
    return S(math.fsum(t.v for t in terms), tuple((t, 1.0) for t in terms)) if terms else S(0.0)


def dot(a, b):
    return total(x * y for x, y in zip(a, b))


def backward(loss):
    loss.grad = 1.0
    for node in reversed(TAPE):
        for parent, d in node.parents:
            parent.grad += node.grad * d


# ------------------------------------------------------------------------------------------------- arrays and files

class A:
    """A row-major array of S (or of int)."""

    def __init__(self, shape, data):
        self.shape, self.data = list(shape), data
        assert len(data) == size(shape)

    def __getitem__(self, index):
        index = index if isinstance(index, tuple) else (index,)
        at = 0
        for i, n in zip(index, self.shape):
            at = at * n + i
        rest = self.shape[len(index):]
        n = size(rest)
        return self.data[at] if not rest else A(rest, self.data[at * n:(at + 1) * n])

    def __iter__(self):
        return (self[i] for i in range(self.shape[0]))


def size(shape):
    n = 1
    for d in shape:
        n *= d
    return n


def f32(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


class Case:
    def __init__(self, name, op, seed, rtol, atol, **cfg):
        self.name, self.op, self.cfg, self.tol = name, op, cfg, (rtol, atol)
        self.random = random.Random(seed)
        self.tensors = {}
        TAPE.clear()

    def real(self, name, shape, scale=1.0, offset=0.0):
        return self.given(name, shape, [offset + scale * self.random.gauss(0, 1) for _ in range(size(shape))])

    def given(self, name, shape, values):
        self.tensors[name] = A(shape, [S(f32(v)) for v in values])
        return self.tensors[name]

    def ints(self, name, shape, values):
        self.tensors[name] = A(shape, list(values))
        return self.tensors[name]

    def out(self, name, array):
        self.tensors["out." + name] = array

    def write(self, directory, grad=True, only=None):
        outputs = [n[4:] for n in self.tensors if n.startswith("out.") and (only is None or n[4:] in only)]
        if grad:
            loss = []
            for name in outputs:
                y = self.tensors["out." + name]
                c = [1.0] if self.op == "model" else [f32(self.random.gauss(0, 1)) for _ in y.data]
                self.tensors["cot." + name] = A(y.shape, [S(v) for v in c])
                loss += [a * v for a, v in zip(y.data, c)]
            backward(total(loss))
            for name in [n for n in self.tensors if n.startswith(("in.", "param."))]:
                t = self.tensors[name]
                if t.data and isinstance(t.data[0], S):
                    self.tensors["grad." + name] = A(t.shape, [S(x.grad) for x in t.data])
        meta = {"case": self.name, "op": self.op}
        meta.update({"cfg." + k: str(v) for k, v in self.cfg.items()})
        meta.update({"cfg.grad": str(int(grad)), "rtol_f32": str(self.tol[0]), "atol_f32": str(self.tol[1]),
                     "rtol_f64": "1e-09", "atol_f64": "1e-11"})
        header, body = {"__metadata__": meta}, b""
        for name in sorted(self.tensors):
            t = self.tensors[name]
            whole = bool(t.data) and isinstance(t.data[0], int)
            raw = struct.pack("<%d%s" % (len(t.data), "q" if whole else "d"), *[x if whole else x.v for x in t.data])
            header[name] = {"dtype": "I64" if whole else "F64", "shape": t.shape, "data_offsets": [len(body), len(body) + len(raw)]}
            body += raw
        text = json.dumps(header, separators=(",", ":")).encode("ascii")
        text += b" " * (-len(text) % 8)
        data = struct.pack("<Q", len(text)) + text + body
        with open(os.path.join(directory, self.name + ".safetensors"), "wb") as f:
            f.write(data)
        return len(data)


# ------------------------------------------------------------------------------------------------------- operations

def rows_of(x):
    D = x.shape[-1]
    return [x.data[i:i + D] for i in range(0, len(x.data), D)]


def layernorm(x, weight, bias, eps):
    mean = total(x) / len(x)
    centred = [v - mean for v in x]
    r = sqrt(total(c * c for c in centred) / len(x) + eps)
    return [c / r * w + b for c, w, b in zip(centred, weight, bias)]


def rmsnorm(x, weight, eps):
    r = sqrt(total(v * v for v in x) / len(x) + eps)
    return [v / r * w for v, w in zip(x, weight)]


def gelu(x):
    return x * 0.5 * (erf(x * math.sqrt(0.5)) + 1.0)


def gelu_tanh(x):
    return x * 0.5 * (tanh((x + x * x * x * 0.044715) * math.sqrt(2 / math.pi)) + 1.0)


def logsumexp(terms):
    top = max(t.v for t in terms)
    return log(total(exp(t - top) for t in terms)) + top


def cross_entropy(rows, targets, ignore=-1):
    losses = [logsumexp(r) - r[t] for r, t in zip(rows, targets) if t != ignore]
    return total(losses) / len(losses) if losses else S(0.0)


def sinusoidal(n, d, base, pos0):
    values = []
    for t in range(pos0, pos0 + n):
        for c in range(d):
            angle = t * base ** (-2 * (c // 2) / d)
            values.append(math.cos(angle) if c % 2 else math.sin(angle))
    return values


def pair_term(q, k, delta, b, angle):
    """lam lam cos(delta (th_q - th_k) + b + angle); with a zero pair, the factorised form at th = 0 (FORMAT.md)."""
    (qr, qi), (kr, ki) = q, k
    phase = b + angle

    def feature(re, im, shift):
        if re.v == 0 and im.v == 0:
            fr, fi = re, im * delta
        else:
            lam, th = sqrt(re * re + im * im), atan2(im, re) * delta
            fr, fi = lam * cos(th), lam * sin(th)
        c, s = cos(shift), sin(shift)
        return fr * c - fi * s, fr * s + fi * c

    if (qr.v or qi.v) and (kr.v or ki.v):
        lam = sqrt(qr * qr + qi * qi) * sqrt(kr * kr + ki * ki)
        return lam * cos((atan2(qi, qr) - atan2(ki, kr)) * delta + phase)
    fq, fk = feature(qr, qi, phase), feature(kr, ki, S(0.0))
    return fq[0] * fk[0] + fq[1] * fk[1]


def pairs(x, layout, rotary=None):
    if rotary is not None and rotary < len(x):
        return pairs(x[:rotary], layout) + pairs(x[rotary:], layout)
    P = len(x) // 2
    return [(x[j], x[j + P]) if layout == "half" else (x[2 * j], x[2 * j + 1]) for j in range(P)]


def yarn_kept(c, n, b, j, w):
    """How much of frequency j of n YaRN keeps: the ramp over the index as its authors' code has it, or over the turns."""
    L, fast, slow = (float(c[key]) for key in ("original_length", "beta_fast", "beta_slow"))
    if c["yarn_ramp"] == "rotations":
        return min(max((L * w / (2 * math.pi) - slow) / (fast - slow), 0.0), 1.0)
    low, high = (n * math.log(L / (turns * 2 * math.pi)) / math.log(b) for turns in (fast, slow))
    low, high = max(math.floor(low), 0), min(math.ceil(high), 2 * n - 1)
    return 1.0 - min(max((j - low) / (high - low if high > low else 0.001), 0.0), 1.0)


def llama3_kept(c, w):
    """Llama 3.1's: waves longer than L / low are stretched, shorter than L / high left alone, in between mixed."""
    L, high, low = (float(c[key]) for key in ("original_length", "beta_fast", "beta_slow"))
    wave = 2 * math.pi / w
    if wave > L / low:
        return 0.0
    return 1.0 if wave < L / high else (L / wave - low) / (high - low)


def frequencies(c, dk):
    """omega of all pairs, and the factor on the score (FORMAT.md, "Rotary extent and scaled frequencies")."""
    n, f, scaling = int(c.get("rotary_dims", dk)) // 2, float(c.get("factor", 1)), c.get("rope_scaling", "none")
    b = float(c["base"]) ** (2 if c["freq"] == "literal" else 1)
    if scaling == "ntk" and n > 1:
        b *= f ** (n / (n - 1))
    omega = [b ** (-j / n) for j in range(n)]
    if scaling == "linear":
        omega = [w / f for w in omega]
    if scaling in ("yarn", "llama3"):
        kept = [yarn_kept(c, n, b, j, w) if scaling == "yarn" else llama3_kept(c, w) for j, w in enumerate(omega)]
        omega = [k * w + (1 - k) * w / f for k, w in zip(kept, omega)]
    return omega + [0.0] * (dk // 2 - n), (0.1 * math.log(f) + 1) ** 2 if scaling == "yarn" else 1.0


def score(c, h, H, q, k, distance, delta, b):
    kind, dk = c["kind"], len(q)
    if kind in ("dot", "alibi"):
        s = dot(q, k) * float(c["scale"])
        return s - 2.0 ** (-8 * (h + 1) / H) * abs(distance) if kind == "alibi" else s
    terms, (omegas, factor), rotary = [], frequencies(c, dk), int(c.get("rotary_dims", dk))
    for j, (a, z) in enumerate(zip(pairs(q, c["layout"], rotary), pairs(k, c["layout"], rotary))):
        omega = omegas[j]
        if kind == "rope":
            turn_r, turn_i = math.cos(distance * omega), math.sin(distance * omega)
            re, im = a[0] * z[0] + a[1] * z[1], a[1] * z[0] - a[0] * z[1]
            terms.append(re * turn_r - im * turn_i)
        else:
            row = 0 if c["share"] == "shared" else h
            d, off = (delta[row, j], b[row, j]) if delta else (S(1.0), S(0.0))
            terms.append(pair_term(a, z, d, off, distance * omega))
    return total(terms) * (float(c["scale"]) * factor)


def attend(c, q, k, v, mask=None, delta=None, b=None):
    """q [H][Nq] rows, k, v [Hkv][Nk] rows of one sequence -> y [H][Nq] rows."""
    H, Hkv, Nq, Nk, pos0 = len(q), len(k), len(q[0]), len(k[0]), int(c["pos0"])
    key_pos0, y = pos0 + Nq - Nk, []
    for h in range(H):
        kv, head = h // (H // Hkv), []
        for i in range(Nq):
            seen = []
            for j in range(Nk):
                distance = pos0 + i - (key_pos0 + j)
                hidden = (mask is not None and not mask[j]) or (int(c["causal"]) and distance < 0)
                if hidden or (int(c["window"]) and distance >= int(c["window"])):
                    continue
                seen.append((j, score(c, h, H, q[h][i], k[kv][j], distance, delta, b)))
            width = len(v[kv][0])
            if not seen:
                head.append([S(0.0) for _ in range(width)])
                continue
            norm = logsumexp([s for _, s in seen])
            weights = [(j, exp(s - norm)) for j, s in seen]
            head.append([total(w * v[kv][j][e] for j, w in weights) for e in range(width)])
        y.append(head)
    return y


# ------------------------------------------------------------------------------------------------------------ cases

def attention_case(directory, name, seed, kind, B, H, Hkv, Nq, Nk, dk, causal=1, window=0, pos0=None, layout="interleaved",
                   freq="rope", base="10000.0", share="per_head", scale=None, mask=None, zeros=(), **rope):
    cfg = dict(kind=kind, causal=causal, scale=repr(scale or 1 / math.sqrt(dk)), pos0=Nk - Nq if pos0 is None else pos0)
    cfg["key_pos0"] = cfg["pos0"] + Nq - Nk
    cfg["window"] = window
    if kind in ("rope", "cmha"):
        cfg.update(layout=layout, freq=freq, base=base, **rope)
    if kind == "cmha":
        cfg["share"] = share
    c = Case(name, "attention", seed, 1e-4, 4e-6, **cfg)
    q, k, v = c.real("in.q", [B, H, Nq, dk]), c.real("in.k", [B, Hkv, Nk, dk]), c.real("in.v", [B, Hkv, Nk, dk])
    for which, b, h, n, j in zeros:
        array = q if which == "q" else k
        at = ((b * array.shape[1] + h) * array.shape[2] + n) * dk
        first, second = (j, j + dk // 2) if layout == "half" else (2 * j, 2 * j + 1)
        array.data[at + first].v = array.data[at + second].v = 0.0
    m = c.ints("in.key_mask", [B, Nk], mask) if mask else None
    delta = b = None
    if kind == "cmha" and share != "fixed":
        rows = 1 if share == "shared" else H
        delta, b = c.real("param.delta", [rows, dk // 2], 0.6, 0.7), c.real("param.b", [rows, dk // 2], 0.5)
    y = []
    for s in range(B):
        split = [[rows_of(head) for head in array[s]] for array in (q, k, v)]
        y += [x for head in attend(cfg, *split, m[s].data if m else None, delta, b) for row in head for x in row]
    c.out("y", A([B, H, Nq, dk], y))
    return c.write(directory)


def model_case(directory, name, seed, B, N, L, d, H, ff, V, attn, pos="none", share="per_head", layout="interleaved", freq="rope",
               base="10000.0", tied=1, max_pos=6, scale=None):
    dk = d // H
    cfg = dict(n_layers=L, d_model=d, n_heads=H, d_ff=ff, vocab=V, attn=attn, pos=pos, share=share, layout=layout, freq=freq,
               base=base, scale=repr(scale or 1 / math.sqrt(dk)), tied=tied, ln_eps="1e-05", max_pos=max_pos, norm="pre_ln",
               act="gelu_erf")
    c = Case(name, "model", seed, 5e-4, 4e-6, **cfg)
    ids = c.ints("in.ids", [B, N], [c.random.randrange(V) for _ in range(B * N)])
    targets = c.ints("in.targets", [B, N], [c.random.randrange(V) if c.random.random() < 0.8 else -1 for _ in range(B * N)])
    p = {}

    def parameter(n, shape, scale=0.4, offset=0.0):
        p[n] = c.real("param." + n, shape, scale, offset)

    parameter("tok_emb.weight", [V, d], 1.0)
    if pos == "learned":
        parameter("pos_emb.weight", [max_pos, d])
    for i in range(L):
        at = "blocks.%d." % i
        for norm in ("ln1", "ln2"):
            parameter(at + norm + ".weight", [d], 0.2, 1.0)
            parameter(at + norm + ".bias", [d], 0.2)
        for w in ("wq", "wk", "wv", "wo"):
            parameter(at + "attn." + w + ".weight", [d, d])
        if attn == "cmha" and share != "fixed":
            parameter(at + "attn.delta", [1 if share == "shared" else H, dk // 2], 0.5, 0.8)
            parameter(at + "attn.b", [1 if share == "shared" else H, dk // 2])
        parameter(at + "ffn.w1.weight", [ff, d])
        parameter(at + "ffn.w1.bias", [ff])
        parameter(at + "ffn.w2.weight", [d, ff])
        parameter(at + "ffn.w2.bias", [d])
    parameter("ln_f.weight", [d], 0.2, 1.0)
    parameter("ln_f.bias", [d], 0.2)
    if not tied:
        parameter("head.weight", [V, d])
    logits = []
    options = dict(kind=attn, causal=1, window=0, pos0=0, layout=layout, freq=freq, base=base, share=share, scale=cfg["scale"])
    table = sinusoidal(N, d, float(base), 0)
    for s in range(B):
        x = [list(p["tok_emb.weight"][ids[s, n]].data) for n in range(N)]
        for n in range(N):
            if pos == "learned":
                x[n] = [a + e for a, e in zip(x[n], p["pos_emb.weight"][n].data)]
            if pos == "sinusoidal":
                x[n] = [a + e for a, e in zip(x[n], table[n * d:(n + 1) * d])]
        for i in range(L):
            at = "blocks.%d." % i
            h = [layernorm(r, p[at + "ln1.weight"].data, p[at + "ln1.bias"].data, 1e-5) for r in x]
            q, k, v = ([[dot(r, w.data) for w in p[at + "attn.%s.weight" % z]] for r in h] for z in ("wq", "wk", "wv"))
            split = [[[row[a * dk:(a + 1) * dk] for row in z] for a in range(H)] for z in (q, k, v)]
            y = attend(options, *split, None, p.get(at + "attn.delta"), p.get(at + "attn.b"))
            for n in range(N):
                joined = [e for a in range(H) for e in y[a][n]]
                x[n] = [e + dot(joined, w.data) for e, w in zip(x[n], p[at + "attn.wo.weight"])]
            for n in range(N):
                h = layernorm(x[n], p[at + "ln2.weight"].data, p[at + "ln2.bias"].data, 1e-5)
                h = [gelu(dot(h, w.data) + b) for w, b in zip(p[at + "ffn.w1.weight"], p[at + "ffn.w1.bias"].data)]
                x[n] = [e + dot(h, w.data) + b for e, w, b in zip(x[n], p[at + "ffn.w2.weight"], p[at + "ffn.w2.bias"].data)]
        for r in x:
            r = layernorm(r, p["ln_f.weight"].data, p["ln_f.bias"].data, 1e-5)
            logits.append([dot(r, w.data) for w in p["tok_emb.weight" if tied else "head.weight"]])
    c.out("logits", A([B, N, V], [e for r in logits for e in r]))
    c.out("loss", A([1], [cross_entropy(logits, targets.data)]))
    return c.write(directory, only=["loss"])


def dense_cases(d):
    c = Case("own_linear_17_to_9", "linear", 1, 2e-5, 2e-6)
    x, w, b = c.real("in.x", [1, 3, 17]), c.real("param.weight", [9, 17]), c.real("param.bias", [9])
    c.out("y", A([1, 3, 9], [dot(r, wr.data) + e for r in rows_of(x) for wr, e in zip(w, b.data)]))
    c.write(d)
    c = Case("own_layernorm_rank4", "layernorm", 2, 5e-5, 4e-6, eps="0.001")
    x, w, b = c.real("in.x", [2, 1, 3, 7], 0.2, 5.0), c.real("param.weight", [7]), c.real("param.bias", [7])
    c.out("y", A(x.shape, [e for r in rows_of(x) for e in layernorm(r, w.data, b.data, 1e-3)]))
    c.write(d)
    c = Case("own_rmsnorm_rank2", "rmsnorm", 3, 2e-5, 2e-6, eps="0.01")
    x, w = c.real("in.x", [5, 11], 0.3), c.real("param.weight", [11])
    c.out("y", A(x.shape, [e for r in rows_of(x) for e in rmsnorm(r, w.data, 1e-2)]))
    c.write(d)
    for name, f in (("none", gelu), ("tanh", gelu_tanh)):
        c = Case("own_gelu_" + name, "gelu", 4, 2e-5, 2e-6, approx=name)
        x = c.given("in.x", [37], [(i - 18) * 0.45 + 0.01 for i in range(37)])
        c.out("y", A(x.shape, [f(e) for e in x.data]))
        c.write(d)
    c = Case("own_swiglu_odd", "swiglu", 5, 2e-5, 2e-6)
    g, u = c.real("in.gate", [3, 13], 3.0), c.real("in.up", [3, 13])
    c.out("y", A(g.shape, [b * a / (exp(-a) + 1.0) for a, b in zip(g.data, u.data)]))
    c.write(d)
    c = Case("own_cross_entropy_ignore0", "cross_entropy", 6, 2e-5, 2e-6, ignore_index="0", label_smoothing="0")
    x = c.real("in.logits", [6, 5], 4.0)
    t = c.ints("in.targets", [6], [0, 3, 1, 0, 4, 2])
    c.out("loss", A([1], [cross_entropy(rows_of(x), t.data, 0)]))
    c.write(d)
    c = Case("own_embedding_one_row", "embedding", 7, 2e-6, 1e-7)
    ids, w = c.ints("in.ids", [2, 4], [2, 2, 0, 2, 2, 1, 2, 2]), c.real("param.weight", [4, 5])
    c.out("y", A([2, 4, 5], [e * 1.0 for i in ids.data for e in w[i].data]))
    c.write(d)


def other_cases(d):
    c = Case("own_sinusoidal_wide", "sinusoidal_table", 8, 2e-5, 2e-6, N=3, d=34, base="500.0", pos0=777)
    c.out("y", A([3, 34], [S(v) for v in sinusoidal(3, 34, 500.0, 777)]))
    c.write(d, grad=False)
    c = Case("own_pcl_two_heads", "pcl", 9, 1e-4, 4e-6, tau="0.2")
    B, H, N, P = 1, 2, 5, 3
    theta, w = c.real("in.theta", [B, H, N, P], 1.5), c.real("param.w", [P], 0.5, 1.0)
    m = c.ints("in.mask01", [B, H, N, P], [c.random.randrange(2) for _ in range(B * H * N * P)])
    losses = []
    for h in range(H):
        for j in range(N):
            sim = [total(w[r] * cos(theta[0, h, j, r] - theta[0, h, n, r] * float(m[0, h, n, r])) for r in range(P)) / P / 0.2
                   for n in range(N)]
            losses.append(logsumexp(sim) - sim[j])
    c.out("loss", A([1], [total(losses) / len(losses)]))
    c.write(d)
    c = Case("own_adamw_seven_steps", "adamw", 10, 2e-6, 2e-7, lr="0.003", beta1="0.7", beta2="0.9", eps="1e-07", wd="0.2", steps=7)
    start, g = c.real("in.p", [19]), c.real("in.g", [7, 19], 0.01)
    p, m, v = [e.v for e in start.data], [0.0] * 19, [0.0] * 19
    for t in range(1, 8):
        for i in range(19):
            e = g[t - 1, i].v
            p[i] -= 0.003 * 0.2 * p[i]
            m[i], v[i] = 0.7 * m[i] + 0.3 * e, 0.9 * v[i] + 0.1 * e * e
            p[i] -= 0.003 * (m[i] / (1 - 0.7 ** t)) / (math.sqrt(v[i] / (1 - 0.9 ** t)) + 1e-7)
    for name, values in (("p", p), ("m", m), ("v", v)):
        c.out(name, A([19], [S(e) for e in values]))
    c.write(d, grad=False)
    c = Case("own_lr_schedule", "lr_schedule", 11, 2e-6, 1e-9, base_lr="0.02", min_lr="0.005", warmup="7", total="50")
    steps = c.ints("in.step", [9], [0, 1, 6, 7, 8, 30, 49, 50, 1000])
    c.out("lr", A([9], [S(0.02 * s / 7 if s < 7 else 0.005 + 0.015 / 2 * (1 + math.cos(math.pi * min(1.0, (s - 7) / 43)))) for s in
                        steps.data]))
    c.write(d, grad=False)


def attention_cases(d):
    case = attention_case
    case(d, "own_attention_dot_gqa_window", 20, "dot", 1, 4, 2, 6, 6, 3, window=2)
    case(d, "own_attention_alibi_three_heads_mask", 21, "alibi", 2, 3, 1, 4, 4, 4, mask=[1, 1, 0, 1, 0, 0, 1, 1])
    case(d, "own_attention_rope_half_literal_decode", 22, "rope", 1, 2, 2, 2, 7, 6, layout="half", freq="literal", base="50.0",
         pos0=40)
    case(d, "own_attention_rope_bidirectional_mqa", 23, "rope", 1, 3, 1, 5, 5, 4, causal=0, scale=0.3)
    case(d, "own_attention_cmha_gqa_decode_window", 24, "cmha", 1, 4, 2, 3, 7, 4, window=3, layout="half")
    case(d, "own_attention_cmha_shared_bidirectional", 25, "cmha", 1, 2, 2, 5, 5, 6, causal=0, share="shared", base="20.0")
    case(d, "own_attention_cmha_masked_rows", 26, "cmha", 2, 2, 1, 4, 4, 4, mask=[0, 0, 1, 1, 1, 0, 0, 1])
    case(d, "own_attention_cmha_zero_pairs_half_gqa", 27, "cmha", 1, 4, 2, 4, 4, 4, layout="half",
         zeros=[("q", 0, 0, 1, 0), ("q", 0, 3, 2, 1), ("k", 0, 0, 0, 1), ("k", 0, 1, 3, 0), ("k", 0, 0, 1, 0)])
    case(d, "own_attention_cmha_zero_pairs_shared", 28, "cmha", 1, 2, 2, 3, 3, 2, share="shared",
         zeros=[("q", 0, 0, 0, 0), ("k", 0, 0, 0, 0), ("q", 0, 1, 2, 0)])
    case(d, "own_attention_cmha_fixed_window_mask", 29, "cmha", 1, 1, 1, 8, 8, 8, window=4, share="fixed", freq="literal",
         scale=1.0,
         mask=[1, 0, 1, 1, 1, 0, 1, 1])
    case(d, "own_attention_cmha_partial_half_gqa_decode", 50, "cmha", 1, 4, 2, 2, 6, 10, layout="half", rotary_dims=6,
         share="shared", base="30.0", rope_scaling="linear", factor="2.5")
    case(d, "own_attention_rope_llama3_half_window", 51, "rope", 1, 2, 1, 7, 7, 8, layout="half", window=4, base="50.0",
         rope_scaling="llama3", factor="8.0", original_length=48, beta_fast="4.0", beta_slow="1.0")
    case(d, "own_attention_cmha_yarn_partial_literal", 52, "cmha", 1, 2, 2, 5, 5, 12, freq="literal", base="9.0", rotary_dims=8,
         rope_scaling="yarn", factor="4.0", original_length=120, beta_fast="12.0", beta_slow="1.0", yarn_ramp="index")
    case(d, "own_attention_rope_ntk_one_pair", 53, "rope", 1, 1, 1, 4, 4, 4, rotary_dims=2, rope_scaling="ntk", factor="6.0")


def frequency_cases(d):
    def case(name, dk, base="10000.0", freq="rope", **rope):
        c = Case("own_frequencies_" + name, "frequencies", 0, 2e-6, 1e-9, kind="rope", dk=dk, base=base, freq=freq, **rope)
        omega, factor = frequencies(c.cfg, dk)
        c.out("omega", A([dk // 2], [S(w) for w in omega]))
        c.out("score_factor", A([1], [S(factor)]))
        c.write(d, grad=False)

    # Llama 3.1's numbers; a mixture that begins and ends at one pair; a slow end beyond the last pair
    case("llama3", 128, "500000.0", rope_scaling="llama3", factor="8.0", original_length=8192, beta_fast="4.0", beta_slow="1.0")
    case("yarn_ends_meet", 4, "10000.0", rope_scaling="yarn", factor="4.0", original_length=6, beta_fast="2.0", beta_slow="1.0",
         yarn_ramp="index")
    case("yarn_slow_none", 16, "50.0", rope_scaling="yarn", factor="2.0", original_length=512, beta_fast="32.0",
         beta_slow="0.01", yarn_ramp="index")
    case("llama3_partial_literal", 20, "700.0", freq="literal", rotary_dims=12, rope_scaling="llama3", factor="3.0",
         original_length=300, beta_fast="8.0", beta_slow="2.0")


def text_case(d, name, rows, eos=-1, pad=-1, dist_over="ngrams", rep="mean"):
    """What the definitions say, by sets of tuples: n-grams of rows that end at eos and have lost their pads."""
    c = Case("own_text_metrics_" + name, "text_metrics", 0, 1e-6, 1e-9, eos=eos, pad=pad, dist_over=dist_over, rep=rep)
    c.ints("in.ids", [len(rows), len(rows[0])], [i for row in rows for i in row])
    cut = [[i for i in (row[:row.index(eos)] if eos in row else row) if i != pad] for row in rows]
    grams = [[[tuple(row[i:i + n]) for i in range(len(row) - n + 1)] for row in cut] for n in (1, 2, 4)]
    total, distinct = [sum(map(len, g)) for g in grams], [len({x for row in g for x in row}) for g in grams]
    again = [len(row) - len(set(row)) for row in grams[2]]
    shares = [a / len(row) for a, row in zip(again, grams[2]) if row]
    rep4 = sum(shares) / len(shares) if rep == "mean" and shares else sum(again) / total[2] if total[2] else 0.0
    below = [total[0 if dist_over == "tokens" else n] for n in range(2)]
    c.out("dist", A([2], [S(x / n if n else 0.0) for x, n in zip(distinct, below)]))
    c.out("rep4", A([1], [S(rep4)]))
    for name, values in (("distinct", distinct[:2]), ("total", total[:2]), ("repeated", again), ("len", [len(r) for r in cut])):
        c.ints("out." + name, [len(values)], values)
    c.write(d, grad=False)


def text_cases(d):
    draw = random.Random(60).randrange
    text_case(d, "three_words", [[draw(3) for _ in range(40)] for _ in range(3)])
    text_case(d, "three_words_pooled", [[draw(3) for _ in range(40)] for _ in range(3)], eos=2, rep="pooled")
    text_case(d, "wide_ids", [[draw(2) * 0x7FFFFF00 + draw(2) * 0x10000 + draw(2) for _ in range(33)]], dist_over="tokens")
    text_case(d, "eos_first", [[9, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 9]], eos=9)
    text_case(d, "pads_within", [[0, 5, 0, 6, 5, 6, 0, 5, 6, 5], [0] * 10], pad=0)


def main():
    directory = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(os.path.abspath(__file__)), "cases")
    os.makedirs(directory, exist_ok=True)
    dense_cases(directory)
    other_cases(directory)
    attention_cases(directory)
    frequency_cases(directory)
    text_cases(directory)
    model_case(directory, "own_model_cmha_untied_literal", 40, 2, 3, 1, 4, 2, 5, 5, "cmha", tied=0, freq="literal", base="30.0")
    model_case(directory, "own_model_dot_sinusoidal", 41, 1, 4, 1, 6, 2, 4, 5, "dot", pos="sinusoidal", base="40.0", scale=0.8)
    model_case(directory, "own_model_rope_one_head", 42, 1, 4, 1, 4, 1, 3, 4, "rope", layout="half")
    sys.dont_write_bytecode = True
    import make_cases_complex  # here, because it imports from this file
    import make_cases_experts
    import make_cases_retrieval
    make_cases_complex.write_cases(directory)
    make_cases_experts.write_cases(directory)
    make_cases_retrieval.write_cases(directory)


if __name__ == "__main__":
    main()
