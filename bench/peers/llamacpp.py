#!/usr/bin/env python3
"""llamacpp.py model GGUF OUT TYPE: writes a model of the size of cmha.h's paper preset for llama.cpp, weights of TYPE, F32 or Q8_0.
llamacpp.py quantise FOLDER IN OUT TYPE: has llama.cpp write the GGUF file IN with all matrices as Q8_0, Q4_0 or Q4_K.
llamacpp.py serve LLAMA MODEL WORK OPTION...: times llama.cpp for every line on standard input and prints the seconds of one piece of
WORK and its peak MiB, as `build/bench --serve WORK` does. LLAMA is its program llama-bench, or a FOLDER of its libraries, as in
@node-llama-cpp/linux-x64 of npm (bins/linux-x64). WORK: prefill/N, a prompt of N tokens, decode/N, one token that sees N others
(or, where llama-bench has no option -d, one of 2 N, which see N on average), or, of a FOLDER, train/N, a step of AdamW on N tokens.
OPTIONs are llama-bench's, such as -fa 1; a FOLDER knows -fa 0 or 1, -ctk and -ctv f32, f16, bf16 or q8_0. OMP_NUM_THREADS is the
number of threads.

GGUF is the folder of llama.cpp's Python package, gguf-py. The model has the matrices of the paper preset with RoPE, which llama.cpp
knows as starcoder2: 8 layers, d 512, 8 heads, two feed-forward matrices of 1,024, layer norms, 256 tokens. Its weights are random.
"""
import ctypes, glob, json, os, subprocess, sys, time, types

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


class Parameters(ctypes.Structure):
    """Parameters that the library has filled in, whatever their number: more than 1,024 bytes they never are."""
    _fields_ = [("words", ctypes.c_int32 * 256)]

    def find(self, *values):
        """Where these words stand one after another."""
        for i in range(64):
            if tuple(self.words[i : i + len(values)]) == values:
                return i
        sys.exit(f"llamacpp: this llama.cpp has other parameters: nowhere {values}")


class Batch(ctypes.Structure):
    _fields_ = [("count", ctypes.c_int32)] + [(name, ctypes.c_void_p) for name in "token embd pos n_seq_id seq_id logits".split()]


class Training(ctypes.Structure):
    """llama_opt_params."""
    _fields_ = [("count", ctypes.c_uint32), ("which", ctypes.c_void_p), ("which_data", ctypes.c_void_p),
                ("rates", ctypes.c_void_p), ("rates_data", ctypes.c_void_p), ("optimiser", ctypes.c_int32)]


class Libraries:
    """llama.cpp's functions in a folder of its libraries, with the CPU backend that fits this machine."""

    def __init__(self, folder):
        self.all = []
        for name in ("libggml-base*.so", "libggml.*so", "libllama.*so"):
            found = sorted(glob.glob(os.path.join(folder, name)))
            if not found:
                sys.exit(f"llamacpp: no {name} in {folder}")
            self.all.append(ctypes.CDLL(found[0], ctypes.RTLD_GLOBAL))
        quiet = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)
        self.log = quiet(lambda level, text, data: level == 4 and sys.stderr.write(text.decode(errors="replace")) and None)
        self.call("llama_log_set", None, self.log, None)
        self.call("ggml_backend_load_all_from_path", None, os.fsencode(folder))
        self.call("llama_backend_init", None)

    def function(self, name):
        for library in self.all:
            if hasattr(library, name):
                return getattr(library, name)
        sys.exit(f"llamacpp: this llama.cpp has no {name}")

    def call(self, name, result, *arguments):
        function = self.function(name)
        function.restype = result
        return function(*arguments)

    def pointer(self, name, *arguments):
        at = self.call(name, ctypes.c_void_p, *arguments)
        if not at:
            sys.exit(f"llamacpp: {name} fails")
        return ctypes.c_void_p(at)

    def threads(self, count):
        """A pool of threads that lasts: without one, threads begin and end for every token."""
        device = self.pointer("ggml_backend_dev_by_type", 0)
        registry = self.pointer("ggml_backend_dev_backend_reg", device)
        new = self.pointer("ggml_backend_reg_get_proc_address", registry, b"ggml_threadpool_new")
        parameters = self.call("ggml_threadpool_params_default", Parameters, count)
        return ctypes.c_void_p(ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(new.value)(ctypes.addressof(parameters)))


def quantise(folder, path, to, kind):
    kinds = {"Q8_0": 7, "Q4_0": 2, "Q4_K": 14}
    if kind not in kinds:
        sys.exit(__doc__)
    llama = Libraries(folder)
    parameters = llama.call("llama_model_quantize_default_params", Parameters)
    parameters.words[1] = kinds[kind]
    parameters.words[parameters.find(256)] |= 1 << 24  # pure: every matrix, also embeddings
    if llama.call("llama_model_quantize", ctypes.c_uint32, os.fsencode(path), os.fsencode(to), ctypes.byref(parameters)):
        sys.exit(f"llamacpp: it does not write {path} as {kind}")


class Model:
    """A model of a GGUF file and a context, in this process."""

    def __init__(self, folder, path, work, n, options, threads):
        types = {"f32": 0, "f16": 1, "bf16": 30, "q8_0": 8}
        self.memory = own_peak()
        self.llama, self.work, self.n = Libraries(folder), work, n
        p = self.llama.call("llama_model_default_params", Parameters)
        if work == "train":
            p.words[p.find(-1, 1, -1, 1) + 2] = 0  # not mapped: a mapped file cannot learn
        model = self.llama.pointer("llama_model_load_from_file", os.fsencode(path), p)
        p = self.llama.call("llama_context_default_params", Parameters)
        caches, switch = p.find(1, 1, 0, 0), {"0": 0, "1": 1}
        fields = {"-fa": (p.find(-1, 0, 0), switch), "-ctk": (caches, types), "-ctv": (caches + 1, types)}
        at = p.find(4, 4)
        p.words[at] = p.words[at + 1] = threads
        p.words[0] = n + DECODED + 32  # positions
        p.words[1] = max(n, 32)  # one batch, as cmha.h reads a prompt
        if work == "train":
            p.words[0] = p.words[1] = p.words[2] = n
        for name, value in zip(options[::2], options[1::2]):
            if name not in fields or value not in fields[name][1]:
                sys.exit(f"llamacpp: no option {name} {value} of a folder of libraries")
            p.words[fields[name][0]] = fields[name][1][value]
        self.context = self.llama.pointer("llama_init_from_model", model, p)
        pool = self.llama.threads(threads)
        self.llama.call("llama_attach_threadpool", None, self.context, pool, pool)
        if work == "train":
            self.prepare(model, n)
            return
        self.kept = self.llama.pointer("llama_get_memory", self.context)
        self.tokens = (ctypes.c_int32 * n)(*(i * 7 % VOCABULARY for i in range(n)))
        self.read(self.tokens, n)
        self.turn()

    def prepare(self, model, n):
        callbacks = ("llama_opt_param_filter_all", "ggml_opt_get_default_optimizer_params")
        which, rates = (ctypes.cast(self.llama.function(name), ctypes.c_void_p) for name in callbacks)
        training = Training(0, which, None, rates, None, 0)
        self.llama.call("llama_opt_init", None, self.context, model, training)
        self.text = self.llama.pointer("ggml_opt_dataset_init", 26, 26, *map(ctypes.c_int64, (n, n, 1, 1)))  # of int32
        for later, part in enumerate(("data", "labels")):
            tensor = self.llama.pointer("ggml_opt_dataset_" + part, self.text)
            tokens = (ctypes.c_int32 * n)(*((i + later) * 7 % VOCABULARY for i in range(n)))
            ctypes.memmove(self.llama.pointer("ggml_get_data", tensor), tokens, 4 * n)
        self.result = self.llama.pointer("ggml_opt_result_init")
        self.turn()

    def read(self, tokens, n):
        batch = self.llama.call("llama_batch_get_one", Batch, tokens, n)
        if self.llama.call("llama_decode", ctypes.c_int32, self.context, batch):
            sys.exit("llamacpp: llama_decode fails")
        self.llama.call("llama_synchronize", None, self.context)

    def turn(self):
        if self.work == "train":
            begin = time.perf_counter()
            self.llama.call("llama_opt_epoch", None, self.context, self.text, self.result, None, ctypes.c_int64(1), None, None)
            return time.perf_counter() - begin
        first = 0 if self.work == "prefill" else self.n
        if not self.llama.call("llama_memory_seq_rm", ctypes.c_bool, self.kept, 0, first, -1):
            sys.exit("llamacpp: llama_memory_seq_rm fails")
        begin = time.perf_counter()
        if self.work == "prefill":
            self.read(self.tokens, self.n)
            return time.perf_counter() - begin
        for _ in range(DECODED):
            self.read(self.tokens, 1)
        return (time.perf_counter() - begin) / DECODED

    def peak(self):
        """Peak MiB without what Python had before."""
        return f" {own_peak() - self.memory:.1f}" if self.memory else ""


def own_peak():
    try:
        import resource
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20 if sys.platform == "darwin" else 1024)
    except ImportError:
        return 0


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


def cores():
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


def serve(program, model, work, options):
    work, _, length = work.partition("/")
    if work not in ("prefill", "decode", "train") or not length.isdigit() or not os.access(program, os.X_OK):
        sys.exit(__doc__)
    n = int(length)
    if os.path.isdir(program):
        threads = int(os.environ.get("OMP_NUM_THREADS", cores()))
        served = Model(program, model, work, n, options, threads)
        print("ready: seconds " + {"prefill": "a prompt", "decode": "a token", "train": "a step"}[work], flush=True)
        for _ in sys.stdin:
            print(f"{served.turn():.9f}" + served.peak(), flush=True)
        return
    if work == "train":
        sys.exit("llamacpp: only a folder of libraries trains")
    usage = subprocess.run([program, "--help"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT).stdout
    deep = b"--n-depth" in usage
    command = [program, "-m", model, "-t", os.environ.get("OMP_NUM_THREADS", str(cores())), "-r", "1", "-o", "json", *options]
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
    elif len(sys.argv) == 6 and sys.argv[1] == "quantise":
        quantise(*sys.argv[2:])
    elif len(sys.argv) > 4 and sys.argv[1] == "serve":
        serve(sys.argv[2], sys.argv[3], sys.argv[4], sys.argv[5:])
    else:
        sys.exit(__doc__)


main()
