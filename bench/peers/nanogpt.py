#!/usr/bin/env python3
"""nanogpt.py TEXT [THREADS [STEPS [SEED]]]: trains the model that nanoGPT's README trains on a CPU, on the characters of TEXT, in
PyTorch: 4 layers of 128, 4 heads, 64 characters of context, 12 sequences a step, AdamW, 2,000 steps. Prints lines
"step,seconds,val_loss"; the seconds are of training alone, val_loss is in nats a character, of up to 65,536 characters of the
last tenth in consecutive windows, as train_tiny measures it."""
import math
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

LAYERS, WIDTH, HEADS, CONTEXT, BATCH = 4, 128, 4, 64, 12
RATE, LOWEST, WARMUP, DECAY, EVERY, EVALUATED = 1e-3, 1e-4, 100, 0.1, 50, 65536


class Norm(nn.Module):
    """A layer norm without offset."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x):
        return F.layer_norm(x, (WIDTH,), self.weight, None, 1e-5)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln1, self.ln2 = Norm(), Norm()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH, bias=False), nn.Linear(4 * WIDTH, WIDTH, bias=False)
        self.register_buffer("later", torch.ones(CONTEXT, CONTEXT, dtype=torch.bool).triu(1))

    def forward(self, x):
        B, N, _ = x.shape
        q, k, v = (t.view(B, N, HEADS, -1).transpose(1, 2) for t in self.qkv(self.ln1(x)).split(WIDTH, -1))
        scores = (q @ k.transpose(-1, -2)) / math.sqrt(WIDTH // HEADS)
        weights = scores.masked_fill(self.later[:N, :N], float("-inf")).softmax(-1)
        x = x + self.out((weights @ v).transpose(1, 2).reshape(B, N, WIDTH))
        return x + self.down(F.gelu(self.up(self.ln2(x))))


class Model(nn.Module):
    def __init__(self, vocabulary):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks, self.norm = nn.ModuleList(Block() for _ in range(LAYERS)), Norm()
        for name, p in self.named_parameters():
            if p.dim() >= 2:
                into = name.endswith(("out.weight", "down.weight"))
                nn.init.normal_(p, std=0.02 / math.sqrt(2 * LAYERS) if into else 0.02)

    def loss(self, ids, targets):
        x = self.tokens(ids) + self.positions.weight[:ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits = self.norm(x) @ self.tokens.weight.T
        return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1))


def rate(step, steps):
    if step < WARMUP:
        return RATE * (step + 1) / (WARMUP + 1)
    return LOWEST + 0.5 * (1 + math.cos(math.pi * (step - WARMUP) / (steps - WARMUP))) * (RATE - LOWEST)


def main():
    numbers = sys.argv[2:] + ["2", "2000", "1"][len(sys.argv) - 2:]
    if len(sys.argv) < 2 or len(numbers) != 3 or not all(n.isdecimal() and int(n) > 0 for n in numbers):
        sys.exit(__doc__)
    threads, steps, seed = map(int, numbers)
    torch.set_num_threads(threads)
    torch.manual_seed(seed)
    try:
        text = open(sys.argv[1], encoding="utf-8", newline="").read()
    except (OSError, UnicodeDecodeError) as error:
        sys.exit(f"nanogpt: {sys.argv[1]}: {error}")
    if len(text) // 10 <= CONTEXT:
        sys.exit(f"nanogpt: {sys.argv[1]}: a tenth of the text must be longer than {CONTEXT} characters")
    known = {c: i for i, c in enumerate(sorted(set(text)))}
    ids = torch.tensor([known[c] for c in text])
    cut = int(0.9 * len(ids))
    train, held = ids[:cut], ids[cut:]
    model = Model(len(known))
    decayed = [p for p in model.parameters() if p.dim() >= 2]
    others = [p for p in model.parameters() if p.dim() < 2]
    adam = torch.optim.AdamW([{"params": decayed, "weight_decay": DECAY}, {"params": others, "weight_decay": 0.0}],
                             lr=RATE, betas=(0.9, 0.99))
    windows = min(len(held) - 1, EVALUATED) // CONTEXT
    asked = held[:windows * CONTEXT].view(windows, CONTEXT)
    answers = held[1:windows * CONTEXT + 1].view(windows, CONTEXT)
    spent = 0.0
    print("step,seconds,val_loss")
    for step in range(steps):
        start = time.perf_counter()
        for group in adam.param_groups:
            group["lr"] = rate(step, steps)
        first = torch.randint(len(train) - CONTEXT, (BATCH, 1)) + torch.arange(CONTEXT)
        loss = model.loss(train[first], train[first + 1])
        adam.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adam.step()
        spent += time.perf_counter() - start
        if (step + 1) % EVERY and step + 1 < steps:
            continue
        with torch.no_grad():
            parts = [model.loss(asked[i:i + 64], answers[i:i + 64]) * len(asked[i:i + 64])
                     for i in range(0, windows, 64)]
        print("%d,%.2f,%.5f" % (step + 1, spent, float(sum(parts)) / windows), flush=True)


main()
