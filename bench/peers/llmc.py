#!/usr/bin/env python3
"""llmc.py PROGRAM LENGTH: times steps of llm.c's program train_gpt2 (the one for CPUs) for every line on standard input and prints the
seconds of one, as `build/bench --serve train/..` does.

PROGRAM finds its model and its tokens in files of fixed names; batch and LENGTH stand in its source. The model here has the width,
heads and layers of cmha.h's paper preset and 256 tokens; its hidden width is 4 times 512, as GPT-2's.
"""
import array, os, random, re, statistics, struct, subprocess, sys, tempfile

LAYERS, WIDTH, HEADS, VOCABULARY = 8, 512, 8, 256
STEPS = 3  # of a turn; the first finds its memory and does not count


def write_model(path, positions):
    """A header of 256 integers, then the weights: of all layers one after another, tensor by tensor."""
    rng = random.Random(1)
    block = array.array("f", (rng.gauss(0, 0.02) for _ in range(1 << 16)))
    vector, square = LAYERS * WIDTH, LAYERS * WIDTH * WIDTH
    sizes = [(VOCABULARY * WIDTH, None), (positions * WIDTH, None),  # embeddings
             (vector, 1), (vector, 0), (3 * square, None), (3 * vector, 0), (square, None), (vector, 0),  # norm, attention
             (vector, 1), (vector, 0), (4 * square, None), (4 * vector, 0), (4 * square, None), (vector, 0),  # norm, feed-forward
             (WIDTH, 1), (WIDTH, 0)]  # norm
    with open(path, "wb") as f:
        header = [20240326, 3, positions, VOCABULARY, LAYERS, HEADS, WIDTH, VOCABULARY]
        f.write(struct.pack("256i", *header, *[0] * (256 - len(header))))
        for size, constant in sizes:
            part = block if constant is None else array.array("f", [float(constant)]) * len(block)
            for at in range(0, size, len(block)):
                part[: min(len(block), size - at)].tofile(f)


def write_tokens(path, n):
    rng = random.Random(2)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as f:
        f.write(struct.pack("256i", 20240520, 1, n, *[0] * 253))
        array.array("H", (rng.randrange(VOCABULARY) for _ in range(n))).tofile(f)


def turn(program, folder):
    """Seconds of a step: PROGRAM runs until it has done STEPS and is then ended."""
    process = subprocess.Popen(["stdbuf", "-oL", program], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    times, said = [], ""
    for line in process.stdout:
        said = line
        found = re.match(r"step \d+: train loss .*took ([\d.]+) ms", line)
        if found:
            times.append(float(found[1]) / 1e3)
        if len(times) == STEPS:
            break
    process.kill(), process.wait()
    if len(times) < STEPS:
        sys.exit(f"llmc: {program} stopped early, saying: {said.strip()}")
    return statistics.median(times[1:])


def main():
    if len(sys.argv) != 3 or not sys.argv[2].isdecimal() or int(sys.argv[2]) < 1:
        sys.exit(__doc__)
    if not os.access(sys.argv[1], os.X_OK):
        sys.exit(f"llmc: {sys.argv[1]} is no program")
    with tempfile.TemporaryDirectory() as folder:
        write_model(os.path.join(folder, "gpt2_124M.bin"), int(sys.argv[2]))
        for part in "train", "val":
            write_tokens(os.path.join(folder, "dev/data/tinyshakespeare", f"tiny_shakespeare_{part}.bin"), 1 << 16)
        print("ready: seconds a step", flush=True)
        for _ in sys.stdin:
            print(turn(os.path.abspath(sys.argv[1]), folder), flush=True)


main()
