#!/usr/bin/env python3
"""llamacpp.py model GGUF OUT TYPE: writes a model of the size of cmha.h's paper preset for llama.cpp, weights of TYPE, F32 or Q8_0.
llamacpp.py serve LLAMA_BENCH MODEL WORK OPTION...: times llama.cpp's program llama-bench for every line on standard input and
prints the seconds of one piece of WORK and the program's peak MiB, as `build/bench --serve WORK` does. WORK: prefill/N, a prompt of
N tokens, or decode/N, one token that sees N others (or, where llama-bench has no option -d, one of 2 N, which see N on average).
OPTIONs go to llama-bench, such as -fa 1. OMP_NUM_THREADS is the number of threads.

GGUF is the folder of llama.cpp's Python package, gguf-py. The model has the matrices of the paper preset with RoPE, which llama.cpp
knows as starcoder2: 8 layers, d 512, 8 heads, two feed-forward matrices of 1,024, layer norms, 256 tokens. Its weights are random.
"""
import json, os, subprocess, sys, types

LAYERS, WIDTH, HEADS, HIDDEN, VOCABULARY = 8, 512, 8, 1024, 256
DECODED = 32  # tokens of a turn where llama-bench starts from a depth


def write_model(package, path, kind):
    sys.path.insert(0, package)
    try:
        import sentencepiece
    except ImportError:  # the package wants it for tokenizers alone
        sys.modules["sentencepiece"] = types.SimpleNamespace(SentencePieceProcessor=None)
    import gguf, numpy

    rng = numpy.random.default_rng(1)
    kinds = {"F32": gguf.LlamaFileType.ALL_F32, "Q8_0": gguf.LlamaFileType.MOSTLY_Q8_0}
    if kind not in kinds:
        sys.exit(__doc__)
    writer = gguf.GGUFWriter(path, "starcoder2")
    writer.add_tokenizer_model("no_vocab")
    writer.add_vocab_size(VOCABULARY)
    writer.add_context_length(1 << 16)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(HIDDEN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_eps(1e-5)
    writer.add_file_type(kinds[kind])

    def matrix(name, rows, columns):
        x = rng.normal(0, 0.02, (rows, columns)).astype(numpy.float32)
        to = gguf.GGMLQuantizationType[kind]
        writer.add_tensor(name + ".weight", gguf.quants.quantize(x, to), raw_dtype=to)

    def vectors(name, size, *parts):
        for part in parts:
            value = 1.0 if part == "weight" else 0.0
            writer.add_tensor(f"{name}.{part}", numpy.full(size, value, numpy.float32))

    matrix("token_embd", VOCABULARY, WIDTH)
    for i in range(LAYERS):
        vectors(f"blk.{i}.attn_norm", WIDTH, "weight", "bias")
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            matrix(f"blk.{i}.{name}", WIDTH, WIDTH)
            vectors(f"blk.{i}.{name}", WIDTH, "bias")
        vectors(f"blk.{i}.ffn_norm", WIDTH, "weight", "bias")
        matrix(f"blk.{i}.ffn_up", HIDDEN, WIDTH)
        vectors(f"blk.{i}.ffn_up", HIDDEN, "bias")
        matrix(f"blk.{i}.ffn_down", WIDTH, HIDDEN)
        vectors(f"blk.{i}.ffn_down", WIDTH, "bias")
    vectors("output_norm", WIDTH, "weight", "bias")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def turn(command, work, tokens):
    """Seconds of a token or of a prompt, and peak MiB of the process."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    said, complained = process.communicate()
    try:
        result = json.loads(said)[0]
        seconds = result["avg_ns"] * 1e-9
    except (ValueError, IndexError, KeyError):
        sys.exit(f"llamacpp: {command[0]} gave no time, saying: {(complained or said).decode(errors='replace').strip()[-400:]}")
    return seconds if work == "prefill" else seconds / tokens


def serve(program, model, work, options):
    work, _, length = work.partition("/")
    if work not in ("prefill", "decode") or not length.isdigit() or not os.access(program, os.X_OK):
        sys.exit(__doc__)
    n = int(length)
    usage = subprocess.run([program, "--help"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT).stdout
    deep = b"--n-depth" in usage
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    command = [program, "-m", model, "-t", os.environ.get("OMP_NUM_THREADS", str(cores)), "-r", "1", "-o", "json", *options]
    if work == "prefill":  # one batch, as cmha.h reads a prompt
        tokens, command = n, command + ["-p", length, "-n", "0", "-b", length, "-ub", "512"]
    elif deep:
        tokens, command = DECODED, command + ["-p", "0", "-n", str(DECODED), "-d", length]
    else:
        tokens, command = 2 * n, command + ["-p", "0", "-n", str(2 * n)]
    print("ready: seconds " + ("a prompt" if work == "prefill" else "a token"), flush=True)
    for _ in sys.stdin:
        seconds = turn(command, work, tokens)
        print(f"{seconds:.9f}" + peak(), flush=True)


def peak():
    """Largest resident MiB of the programs so far, as more to print."""
    try:
        import resource
        return f" {resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / (1 << 20 if sys.platform == 'darwin' else 1024):.1f}"
    except ImportError:
        return ""


def main():
    if len(sys.argv) == 5 and sys.argv[1] == "model":
        write_model(*sys.argv[2:])
    elif len(sys.argv) > 4 and sys.argv[1] == "serve":
        serve(sys.argv[2], sys.argv[3], sys.argv[4], sys.argv[5:])
    else:
        sys.exit(__doc__)


main()
