"""Writes the fuzzers' valid files into tests/fuzz/corpus: python3 tests/fuzz/make_seeds.py. Every kind of tokenizer and every
step, in tokenizer.json and in GGUF; config.json of every form; a small model as GGUF; adapters; recordings; and small hostile files of known kinds."""
import json, os, struct

CORPUS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "corpus")
BLANK = "\u2581"


def write(kind, name, data):
    os.makedirs(os.path.join(CORPUS, kind), exist_ok=True)
    with open(os.path.join(CORPUS, kind, name), "wb") as file:
        file.write(data if isinstance(data, bytes) else json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode())


# ---- tokenizer.json ----

def step(kind, **fields):
    return {"type": kind, **fields}


def replace(old, new):
    return step("Replace", pattern={"String": old}, content=new)


def sequence(name, *steps):
    return {"type": "Sequence", name: list(steps)}


def added(number, content, **flags):
    return {"id": number, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
            "special": True, **flags}


def ids(*tokens):
    return {token: i for i, token in enumerate(tokens)}


FALLBACK = ["<0x%02X>" % i for i in range(256)]
BPE = step("BPE", vocab=ids("a", "b", " ", "ab", "abab", "c", "x"), merges=["a b", "ab ab"])
BYTES = step("BPE", vocab=ids("a", "b", "\u0120", "e", "\u0120a", "ab", "\u0120ab"), merges=["a b", ["\u0120", "ab"], "\u0120 a"])
WORDS = step("WordPiece", unk_token="[UNK]", continuing_subword_prefix="##", max_input_chars_per_word=10,
             vocab=ids("[UNK]", "[CLS]", "[SEP]", "a", "##a", "ab", "##b", ".", "e"))
UNIGRAM = step("Unigram", unk_id=0, byte_fallback=False,
               vocab=[["<unk>", 0], ["</s>", 0], [BLANK, -2], [BLANK + "a", -3], ["a", -3.5], ["b", -4], ["ab", -5.25]])
LLAMA = step("BPE", unk_token="<unk>", fuse_unk=True, byte_fallback=True,
             vocab=ids("<unk>", "<s>", "</s>", *FALLBACK[:32], BLANK, "a", "b", BLANK + "a", "ab"), merges=[BLANK + " a", "a b"])


def tokenizer(model, normalizer=None, pre=None, post=None, decoder=None, tokens=()):
    return {"version": "1.0", "added_tokens": list(tokens), "normalizer": normalizer, "pre_tokenizer": pre, "post_processor": post,
            "decoder": decoder, "model": model}


TEMPLATE = step("TemplateProcessing",
                single=[{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
                pair=[{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
                special_tokens={"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}})
with open("tests/tokenizer_cases.json", encoding="utf-8") as cases:
    CHARSMAP = json.load(cases)["lists"]["FORM_CHARSMAP"]
META = step("Metaspace", replacement=BLANK, prepend_scheme="always", split=True)
TOKENIZERS = {
    "regex": tokenizer(BPE, None, step("Split", pattern={"Regex": "(?i:ab)+|\\p{L}{2}(?!\\S)|\\s+"}, behavior="Isolated", invert=False)),
    "catastrophe": tokenizer(BPE, None, step("Split", pattern={"Regex": "(?:a|aa)+$"}, behavior="Removed", invert=True)),
    "plain": tokenizer(BPE),
    "bytes": tokenizer(BYTES, step("NFC"), step("ByteLevel", add_prefix_space=True, trim_offsets=True, use_regex=True),
                       step("ByteLevel", trim_offsets=False), step("ByteLevel"), [added(7, "<e>"), added(8, "ab", special=False)]),
    "bytes-split": tokenizer(BYTES, None, sequence(
        "pretokenizers", step("Split", pattern={"Regex": "\\p{N}"}, behavior="Isolated", invert=False),
        step("ByteLevel", add_prefix_space=False, use_regex=False), step("Digits", individual_digits=True)), None,
        step("ByteLevel")),
    "llama": tokenizer(LLAMA, sequence("normalizers", step("Prepend", prepend=BLANK), replace(" ", BLANK)), None, TEMPLATE,
                       sequence("decoders", replace(BLANK, " "), step("ByteFallback"), step("Fuse"),
                                step("Strip", content=" ", start=1, stop=0)),
                       [added(0, "<unk>"), added(1, "<s>"), added(2, "</s>", normalized=True, lstrip=True)]),
    "bert": tokenizer(WORDS, step("BertNormalizer", clean_text=True, handle_chinese_chars=True, strip_accents=None, lowercase=True),
                      step("BertPreTokenizer"), step("BertProcessing", sep=["[SEP]", 2], cls=["[CLS]", 1]),
                      step("WordPiece", prefix="##", cleanup=True), [added(1, "[CLS]"), added(2, "[SEP]", rstrip=True)]),
    "unigram": tokenizer(UNIGRAM, sequence("normalizers", step("NFKC"), replace("  ", " ")), META,
                         step("RobertaProcessing", sep=["</s>", 1], cls=["</s>", 1]), META, [added(1, "</s>", single_word=True)]),
    "normalizers": tokenizer(BPE, sequence(
        "normalizers", step("NFD"), step("StripAccents"), step("Lowercase"), step("NFKD"), step("NFC"),
        step("Strip", strip_left=True, strip_right=False), step("Replace", pattern={"Regex": " {2,}"}, content=" "),
        replace("e", "ab"), step("Prepend", prepend="x"), step("NFKC"),
        step("Precompiled", precompiled_charsmap="")), step("WhitespaceSplit")),
    "pre-tokenizers": tokenizer(BPE, None, sequence(
        "pretokenizers", step("Whitespace"), step("Punctuation", behavior="MergedWithPrevious"), step("Digits"),
        step("CharDelimiterSplit", delimiter="c"),
        step("Split", pattern={"String": "b"}, behavior="MergedWithNext", invert=True),
        step("Split", pattern={"Regex": "\\s"}, behavior="Contiguous", invert=False))),
    "decoders": tokenizer(BPE, decoder=sequence(
        "decoders", step("BPEDecoder", suffix="b"), step("WordPiece", prefix="a", cleanup=False), META, replace("x", "xx"),
        step("ByteFallback"), step("Strip", content="a", start=1, stop=1), step("Fuse"))),
    "suffix": tokenizer(step("BPE", continuing_subword_prefix="", end_of_word_suffix="</w>", unk_token="x",
                             vocab=ids("a", "a</w>", "b", "b</w>", "ab</w>", "x"), merges=["a b</w>"]),
                        step("Lowercase"), step("Whitespace"), None, step("BPEDecoder", suffix="</w>")),
    "processors": tokenizer(LLAMA, None, META, sequence("processors", step("ByteLevel"), TEMPLATE), META),
    "blanks": tokenizer(LLAMA, replace(" ", BLANK)),
    "charsmap": tokenizer(UNIGRAM, step("Precompiled", precompiled_charsmap=CHARSMAP), META),
    "longest": tokenizer(UNIGRAM, step("Precompiled", precompiled_charsmap=CHARSMAP, longest=True), META),
    "fit": dict(tokenizer(WORDS, None, step("BertPreTokenizer"), step("RobertaProcessing", sep=["[SEP]", 2], cls=["[CLS]", 1])),
                truncation={"direction": "Left", "max_length": 9, "strategy": "LongestFirst", "stride": 0},
                padding={"strategy": {"Fixed": 12}, "direction": "Left", "pad_to_multiple_of": 8, "pad_id": 3, "pad_type_id": 1,
                         "pad_token": "a"}),
    # of known kinds: more room than was reckoned, no object, growth on growth, no number, one token many times
    "hostile-decoders": tokenizer(BPE, decoder=sequence(
        "decoders", *[step("WordPiece", prefix="##", cleanup=False)] * 13, replace(" ", "0123456789"))),
    "hostile-added": {"added_tokens": [["x"]], "model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}},
    "hostile-growth": tokenizer(BPE, sequence("normalizers", *[replace("a", "a" * 40)] * 15)),
    "hostile-many": tokenizer(BPE, tokens=[added(7 + i, "a" * (1 + i)) for i in range(40)]),
}
for name, value in TOKENIZERS.items():
    write("tokenizer", "json-" + name, value)
scores = json.dumps(TOKENIZERS["unigram"], ensure_ascii=False).replace("-3.5]", "1e999]")
write("tokenizer", "json-hostile-scores", scores.encode())

# ---- GGUF ----

U32, I32, F32, BOOL, TEXT = 4, 5, 6, 7, 8


def text(s):
    s = s if isinstance(s, bytes) else s.encode()
    return struct.pack("<Q", len(s)) + s


def packed(kind, x):
    return text(x) if kind == TEXT else struct.pack({U32: "<I", I32: "<i", F32: "<f", BOOL: "<?"}[kind], x)


def gguf(values, tensors=(), alignment=32):
    head, infos, data = b"", b"", b""
    for key, kind, x in values:
        head += text(key)
        if isinstance(x, list):
            head += struct.pack("<IIQ", 9, kind, len(x)) + b"".join(packed(kind, one) for one in x)
        else:
            head += struct.pack("<I", kind) + packed(kind, x)
    for name, shape, storage, content in tensors:
        infos += text(name) + struct.pack("<I", len(shape)) + b"".join(struct.pack("<Q", n) for n in reversed(shape))
        infos += struct.pack("<IQ", storage, len(data))
        data += content + b"\0" * (-len(content) % alignment)
    out = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(values)) + head + infos
    return out + b"\0" * (-len(out) % alignment) + data


T = "tokenizer.ggml."


def vocabulary(model, tokens, *more):
    return [("general.architecture", TEXT, "llama"), (T + "model", TEXT, model), (T + "tokens", TEXT, tokens), *more]


SPECIAL = [(T + "bos_token_id", U32, 1), (T + "eos_token_id", U32, 2), (T + "unknown_token_id", U32, 0),
           (T + "add_bos_token", BOOL, True), (T + "add_eos_token", BOOL, True)]
PIECES = ["<unk>", "<s>", "</s>", "<0x0A>", BLANK, "a", "b", BLANK + "a", "ab", "user"]
TYPES = [2, 3, 3, 6, 1, 1, 1, 1, 1, 4]
SCORES = [0.0, 0.0, 0.0, 0.0, -1.0, -2.0, -3.0, -4.0, -5.5, 0.0]
VOCABULARIES = {
    "llama": vocabulary("llama", PIECES, (T + "scores", F32, SCORES), (T + "token_type", I32, TYPES), *SPECIAL),
    "t5": vocabulary("t5", PIECES, (T + "scores", F32, SCORES), (T + "token_type", I32, TYPES), *SPECIAL,
                     (T + "add_space_prefix", BOOL, True), (T + "remove_extra_whitespaces", BOOL, True)),
    "bert": vocabulary("bert", ["[PAD]", "[UNK]", "[CLS]", "[SEP]", BLANK + "a", "b", BLANK + "."]),
    "bert-cased": vocabulary("bert", ["[UNK]", "<s>", "</s>", BLANK + "a", "b"], (T + "token_type", I32, [3, 3, 3, 1, 1]),
                             (T + "normalizer.lowercase", BOOL, False), (T + "normalizer.strip_accents", BOOL, True)),
}
for pre in ("gpt-2", "llama-bpe", "qwen2", "gpt-4o", "starcoder", "deepseek-v3", "exaone-moe"):
    VOCABULARIES[pre] = vocabulary("gpt2", ["a", "b", "\u0120", "ab", "\u0120ab", "<e>"], (T + "pre", TEXT, pre),
                                   (T + "merges", TEXT, ["a b", "\u0120 ab"]), (T + "token_type", I32, [1, 1, 1, 1, 1, 3]),
                                   (T + "bos_token_id", U32, 5), (T + "add_bos_token", BOOL, True))
for name, values in VOCABULARIES.items():
    write("tokenizer", "gguf-of-" + name, gguf(values))
write("tokenizer", "gguf-hostile-no-words", gguf(vocabulary("bert", [])))
zero = vocabulary("gpt2", ["a"], (T + "pre", TEXT, b"minerva-7b \0" + b"A" * 40), (T + "merges", TEXT, []))
write("tokenizer", "gguf-hostile-pre", gguf(zero))


def kind_of(x):
    return TEXT if isinstance(x, str) else BOOL if isinstance(x, bool) else F32 if isinstance(x, float) else U32


def settings(architecture, **values):
    common = dict(embedding_length=8, block_count=1, feed_forward_length=16, context_length=32, vocab_size=10)
    common["attention.head_count"] = 2
    common.update({key.replace("__", "."): x for key, x in values.items()})
    return [("general.architecture", TEXT, architecture)] + [
        (architecture + "." + key, kind_of(x[0] if isinstance(x, list) else x), x) for key, x in common.items()]


FORMS = {
    "gguf-llama": settings("llama", attention__head_count_kv=1, attention__layer_norm_rms_epsilon=1e-5, rope__freq_base=1e4,
                           rope__dimension_count=4, attention__key_length=4, attention__value_length=4),
    "gguf-yarn": settings("llama", attention__layer_norm_rms_epsilon=1e-5, rope__scaling__type="yarn", rope__scaling__factor=4.0,
                          rope__scaling__original_context_length=16),
    "gguf-qwen2": settings("qwen2", attention__head_count_kv=1, attention__layer_norm_rms_epsilon=1e-6,
                           rope__scaling__type="linear", rope__scaling__factor=2.0),
    "gguf-gpt2": settings("gpt2", attention__layer_norm_epsilon=1e-5),
    "gguf-bert": settings("bert", attention__layer_norm_epsilon=1e-12, attention__causal=False, token_type_count=2, pooling_type=2),
}
for name, of in {"qwen3": {}, "gemma2": {"attn_logit_softcapping": 50.0, "attention__sliding_window": 4},
                 "gemma3": {"attention__sliding_window": 4}, "olmo2": {}, "phi3": {"attention__sliding_window": 0}, "smollm3": {},
                 "granite": {"attention__scale": 0.5, "logit_scale": 4.0, "embedding_scale": 12.0, "residual_scale": 0.2}}.items():
    FORMS["gguf-" + name] = settings(name, attention__layer_norm_rms_epsilon=1e-6, attention__head_count_kv=1,
                                     rope__freq_base=10000.0, **of)
for name, of in {"stablelm": {"use_parallel_residual": True}, "gptneox": {"use_parallel_residual": False}, "phi2": {}}.items():
    FORMS["gguf-" + name] = settings(name, attention__layer_norm_epsilon=1e-5, rope__dimension_count=2, **of)
ENCODER = dict(attention__layer_norm_epsilon=1e-5, attention__causal=False, rope__freq_base=1000.0)
FORMS["gguf-nomic-bert"] = settings("nomic-bert", **ENCODER)
MODERN = dict(ENCODER, hidden_activation="silu", rope__freq_base_swa=100.0, attention__sliding_window=6)
FORMS["gguf-modern-bert"] = settings("modern-bert", **dict(MODERN, block_count=4, attention__sliding_window_pattern=3))
FORMS["gguf-modern-bert-flags"] = settings("modern-bert", **dict(MODERN, block_count=3, attention__sliding_window_pattern=[True, True, False]))
FORMS["gguf-gemma3-pattern"] = settings("gemma3", block_count=4, attention__layer_norm_rms_epsilon=1e-6, attention__sliding_window=4,
                                        attention__sliding_window_pattern=2, rope__freq_base_swa=500.0)
FORMS["gguf-yarn-bounds"] = FORMS["gguf-yarn"] + [("llama.rope.scaling.yarn_" + key, F32, x) for key, x in
                                                  (("beta_fast", 16.0), ("beta_slow", 2.0), ("attn_factor", 1.5), ("ext_factor", 1.0))]
for name, values in FORMS.items():
    write("forms", name, gguf(values))


def numbers(n):
    return struct.pack("<%df" % n, *[(i % 7 - 3) / 8 for i in range(n)])


BLOCKS = struct.pack("<e32b", 0.5, *range(-16, 16))
MODEL = [("token_embd.weight", (10, 8), 0, numbers(80)), ("output_norm.weight", (8,), 0, numbers(8)),
         ("blk.0.attn_q.weight", (8, 8), 1, b"\0\x3c" * 64), ("blk.0.attn_k.weight", (8, 8), 30, b"\x80\x3f" * 64),
         ("blk.0.ffn_down.weight", (2, 32), 8, BLOCKS * 2), ("blk.0.ffn_up.weight", (2, 2, 2, 32), 8, BLOCKS * 8)]
write("gguf", "model", gguf(FORMS["gguf-llama"] + VOCABULARIES["llama"][1:], MODEL))
FEW_BITS = [("q%d" % storage, (2, n), storage, bytes(i * 37 % 256 for i in range(2 * size)))
            for storage, n, size in ((2, 32, 18), (3, 32, 20), (6, 32, 22), (7, 32, 24), (12, 256, 144), (13, 256, 176), (14, 256, 210))]
write("gguf", "few-bits", gguf(FORMS["gguf-llama"][:2], FEW_BITS))
write("gguf", "aligned", gguf([("general.alignment", U32, 8), *FORMS["gguf-gpt2"]], MODEL[:3], 8))

# ---- config.json ----

LLAMA = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 8, "intermediate_size": 16,
         "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "vocab_size": 10, "hidden_act": "silu",
         "max_position_embeddings": 32, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": False}
MISTRAL = {**LLAMA, "architectures": ["MistralForCausalLM"], "model_type": "mistral", "sliding_window": 16, "head_dim": 4}
QWEN2 = {**LLAMA, "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "use_sliding_window": True, "sliding_window": 8,
         "max_window_layers": 0, "layer_types": ["sliding_attention", "sliding_attention"]}
GPT2 = {"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "n_embd": 8, "n_layer": 1, "n_head": 2, "n_inner": None,
        "n_positions": 32, "vocab_size": 10, "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5, "resid_pdrop": 0.1,
        "attn_pdrop": 0.1}
BERT = {"architectures": ["BertForMaskedLM"], "model_type": "bert", "hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 1,
        "num_attention_heads": 2, "vocab_size": 10, "hidden_act": "gelu", "max_position_embeddings": 32, "type_vocab_size": 2,
        "layer_norm_eps": 1e-12, "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}
CONFIGS = {
    "llama": LLAMA, "mistral": MISTRAL, "qwen2": QWEN2, "gpt2": GPT2, "bert": BERT,
    "llama3": {**LLAMA, "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                                         "original_max_position_embeddings": 16}},
    "yarn": {**QWEN2, "rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "beta_fast": 32,
                                       "beta_slow": 1, "attention_factor": 1.2, "mscale": 1.0, "mscale_all_dim": 0.5}},
    "linear": {**LLAMA, "rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 5000.0}, "partial_rotary_factor": 0.5,
               "head_dim": 8, "attention_bias": True, "mlp_bias": True},
    "dynamic": {**LLAMA, "rope_scaling": {"type": "dynamic", "factor": 2.0}},
    "classes": {**BERT, "architectures": ["BertForSequenceClassification"], "id2label": {"0": "no", "1": "yes"}},
}
for name in ("qwen3", "qwen3_window", "gemma2", "gemma3", "olmo2", "phi3", "smollm3", "granite", "stablelm", "stablelm_beside", "neox",
             "neox_serial", "gptj", "phi", "roberta", "roberta_classes", "distilbert", "modernbert", "modernbert_biased", "nomic",
             "nomic_biased"):
    with open(os.path.join(os.path.dirname(__file__), "../models", name, "config.json")) as f:
        CONFIGS[name] = json.load(f)
for name in ("llama_peft", "gpt2_peft"):
    with open(os.path.join(os.path.dirname(__file__), "../models", name, "adapter_config.json")) as f:
        CONFIGS[name] = json.load(f)
for name, value in CONFIGS.items():
    write("forms", "json-" + name, value)

# ---- Adapters ----

LORA = {"blocks.0.attn.%s.lora_%s" % (w, ab): (2, 4) if ab == "a" else (4, 2) for w in ("wq", "wv") for ab in "ab"}
BASE = {"tok_emb.weight": (5, 4), "ln_f.weight": (4,), "ln_f.bias": (4,),
        **{"blocks.0.%s.%s" % (norm, part): (4,) for norm in ("ln1", "ln2") for part in ("weight", "bias")},
        **{"blocks.0.attn.%s.weight" % w: (4, 4) for w in ("wq", "wk", "wv", "wo")},
        **{"blocks.0.ffn.%s.%s" % (w, part): (4, 4) if part == "weight" else (4,) for w in ("w1", "w2") for part in ("weight", "bias")}}
SIZES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}


def adapters(name, strict, shapes, metadata=None, dtype="F32", disk=0, **changed):
    """A file's header and how tests/fuzz/adapters.c reads it; `changed` replaces fields of the last tensor."""
    header, at = {"__metadata__": metadata} if metadata is not None else {}, 0
    for key, shape in shapes.items():
        count = 1
        for n in shape:
            count *= n
        header[key] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + SIZES[dtype] * count]}
        at += SIZES[dtype] * count
    header[key].update(changed)
    units = (at + 3) // 4
    body = json.dumps(header, separators=(",", ":")).encode()
    write("adapters", name, bytes([disk, units & 255, units >> 8, strict]) + body)


PART = {"format": "cmha", "cfg.lora_rank": "2", "cfg.lora_on": "wq,wv", "part": "6894796002815795547"}
adapters("part", 2, LORA, PART)
adapters("part-of-another", 2, LORA, {**PART, "part": "1"})
adapters("alone", 2, LORA)
adapters("fits", 0, LORA, dtype="BF16")
adapters("whole", 1, {**BASE, **LORA}, {"format": "cmha"}, "F16")
adapters("base", 2, BASE, dtype="F64")
adapters("tuned", 2, {**BASE, **LORA}, {**PART, "tune.frozen.tok_emb.weight": "0", "tune.rate.tok_emb.weight": "2"})
adapters("disk-fails", 2, LORA, PART, disk=60)
adapters("hostile-rank", 2, LORA, PART, shape=[2, 4])
adapters("hostile-overlap", 0, LORA, PART, data_offsets=[0, 32])
adapters("hostile-wrap", 0, LORA, PART, shape=[1 << 32, 1 << 32, 8], data_offsets=[96, 128])

# ---- Recordings ----

NPY, TABLE, META, WAV, TAR, WAV_PAIRS = 7, 8, 9, 10, 11, 12
PAIRS = numbers(6)


def array(descr, shape, data, order="False"):
    header = ("{'descr': %s, 'fortran_order': %s, 'shape': %s, }\n" % (descr, order, shape)).encode()
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(header)) + header + data


def wav(form, channels, rate, bits, data):
    step = channels * bits // 8
    head = b"WAVEfmt " + struct.pack("<IHHIIHH", 16, form, channels, rate, rate * step, step, bits) + b"data" + struct.pack("<I", len(data))
    return b"RIFF" + struct.pack("<I", len(head) + len(data)) + head + data


def recording(name, kind, data):
    write("samples", name, bytes([kind]) + (data if isinstance(data, bytes) else data.encode()))


def packed(name, data):
    head = bytearray(512)
    head[:len(name)], head[124:136], head[148:156], head[156] = name, b"%011o\0" % len(data), b" " * 8, 48
    head[148:155] = b"%06o\0" % sum(head)
    return bytes(head) + data + bytes(-len(data) % 512)


recording("cf32", 0, PAIRS)
recording("ci16", 2, PAIRS)
recording("ci8", 3, PAIRS)
recording("npy-complex", NPY, array("'<c8'", "(3,)", PAIRS))
recording("npy-pairs", NPY, array("'<f4'", "(3, 2)", PAIRS))
recording("npy-hostile-shape", NPY, array("'<c8'", "(2305843009213693955,)", PAIRS))
recording("npy-hostile-list", NPY, array("[('i', '<f4')]", "(3,)", PAIRS))
recording("csv", TABLE, "i,q\n1,2\n3,4\n")
recording("csv-others", TABLE, "t,\"Im\",re\r\n0, 1e3 ,\"-2\"\r\n\r\n")
recording("csv-hostile", TABLE, "i,q\n1,nan\n")
recording("sigmf", META, json.dumps({"global": {"core:datatype": "ci8", "core:num_channels": 1}, "captures": [{"core:header_bytes": 0}]}))
recording("wav", WAV, wav(1, 1, 8000, 16, PAIRS))
recording("wav-other", WAV, wav(3, 2, 44100, 32, PAIRS))
recording("wav-pairs", WAV_PAIRS, wav(1, 2, 2400000, 24, PAIRS))
recording("wav-pairs-float", WAV_PAIRS, wav(3, 2, 48000, 32, PAIRS))
recording("wav-pairs-mono", WAV_PAIRS, wav(1, 1, 48000, 16, PAIRS))
recording("tar", TAR, packed(b"1_a_2.wav", wav(1, 1, 8000, 16, PAIRS)) + bytes(1024))

# ---- Pairs ----

OBJECTS = '{"prompt":"a\\n\\ud83d\\ude00","answer":"b","id":[1,{"x":null}]}\n\n{"answer":"","prompt":"c"}'
for name, limit, shape, text in (("table", 20, "Q: {prompt}\nA: {answer}", "one\ttwo\nthree\tfour\tfive\nno\n"),
                                 ("named", 3, "{prompt}={answer}.", "answer\tprompt\nb\ta\r\n"),
                                 ("objects", 60, "<{prompt}|{answer}>", OBJECTS),
                                 ("cut", 1, "{prompt}{answer}", '{"prompt":"aaaaaaaa","answer":"bbbbbbbb"}')):
    write("pairs", name, bytes([limit]) + shape.encode() + b"\0" + text.encode())
