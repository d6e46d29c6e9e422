#!/usr/bin/env python3
"""make_models.py FOLDER: small models with random weights as Hugging Face's folders (config.json, model.safetensors), each with
expected.safetensors: ids [tokens] and what PyTorch computes from them in double precision, logits [tokens, vocabulary] or, of an
encoder without that head, states; classes of those that have a class head. The models are written here after their published
definitions (GPT-2's, Llama's, BERT's papers; the rules of Llama 3.1 and YaRN for longer texts), not with a library of models.

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
        self.random, self.all = torch.Generator().manual_seed(seed), {}

    def __call__(self, name, *shape, mean=0.0, spread=0.25):
        x = torch.randn(*shape, generator=self.random) * spread + mean
        self.all[name] = x.half().double()
        return self.all[name]


def layer_norm(x, w, name, d, eps):
    x = x - x.mean(-1, keepdim=True)
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + eps) * w(name + ".weight", d, mean=1.0) + w(name + ".bias", d)


def rms_norm(x, w, name, d, eps):
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + eps) * w(name + ".weight", d, mean=1.0)


def linear(x, w, name, out, bias):
    y = x @ w(name + ".weight", out, x.shape[-1]).T
    return y + w(name + ".bias", out) if bias else y


def attend(q, k, v, heads, causal, scale, window=None):
    """q [n, heads * d], k and v [n, kv * d]: softmax(q k^T scale) v, each key head for heads / kv query heads"""
    n = q.shape[0]
    d = q.shape[1] // heads
    split = lambda x: x.view(n, -1, d).transpose(0, 1)
    q, k, v = split(q), split(k), split(v)
    k, v = (x.repeat_interleave(heads // x.shape[0], 0) for x in (k, v))
    score = q @ k.transpose(1, 2) * scale
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


def main():
    for number, (name, (model, config)) in enumerate(MODELS.items()):
        folder = os.path.join(sys.argv[1], name)
        os.makedirs(folder, exist_ok=True)
        w = Weights(number)
        ids = torch.randint(0, config["vocab_size"], (TOKENS,), generator=w.random)
        expected = model(config, w, ids)
        save(os.path.join(folder, "model.safetensors"), {name: pack("F16", t) for name, t in w.all.items()})
        save(os.path.join(folder, "expected.safetensors"),
             {"ids": pack("I64", ids), **{name: pack("F64", t) for name, t in expected.items()}})
        with open(os.path.join(folder, "config.json"), "w") as f:
            json.dump(config, f, indent=1)
            f.write("\n")


main()
