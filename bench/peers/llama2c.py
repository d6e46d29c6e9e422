#!/usr/bin/env python3
"""llama2c.py RUN CONTEXT: times llama2.c's program RUN for every line on standard input and prints seconds a token, as
`build/bench --serve decode/CONTEXT/rope` does. RUN writes 2 CONTEXT tokens from nothing: on average a token sees CONTEXT others.

The model has the size of cmha.h's paper preset: 8 layers, d 512, 8 heads, 256 tokens; its feed-forward layer has three matrices,
hence a hidden width of 688 for 1,024. Its weights are random, those of token 1 are zero: the program ends a text there, and a
logit of 0 is never the largest.
"""
import array, os, random, struct, subprocess, sys, tempfile

LAYERS, WIDTH, HEADS, HIDDEN, VOCABULARY = 8, 512, 8, 688, 256


def write_model(path, positions):
    """Seven integers, then the weights, at the end two tables of angles that the program skips."""
    rng = random.Random(1)
    block = array.array("f", (rng.gauss(0, 0.02) for _ in range(1 << 16)))

    def normal(f, n):
        for at in range(0, n, len(block)):
            block[: min(len(block), n - at)].tofile(f)

    with open(path, "wb") as f:
        f.write(struct.pack("7i", WIDTH, HIDDEN, LAYERS, HEADS, HEADS, VOCABULARY, positions))
        normal(f, WIDTH)
        array.array("f", [0.0] * WIDTH).tofile(f)
        normal(f, (VOCABULARY - 2) * WIDTH)
        ones = array.array("f", [1.0] * (LAYERS * WIDTH))
        ones.tofile(f)
        for matrices in (4 * [WIDTH * WIDTH], None, 3 * [WIDTH * HIDDEN]):
            if matrices is None:
                ones.tofile(f)
            else:
                for size in matrices:
                    normal(f, LAYERS * size)
        ones[:WIDTH].tofile(f)
        array.array("f", [0.0] * (positions * WIDTH // HEADS)).tofile(f)


def write_tokens(path):
    with open(path, "wb") as f:
        f.write(struct.pack("i", 1))
        for i in range(VOCABULARY):
            f.write(struct.pack("fi", 0.0, 1) + bytes([32 + i % 95]))


def main():
    if len(sys.argv) != 3 or not os.access(sys.argv[1], os.X_OK) or not sys.argv[2].isdecimal() or int(sys.argv[2]) < 1:
        sys.exit(__doc__)
    n = 2 * int(sys.argv[2])
    with tempfile.TemporaryDirectory() as folder:
        model, tokens = os.path.join(folder, "model.bin"), os.path.join(folder, "tokens.bin")
        write_model(model, n), write_tokens(tokens)
        command = [os.path.abspath(sys.argv[1]), model, "-z", tokens, "-n", str(n), "-t", "0"]
        print("ready: seconds a token", flush=True)
        for _ in sys.stdin:
            result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            if len(result.stdout) < n or b"tok/s:" not in result.stderr:
                sys.exit(f"llama2c: {sys.argv[1]} wrote {len(result.stdout)} of {n} tokens")
            print(1 / float(result.stderr.split(b"tok/s:")[1]), flush=True)


main()
