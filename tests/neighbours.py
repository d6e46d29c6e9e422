"""tests/neighbours.py CONFORMANCE FOLDER POPE ROPEPP: PoPE and RoPE++ as their public code computes them, in PyTorch and double.
POPE is a checkout of lucidrains/PoPE-pytorch, ROPEPP the file rope_pp/modeling_llama_rope_pp.py of OpenMOSS/rope_pp; einops
must be importable. Writes their outputs and gradients to FOLDER as conformance cases, runs CONFORMANCE (build/conformance-f64)
on them, and prints the largest difference of each. Nothing of theirs is kept."""
import ast, json, math, os, struct, subprocess, sys, types, typing
import torch

CONFORMANCE, FOLDER, POPE, ROPEPP = sys.argv[1:5]
TOLERANCE = 1e-11
torch.manual_seed(7)
cases = []


def case(name, op, cfg, tensors, tolerance=TOLERANCE):
    meta = {"case": name, "op": op, "rtol_f64": "0", "atol_f64": repr(tolerance), "rtol_f32": "1e-4", "atol_f32": "4e-6"}
    meta.update(("cfg." + key, str(value)) for key, value in cfg.items())
    head, data = {"__metadata__": meta}, b""
    for key, t in tensors.items():
        raw = t.detach().double().contiguous().numpy().tobytes()
        head[key] = {"dtype": "F64", "shape": list(t.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    with open(os.path.join(FOLDER, name + ".safetensors"), "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)
    cases.append((name, tolerance))


def normal(*shape, spread=1.0):
    return (torch.randn(shape) * spread).double().requires_grad_()


def hidden(nq, nk):
    return torch.full((nq, nk), -math.inf, dtype=torch.float64).triu(1 + nk - nq)


def attention(name, cfg, x, y, parameters):
    """Both sides' case: gradients of <cot, y>, y [B, H, nq, d]."""
    cot = torch.randn(y.shape).double()
    (cot * y).sum().backward()
    nq, nk = x["q"].shape[2], x["k"].shape[2]
    cfg = {"causal": 1, "scale": repr(x["q"].shape[3] ** -0.5), "pos0": nk - nq, "key_pos0": 0, "window": 0, "grad": 1, **cfg}
    tensors = {"in." + key: t for key, t in x.items()} | {"grad.in." + key: t.grad for key, t in x.items()}
    for key, t in parameters.items():
        tensors |= {"param." + key: t, "grad.param." + key: t.grad}
    case(name, "attention", cfg, tensors | {"out.y": y, "cot.y": cot})


def pope():
    sys.path.insert(0, POPE)
    from PoPE_pytorch.attention import compute_attn_similarity_non_fused
    from PoPE_pytorch.pope import PoPE
    for name, B, H, Hkv, nq, nk, d, turning, base in (
            ("pope", 2, 3, 3, 9, 9, 8, 8, 10000), ("pope_decode", 1, 2, 2, 3, 70, 6, 6, 500), ("pope_odd", 1, 2, 2, 7, 7, 5, 5, 30),
            ("pope_partial", 2, 2, 2, 11, 11, 10, 4, 10000), ("pope_grouped", 1, 4, 2, 8, 8, 4, 4, 100),
            ("pope_tile", 1, 1, 1, 130, 130, 16, 16, 10000)):
        rates = base ** -(torch.arange(turning, dtype=torch.float64) / turning) # theirs are rounded to float
        theirs = PoPE(turning, heads=Hkv, inv_freqs=rates).double()
        with torch.no_grad(): # on both sides of the clamp
            theirs.bias.copy_((torch.rand(Hkv, turning) * 9 - 8).double())
        x = {"q": normal(B, H, nq, d, spread=2), "k": normal(B, Hkv, nk, d, spread=2), "v": normal(B, Hkv, nk, d)}
        # query head h reads key head h % Hkv there, h / (H / Hkv) here
        order = [h // (H // Hkv) + h % (H // Hkv) * Hkv for h in range(H)]
        q = x["q"][:, [order.index(i) for i in range(H)]]
        S = compute_attn_similarity_non_fused(q, x["k"], theirs(nk))[:, order] * d ** -0.5
        y = (S + hidden(nq, nk)).softmax(-1) @ x["v"].repeat_interleave(H // Hkv, 1)
        cfg = {"kind": "pope", "share": "per_head", "base": base}
        if turning < d: cfg["rotary_dims"] = turning
        beta = theirs.bias
        attention(name, cfg, x, y, {"beta": beta} if H == Hkv else {})
        if H != Hkv: # theirs has a row for each key head
            again = cases.pop()[0]
            case_beta(again, beta.detach().repeat_interleave(H // Hkv, 0))


def case_beta(name, beta):
    """Gives a written case beta rows for all query heads; the sum of their gradients is not compared."""
    path = os.path.join(FOLDER, name + ".safetensors")
    data = open(path, "rb").read()
    length = struct.unpack("<Q", data[:8])[0]
    head = json.loads(data[8:8 + length])
    meta, body = head.pop("__metadata__"), data[8 + length:]
    tensors = {}
    for key, t in head.items():
        begin, end = t["data_offsets"]
        tensors[key] = torch.frombuffer(bytearray(body[begin:end]), dtype=torch.float64).reshape(t["shape"])
    cfg = {key[4:]: value for key, value in meta.items() if key.startswith("cfg.")}
    case(name, "attention", cfg, tensors | {"param.beta": beta})


def ropepp():
    tree = ast.parse(open(ROPEPP).read())
    wanted = ("rotate_half", "repeat_kv", "eager_attention_forward", "LlamaAttention", "LlamaRotaryEmbedding")
    tree.body = [n for n in tree.body if getattr(n, "name", "") in wanted]

    class Wide: # their softmax is in float whatever the model is in
        def __getattr__(self, name):
            return torch.float64 if name in ("float32", "float") else getattr(torch, name)
    names = {"torch": Wide(), "nn": torch.nn, "math": math, "Unpack": typing.List, "FlashAttentionKwargs": int,
             "ALL_ATTENTION_FUNCTIONS": {}, "Cache": object, "LlamaConfig": object, **vars(typing)}
    exec(compile(tree, ROPEPP, "exec"), names)
    for name, mode, B, H, Hkv, nq, nk, d, base in (
            ("ropepp_ec", "imag2", 2, 3, 3, 9, 9, 8, 10000), ("ropepp_eh", "imag1", 1, 4, 4, 70, 70, 6, 100),
            ("ropepp_grouped", "imag2", 1, 4, 2, 8, 8, 4, 500), ("ropepp_decode", "imag2", 1, 2, 1, 3, 67, 8, 10000)):
        config = types.SimpleNamespace(
            hidden_size=H * d, head_dim=d, num_attention_heads=H, num_key_value_heads=Hkv, attention_dropout=0.0,
            attention_bias=False, rope_config={"imag": True, "imag_mode": mode}, _attn_implementation="eager")
        layer = names["LlamaAttention"](config, 0).double()
        halved = 2 if mode == "imag1" else 1
        x = {"q": normal(B, H // halved, nq, d), "k": normal(B, Hkv // halved, nk, d), "v": normal(B, Hkv // halved, nk, d)}
        angle = torch.arange(nk, dtype=torch.float64)[:, None] * base ** (-torch.arange(0, d, 2, dtype=torch.float64) / d)
        angle = torch.cat((angle, angle), -1)[None]
        # it turns as many queries as keys: the first of them are dropped here
        q = torch.cat((torch.zeros(B, H // halved, nk - nq, d).double(), x["q"]), 2)
        q, k = layer.apply_rotary_pos_emb(q, x["k"], angle.cos(), angle.sin())
        y, _ = names["eager_attention_forward"](layer.eval(), q[:, :, nk - nq:], k, x["v"], hidden(nq, nk)[None, None], layer.scaling)
        attention(name, {"kind": "ropepp", "layout": "half", "freq": "rope", "base": base}, x, y.transpose(1, 2), {})
    for name, factor in (("ropepp_yarn", 8), ("ropepp_yarn_2", 2.5)):
        config = types.SimpleNamespace(max_position_embeddings=4096, rope_theta=10000, head_dim=64,
                                       rope_config={"yarn": True, "factor": factor})
        theirs = names["LlamaRotaryEmbedding"](config)
        case(name, "frequencies", {"kind": "rope", "dk": 64, "base": 10000, "freq": "rope", "rope_scaling": "yarn", "factor": factor,
             "original_length": 4096, "beta_fast": 32, "beta_slow": 1, "yarn_ramp": "rotations", "grad": 0},
             {"out.omega": theirs.inv_freq, "out.score_factor": theirs.scaling[:1].double() ** 2})


os.makedirs(FOLDER, exist_ok=True)
pope(), ropepp()
worst = {}
for line in subprocess.run([CONFORMANCE, FOLDER], stdout=subprocess.PIPE, text=True).stdout.splitlines():
    word = line.split()
    if len(word) == 4 and word[0] == "PASS": worst[word[1]] = float(word[2])
    elif len(word) != 6: print(line)
for name, tolerance in cases:
    print("%-16s %s" % (name, "differs by %.1e at most" % (worst[name] * tolerance) if name in worst else "FAIL"))
failed = sum(name not in worst for name, _ in cases)
print("%d passed, %d failed" % (len(cases) - failed, failed))
sys.exit(failed > 0)
