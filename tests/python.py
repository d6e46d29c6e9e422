"""python3 tests/python.py BUILD_DIR: examples/python/cmha.py on the library of `make lib`, against what the
programs in BUILD_DIR compute. The last line is N passed, N failed."""
import copy
import ctypes
import gc
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
import weakref

import numpy

build = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else "build")
here = os.path.dirname(os.path.abspath(__file__))
os.environ.setdefault("CMHA_LIBRARY", os.path.join(build, "libcmha.so"))
sys.path.insert(0, os.path.join(here, "..", "examples", "python"))
import cmha

passed = failed = 0
warnings.simplefilter("ignore")


def one(label, good):
    global passed, failed
    passed, failed = passed + bool(good), failed + (not good)
    if not good:
        print("FAIL", label)


def refused(label, status, words, call):
    try:
        call()
    except cmha.Error as error:
        one(label + ": " + error.status + ": " + str(error), error.status == status and words in str(error))
    else:
        one(label + " is not refused", False)


text = numpy.fromfile(os.path.join(here, "..", "README.md"), numpy.uint8)
small = dict(n_layers=2, d_model=32, n_heads=2, d_ff=64)
folder = tempfile.TemporaryDirectory()


def path(name):
    return os.path.join(folder.name, name)


# a run of the program and the same run from here have the same bits, on one kernel of OpenBLAS: the program would
# start anew with the right one for this CPU, Python keeps what it has
name = ctypes.create_string_buffer(64)
cmha._lib.cmha_blas_name(name, ctypes.c_size_t(64))
kernel = name.value.decode().partition("OpenBLAS ")[2]
kept = {**os.environ, "OPENBLAS_CORETYPE": kernel} if kernel else None
options = ["--steps", "5", "--seq", "48", "--batch", "3", "--threads", "1", "--quiet"]
options += [word for name, value in small.items() for word in ("--set", "%s=%d" % (name, value))]
ran = subprocess.run([os.path.join(build, "train_tiny"), *options, "--out", path("c.safetensors"), "--csv",
                      path("c.csv"), os.path.join(here, "..", "README.md")], stdout=subprocess.DEVNULL, env=kept)
one("train_tiny runs", ran.returncode == 0)
model = cmha.Model(preset="tiny", seed=1, threads=1, **small)
trainer = cmha.Trainer(model, steps=5, length=48, batch=3)
cut = len(text) - int(len(text) * trainer.config["held_out"])
losses = [trainer.step(text[:cut]) for _ in range(5)]
one("losses fall", losses[-1] < losses[0])
theirs = cmha.Model.open(path("c.safetensors.last"), threads=1)
one("the same bits as train_tiny's", all((theirs.parameters[n] == p).all() for n, p in model.parameters.items()))
one("and as many", len(theirs.parameters) == len(model.parameters) > 10)
rows = open(path("c.csv")).read().split("\n")[1:6]
one("and losses", all(abs(float(r.split(",")[1]) - l) < 1e-6 for r, l in zip(rows, losses)))
one("evaluate", abs(trainer.evaluate(text[cut:]) - float(rows[-1].split(",")[2])) < 2e-5)

# what is kept, read, gone on with
trainer.save(path("state.safetensors"))
trainer.step(text[:cut])
again = cmha.Model(preset="tiny", seed=1, threads=1, **small)
resumed = cmha.Trainer(again, steps=5, length=48, batch=3)
resumed.read(path("state.safetensors"))
resumed.step(text[:cut])
pairs = [(again.parameters[n], p) for n, p in model.parameters.items()]
one("a resumed run goes on to the bit", all((a == p).all() for a, p in pairs))
model.save(path("m.safetensors"))
opened = cmha.Model.open(path("m.safetensors"))
one("configuration", dict(opened.config.items()) == dict(model.config.items()) and opened.config["d_model"] == 32)
one("saved and opened", (opened.logits(b"some text") == model.logits(b"some text")).all())

# shapes, and numbers that must agree with each other
ids = numpy.frombuffer(b"a text of 24 characters.", numpy.uint8).reshape(2, 12)
logits = model.logits(ids)
one("logits", logits.shape == (2, 12, 256) and logits.dtype == cmha.real and numpy.abs(logits).max() > 0.01)
one("rows of a batch are apart", numpy.allclose(model.logits(ids[1])[0], logits[1], atol=1e-5))
high = logits[:, :-1].astype(numpy.float64)
lse = numpy.log(numpy.exp(high).sum(-1))
chosen = numpy.take_along_axis(high, ids[:, 1:, None].astype(numpy.int64), -1)[..., 0]
one("loss of the next tokens", abs(model.loss(ids) - (lse - chosen).mean()) < 1e-5)
states = model.embeddings(ids)
one("embeddings", states.shape == (2, 12, 32))
one("times the tied embedding are the logits",
    numpy.allclose(states @ model.parameters["tok_emb.weight"].T, logits, atol=1e-4))
seen = model.attention(ids, layer=1, head=1)
one("probabilities sum to 1", numpy.allclose(seen.sum(-1), 1, atol=1e-5))
one("causally", not numpy.triu(seen[0], 1).any())
refused("no such view", "CMHA_ERR_ARGUMENT", "probabilities or scores or phases, not 'score'",
        lambda: model.attention(ids, what="score"))
one("phases", model.attention(ids, what="phases").shape == (2, 12, 12))
one("vectors", model.vectors(ids).shape == (2, 32))
mask = numpy.ones((2, 12)); mask[0, 6:] = 0
other = numpy.where(mask, ids, 0)
one("a masked token changes nothing",
    numpy.array_equal(model.logits(ids, mask=mask)[0, :6], model.logits(other, mask=mask)[0, :6]))

# arrays are the model's memory, and outlive its name
weight = model.parameters["tok_emb.weight"]
before = weight.copy()
weight *= 0
one("what is written, the model has", not model.logits(ids).any())
weight[:] = before
one("and has again", numpy.array_equal(model.logits(ids), logits))
one("gradients are there", set(model.gradients) == set(model.parameters))
held = opened.parameters["tok_emb.weight"]
total = held.sum()
del opened
gc.collect()
one("an array keeps its model", held.sum() == total)

gc.disable()
brief, fields = cmha.Trainer(cmha.Model(threads=1, **small), length=12), []
for thing in (brief.model, brief):
    fields.append((thing.config, weakref.ref(thing)))
del brief, thing
one("settings keep their trainer", fields[1][0]["length"] == 12 and fields[1][1]() is not None)
alive = [fields.pop()[1] for _ in range(2)]
one("and nothing else does: memory is free before a collector runs", all(a() is None for a in alive))
gc.enable()

# generation
greedy = model.generate("The ", 20, temperature=0)
one("generate", greedy.shape == (20,) and greedy.dtype == numpy.uint8)
prompt = numpy.frombuffer(b"The ", numpy.uint8)
for token in greedy[:5]:
    one("greedy tokens are the likeliest", model.logits(prompt)[0, -1].argmax() == token)
    prompt = numpy.append(prompt, token)
one("two prompts", model.generate(ids, 3, seed=7, top_k=5).shape == (2, 3))
refused("less than no tokens", "CMHA_ERR_ARGUMENT", "at least 0, not -1", lambda: model.generate("x", -1))
one("a seed repeats", numpy.array_equal(model.generate("x", 9, seed=3), model.generate("x", 9, seed=3)))
one("on_token stops", model.generate("x", 50, on_token=lambda ids: True).shape == (1,))


def raises(ids):
    raise ZeroDivisionError


try:
    model.generate("x", 50, on_token=raises)
    one("an exception of on_token comes through", False)
except ZeroDivisionError:
    one("an exception of on_token comes through", True)

def interrupted(on_token):
    begun, still = time.monotonic(), threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT))
    still.start()
    try:
        model.generate("x", 10**6, capacity=32, on_token=on_token)
    except KeyboardInterrupt:
        return time.monotonic() - begun < 30
    return False


signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
one("Ctrl-C ends a text", interrupted(None))
one("and one with on_token", interrupted(lambda ids: False))
one("and is as it was", signal.getsignal(signal.SIGINT) is signal.default_int_handler)
refused("an empty prompt", "CMHA_ERR_ARGUMENT", "prompt is empty", lambda: model.generate("", 3))

# a cache reads only what is new, and goes on in another one, and when its model's name is gone
whole = model.logits(ids)
cache = cmha.Cache(model, ids.shape[1], batch=2)
for begin, end in ((0, 3), (3, 4), (4, ids.shape[1])):
    now = cache.append(ids[:, begin:end])
    one("a cache says what the model says", numpy.allclose(now, whole[:, end - 1], atol=1e-4))
one("it counts", (cache.batch, cache.length, cache.first, cache.exact) == (2, ids.shape[1], 0, True))
refused("a full cache", "CMHA_ERR_FULL", "no room for 1 more", lambda: cache.append(ids[:, :1]))
cache.save(path("cache"))
again = cmha.Cache(model, ids.shape[1] + 1, batch=2)
refused("a cache of another size", "CMHA_ERR_FORMAT", "capacity", lambda: again.read(path("cache")))
cache.reset()
one("forgotten", cache.length == 0)
cache.append(ids[:, :5]), cache.save(path("cache"))
again = cmha.Cache(model, ids.shape[1], batch=2)
again.read(path("cache"))
one("saved and read, the same bits", (again.append(ids[:, 5:7]) == cache.append(ids[:, 5:7])).all())
one("a text in two calls", numpy.array_equal(model.generate("The ", 8, temperature=0)[4:], (
    lambda c: c.generate(c.generate("The ", 4, temperature=0)[-1:], 4, temperature=0))(cmha.Cache(model, 12))))
endless = cmha.Cache(model, 16, slide="forget", sinks=2, storage="bf16")
one("without an end", len(endless.generate("x", 40)) == 40 and endless.first > 0 and endless.length <= 16
    and not endless.exact)
refused("another number of texts", "CMHA_ERR_SHAPE", "[1, positions], at least one, not [2, ", lambda: endless.append(ids))
refused("no token", "CMHA_ERR_SHAPE", "at least one, not [1, 0]", lambda: endless.append(ids[0, :0]))
refused("a slide that is none", "CMHA_ERR_ARGUMENT", "not 'on'", lambda: cmha.Cache(model, 8, slide="on"))
refused("a storage that is none", "CMHA_ERR_ARGUMENT", "not 'int8'", lambda: cmha.Cache(model, 8, storage="int8"))
lonely = cmha.Cache(cmha.Model(seed=1, threads=1, **small), 8)
gc.collect()
one("a cache keeps its model", lonely.append("ab").shape == (1, 256))

# OpenBLAS has one thread while any model is open, in whatever order they close, and then those of before
alone = """import sys, cmha
blas = cmha._lib
if not hasattr(blas, "openblas_set_num_threads"): sys.exit() # another BLAS, or none
blas.openblas_set_num_threads(2)
pair = [cmha.Model(threads=1) for _ in range(2)]
while pair:
    if blas.openblas_get_num_threads() != 1: sys.exit("more than one")
    del pair[0]
sys.exit(blas.openblas_get_num_threads() != 2)"""
one("OpenBLAS's threads", subprocess.run([sys.executable, "-c", alone], env=dict(
    os.environ, PYTHONPATH=os.path.dirname(cmha.__file__))).returncode == 0)

# threads may share a model
many = []
ways = [threading.Thread(target=lambda: many.extend(numpy.array_equal(model.logits(ids), logits)
                                                    for _ in range(100))) for _ in range(4)]
for way in ways:
    way.start()
for way in ways:
    way.join()
one("threads take turns", len(many) == 400 and all(many))
if hasattr(os, "fork") and "OpenMP" in cmha.version:
    several = cmha.Model(threads=2, **small)
    several.logits(ids)
    child = os.fork()
    if not child:
        warnings.simplefilter("error")
        try:
            several.logits(ids)
        except RuntimeWarning as warning:
            os._exit(0 if "fork()" in str(warning) else 1)
        os._exit(2)
    ended, wait = (0, 0), 100
    while not ended[0] and wait:
        ended, wait = os.waitpid(child, os.WNOHANG), wait - 1
        time.sleep(0.1)
    if not ended[0]:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    one("threads after a fork are warned of", ended == (child, 0))

# tuning, other objectives
one("tune", model.tune("*.delta", frozen=True) == 2 and model.tune("*.b", rate=0.5) == 2)
refused("nothing to tune", "CMHA_ERR_ARGUMENT", "tune: there are neither frozen, rate nor decay", lambda: model.tune("*.b"))
fitted = cmha.Trainer(model, batch=2, length=12, lr=1e-2, warmup=0)
delta = model.parameters["blocks.0.attn.delta"].copy()
first = fitted.fit(ids)
for _ in range(20):
    last = fitted.fit(ids)
one("fit learns its batch", last < first - 0.5)
one("what is frozen stays", numpy.array_equal(model.parameters["blocks.0.attn.delta"], delta))
judge = cmha.Model(preset="encoder", classes=2, pool="first", threads=1, **small)
learns = cmha.Trainer(judge, batch=8, length=6, lr=3e-3, warmup=0, steps=200)
draw = numpy.random.default_rng(1)
for _ in range(200):
    words = draw.integers(0, 4, (8, 6))
    learns.fit(words, labels=words[:, 0] > 1)
words = draw.integers(0, 4, (64, 6))
right = (judge.classify(words).argmax(-1) == (words[:, 0] > 1)).mean()
one("a classifier learns from labels", right > 0.8)
labels, importance = words[:, 1] % 2, numpy.array([0.25, 2])
scores = learns.model.classify(words)
losses = numpy.log(numpy.exp(scores).sum(1)) - scores[range(len(words)), labels]
mean = (losses * importance[labels]).sum() / importance[labels].sum()
weighted = learns.model.loss(words, labels=labels, class_weights=importance)
one("class weights", abs(weighted - mean) < 1e-4 * mean and abs(losses.mean() - mean) > 1e-3)
refused("too few class weights", "CMHA_ERR_SHAPE", "class_weights: [1], not [2]",
        lambda: learns.fit(words, labels=labels, class_weights=[1]))
for label, call, line in (("an unknown word", lambda: learns.fit(words, weights=importance), "'weights'"),
                          ("a trainer of a path", lambda: cmha.Trainer(path("c")), "is of a Model, not")):
    try:
        call()
        one(label + " is not refused", False)
    except TypeError as error:
        one(label + ": " + str(error), line in str(error))
sensed = cmha.Model(attention="rope", tokens=0, vocabulary=0, features=3, values=3, threads=1, **small)
wave = numpy.sin(numpy.arange(41)[:, None] * [0.1, 0.2, 0.3])
regress = cmha.Trainer(sensed, batch=1, length=40, lr=1e-2, warmup=0)
fits = [regress.fit(features=wave[:-1], values=wave[1:]) for _ in range(60)]
one("values are predicted", fits[-1] < 0.2 * fits[0] and sensed.predict(features=wave).shape == (1, 41, 3))
radio = cmha.Model(attention="rope", tokens=0, vocabulary=0, features=1, complex_features=1, values=2,
                   threads=1, **small)
wave = numpy.exp(0.1j * numpy.arange(41))[:, None]
apart = numpy.concatenate([wave.real, wave.imag], -1)
one("complex values are [Re | Im]", radio.loss(features=wave, values=1j * wave) ==
    radio.loss(features=apart, values=apart[:, ::-1] * [-1, 1]))
cache = cmha.Cache(radio, 64)
cache.append(features=wave[:30])
one("a cache of samples", numpy.allclose(cache.append(features=wave[30:]), radio.predict(features=wave)[:, -1], atol=1e-4))
refused("samples as tokens", "CMHA_ERR_ARGUMENT", "features", lambda: cache.append("ab"))
unsure = cmha.Model(attention="rope", tokens=0, vocabulary=0, features=2, values=2, gaussian=True, threads=1, **small)
cache = cmha.Cache(unsure, 8)
now, whole = cache.append(features=apart[:8]), unsure.predict(features=apart[:8])[:, -1]
one("a cache of means and log variances", now.shape == (1, 4) and numpy.allclose(now, whole, atol=1e-4))
refused("complex samples without a row", "CMHA_ERR_SHAPE", "[length, features] or [batch, length, features], "
        "not [41]", lambda: radio.predict(features=wave[:, 0]))
refused("complex samples of another width", "CMHA_ERR_SHAPE", "features: [1, 41, 2], not [1, 41, 1]",
        lambda: radio.predict(features=wave.repeat(2, 1)))
refused("complex values for real ones", "CMHA_ERR_SHAPE", "3 real numbers a position",
        lambda: regress.fit(features=apart[:, [0, 1, 1]], values=wave.repeat(3, 1)))
refused("complex labels", "CMHA_ERR_ARGUMENT", "labels: real numbers, not complex128",
        lambda: learns.fit(words[:2], labels=[1j, 0]))
refused("labels of text", "CMHA_ERR_ARGUMENT", "labels: real numbers, not <U1",
        lambda: learns.fit(words[:2], labels=["1", "0"]))
packed = cmha.Model.open(path("m.safetensors"))
packed.pack("int8")
unpacked = cmha.Model.open(path("m.safetensors"))
off = numpy.abs(packed.logits(ids) - unpacked.logits(ids)).max()
one("packed, near the same", 0 < off < 0.1)
one("and its matrices are gone", "tok_emb.weight" not in packed.parameters)

# memory does not move under an array in use, nor under what was made of it
def lent():
    model = cmha.Model(threads=1, **small)
    trainer = cmha.Trainer(model, batch=2, length=12)
    trainer.step(text)
    trainer.save(path("lent.safetensors"))
    return model, trainer


def weights(model):
    return model.parameters["tok_emb.weight"]


def slopes(model):
    return model.gradients["tok_emb.weight"]


def in_use(label, make, whole, call):
    model, trainer = lent()
    array = make(whole(model))
    place = whole(model).ctypes.data
    kind = "parameters" if whole is weights else "gradients"
    before = failed
    refused(label, "CMHA_ERR_STATE", "arrays of %s are in use (1)" % kind, lambda: call(model, trainer))
    one(label + ": nothing moved", place == getattr(model, kind).get("tok_emb.weight", text).ctypes.data)
    if failed > before:
        return
    ring = [array]
    ring.append(ring)  # which only a collector frees
    del array, ring
    one(label + ": then it is free", call(model, trainer) is not False)


def freeze(model, trainer):
    return model.tune("*.b", frozen=True) == 2


def read(model, trainer):
    trainer.read(path("lent.safetensors"))


made = [("an array", lambda a: a), ("a slice", lambda a: a[1:]), ("a row", lambda a: a[3]),
        ("a slice of a transposed slice", lambda a: a[1:].T[2:, ::3]),
        ("another shape", lambda a: a.reshape(-1, 8)[4:]), ("bytes of it", lambda a: a.view(numpy.uint8)[1]),
        ("strides", lambda a: numpy.lib.stride_tricks.as_strided(a, (4,), (8,))),
        ("a matrix", lambda a: numpy.asmatrix(a)[1:]), ("a buffer", memoryview),
        ("an array of a buffer", lambda a: numpy.frombuffer(memoryview(a), numpy.uint8)[5:])]
for label, make in made:
    in_use("pack under " + label, make, weights, lambda model, trainer: model.pack())
    in_use("tune under %s of gradients" % label, make, slopes, freeze)
in_use("pack under gradients", lambda a: a, slopes, lambda model, trainer: model.pack())
in_use("read under gradients", lambda a: a, slopes, read)
lender, lends = lent()
weight, slope = weights(lender), slopes(lender)
lender.tune("*.b", rate=0.5, decay=0.1)
lender.read(path("m.safetensors"))
lends = cmha.Trainer(lender, batch=3, length=20, optimiser="muon")
gc.collect()
lends.step(text)
one("other calls leave weights in place", weight.ctypes.data == weights(lender).ctypes.data)
one("and gradients", slope.ctypes.data == slopes(lender).ctypes.data)
del slope
one("tune beside weights in use", freeze(lender, lends))
loss, weight = lender.loss(ids), weight.copy()
lender.pack("bf16")
one("pack beside a copy", weight.shape == (256, 32) and abs(lender.loss(ids) - loss) < 0.1)
one("fields of what is open cannot be set", not hasattr(lends.config, "set"))

# what lies beside ids is cut with them
typed = cmha.Model(token_types=2, attention="rope", features=1, threads=1, **small)
kinds, sensed = numpy.arange(12) % 2, numpy.arange(12)[:, None]
one("types and features of the next tokens", typed.loss(ids[0], types=kinds, features=sensed) ==
    typed.loss(ids[0, :-1], ids[0, 1:], types=kinds[:-1], features=sensed[:-1]))
one("types in attention", (typed.attention(ids[0], types=kinds, features=sensed) !=
                           typed.attention(ids[0], types=1 - kinds, features=sensed)).any())
for thing in (model, trainer):
    for call in (copy.copy, copy.deepcopy, pickle.dumps):
        try:
            call(thing)
            one("a %s is copied" % type(thing).__name__, False)
        except TypeError as error:
            one("why there is no copy", "save it to a file" in str(error))

# one line, and nothing lost
refused("a wrong shape", "CMHA_ERR_SHAPE", "not divisible by n_heads 7", lambda: cmha.Model(n_heads=7))
refused("a misspelt field", "CMHA_ERR_NOT_FOUND", "n_haeds", lambda: cmha.Model(n_haeds=7))
refused("a field out of range", "CMHA_ERR_ARGUMENT", "n_layers", lambda: cmha.Model(n_layers=0))
refused("a preset", "CMHA_ERR_NOT_FOUND", "huge", lambda: cmha.Model(preset="huge"))
refused("a token", "CMHA_ERR_TOKEN", "300", lambda: model.logits([300]))
refused("a large token", "CMHA_ERR_TOKEN", "32 bits", lambda: model.logits([2**40]))
refused("a number below", "CMHA_ERR_TOKEN", "-1099511627776", lambda: model.logits([-2**40]))
refused("16 bits below 0", "CMHA_ERR_TOKEN", "tokens: -7 is less than 0",
        lambda: trainer.step(numpy.full(99, -7, numpy.int16)))
coded = cmha.Model(tokenizer="one", vocabulary=300, **small)
for call in (coded.logits, coded.loss, lambda text: coded.generate(text, 3), cmha.Trainer(coded).step):
    refused("text for a tokenizer's tokens", "CMHA_ERR_TOKEN", "a tokenizer's, not bytes", lambda: call("a b"))
refused("signed bytes", "CMHA_ERR_ARGUMENT", "uint8", lambda: trainer.step(numpy.zeros(99, numpy.int8)))
refused("fractions", "CMHA_ERR_ARGUMENT", "whole numbers", lambda: model.logits([0.5]))
refused("packed as nothing there is", "CMHA_ERR_ARGUMENT", "bf16 or int8 or int4 or q4_k, not 'int3'",
        lambda: model.pack("int3"))
for seed, words in ((-1, "seed is at least 0, not -1"), (1.5, "seed is a whole number, not 1.5"),
                    (2**70, "seed is at most 18446744073709551615, not 1180591620717411303424"),
                    ("a", "seed is a whole number, not 'a'")):
    refused("a model's seed", "CMHA_ERR_ARGUMENT", words, lambda: cmha.Model(seed=seed, **small))
    refused("an opened one's", "CMHA_ERR_ARGUMENT", words,
            lambda: cmha.Model.open(path("m.safetensors"), seed=seed))
    refused("a text's", "CMHA_ERR_ARGUMENT", "generate: " + words, lambda: model.generate("x", 2, seed=seed))
one("the last seed is one", model.generate("x", 2, seed=2**64 - 1).shape == (2,))
refused("threads", "CMHA_ERR_ARGUMENT", "threads is at least 0, not -1",
        lambda: cmha.Model(threads=-1, **small))
refused("more threads", "CMHA_ERR_ARGUMENT", "threads is at most 2147483647",
        lambda: cmha.Model(threads=2**40, **small))
refused("a cache less than none", "CMHA_ERR_ARGUMENT", "cache: capacity is at least 1, not -1",
        lambda: model.generate("x", 2, capacity=-1))
refused("far more tokens", "CMHA_ERR_ARGUMENT", "generate: n is at most", lambda: model.generate("x", 2**70))
refused("half a token", "CMHA_ERR_ARGUMENT", "n is a whole number", lambda: model.generate("x", 1.5))
refused("a layer below", "CMHA_ERR_ARGUMENT", "layer is at least 0, not -1",
        lambda: model.attention(ids, layer=-1))
for alone in (b"a", b"", ids[:, :1]):
    refused("one token to fit", "CMHA_ERR_ARGUMENT", "fit: of ids alone", lambda: fitted.fit(alone))
    refused("or to judge", "CMHA_ERR_ARGUMENT", "loss: of ids alone", lambda: model.loss(alone))
refused("a mask of words", "CMHA_ERR_ARGUMENT", "mask: numbers",
        lambda: model.logits(b"abc", mask=["a", "", "b"]))
whole = model.logits(b"abc")
for mask in ([256, 1, 1], [1, 0.5, 1], [True, 2**40, -1], [numpy.nan, 1, 1]):
    one("a mask of any numbers but 0: %s" % mask, numpy.array_equal(model.logits(b"abc", mask=mask), whole))
for padded in (0, 1):
    row, mask = numpy.array([[5, 6, 7, padded]]), [[1, 1, 1, 0]]
    one("padding is no target", fitted.model.loss(row, mask=mask) == fitted.model.loss(row[:, :3]))
for name, whole in (("mask", "[1, 3], not [2, 3]"), ("types", "[1, 3], not [2, 3]"), ("features", "[1, 3, 1], not [2, 3, 1]")):
    refused("one row for two", "CMHA_ERR_SHAPE", name + ": " + whole, lambda: typed.loss(
        ids[:, :3], **{name: numpy.ones((3, 1) if name == "features" else 3, int)}))
refused("no ids at all", "CMHA_ERR_ARGUMENT", "neither ids nor targets, labels or values", fitted.fit)
refused("fractional targets", "CMHA_ERR_ARGUMENT", "targets: whole numbers", lambda: model.loss(ids, ids * 0.5))
refused("an encoder's next tokens", "CMHA_ERR_ARGUMENT", "sees the next tokens", lambda: judge.loss(words))
refused("a name that a NUL cuts", "CMHA_ERR_ARGUMENT", "no NUL", lambda: model.save(path("a\0b")))
refused("a field likewise", "CMHA_ERR_ARGUMENT", "without a NUL", lambda: cmha.Model(d_model="32\0x"))
refused("a field's name likewise", "CMHA_ERR_ARGUMENT", "a field is text without a NUL, not 'n_layers\\x00s'",
        lambda: cmha.Model(**{"n_layers\0s": 1}))
refused("a pattern likewise", "CMHA_ERR_ARGUMENT", "pattern is text", lambda: model.tune(None, rate=1))
refused("no preset", "CMHA_ERR_ARGUMENT", "preset is text without a NUL, not None", lambda: cmha.Model(None))
refused("a missing file", "CMHA_ERR_NOT_FOUND", "nowhere", lambda: cmha.Model.open(path("nowhere")))
refused("a file of another kind", "CMHA_ERR_FORMAT", "c.csv", lambda: cmha.Model.open(path("c.csv")))
refused("too short a text", "CMHA_ERR_ARGUMENT", "tokens", lambda: fitted.step(text[:5]))
refused("targets of another shape", "CMHA_ERR_SHAPE", "targets", lambda: model.loss(ids, ids[:, 1:]))
refused("no such head", "CMHA_ERR_STATE", "classes", lambda: model.classify(ids))
refused("a trainer of a packed model", "CMHA_ERR_STATE", "packed", lambda: cmha.Trainer(packed))
other = subprocess.run([sys.executable, "-c", "import cmha"], stderr=subprocess.PIPE, text=True, env=dict(
    os.environ, CMHA_LIBRARY=path("no.so"), PYTHONPATH=os.path.dirname(cmha.__file__)))
one("a library that is not there", other.returncode and other.stderr.endswith("no.so, which is not there\n"))
one("after all that the model is the same", numpy.isfinite(model.logits(ids)).all())
one("kinds and presets", cmha.kinds()["rope"].startswith("family=") and "fast" in cmha.presets())

print("%d passed, %d failed" % (passed, failed))
sys.exit(failed > 0)
