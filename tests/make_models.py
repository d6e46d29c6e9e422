#!/usr/bin/env python3
"""make_models.py FOLDER: small models with random weights as Hugging Face's folders (config.json, model.safetensors), each with
expected.safetensors: ids [tokens] and what PyTorch computes from them in double precision, logits [tokens, vocabulary] or, of an
encoder without that head, states; classes of those that have a class head. The models are written here after their published
definitions (GPT-2's, Llama's, BERT's papers; the rules of Llama 3.1 and YaRN for longer texts; the reports of Qwen3, Gemma 2 and 3,
OLMo 2, Phi-2 and 3, SmolLM3, Granite, StableLM, GPT-NeoX, GPT-J; the papers of ModernBERT, arXiv 2412.13663, and nomic-embed,
2402.01613), not with a library of models. Those of the second and of the last group also have the mean cross entropy of each next token (loss), and its gradients in gradients.safetensors, F32.

Weights are numbers that F16 holds exactly. tests/models has what this script made; a run of it makes the same."""
import json
import math
import os
import struct
import sys

import torch
from torch.nn.functional import gelu, silu

torch.set_default_dtype(torch.float64)
TOKENS = 12


def save(path, tensors):
    header, data = {}, b""
    for name, (dtype, shape, raw) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


def pack(dtype, tensor):
    letter = {"F16": "e", "F64": "d", "I64": "q", "F32": "f"}[dtype]
    numbers = tensor.flatten().tolist()
    return dtype, list(tensor.shape), struct.pack("<%d%s" % (len(numbers), letter), *numbers)


class Weights:
    """Random numbers by name, in the order in which they are asked for."""

    def __init__(self, seed):
        self.random, self.all, self.learn = torch.Generator().manual_seed(seed), {}, False

    def __call__(self, name, *shape, mean=0.0, spread=0.25):
        x = torch.randn(*shape, generator=self.random) * spread + mean
        self.all[name] = x.half().double().requires_grad_(self.learn)
        return self.all[name]


def layer_norm(x, w, name, d, eps):
    x = x - x.mean(-1, keepdim=True)
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + eps) * w(name + ".weight", d, mean=1.0) + w(name + ".bias", d)


def rms_norm(x, w, name, d, eps):
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + eps) * w(name + ".weight", d, mean=1.0)


def linear(x, w, name, out, bias):
    y = x @ w(name + ".weight", out, x.shape[-1]).T
    return y + w(name + ".bias", out) if bias else y


def attend(q, k, v, heads, causal, scale, window=None, cap=None):
    """q [n, heads * d], k and v [n, kv * d]: softmax(q k^T scale) v, each key head for heads / kv query heads"""
    n = q.shape[0]
    d = q.shape[1] // heads
    split = lambda x: x.view(n, -1, d).transpose(0, 1)
    q, k, v = split(q), split(k), split(v)
    k, v = (x.repeat_interleave(heads // x.shape[0], 0) for x in (k, v))
    score = q @ k.transpose(1, 2) * scale
    if cap:
        score = cap * torch.tanh(score / cap)
    i, j = torch.arange(n)[:, None], torch.arange(n)[None, :]
    hidden = (j > i) if causal else torch.zeros(n, n, dtype=torch.bool)
    if window:
        hidden = hidden | (i - j >= window)
    return (torch.softmax(score.masked_fill(hidden, -math.inf), -1) @ v).transpose(0, 1).reshape(n, -1)


def frequencies(d, theta, scaling):
    """Angles a position turns pair j by, and the factor on cosines and sines"""
    w = theta ** (-torch.arange(0, d, 2) / d)
    kind = scaling.get("rope_type", scaling.get("type", "default")) if scaling else "default"
    if kind == "linear":
        return w / scaling["factor"], 1.0
    if kind == "llama3":
        factor, low, high = scaling["factor"], scaling["low_freq_factor"], scaling["high_freq_factor"]
        turns = scaling["original_max_position_embeddings"] * w / (2 * math.pi)
        kept = ((turns - low) / (high - low)).clamp(0, 1)
        return w * kept + w / factor * (1 - kept), 1.0
    if kind == "yarn":
        factor, length = scaling["factor"], scaling["original_max_position_embeddings"]
        place = lambda turns: d * math.log(length / (turns * 2 * math.pi)) / (2 * math.log(theta))
        low = max(math.floor(place(scaling.get("beta_fast", 32))), 0)
        high = min(math.ceil(place(scaling.get("beta_slow", 1))), d - 1)
        high = high + 0.001 if high == low else high
        kept = 1 - ((torch.arange(d // 2) - low) / (high - low)).clamp(0, 1)
        return w * kept + w / factor * (1 - kept), scaling.get("attention_factor", 0.1 * math.log(factor) + 1)
    if kind == "longrope":  # after arXiv 2402.13753, as the model card of Phi-3 has it
        factor, length = scaling["stretch"], scaling["length"]
        return w / torch.tensor(scaling[scaling["use"]]), math.sqrt(1 + math.log(factor) / math.log(length))
    return w, 1.0


def rotate(x, heads, turned, theta, scaling):
    """The first `turned` numbers of each head, pairs (j, j + turned / 2), by the angles of their positions"""
    n = x.shape[0]
    x = x.view(n, heads, -1)
    w, factor = frequencies(turned, theta, scaling)
    angle = torch.arange(n)[:, None, None] * w
    c, s = torch.cos(angle) * factor, torch.sin(angle) * factor
    a, b, rest = x[..., :turned // 2], x[..., turned // 2:turned], x[..., turned:]
    return torch.cat((a * c - b * s, b * c + a * s, rest), -1).reshape(n, -1)


def llama(c, w, ids):
    d, heads, kv, eps = c["hidden_size"], c["num_attention_heads"], c["num_key_value_heads"], c["rms_norm_eps"]
    width = c.get("head_dim", d // heads)
    turned = int(width * c.get("partial_rotary_factor", 1.0))
    scaling = c.get("rope_scaling", c.get("rope_parameters"))
    theta = c.get("rope_theta", (scaling or {}).get("rope_theta", 10000.0))
    all_bias = c.get("attention_bias", False)
    qkv_bias = all_bias or c["model_type"] == "qwen2"
    embedding = w("model.embed_tokens.weight", c["vocab_size"], d, spread=1.0)
    x = embedding[ids]
    for layer in range(c["num_hidden_layers"]):
        p = "model.layers.%d." % layer
        h = rms_norm(x, w, p + "input_layernorm", d, eps)
        q = rotate(linear(h, w, p + "self_attn.q_proj", heads * width, qkv_bias), heads, turned, theta, scaling)
        k = rotate(linear(h, w, p + "self_attn.k_proj", kv * width, qkv_bias), kv, turned, theta, scaling)
        v = linear(h, w, p + "self_attn.v_proj", kv * width, qkv_bias)
        slides = c.get("sliding_window") if c.get("use_sliding_window", True) else None
        a = attend(q, k, v, heads, True, 1 / math.sqrt(width), slides)
        x = x + linear(a, w, p + "self_attn.o_proj", d, all_bias)
        h = rms_norm(x, w, p + "post_attention_layernorm", d, eps)
        gate = silu(linear(h, w, p + "mlp.gate_proj", c["intermediate_size"], c.get("mlp_bias", False)))
        up = linear(h, w, p + "mlp.up_proj", c["intermediate_size"], c.get("mlp_bias", False))
        x = x + linear(gate * up, w, p + "mlp.down_proj", d, c.get("mlp_bias", False))
    x = rms_norm(x, w, "model.norm", d, eps)
    return {"logits": x @ (embedding if c["tie_word_embeddings"] else w("lm_head.weight", c["vocab_size"], d)).T}


def rms_plain(x, gain, eps):
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + eps) * gain


def sees(c, layer):
    """Window and frequencies of a layer: (window or None, whether it rotates, base, scaling)"""
    kind, base, scaling = c["model_type"], c.get("rope_theta", 10000.0), c.get("rope_scaling")
    window, types = c.get("sliding_window"), c.get("layer_types")
    slides = window is not None and kind in ("gemma2", "gemma3_text", "phi3", "qwen3")
    if types:
        slides = types[layer] == "sliding_attention"
    elif kind == "gemma2":
        slides = layer % 2 == 0
    elif kind == "gemma3_text":
        slides = (layer + 1) % c["sliding_window_pattern"] != 0
    elif kind == "qwen3":
        slides = c.get("use_sliding_window", False) and layer >= c["max_window_layers"]
    turns = kind != "smollm3" or (c["no_rope_layers"][layer] if "no_rope_layers" in c else (layer + 1) % 4 != 0)
    if kind == "gemma3_text" and slides:
        base, scaling = c["rope_local_base_freq"], None
    return window if slides else None, turns, base, scaling


def of_today(c, w, ids):
    """Llama's successors: c["model_type"] says what each does otherwise."""
    kind, d, heads = c["model_type"], c["hidden_size"], c["num_attention_heads"]
    kv, eps = c.get("num_key_value_heads", heads), c.get("rms_norm_eps", c.get("layer_norm_eps"))
    gemma, width = kind.startswith("gemma"), c.get("head_dim", d // heads)
    turned = int(width * c.get("partial_rotary_factor", {"stablelm": 0.25}.get(kind, 1.0)))
    scale = c.get("attention_multiplier", c.get("query_pre_attn_scalar", width) ** -0.5)
    mean = 0.0 if gemma else 1.0
    rms = lambda x, name: rms_plain(x, (1 if gemma else 0) + w(name + ".weight", x.shape[-1], mean=mean), eps)
    norm = (lambda x, name: layer_norm(x, w, name, d, eps)) if kind == "stablelm" else rms
    by_head = lambda x, n, name: rms(x.view(-1, n, width), name).reshape(len(ids), -1)
    act = gelu_new if gemma else silu
    embedding = w("model.embed_tokens.weight", c["vocab_size"], d, spread=1.0)
    x = embedding[ids] * (math.sqrt(d) if gemma else c.get("embedding_multiplier", 1.0))
    factor = c.get("residual_multiplier", 1.0)

    def attention(h, p, layer):
        bias, out_bias = c.get("use_qkv_bias", c.get("attention_bias", False)), c.get("attention_bias", False)
        if kind == "phi3":
            q, k, v = linear(h, w, p + "qkv_proj", (heads + 2 * kv) * width, False).split([heads * width, kv * width, kv * width], -1)
        else:
            q, k, v = (linear(h, w, p + name, n * width, bias) for name, n in (("q_proj", heads), ("k_proj", kv), ("v_proj", kv)))
        if kind in ("qwen3", "gemma3_text"):
            q, k = by_head(q, heads, p + "q_norm"), by_head(k, kv, p + "k_norm")
        if kind == "olmo2":
            q, k = rms(q, p + "q_norm"), rms(k, p + "k_norm")
        window, turns, base, scaling = sees(c, layer)
        if turns:
            q, k = rotate(q, heads, turned, base, scaling), rotate(k, kv, turned, base, scaling)
        a = attend(q, k, v, heads, True, scale, window, c.get("attn_logit_softcapping"))
        return linear(a, w, p + "o_proj", d, out_bias)

    def ffn(h, p):
        bias, ff = c.get("mlp_bias", False), c["intermediate_size"]
        if kind == "phi3":
            gate, up = linear(h, w, p + "gate_up_proj", 2 * ff, False).split(ff, -1)
        else:
            gate, up = (linear(h, w, p + name, ff, bias) for name in ("gate_proj", "up_proj"))
        return linear(act(gate) * up, w, p + "down_proj", d, bias)

    for layer in range(c["num_hidden_layers"]):
        p = "model.layers.%d." % layer
        if kind == "olmo2":
            x = x + norm(attention(x, p + "self_attn.", layer), p + "post_attention_layernorm")
            x = x + norm(ffn(x, p + "mlp."), p + "post_feedforward_layernorm")
        elif gemma:
            x = x + norm(attention(norm(x, p + "input_layernorm"), p + "self_attn.", layer), p + "post_attention_layernorm")
            x = x + norm(ffn(norm(x, p + "pre_feedforward_layernorm"), p + "mlp."), p + "post_feedforward_layernorm")
        elif c.get("use_parallel_residual"):
            h = norm(x, p + "input_layernorm")
            x = x + attention(h, p + "self_attn.", layer) + ffn(h, p + "mlp.")
        else:
            x = x + factor * attention(norm(x, p + "input_layernorm"), p + "self_attn.", layer)
            x = x + factor * ffn(norm(x, p + "post_attention_layernorm"), p + "mlp.")
    x = norm(x, "model.norm")
    y = x @ (embedding if c["tie_word_embeddings"] else w("lm_head.weight", c["vocab_size"], d)).T / c.get("logits_scaling", 1.0)
    cap = c.get("final_logit_softcapping")
    return {"logits": cap * torch.tanh(y / cap) if cap else y}


def neox(c, w, ids):
    d, heads, eps, ff = c["hidden_size"], c["num_attention_heads"], c["layer_norm_eps"], c["intermediate_size"]
    width, act, bias = d // heads, {"gelu": gelu, "gelu_new": gelu_new}[c["hidden_act"]], c.get("attention_bias", True)
    turned = int(width * c["rotary_pct"])
    x = w("gpt_neox.embed_in.weight", c["vocab_size"], d, spread=1.0)[ids]
    for layer in range(c["num_hidden_layers"]):
        p = "gpt_neox.layers.%d." % layer
        h = linear(layer_norm(x, w, p + "input_layernorm", d, eps), w, p + "attention.query_key_value", 3 * d, bias)
        q, k, v = (part.reshape(len(ids), d) for part in h.view(len(ids), heads, 3, width).unbind(2))
        q, k = (rotate(part, heads, turned, c["rotary_emb_base"], None) for part in (q, k))
        a = linear(attend(q, k, v, heads, True, width ** -0.5), w, p + "attention.dense", d, bias)
        h = layer_norm(x if c["use_parallel_residual"] else x + a, w, p + "post_attention_layernorm", d, eps)
        h = act(linear(h, w, p + "mlp.dense_h_to_4h", ff, True))
        x = x + a + linear(h, w, p + "mlp.dense_4h_to_h", d, True)
    return {"logits": linear(layer_norm(x, w, "gpt_neox.final_layer_norm", d, eps), w, "embed_out", c["vocab_size"], False)}


def beside(c, w, ids):
    """GPT-J and Phi-2: attention and feed-forward layer read the same norm."""
    j = c["model_type"] == "gptj"
    d, heads, eps = c["n_embd" if j else "hidden_size"], c["n_head" if j else "num_attention_heads"], c["layer_norm_epsilon" if j else "layer_norm_eps"]
    kv = heads if j else c["num_key_value_heads"]
    width = d // heads
    turned = c["rotary_dim"] if j else int(width * c["partial_rotary_factor"])
    names = {"embed": "transformer.wte", "layer": "transformer.h.%d.", "norm": "ln_1", "attn": "attn.", "out": "out_proj", "fc1": "mlp.fc_in",
             "fc2": "mlp.fc_out", "last": "transformer.ln_f"} if j else \
            {"embed": "model.embed_tokens", "layer": "model.layers.%d.", "norm": "input_layernorm", "attn": "self_attn.", "out": "dense",
             "fc1": "mlp.fc1", "fc2": "mlp.fc2", "last": "model.final_layernorm"}

    def turn(x, n):
        if not j:
            return rotate(x, n, turned, c["rope_theta"], None)
        x = x.view(len(ids), n, width)  # pairs (2 i, 2 i + 1)
        angle = torch.arange(len(ids))[:, None, None] * frequencies(turned, 10000.0, None)[0]
        a, b = x[..., 0:turned:2], x[..., 1:turned:2]
        pairs = torch.stack((a * torch.cos(angle) - b * torch.sin(angle), b * torch.cos(angle) + a * torch.sin(angle)), -1)
        return torch.cat((pairs.flatten(-2), x[..., turned:]), -1).reshape(len(ids), -1)

    x = w(names["embed"] + ".weight", c["vocab_size"], d, spread=1.0)[ids]
    for layer in range(c["n_layer" if j else "num_hidden_layers"]):
        p = names["layer"] % layer
        h = layer_norm(x, w, p + names["norm"], d, eps)
        q, k, v = (linear(h, w, p + names["attn"] + part, n * width, not j) for part, n in (("q_proj", heads), ("k_proj", kv), ("v_proj", kv)))
        a = linear(attend(turn(q, heads), turn(k, kv), v, heads, True, width ** -0.5), w, p + names["attn"] + names["out"], d, not j)
        h = gelu_new(linear(h, w, p + names["fc1"], c.get("n_inner") or 4 * d if j else c["intermediate_size"], True))
        x = x + a + linear(h, w, p + names["fc2"], d, True)
    return {"logits": linear(layer_norm(x, w, names["last"], d, eps), w, "lm_head", c["vocab_size"], True)}


def gelu_new(x):
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3)))


def gpt2(c, w, ids):
    d, eps = c["n_embd"], c["layer_norm_epsilon"]
    conv = lambda x, name, out: x @ w(name + ".weight", x.shape[-1], out) + w(name + ".bias", out)
    act = {"gelu_new": gelu_new, "gelu": gelu, "relu": torch.relu}[c["activation_function"]]
    wte = w("wte.weight", c["vocab_size"], d, spread=1.0)
    x = wte[ids] + w("wpe.weight", c["n_positions"], d)[:len(ids)]
    for layer in range(c["n_layer"]):
        p = "h.%d." % layer
        q, k, v = conv(layer_norm(x, w, p + "ln_1", d, eps), p + "attn.c_attn", 3 * d).split(d, -1)
        a = attend(q, k, v, c["n_head"], True, 1 / math.sqrt(d // c["n_head"]))
        x = x + conv(a, p + "attn.c_proj", d)
        h = act(conv(layer_norm(x, w, p + "ln_2", d, eps), p + "mlp.c_fc", c.get("n_inner") or 4 * d))
        x = x + conv(h, p + "mlp.c_proj", d)
        w.all[p + "attn.bias"] = torch.tril(torch.ones(1, 1, TOKENS, TOKENS))  # a mask that old files have
    return {"logits": layer_norm(x, w, "ln_f", d, eps) @ wte.T}


def bert(c, w, ids):
    d, eps, kind = c["hidden_size"], c["layer_norm_eps"], c["architectures"][0]
    base = "" if kind == "BertModel" else "bert."
    e = base + "embeddings."
    words = w(e + "word_embeddings.weight", c["vocab_size"], d, spread=1.0)
    positions, types = w(e + "position_embeddings.weight", c["max_position_embeddings"], d), w(e + "token_type_embeddings.weight", 2, d)
    x = words[ids] + positions[:len(ids)] + types[[int(i >= len(ids) // 2) for i in range(len(ids))]]
    x = layer_norm(x, w, e + "LayerNorm", d, eps)
    for layer in range(c["num_hidden_layers"]):
        p = base + "encoder.layer.%d." % layer
        q, k, v = (linear(x, w, p + "attention.self." + part, d, True) for part in ("query", "key", "value"))
        a = attend(q, k, v, c["num_attention_heads"], False, 1 / math.sqrt(d // c["num_attention_heads"]))
        x = layer_norm(x + linear(a, w, p + "attention.output.dense", d, True), w, p + "attention.output.LayerNorm", d, eps)
        h = linear(gelu(linear(x, w, p + "intermediate.dense", c["intermediate_size"], True)), w, p + "output.dense", d, True)
        x = layer_norm(x + h, w, p + "output.LayerNorm", d, eps)
    if kind == "BertModel":
        linear(x, w, "pooler.dense", d, True)
        return {"states": x}
    if kind == "BertForSequenceClassification":
        h = torch.tanh(linear(x[0], w, "bert.pooler.dense", d, True))
        return {"classes": linear(h, w, "classifier", len(c["id2label"]), True)}
    h = layer_norm(gelu(linear(x, w, "cls.predictions.transform.dense", d, True)), w, "cls.predictions.transform.LayerNorm", d, eps)
    return {"logits": h @ words.T + w("cls.predictions.bias", c["vocab_size"])}


def roberta(c, w, ids):
    """RoBERTa, whose positions count from 2, and DistilBERT."""
    distil, kind = c["model_type"] == "distilbert", c["architectures"][0]
    d, heads, ff = (c["dim"], c["n_heads"], c["hidden_dim"]) if distil else (c["hidden_size"], c["num_attention_heads"], c["intermediate_size"])
    base, eps = "distilbert." if distil else "roberta.", 1e-12 if distil else c["layer_norm_eps"]
    e, first = base + "embeddings.", 0 if distil else 2
    words = w(e + "word_embeddings.weight", c["vocab_size"], d, spread=1.0)
    x = words[ids] + w(e + "position_embeddings.weight", c["max_position_embeddings"], d)[first:first + len(ids)]
    w.all[e + "position_embeddings.weight"][:first] = 0  # which nothing reads
    if not distil:
        x = x + w(e + "token_type_embeddings.weight", 1, d)
    x = layer_norm(x, w, e + "LayerNorm", d, eps)
    names = ("transformer.layer.%d.", ("attention.q_lin", "attention.k_lin", "attention.v_lin"), "attention.out_lin", "sa_layer_norm",
             "ffn.lin1", "ffn.lin2", "output_layer_norm") if distil else \
            ("encoder.layer.%d.", ("attention.self.query", "attention.self.key", "attention.self.value"), "attention.output.dense",
             "attention.output.LayerNorm", "intermediate.dense", "output.dense", "output.LayerNorm")
    for layer in range(c["n_layers" if distil else "num_hidden_layers"]):
        p = base + names[0] % layer
        q, k, v = (linear(x, w, p + part, d, True) for part in names[1])
        a = attend(q, k, v, heads, False, (d // heads) ** -0.5)
        x = layer_norm(x + linear(a, w, p + names[2], d, True), w, p + names[3], d, eps)
        h = linear(gelu(linear(x, w, p + names[4], ff, True)), w, p + names[5], d, True)
        x = layer_norm(x + h, w, p + names[6], d, eps)
    if kind.endswith("SequenceClassification"):
        h = torch.tanh(linear(x[0], w, "classifier.dense", d, True))
        return {"classes": linear(h, w, "classifier.out_proj", len(c["id2label"]), True)}
    dense, norm, bias = ("vocab_transform", "vocab_layer_norm", "vocab_projector.bias") if distil else \
                        ("lm_head.dense", "lm_head.layer_norm", "lm_head.bias")
    h = layer_norm(gelu(linear(x, w, dense, d, True)), w, norm, d, eps)
    return {"logits": h @ words.T + w(bias, c["vocab_size"])}


def norm_gain(x, w, name, d, eps):
    x = x - x.mean(-1, keepdim=True)
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + eps) * w(name + ".weight", d, mean=1.0)


def sees_around(q, k, v, heads, reach):
    """Attention of an encoder whose tokens see `reach` to either side; None: all"""
    n, width = q.shape[0], q.shape[1] // heads
    q, k, v = (x.view(n, heads, width).transpose(0, 1) for x in (q, k, v))
    far = (torch.arange(n)[:, None] - torch.arange(n)[None, :]).abs() > (n if reach is None else reach)
    score = (q @ k.transpose(1, 2) / math.sqrt(width)).masked_fill(far, -math.inf)
    return (torch.softmax(score, -1) @ v).transpose(0, 1).reshape(n, -1)


def modernbert(c, w, ids):
    """ModernBERT: norms before the sublayers but the first, of gains alone; every so many layers sees all, the others half of
    local_attention to either side, with frequencies of their own; GeGLU, whose first half is activated"""
    d, heads, ff, eps = c["hidden_size"], c["num_attention_heads"], c["intermediate_size"], c["norm_eps"]
    act, head = {"gelu": gelu, "gelu_pytorch_tanh": gelu_new}[c["hidden_activation"]], c["architectures"][0].endswith("MaskedLM")
    norm, bias, model = layer_norm if c["norm_bias"] else norm_gain, c["attention_bias"], "model." if head else ""
    nested = c.get("rope_parameters", {})
    base = {kind: nested.get(kind, {}).get("rope_theta", c.get(key, usual)) for kind, key, usual in
            (("full_attention", "global_rope_theta", 160000.0), ("sliding_attention", "local_rope_theta", 10000.0))}
    words = w(model + "embeddings.tok_embeddings.weight", c["vocab_size"], d, spread=0.5)
    x = norm(words[ids], w, model + "embeddings.norm", d, eps)
    for layer in range(c["num_hidden_layers"]):
        p, slides = model + "layers.%d." % layer, layer % c.get("global_attn_every_n_layers", 3) != 0
        if "layer_types" in c:
            slides = c["layer_types"][layer] == "sliding_attention"
        h = norm(x, w, p + "attn_norm", d, eps) if layer else x
        q, k, v = linear(h, w, p + "attn.Wqkv", 3 * d, bias).split(d, -1)
        theta = base["sliding_attention" if slides else "full_attention"]
        q, k = (rotate(part, heads, d // heads, theta, None) for part in (q, k))
        x = x + linear(sees_around(q, k, v, heads, c["local_attention"] // 2 if slides else None), w, p + "attn.Wo", d, bias)
        first, gate = linear(norm(x, w, p + "mlp_norm", d, eps), w, p + "mlp.Wi", 2 * ff, False).split(ff, -1)
        x = x + linear(act(first) * gate, w, p + "mlp.Wo", d, False)
    x = norm(x, w, model + "final_norm", d, eps)
    if not head:
        return {"states": x, "learned": x @ words.T}
    x = norm(act(linear(x, w, "head.dense", d, False)), w, "head.norm", d, eps)
    return {"logits": x @ words.T + (w("decoder.bias", c["vocab_size"]) if c["decoder_bias"] else 0)}


def nomic(c, w, ids):
    """nomic-bert: BERT's norms after the sums, with rotation instead of learned positions, and a gated feed-forward layer"""
    d, heads, eps, bias = c["n_embd"], c["n_head"], c["layer_norm_epsilon"], c["qkv_proj_bias"]
    ff, act = -(-c["n_inner"] // 256) * 256, {"swiglu": silu, "geglu": gelu}[c["activation_function"]]
    turned = int(d // heads * c["rotary_emb_fraction"])
    words = w("embeddings.word_embeddings.weight", c["vocab_size"], d, spread=1.0)
    kinds = w("embeddings.token_type_embeddings.weight", c["type_vocab_size"], d)
    types = (torch.arange(TOKENS) >= TOKENS // 2).long() if c["type_vocab_size"] > 1 else torch.zeros(TOKENS, dtype=torch.long)
    x = layer_norm(words[ids] + kinds[types], w, "emb_ln", d, eps)
    for layer in range(c["n_layer"]):
        p = "encoder.layers.%d." % layer
        q, k, v = linear(x, w, p + "attn.Wqkv", 3 * d, bias).split(d, -1)
        q, k = (rotate(part, heads, turned, c["rotary_emb_base"], None) for part in (q, k))
        a = linear(sees_around(q, k, v, heads, None), w, p + "attn.out_proj", d, bias)
        x = layer_norm(x + a, w, p + "norm1", d, eps)
        up, gate = (linear(x, w, p + "mlp." + name, ff, c["mlp_fc1_bias"]) for name in ("fc11", "fc12"))
        x = layer_norm(x + linear(up * act(gate), w, p + "mlp.fc2", d, c["mlp_fc2_bias"]), w, p + "norm2", d, eps)
    return {"states": x, "learned": x @ words.T}


def a_llama(**other):
    return {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 16, "intermediate_size": 24,
            "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2, "vocab_size": 20, "hidden_act": "silu",
            "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": False,
            "torch_dtype": "float16", "use_cache": True, "bos_token_id": 1, **other}


def a_bert(kind, **other):
    return {"architectures": [kind], "model_type": "bert", "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1,
            "num_attention_heads": 2, "vocab_size": 20, "hidden_act": "gelu", "max_position_embeddings": 16, "type_vocab_size": 2,
            "layer_norm_eps": 1e-12, "hidden_dropout_prob": 0.1, "position_embedding_type": "absolute", **other}


LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 16,
          "rope_type": "llama3"}
YARN = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}
MODELS = {
    "gpt2": (gpt2, {"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "n_embd": 16, "n_layer": 2, "n_head": 2,
                    "n_positions": 16, "n_ctx": 16, "vocab_size": 20, "layer_norm_epsilon": 1e-5, "n_inner": 24,
                    "activation_function": "gelu_new", "attn_pdrop": 0.1, "embd_pdrop": 0.1, "resid_pdrop": 0.1}),
    "llama": (llama, a_llama(num_hidden_layers=2)),
    "grouped": (llama, a_llama(num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=True, rope_scaling=LLAMA3)),
    "biased": (llama, a_llama(attention_bias=True, mlp_bias=True, rope_scaling=YARN)),
    "qwen2": (llama, a_llama(architectures=["Qwen2ForCausalLM"], model_type="qwen2", sliding_window=4, use_sliding_window=False,
                             max_window_layers=1, rope_parameters={"rope_type": "linear", "factor": 2.0, "rope_theta": 100.0})),
    "mistral": (llama, a_llama(architectures=["MistralForCausalLM"], model_type="mistral", sliding_window=5, head_dim=6,
                               num_key_value_heads=1)),
    "partial": (llama, a_llama(partial_rotary_factor=0.5, rope_scaling={**YARN, "attention_factor": 1.0},
                               tie_word_embeddings=True)),
    "bert": (bert, a_bert("BertModel")),
    "bert_mlm": (bert, a_bert("BertForMaskedLM")),
    "bert_classes": (bert, a_bert("BertForSequenceClassification", id2label={"0": "a", "1": "b", "2": "c"})),
}
MODELS["qwen2"][1].pop("rope_theta")


def a_model(kind, name, layers=2, **other):
    """As a Llama of that kind; None takes a setting away."""
    c = {**a_llama(architectures=[name], model_type=kind, num_hidden_layers=layers, num_key_value_heads=1), **other}
    return {key: value for key, value in c.items() if value is not None}


GEMMA = {"hidden_act": "gelu_pytorch_tanh", "hidden_activation": "gelu_pytorch_tanh", "tie_word_embeddings": True, "head_dim": 6,
         "sliding_window": 4, "rms_norm_eps": 1e-6, "attention_bias": False, "attention_dropout": 0.0, "cache_implementation": "hybrid"}
LAYERS = {"layer_norm_eps": 1e-5, "rms_norm_eps": None}
# the second group: with gradients
LEARNED = {
    "qwen3": (of_today, a_model("qwen3", "Qwen3ForCausalLM", head_dim=12, attention_bias=False, use_sliding_window=False,
                                sliding_window=None, max_window_layers=2, rope_theta=1000000.0, tie_word_embeddings=True)),
    "qwen3_window": (of_today, a_model("qwen3", "Qwen3ForCausalLM", 3, head_dim=8, attention_bias=True, use_sliding_window=True,
                                       sliding_window=4, max_window_layers=1)),
    "gemma2": (of_today, a_model("gemma2", "Gemma2ForCausalLM", 3, **GEMMA, query_pre_attn_scalar=9, attn_logit_softcapping=2.0,
                                 final_logit_softcapping=3.0)),
    "gemma3": (of_today, a_model("gemma3_text", "Gemma3ForCausalLM", 7, **GEMMA, query_pre_attn_scalar=6, sliding_window_pattern=6,
                                 rope_theta=1000000.0, rope_local_base_freq=10000.0, rope_scaling={"rope_type": "linear", "factor": 8.0})),
    "olmo2": (of_today, a_model("olmo2", "Olmo2ForCausalLM", attention_bias=False, rope_theta=500000.0, num_key_value_heads=2)),
    "phi3": (of_today, a_model("phi3", "Phi3ForCausalLM", num_attention_heads=4, num_key_value_heads=2, sliding_window=5,
                               original_max_position_embeddings=64, resid_pdrop=0.0, embd_pdrop=0.0, partial_rotary_factor=0.5)),
    "smollm3": (of_today, a_model("smollm3", "SmolLM3ForCausalLM", 5, num_attention_heads=4, num_key_value_heads=2, attention_bias=False,
                                  mlp_bias=False, use_sliding_window=False, no_rope_layers=[1, 1, 1, 0, 1], no_rope_layer_interval=4,
                                  tie_word_embeddings=True, rope_theta=2000000.0)),
    "granite": (of_today, a_model("granite", "GraniteForCausalLM", embedding_multiplier=6.0, residual_multiplier=0.22,
                                  attention_multiplier=0.25, logits_scaling=4.0, attention_bias=False, mlp_bias=False,
                                  tie_word_embeddings=True)),
    "stablelm": (of_today, a_model("stablelm", "StableLmForCausalLM", **LAYERS, use_qkv_bias=True, partial_rotary_factor=0.5,
                                   use_parallel_residual=False, qk_layernorm=False, hidden_dropout=0.0)),
    "stablelm_beside": (of_today, a_model("stablelm", "StableLmForCausalLM", **LAYERS, use_qkv_bias=False, partial_rotary_factor=0.25,
                                          use_parallel_residual=True)),
    "neox": (neox, a_model("gpt_neox", "GPTNeoXForCausalLM", **LAYERS, num_key_value_heads=None, rope_theta=None, hidden_act="gelu",
                           rotary_pct=0.25, rotary_emb_base=10000, use_parallel_residual=True, attention_bias=True,
                           attention_dropout=0.0, hidden_dropout=0.0)),
    "neox_serial": (neox, a_model("gpt_neox", "GPTNeoXForCausalLM", **LAYERS, num_key_value_heads=None, rope_theta=None,
                                  hidden_act="gelu", rotary_pct=1.0, rotary_emb_base=500, use_parallel_residual=False)),
    "gptj": (beside, {"architectures": ["GPTJForCausalLM"], "model_type": "gptj", "n_embd": 16, "n_layer": 2, "n_head": 2,
                      "n_positions": 64, "n_inner": None, "vocab_size": 20, "rotary_dim": 4, "activation_function": "gelu_new",
                      "layer_norm_epsilon": 1e-5, "tie_word_embeddings": False, "attn_pdrop": 0.0, "resid_pdrop": 0.0,
                      "embd_pdrop": 0.0, "rotary": True, "scale_attn_weights": True}),
    "phi": (beside, a_model("phi", "PhiForCausalLM", **LAYERS, hidden_act="gelu_new", partial_rotary_factor=0.5, qk_layernorm=False,
                            attention_dropout=0.0, resid_pdrop=0.0, embd_pdrop=0.0, num_key_value_heads=2)),
}
ROBERTA = {"model_type": "roberta", "type_vocab_size": 1, "layer_norm_eps": 1e-5, "max_position_embeddings": 18, "pad_token_id": 1}
# the third group: encoders
ENCODERS = {
    "roberta": (roberta, a_bert("RobertaForMaskedLM", **ROBERTA)),
    "roberta_classes": (roberta, a_bert("XLMRobertaForSequenceClassification", **{**ROBERTA, "model_type": "xlm-roberta"},
                                        id2label={"0": "a", "1": "b"})),
    "distilbert": (roberta, {"architectures": ["DistilBertForMaskedLM"], "model_type": "distilbert", "dim": 16, "n_layers": 2,
                             "n_heads": 2, "hidden_dim": 24, "vocab_size": 20, "max_position_embeddings": 16, "activation": "gelu",
                             "dropout": 0.1, "attention_dropout": 0.1, "qa_dropout": 0.1, "seq_classif_dropout": 0.2,
                             "sinusoidal_pos_embds": False, "tie_weights_": True, "pad_token_id": 0}),
}
MODERN = {"model_type": "modernbert", "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 4, "num_attention_heads": 2,
          "vocab_size": 20, "max_position_embeddings": 64, "hidden_activation": "gelu", "classifier_activation": "gelu",
          "norm_eps": 1e-5, "layer_norm_eps": 1e-5, "norm_bias": False, "attention_bias": False, "mlp_bias": False,
          "decoder_bias": True, "classifier_bias": False, "classifier_pooling": "mean", "attention_dropout": 0.0,
          "embedding_dropout": 0.0, "mlp_dropout": 0.0, "global_attn_every_n_layers": 3, "local_attention": 6,
          "global_rope_theta": 160000.0, "local_rope_theta": 100.0, "sparse_prediction": False, "pad_token_id": 0,
          "position_embedding_type": "absolute", "deterministic_flash_attn": False, "tie_word_embeddings": True}
NOMIC = {"architectures": ["NomicBertModel"], "model_type": "nomic_bert", "n_embd": 8, "n_layer": 2, "n_head": 2, "n_inner": 256,
         "vocab_size": 20, "n_positions": 64, "max_trained_positions": 32, "type_vocab_size": 2, "layer_norm_epsilon": 1e-12,
         "activation_function": "swiglu", "rotary_emb_base": 1000, "rotary_emb_fraction": 1.0, "rotary_emb_interleaved": False,
         "rotary_emb_scale_base": None, "rotary_scaling_factor": None, "qkv_proj_bias": False, "mlp_fc1_bias": False,
         "mlp_fc2_bias": False, "causal": False, "prenorm": False, "parallel_block": False, "parallel_block_tied_norm": False,
         "use_rms_norm": False, "pad_vocab_size_multiple": 4, "attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0,
         "scale_attn_weights": True, "scale_attn_by_inverse_layer_idx": False, "use_flash_attn": True, "fused_bias_fc": True,
         "auto_map": {"AutoConfig": "configuration_hf_nomic_bert.NomicBertConfig"}}
NESTED = {"full_attention": {"rope_type": "default", "rope_theta": 5000.0},
          "sliding_attention": {"rope_type": "default", "rope_theta": 50.0}}
# the fourth group: encoders that rotate, with gradients
TURNED = {
    "modernbert": (modernbert, {"architectures": ["ModernBertForMaskedLM"], **MODERN}),
    "modernbert_biased": (modernbert, {"architectures": ["ModernBertModel"], **MODERN, "norm_bias": True, "attention_bias": True,
                                       "hidden_activation": "gelu_pytorch_tanh", "classifier_activation": "gelu_pytorch_tanh",
                                       "layer_types": ["full_attention", "sliding_attention", "full_attention", "sliding_attention"],
                                       "rope_parameters": NESTED}),
    "nomic": (nomic, NOMIC),
    "nomic_biased": (nomic, {**NOMIC, "n_layer": 1, "n_inner": 200, "activation_function": "geglu", "rotary_emb_fraction": 0.5,
                             "qkv_proj_bias": True, "mlp_fc1_bias": True, "mlp_fc2_bias": True, "rotary_scaling_factor": 2.0,
                             "type_vocab_size": 1}),
}
for name in ("global_attn_every_n_layers", "global_rope_theta", "local_rope_theta"):
    TURNED["modernbert_biased"][1].pop(name)


def learn(w, logits, ids):
    """The loss, and its gradients by all weights."""
    loss = torch.nn.functional.cross_entropy(logits[:-1], ids[1:])
    loss.backward()
    return loss.detach().reshape(1), {name: pack("F32", x.grad) for name, x in w.all.items()}


# Adapters of rank 3 as PEFT has them: whose base, the modules, and what adapter_config.json has besides.
# logits of texts beyond those trained on, and `short`, of shorter ones
LONG = {
    "phi3_long": (of_today, a_model("phi3", "Phi3ForCausalLM", num_attention_heads=2, sliding_window=None, resid_pdrop=0.0, embd_pdrop=0.0,
                                    original_max_position_embeddings=16, rope_scaling={
                                        "type": "longrope", "short_factor": [1.0, 1.25, 1.5, 2.0],
                                        "long_factor": [1.0, 3.0, 7.5, 16.0]})),
    "phi3_part": (of_today, a_model("phi3", "Phi3ForCausalLM", num_attention_heads=2, sliding_window=None, resid_pdrop=0.0, embd_pdrop=0.0,
                                    original_max_position_embeddings=16, partial_rotary_factor=0.75, rope_scaling={
                                        "type": "longrope", "short_factor": [1.0, 1.25, 1.5], "long_factor": [1.0, 3.0, 7.5]})),
}


def both_ways(model, c, w, ids):
    """What a model with longrope computes as a long one, and with the same weights as a short one"""
    length, again = c["original_max_position_embeddings"], None
    for use in ("long_factor", "short_factor"):
        scaling = dict(c["rope_scaling"], use=use, length=length, stretch=c["max_position_embeddings"] / length)
        logits = model(dict(c, rope_scaling=scaling), again or w, ids)["logits"]
        first, again = (logits, lambda name, *shape, **_: w.all[name]) if again is None else (first, again)
    return {"logits": first, "short": logits}


PEFT = {
    "llama": (["q_proj", "v_proj", "o_proj", "down_proj"], {"use_rslora": True, "lora_alpha": 4}),
    "grouped": (["k_proj", "gate_proj"], {}),
    "gpt2": (["c_attn", "c_fc"], {"fan_in_fan_out": True}),
    "neox": (["query_key_value"], {}),
    "phi3": (["qkv_proj", "gate_up_proj"], {"rank_pattern": {}, "modules_to_save": None}),
}


class Adapted:
    """Weights of another model, W + alpha / rank B A for each that ends in one of the modules."""

    def __init__(self, w, modules, scale, turned, seed):
        self.w, self.modules, self.scale, self.turned = w, modules, scale, turned
        self.factors, self.all = {}, {}
        self.random = torch.Generator().manual_seed(seed)

    def __call__(self, name, *shape, **_):
        x = self.w.all[name].detach()
        module = name[:-len(".weight")]
        if not name.endswith(".weight") or module.split(".")[-1] not in self.modules:
            return x
        rows, columns = reversed(x.shape) if self.turned else x.shape
        a = (torch.randn(3, columns, generator=self.random) * 0.25).half().double()
        b = (torch.randn(rows, 3, generator=self.random) * 0.25).half().double()
        prefix = "base_model.model." + ("" if module.startswith(("model.", "gpt_neox.", "transformer.")) else "transformer.")
        self.factors[prefix + module + ".lora_A.weight"], self.factors[prefix + module + ".lora_B.weight"] = a, b
        more = self.scale * b @ a
        return x + (more.T if self.turned else more)


def adapters(folder, name, model, config, w, ids):
    modules, more = PEFT[name]
    settings = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "base_model_name_or_path": name, "r": 3, "lora_alpha": 6,
                "lora_dropout": 0.05, "bias": "none", "fan_in_fan_out": False, "inference_mode": True, "use_rslora": False,
                "init_lora_weights": True, "target_modules": modules, **more}
    scale = settings["lora_alpha"] / (3**0.5 if settings["use_rslora"] else 3)
    own = Adapted(w, modules, scale, settings["fan_in_fan_out"], 7)
    expected = model(config, own, ids)
    os.makedirs(folder, exist_ok=True)
    save(os.path.join(folder, "adapter_model.safetensors"), {n: pack("F16", t) for n, t in own.factors.items()})
    save(os.path.join(folder, "expected.safetensors"), {"ids": pack("I64", ids), "logits": pack("F64", expected["logits"].detach())})
    with open(os.path.join(folder, "adapter_config.json"), "w") as f:
        json.dump(settings, f, indent=1)
        f.write("\n")


def main():
    for number, (name, (model, config)) in enumerate([*MODELS.items(), *LEARNED.items(), *ENCODERS.items(), *TURNED.items(), *LONG.items()]):
        folder = os.path.join(sys.argv[1], name)
        os.makedirs(folder, exist_ok=True)
        w = Weights(number)
        ids = torch.randint(0, config["vocab_size"], (TOKENS,), generator=w.random)
        w.learn = name in LEARNED or name in TURNED
        expected = both_ways(model, config, w, ids) if name in LONG else model(config, w, ids)
        learned = expected.pop("learned", expected.get("logits"))
        if w.learn and learned is not None:
            expected["loss"], grads = learn(w, learned, ids)
            save(os.path.join(folder, "gradients.safetensors"), grads)
        save(os.path.join(folder, "model.safetensors"), {name: pack("F16", t) for name, t in w.all.items()})
        save(os.path.join(folder, "expected.safetensors"),
             {"ids": pack("I64", ids), **{name: pack("F64", t.detach()) for name, t in expected.items()}})
        with open(os.path.join(folder, "config.json"), "w") as f:
            json.dump(config, f, indent=1)
            f.write("\n")
        if name in PEFT:
            adapters(folder + "_peft", name, model, config, w, ids)


main()
