"""The same LoRA in PyTorch: tests/lora.py FOLDER reads the model, the batches and the losses that `test_lora FOLDER`
(float) or `grad_lora FOLDER` (double) wrote, trains a plain RoPE decoder of its own with adapters of rank 4 on wq and
wv by torch.optim.AdamW, and compares the curves of losses, to 1e-5 in float and 1e-10 in double, and the adapters."""
import json, math, struct, sys
import torch


def read(path):
    data = open(path, "rb").read()
    length = struct.unpack("<Q", data[:8])[0]
    head = json.loads(data[8:8 + length])
    meta = head.pop("__metadata__", {})
    kinds = {"F32": torch.float32, "F64": torch.float64, "I64": torch.int64}
    tensors = {}
    for name, t in head.items():
        begin, end = (8 + length + x for x in t["data_offsets"])
        tensors[name] = torch.frombuffer(bytearray(data[begin:end]), dtype=kinds[t["dtype"]]).reshape(t["shape"])
    return tensors, meta


def rmsnorm(x, weight, eps):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight


def rotate(x, base):  # [B, H, N, d], pairs (2j, 2j + 1)
    n, d = x.shape[-2:]
    angle = torch.arange(n, dtype=torch.float64)[:, None] * base ** (-torch.arange(0, d, 2, dtype=torch.float64) / d)
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    a, b = x[..., 0::2], x[..., 1::2]
    return torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2)


def forward(w, cfg, ids):
    layers, heads, eps = int(cfg["n_layers"]), int(cfg["n_heads"]), float(cfg["norm_eps"])
    scale = float(cfg["lora_alpha"]) / int(cfg["lora_rank"])

    def product(x, name):
        y = x @ w[name + ".weight"].T
        return y + scale * (x @ w[name + ".lora_a"].T @ w[name + ".lora_b"].T) if name + ".lora_a" in w else y

    x = w["tok_emb.weight"][ids]
    batch, n, d = x.shape
    hidden = torch.full((n, n), -math.inf, dtype=x.dtype).triu(1)
    for i in range(layers):
        at = f"blocks.{i}."
        h = rmsnorm(x, w[at + "ln1.weight"], eps)
        q, k, v = (product(h, at + "attn." + m).view(batch, n, heads, -1).transpose(1, 2) for m in ("wq", "wk", "wv"))
        q, k = (rotate(z, float(cfg["base"])) for z in (q, k))
        a = (q @ k.transpose(2, 3) / math.sqrt(d / heads) + hidden).softmax(-1) @ v
        x = x + product(a.transpose(1, 2).reshape(batch, n, d), at + "attn.wo")
        h = rmsnorm(x, w[at + "ln2.weight"], eps)
        h = torch.nn.functional.silu(product(h, at + "ffn.w1")) * product(h, at + "ffn.w3")
        x = x + product(h, at + "ffn.w2")
    return rmsnorm(x, w["ln_f.weight"], eps) @ w["head.weight"].T


def rate(t, step):  # of cmha_learning_rate, for the step that is being done
    steps, peak, least = int(t["steps"]), float(t["lr"]), float(t["min_lr"])
    warmup, s = int(float(t["warmup"]) * steps + 0.5), step + 1
    if s < warmup:
        return peak * s / warmup
    return least + (peak - least) / 2 * (1 + math.cos(math.pi * (s - warmup) / (steps - warmup)))


def main(folder):
    torch.set_num_threads(1)
    w, meta = read(folder + "/model.safetensors")
    curve, _ = read(folder + "/curve.safetensors")
    cfg, t = ({k.split(".", 1)[1]: v for k, v in meta.items() if k.startswith(p)} for p in ("cfg.", "trainer."))
    w = {k: v for k, v in w.items() if not k.startswith("optim.")}
    learns = [w[k].requires_grad_() for k in w if ".lora_" in k]
    betas, eps, decay = (float(t["beta1"]), float(t["beta2"])), float(t["adam_eps"]), float(t["weight_decay"])
    adamw = torch.optim.AdamW(learns, lr=1, betas=betas, eps=eps, weight_decay=decay)
    worst = 0
    for step, (ids, ours) in enumerate(zip(curve["ids"], curve["losses"])):
        logits = forward(w, cfg, ids[:, :-1])
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
        adamw.zero_grad()
        loss.backward()
        norm = torch.stack([p.grad.norm() for p in learns]).norm()  # clip_grad_norm_ adds 1e-6 to it
        for p in learns:
            p.grad *= min(1, float(t["clip"]) / norm)
        adamw.param_groups[0]["lr"] = rate(t, step)
        adamw.step()
        worst = max(worst, abs(loss.item() - ours.item()))
    double = learns[0].dtype == torch.float64
    print(f"{len(learns)} adapters, {len(curve['losses'])} steps in {'double' if double else 'float'}: losses "
          f"{curve['losses'][0].item():.4f} to {ours.item():.4f}, at most {worst:.2g} from PyTorch {torch.__version__}")
    return not (len(learns) == 8 and ours < curve["losses"][0] - 0.1 and worst < (1e-10 if double else 1e-5))


sys.exit(main(sys.argv[1]))
