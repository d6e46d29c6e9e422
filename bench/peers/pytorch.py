#!/usr/bin/env python3
"""pytorch.py WORK: does one piece of WORK in PyTorch for every line on standard input and prints its seconds, as
`build/bench --serve` does.

WORK  attention/N       causal attention, 8 heads of 64, one sequence of N tokens, forward and backward
      train/PRESET/KIND[/BATCH]   a step (forward, backward, clipping, AdamW) of the model that cmha.h calls tiny or paper;
                        KIND plain: dot products without positions; cmha: ComplexFormer's scores as products of features;
                        literal: the same scores as its eq 8 writes them, a cosine for every query, key and pair, 8 queries at
                        a time
"""
import os, sys, time

import torch
import torch.nn.functional as F
from torch import nn

TURN = 0.1  # seconds: what is shorter runs once for nothing and then as often as fill them, as in build/bench
KINDS = ("plain", "cmha", "literal")
PRESETS = {  # layers, width, heads, hidden, dropout, batch, length
    "tiny": (4, 128, 4, 512, 0.0, 16, 128),
    "paper": (8, 512, 8, 1024, 0.1, 8, 512),
}


def attend(q, k, v, p):
    """Causal attention of [B, H, n, d]."""
    fused = getattr(F, "scaled_dot_product_attention", None)
    if fused:
        return fused(q, k, v, dropout_p=p, is_causal=True)
    older = getattr(F, "_scaled_dot_product_attention", None)
    if older:
        return older(q, k, v, None, p, False, True)[0]
    n = q.shape[-2]
    later = torch.ones(n, n, dtype=torch.bool).triu(1)
    weights = (q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5).masked_fill(later, float("-inf")).softmax(-1)
    return F.dropout(weights, p) @ v


class Attention(nn.Module):
    GROUP = 8

    def __init__(self, width, heads, kind, p):
        super().__init__()
        self.heads, self.kind, self.p, self.pairs = heads, kind, p, width // heads // 2
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        if kind != "plain":
            self.delta = nn.Parameter(0.02 * torch.randn(heads, 1, self.pairs))
            self.b = nn.Parameter(torch.zeros(heads, 1, self.pairs))
            self.register_buffer("omega", 10000.0 ** (-torch.arange(self.pairs) / self.pairs))

    def turned(self, x, b):
        """Moduli, and phases after delta, b and position."""
        re, im = x[..., 0::2], x[..., 1::2]
        angle = self.delta * torch.atan2(im, re) + b + torch.arange(x.shape[-2])[:, None] * self.omega
        return torch.sqrt(re * re + im * im + 1e-12), angle

    def features(self, x, b):
        size, angle = self.turned(x, b)
        return torch.cat([size * angle.cos(), size * angle.sin()], -1)

    def literal(self, q, k, v):
        """A group of queries at a time, whose cosines with all keys exist at once."""
        n, rows = q.shape[-2], []
        (size_q, angle_q), (size_k, angle_k) = self.turned(q, self.b), self.turned(k, 0)
        position = torch.arange(n)
        for at in range(0, n, self.GROUP):
            part = slice(at, at + self.GROUP)
            cosine = (angle_q[:, :, part, None] - angle_k[:, :, None]).cos()
            score = (size_q[:, :, part, None] * size_k[:, :, None] * cosine).sum(-1) / q.shape[-1] ** 0.5
            score = score.masked_fill(position > position[part, None], float("-inf"))
            rows.append(F.dropout(score.softmax(-1), self.p) @ v)
        return torch.cat(rows, -2)

    def forward(self, x):
        B, n, width = x.shape
        q, k, v = (t.view(B, n, self.heads, -1).transpose(1, 2) for t in self.qkv(x).split(width, -1))
        if self.kind == "literal":
            y = self.literal(q, k, v)
        elif self.kind == "cmha":
            y = attend(self.features(q, self.b), self.features(k, 0), v, self.p)
        else:
            y = attend(q, k, v, self.p)
        return self.out(y.transpose(1, 2).reshape(B, n, width))


class Block(nn.Module):
    def __init__(self, width, heads, hidden, kind, p):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads, kind, p)
        self.ffn = nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width))
        self.dropout = nn.Dropout(p)

    def forward(self, x):
        x = x + self.dropout(self.attention(self.norm1(x)))
        return x + self.dropout(self.ffn(self.norm2(x)))


class Model(nn.Module):
    def __init__(self, preset, kind):
        super().__init__()
        layers, width, heads, hidden, p, self.batch, self.length = PRESETS[preset]
        self.embedding, self.dropout = nn.Embedding(256, width), nn.Dropout(p)
        self.blocks = nn.ModuleList(Block(width, heads, hidden, kind, p) for _ in range(layers))
        self.norm = nn.LayerNorm(width)

    def forward(self, ids):
        x = self.dropout(self.embedding(ids))
        for block in self.blocks:
            x = block(x)
        return self.norm(x) @ self.embedding.weight.T


def training(preset, kind, batch=None):
    model = Model(preset, kind)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9)
    batch = int(batch) if batch else model.batch

    def step():
        ids = torch.randint(256, (batch, model.length + 1))
        loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()

    return step


def attention(n):
    q, k, v, dy = (torch.randn(1, 8, int(n), 64) for _ in range(4))
    for t in (q, k, v):
        t.requires_grad_()

    def pass_():
        for t in (q, k, v):
            t.grad = None
        attend(q, k, v, 0.0).backward(dy)

    return pass_


def is_number(word):
    return word.isdecimal() and int(word) > 0


def is_known(work, rest):
    if work == "attention":
        return len(rest) == 1 and is_number(rest[0])
    return work == "train" and len(rest) in (2, 3) and rest[0] in PRESETS and rest[1] in KINDS and all(map(is_number, rest[2:]))


def main():
    work, *rest = sys.argv[1].split("/") if len(sys.argv) == 2 else [""]
    if not is_known(work, rest):
        sys.exit(__doc__)
    # by itself it takes one a core that it knows the processor to have, and it does not know every processor
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", 0)) or len(os.sched_getaffinity(0)))
    torch.manual_seed(1)
    run = {"train": training, "attention": attention}[work](*rest)
    run()
    print(f"ready: PyTorch {torch.__version__}, {torch.get_num_threads()} threads", flush=True)
    for _ in sys.stdin:
        begin, calls = time.perf_counter(), 1
        run()
        if time.perf_counter() - begin < TURN:
            begin, calls = time.perf_counter(), 0
            while calls == 0 or time.perf_counter() - begin < TURN:
                run()
                calls += 1
        print(f"{(time.perf_counter() - begin) / calls:.9f}", flush=True)


main()
