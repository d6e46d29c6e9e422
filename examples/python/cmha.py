"""cmha.h from Python: one file, ctypes and NumPy, nothing to build but the library (make lib).

    import numpy, cmha
    text = numpy.fromfile("cmha.h", numpy.uint8)
    model = cmha.Model(preset="tiny", attention="cmha")
    trainer = cmha.Trainer(model, steps=200)
    for step in range(200): print(step, trainer.step(text))
    print(bytes(model.generate(b"static int ", 200)).decode(errors="replace"))

The library is CMHA_LIBRARY of the environment, else libcmha.so (.dylib) beside this file, else in build/.
Fields of models and training are keyword arguments; `build/train_tiny --help` lists them. A call that fails
raises cmha.Error with the library's line. Arrays of parameters and gradients are the model's own memory, not
copies: calls that move that memory are refused while such an array, or a slice of one, is in use. Threads may
share a model: their calls wait for each other. Those of several models work at once.
"""
import ctypes
import gc
import operator
import os
import signal
import sys
import threading
import warnings
import weakref

import numpy

__all__ = ["Cache", "Error", "Model", "Trainer", "kinds", "library", "presets", "version"]

_size = ctypes.c_size_t
_pointer = ctypes.c_void_p


class Error(Exception):
    """A call failed: str() is the library's line, `status` its name, such as "CMHA_ERR_SHAPE"."""

    def __init__(self, status, line):
        super().__init__(line)
        self.status = status


# ---- structs of the header that cross the border; loading compares their sizes with the library's

class _Table(ctypes.Structure):  # cmha_table
    _fields_ = [("fields", _pointer), ("count", _size)]


class _Field(ctypes.Structure):  # cmha_field
    _fields_ = [("name", ctypes.c_char_p), ("type", ctypes.c_int), ("offset", _size),
                ("initial", ctypes.c_double), ("minimum", ctypes.c_double), ("maximum", ctypes.c_double),
                ("choices", ctypes.c_char_p), ("help", ctypes.c_char_p)]


_LOG = ctypes.CFUNCTYPE(None, _pointer, ctypes.c_int, ctypes.c_char_p)
_TOKEN = ctypes.CFUNCTYPE(ctypes.c_int, _pointer, ctypes.POINTER(ctypes.c_int32), _size)


class _ContextConfig(ctypes.Structure):  # cmha_context_config
    _fields_ = [("threads", ctypes.c_int), ("seed", ctypes.c_uint64), ("allocator", _pointer * 3),
                ("files", _pointer * 4), ("system_too", ctypes.c_int), ("files_user", _pointer),
                ("log", _LOG), ("log_user", _pointer), ("keep_blas_threads", ctypes.c_int), ("scores", _pointer),
                ("n_scores", _size), ("optimisers", _pointer), ("n_optimisers", _size)]


class _Tensor(ctypes.Structure):  # cmha_tensor
    _fields_ = [("data", _pointer), ("grad", _pointer), ("shape", _size * 4), ("rank", ctypes.c_int),
                ("needs_grad", ctypes.c_int), ("size", _size), ("packed", _pointer)]


class _Batch(ctypes.Structure):  # cmha_batch
    _fields_ = [("ids", _pointer), ("targets", _pointer), ("key_mask", _pointer), ("batch", _size),
                ("length", _size), ("types", _pointer), ("labels", _pointer), ("class_weights", _pointer),
                ("features", _pointer), ("values", _pointer)]


class _Tokens(ctypes.Structure):  # cmha_tokens
    _fields_ = [("data", _pointer), ("count", _size), ("width", ctypes.c_int), ("owner", _pointer),
                ("bytes", _size), ("mapped", ctypes.c_int)]


class _CacheOptions(ctypes.Structure):  # cmha_cache_options
    _fields_ = [("storage", ctypes.c_int), ("prompt", _size), ("memory", _pointer), ("bytes", _size),
                ("sinks", _size)]


class _CacheStart(ctypes.Structure):  # how cmha_cache begins
    _fields_ = [("context", _pointer), ("model", _pointer), ("opening", ctypes.c_uint64), ("batch", _size),
                ("capacity", _size), ("length", _size), ("first", _size), ("slide", ctypes.c_int),
                ("endless", ctypes.c_int), ("exact", ctypes.c_int)]


class _Parameters(ctypes.Structure):  # how cmha_parameters begins
    _fields_ = [("context", _pointer), ("list", _pointer), ("count", _size)]


class _Parameter(ctypes.Structure):  # how cmha_parameter begins
    _fields_ = [("name", ctypes.c_char * 48), ("tensor", _Tensor), ("is_complex", ctypes.c_int),
                ("frozen", ctypes.c_int)]


# ---- the library

def _find():
    name = "libcmha.dylib" if sys.platform == "darwin" else "libcmha.so"
    here = os.path.dirname(os.path.abspath(__file__))
    named = os.environ.get("CMHA_LIBRARY")
    if named and not os.path.exists(named):
        raise ImportError("cmha: CMHA_LIBRARY names %s, which is not there" % named)
    for place in [named, os.path.join(here, name), os.path.join(here, "..", "..", "build", name)]:
        if place and os.path.exists(place):
            return place
    raise ImportError("cmha: there is no %s: `make lib` builds it, CMHA_LIBRARY says where it is" % name)


# what each function takes and returns; those that return a status are checked
_STATUS = {
    "cmha_config_set": [_pointer, _Table, _pointer, ctypes.c_char_p, ctypes.c_char_p],
    "cmha_preset": [_pointer, ctypes.c_char_p, _pointer, _pointer],
    "cmha_kind": [_pointer, ctypes.c_char_p, _pointer],
    "cmha_context_init": [_pointer, _pointer],
    "cmha_model_init": [_pointer, _pointer, _pointer],
    "cmha_model_open": [_pointer, _pointer, ctypes.c_char_p],
    "cmha_model_save": [_pointer, ctypes.c_char_p],
    "cmha_model_read": [_pointer, ctypes.c_char_p, ctypes.c_int, _pointer],
    "cmha_model_pack": [_pointer, ctypes.c_int],
    "cmha_model_logits": [_pointer, _pointer, _pointer],
    "cmha_model_classify": [_pointer, _pointer, _pointer],
    "cmha_model_predict": [_pointer, _pointer, _pointer],
    "cmha_model_vectors": [_pointer, _pointer, _pointer],
    "cmha_model_loss": [_pointer, _pointer, _pointer],
    "cmha_model_attention": [_pointer, _pointer, _size, _size, ctypes.c_int, _pointer],
    "cmha_tape_init": [_pointer, _pointer, ctypes.c_int],
    "cmha_tape_status": [_pointer],
    "cmha_trainer_init": [_pointer, _pointer, _pointer],
    "cmha_trainer_step": [_pointer, _pointer, _pointer],
    "cmha_trainer_step_batch": [_pointer, _pointer, _pointer],
    "cmha_trainer_evaluate": [_pointer, _pointer, _pointer],
    "cmha_trainer_save": [_pointer, ctypes.c_char_p],
    "cmha_trainer_read": [_pointer, ctypes.c_char_p],
    "cmha_parameters_tune": [_pointer, ctypes.c_char_p, ctypes.c_int, ctypes.c_double, _pointer],
    "cmha_cache_init": [_pointer, _pointer, _size, _size, ctypes.c_int, _pointer],
    "cmha_cache_append_features": [_pointer, _pointer, _pointer, _size, _pointer],
    "cmha_cache_save": [_pointer, ctypes.c_char_p],
    "cmha_cache_read": [_pointer, ctypes.c_char_p],
    "cmha_generate": [_pointer, _pointer, _size, _size, _pointer, ctypes.c_uint64, _TOKEN, _pointer],
}
_OTHER = {
    "cmha_sizeof": (_size, [ctypes.c_char_p]),
    "cmha_version": (ctypes.c_char_p, []),
    "cmha_error": (ctypes.c_char_p, [_pointer]),
    "cmha_status_string": (ctypes.c_char_p, [ctypes.c_int]),
    "cmha_blas_remedy": (ctypes.c_char_p, []),
    "cmha_model_table": (_Table, []),
    "cmha_trainer_table": (_Table, []),
    "cmha_sampler_table": (_Table, []),
    "cmha_config_defaults": (None, [_Table, _pointer]),
    "cmha_config_get": (None, [_Table, _pointer, ctypes.c_char_p, ctypes.c_char_p, _size]),
    "cmha_preset_name": (ctypes.c_char_p, [_size]),
    "cmha_kind_name": (ctypes.c_char_p, [_size, _pointer]),
    "cmha_context_close": (None, [_pointer]),
    "cmha_model_close": (None, [_pointer]),
    "cmha_model_states": (ctypes.POINTER(_Tensor), [_pointer, _pointer, _pointer, _pointer]),
    "cmha_tape_close": (None, [_pointer]),
    "cmha_trainer_close": (None, [_pointer]),
    "cmha_cache_close": (None, [_pointer]),
    "cmha_cache_reset": (None, [_pointer]),
}
# in the order of cmha_status
_NAMES = ("CMHA_OK", "CMHA_ERR_ARGUMENT", "CMHA_ERR_SHAPE", "CMHA_ERR_MEMORY", "CMHA_ERR_OVERFLOW",
          "CMHA_ERR_IO", "CMHA_ERR_FORMAT", "CMHA_ERR_NOT_FOUND", "CMHA_ERR_NOT_FINITE", "CMHA_ERR_FULL",
          "CMHA_ERR_TOKEN", "CMHA_ERR_STATE", "CMHA_STOPPED")


def _load():
    path = _find()
    lib = ctypes.CDLL(path)
    for name, arguments in _STATUS.items():
        getattr(lib, name).argtypes = arguments
        getattr(lib, name).restype = ctypes.c_int
    for name, (result, arguments) in _OTHER.items():
        getattr(lib, name).argtypes = arguments
        getattr(lib, name).restype = result
    whole = {"cmha_table": _Table, "cmha_field": _Field, "cmha_context_config": _ContextConfig,
             "cmha_tensor": _Tensor, "cmha_batch": _Batch, "cmha_tokens": _Tokens,
             "cmha_cache_options": _CacheOptions}
    for name, mirror in whole.items():
        if lib.cmha_sizeof(name.encode()) != ctypes.sizeof(mirror):
            raise ImportError("cmha: %s is of another version than cmha.py: its %s differs" % (path, name))
    if lib.cmha_status_string(len(_NAMES) - 1) != b"a callback asked to stop":
        raise ImportError("cmha: %s is of another version than cmha.py: its statuses differ" % path)
    return path, lib


library, _lib = _load()
version = _lib.cmha_version().decode()
real = numpy.dtype(numpy.float64 if "(double" in version else numpy.float32)
"""The type of all numbers: float32, or float64 of a library built with -DCMHA_DOUBLE."""


def _room(name):
    """Zeroed memory for a struct of the header, aligned for any of them."""
    return (ctypes.c_uint64 * ((_lib.cmha_sizeof(name.encode()) + 7) // 8))()


def _check(status, context=None):
    if status:
        line = _lib.cmha_error(context).decode(errors="replace") if context is not None else ""
        raise Error(_NAMES[status], line or _lib.cmha_status_string(status).decode())


def _text(name, value):
    """A C string of a str."""
    if not isinstance(value, str) or "\0" in value:
        raise Error("CMHA_ERR_ARGUMENT", "%s is text without a NUL, not %r" % (name, value))
    return value.encode()


def _path(path):
    """A C string of a file's name."""
    path = os.fsencode(path)
    if b"\0" in path:
        raise Error("CMHA_ERR_ARGUMENT", "a file's name has no NUL, but %r has" % path)
    return path


def presets():
    """Names of all presets."""
    return _named(_lib.cmha_preset_name)


def kinds():
    """Names of all kinds of attention, with the fields that each sets."""
    fields = ctypes.c_char_p()
    names = _named(lambda i: _lib.cmha_kind_name(i, None))
    result = {}
    for i, name in enumerate(names):
        _lib.cmha_kind_name(i, ctypes.byref(fields))
        result[name] = fields.value.decode()
    return result


def _named(ask):
    names = []
    while True:
        name = ask(len(names))
        if name is None:
            return names
        names.append(name.decode())


class Config:
    """Fields of a configuration struct by name: config["d_model"]; dict(config.items()) is all of them."""

    def __init__(self, table, memory, owner=None):
        self._table, self._memory, self._owner = table, memory, owner
        rows = ctypes.cast(table.fields, ctypes.POINTER(_Field))
        self._types = {rows[i].name.decode(): rows[i].type for i in range(table.count)}

    def __contains__(self, name):
        return name in self._types

    def __iter__(self):
        return iter(self._types)

    def __getitem__(self, name):
        if name not in self:
            raise KeyError(name)
        text = ctypes.create_string_buffer(64)
        _lib.cmha_config_get(self._table, self._memory, name.encode(), text, 64)
        kind = self._types[name]  # cmha_field_type: size, real, flag, enum, name
        return (int, float, lambda t: bool(int(t)), str, str)[kind](text.value.decode())

    def items(self):
        return [(name, self[name]) for name in self]

    # not public: a model or trainer that is open has memory for the fields that it was opened with
    def _set(self, owner, name, value):
        if isinstance(value, (bool, numpy.bool_)):
            value = int(value)
        field, text = _text("a field", name), _text(name, str(value))
        owner.call(_lib.cmha_config_set, owner.context, self._table, self._memory, field, text)


# has this process worked with several threads, or had the one that it was forked from?
_worked = {"here": False, "before": False}
if hasattr(os, "register_at_fork") and "OpenMP" in version:
    os.register_at_fork(after_in_child=lambda: _worked.update(before=_worked["here"]))


class _Anchor:
    """A context that is open while any other is. It holds OpenBLAS, which NumPy may share, at one thread; the
    others, which close in any order, then leave it so."""
    lock, users, context = threading.RLock(), 0, None

    @classmethod
    def count(cls, change):
        with cls.lock:
            cls.users += change
            if cls.users and cls.context is None:
                context = _room("cmha_context")
                _check(_lib.cmha_context_init(context, ctypes.byref(_ContextConfig(threads=1))))
                cls.context = context
            elif not cls.users and cls.context is not None:
                _lib.cmha_context_close(cls.context)
                cls.context = None


class _Owner:
    """Holds context and model of the library until the last array or object that uses them is gone."""

    def __init__(self, seed, threads):
        self.model = None
        self.threads, self.lock = threads, threading.RLock()
        self.lent = {"parameters": weakref.WeakValueDictionary(), "gradients": weakref.WeakValueDictionary()}
        self.context = _room("cmha_context")
        self.log = _LOG(lambda user, level, line: warnings.warn(line.decode(errors="replace"), stacklevel=2))
        config = _ContextConfig(threads=threads, seed=seed, log=self.log)
        _Anchor.count(1)
        opened = _lib.cmha_context_init(self.context, ctypes.byref(config))
        if opened:
            self.context = None
            _Anchor.count(-1)
            _check(opened)

    def __del__(self):
        if getattr(self, "model", None) is not None:
            _lib.cmha_model_close(self.model)
        if getattr(self, "context", None) is not None:
            _lib.cmha_context_close(self.context)
            _Anchor.count(-1)

    def call(self, function, *arguments):
        """One call of the library, which lets other threads run but not into this context."""
        with self.lock:
            if self.threads != 1:
                if _worked["before"]:
                    line = "after fork() GCC's OpenMP waits for ever: open models with threads=1, or spawn"
                    warnings.warn(line, RuntimeWarning, stacklevel=4)
                _worked["here"] = True
            _check(function(*arguments), self.context)

    def moves(self, call, *kinds):
        """Refuses a call that frees or moves memory under arrays that are in use."""
        if any(len(self.lent[kind]) for kind in kinds):
            gc.collect()  # those that only cycles still hold, such as a caught exception's
        for kind in kinds:
            count = len(self.lent[kind])
            if count:
                line = "%s: arrays of %s are in use (%d) and it moves their memory; keep copies instead"
                raise Error("CMHA_ERR_STATE", line % (call, kind, count))


def _array(address, shape):
    """A NumPy array over the library's memory, and the object that it and all views of it keep alive."""
    number = ctypes.c_double if real.itemsize == 8 else ctypes.c_float
    memory = (number * int(numpy.prod(shape, dtype=numpy.int64))).from_address(address)
    return numpy.frombuffer(memory, real).reshape(shape), memory


def _number(name, value, least=0, most=2**63 - 1):
    """A whole number from least to most; ctypes would wrap others."""
    try:
        value = operator.index(value)
    except TypeError:
        raise Error("CMHA_ERR_ARGUMENT", "%s is a whole number, not %r" % (name, value)) from None
    if not least <= value <= most:
        end = ("at least", least) if value < least else ("at most", most)
        raise Error("CMHA_ERR_ARGUMENT", "%s is %s %d, not %d" % (name, *end, value))
    return value


def _seed(name, value):
    return _number(name, value, most=2**64 - 1)


def _whole(name, numbers, shapes, ranks, model=None):
    """An array of whole numbers from one, or from bytes or a str (its UTF-8)."""
    if isinstance(numbers, (str, bytes, bytearray)) and model and model.config["tokenizer"]:
        raise Error("CMHA_ERR_TOKEN", "%s: tokens of this model are a tokenizer's, not bytes" % name)
    if isinstance(numbers, str):
        numbers = numbers.encode()
    if isinstance(numbers, (bytes, bytearray)):
        numbers = numpy.frombuffer(bytes(numbers), numpy.uint8)
    numbers = numpy.asarray(numbers)
    if numbers.dtype.kind not in "iu" or numbers.ndim not in ranks:
        raise Error("CMHA_ERR_ARGUMENT", "%s: whole numbers %s, not %s %s"
                    % (name, shapes, numbers.dtype, list(numbers.shape)))
    return numbers


def _ids(ids, name="ids", model=None):
    """[batch, length] of int32, from rows of numbers, a row, bytes or a str."""
    ids = _whole(name, ids, "[length] or [batch, length]", (1, 2), model)
    for far in ids[(ids > 2**31 - 1) | (ids < -2**31)][:1] if ids.itemsize > 2 else ():
        raise Error("CMHA_ERR_TOKEN", "%s: %d is outside of 32 bits" % (name, far))
    return numpy.ascontiguousarray(numpy.atleast_2d(ids), numpy.int32)


def _prompt(model, prompt):
    """int32 [batch, length], or [length] if it is one text; not empty."""
    one = isinstance(prompt, (str, bytes, bytearray)) or numpy.ndim(prompt) == 1
    prompt = _ids(prompt, "prompt", model)
    if not prompt.shape[1]:
        raise Error("CMHA_ERR_ARGUMENT", "generate: the prompt is empty")
    return prompt[0] if one else prompt


def _next(call, model, ids, batch):
    """ids without the last tokens, and without the first ones: the targets, none at padding. Cuts what
    batch has of the same length."""
    if ids is None:
        raise Error("CMHA_ERR_ARGUMENT", "%s: there are neither ids nor targets, labels or values" % call)
    if not model.config["causal"]:
        raise Error("CMHA_ERR_ARGUMENT", "%s: an encoder sees the next tokens, give it other targets" % call)
    ids = _ids(ids, model=model)
    length = ids.shape[1]
    if length < 2:
        line = "%s: of ids alone the targets are the next tokens, and a row of %d has none"
        raise Error("CMHA_ERR_ARGUMENT", line % (call, length))
    targets = ids[:, 1:]
    if batch.get("mask") is not None:
        batch["mask"] = mask = _Held.fit("mask", _present(batch["mask"]), ids.shape, bool)
        targets = numpy.where(mask[:, 1:], targets, -1)
    if batch.get("types") is not None:
        batch["types"] = _ids(batch["types"], "types")
    for name, axis in (("mask", 1), ("types", 1), ("features", 2)):
        whole = numpy.asarray(batch.get(name, 0))
        if whole.ndim >= axis:  # a wrong shape is told as it was given
            shape = ids.shape + whole.shape[whole.ndim + 1 - axis:]
            batch[name] = _Held.fit(name, whole, shape, whole.dtype)[:, :-1]
    return ids[:, :-1], targets


def _present(mask):
    """A byte a token of numbers: any but 0 is 1."""
    mask = numpy.atleast_2d(mask)
    if mask.dtype.kind not in "biuf":
        raise Error("CMHA_ERR_ARGUMENT", "mask: numbers, 0 for an absent token, not %s" % mask.dtype)
    return mask != 0


def _stream(tokens, model):
    """cmha_tokens over an array [count] of 1, 2 or 4 bytes, which it does not copy; bytes and str too."""
    tokens = _whole("tokens", tokens, "[count]", (1,), model)
    if tokens.dtype == numpy.int8:
        raise Error("CMHA_ERR_ARGUMENT", "tokens: int8 has no token above 127, use uint8")
    if tokens.dtype.kind == "i" and tokens.itemsize == 2 and tokens.size and tokens.min() < 0:
        raise Error("CMHA_ERR_TOKEN", "tokens: %d is less than 0" % tokens.min())
    if tokens.itemsize == 8:
        if tokens.size and (tokens.max() > 2**31 - 1 or tokens.min() < 0):
            raise Error("CMHA_ERR_TOKEN", "tokens: a token is outside of 31 bits")
        tokens = tokens.astype(numpy.uint32)
    tokens = numpy.ascontiguousarray(tokens, tokens.dtype.newbyteorder("<"))
    stream = _Tokens(data=tokens.ctypes.data, count=tokens.size, width=tokens.itemsize)
    stream.array = tokens
    return stream


class _Held:
    """A cmha_batch and the arrays that it points to."""

    def __init__(self, model, ids, targets=None, mask=None, labels=None, features=None, values=None,
                 types=None, class_weights=None):
        self.c = _Batch()
        self.kept = []
        shape = None
        if ids is not None:
            ids = _ids(ids, model=model)
            shape = ids.shape
            self.c.ids = self.keep(ids)
        if features is not None:
            features = numpy.asarray(features)
            if features.ndim not in (2, 3):
                line = "features: [length, features] or [batch, length, features], not %s"
                raise Error("CMHA_ERR_SHAPE", line % list(features.shape))
            width = model.config["features"] * (2 if model.config["complex_features"] else 1)
            shape = shape or ((1,) + features.shape)[-3:-1]
            self.c.features = self.keep(self.rows("features", features, shape, width))
        if shape is None:
            raise Error("CMHA_ERR_ARGUMENT", "batch: there are neither ids nor features")
        self.c.batch, self.c.length = shape
        if targets is not None:
            targets = _ids(targets, "targets", model)
            self.c.targets = self.keep(self.fit("targets", targets, shape, numpy.int32))
        if mask is not None:
            self.c.key_mask = self.keep(self.fit("mask", _present(mask), shape, numpy.uint8))
        if types is not None:
            self.c.types = self.keep(self.fit("types", _ids(types, "types"), shape, numpy.int32))
        if labels is not None:
            self.c.labels = self.keep(self.fit("labels", labels, shape[:1], real))
        if class_weights is not None:
            classes = (model.config["classes"],)
            self.c.class_weights = self.keep(self.fit("class_weights", class_weights, classes, real))
        if values is not None:
            self.c.values = self.keep(self.rows("values", values, shape, model.config["values"]))
        self.shape = shape

    def keep(self, array):
        self.kept.append(array)
        return array.ctypes.data

    @staticmethod
    def fit(name, array, shape, dtype):
        array = numpy.asarray(array)
        if array.ndim == len(shape) - 1:
            array = array[None]
        if array.shape != tuple(shape):
            raise Error("CMHA_ERR_SHAPE", "%s: %s, not %s" % (name, list(array.shape), list(shape)))
        if array.dtype.kind not in ("biuf" if numpy.dtype(dtype).kind != "c" else "c"):
            raise Error("CMHA_ERR_ARGUMENT", "%s: real numbers, not %s" % (name, array.dtype))
        return numpy.ascontiguousarray(array, dtype)

    @classmethod
    def rows(cls, name, array, shape, width):
        """[batch, length, width] of real numbers, or of half as many complex ones: [Re | Im]."""
        array = numpy.asarray(array)
        if not numpy.iscomplexobj(array):
            return cls.fit(name, array, shape + (width,), real)
        if width % 2:
            line = "%s: the model has %d real numbers a position, which complex ones do not fill"
            raise Error("CMHA_ERR_SHAPE", line % (name, width))
        array = cls.fit(name, array, shape + (width // 2,), array.dtype)
        return numpy.ascontiguousarray(numpy.concatenate([array.real, array.imag], -1), real)

    def __enter__(self):
        return ctypes.byref(self.c)

    def __exit__(self, *_):
        return False


def _learned(call, model, ids, targets, batch):
    """The batch that a loss is of; of ids alone its targets are the next tokens."""
    known = ("mask", "labels", "features", "values", "types", "class_weights")
    for name in batch:
        if name not in known:
            raise TypeError("%s: no argument %r; there are ids, targets, %s" % (call, name, ", ".join(known)))
    if targets is None and batch.get("labels") is None and batch.get("values") is None:
        ids, targets = _next(call, model, ids, batch)
    return _Held(model, ids, targets=targets, **batch)


class _Interrupts:
    """Ctrl-C waits while `wait` is set, until the end of a with-block: ctypes would print and forget a
    KeyboardInterrupt at the first line of a callback."""

    def __init__(self):
        self.wait, self.waiting, self.usual = True, None, None

    def __enter__(self):
        main = threading.current_thread() is threading.main_thread()
        if main and callable(signal.getsignal(signal.SIGINT)):
            self.usual = signal.signal(signal.SIGINT, self.take)

    def take(self, *signal_and_frame):
        self.waiting = signal_and_frame
        if not self.wait:
            self.waiting = None
            self.usual(*signal_and_frame)

    def __exit__(self, *_):
        if self.usual:
            signal.signal(signal.SIGINT, self.usual)
        if self.waiting:
            self.usual(*self.waiting)
        return False


class _Single:
    """What copy and pickle refuse in one line: its memory is the library's."""

    def __reduce__(self):
        line = "a %s cannot be copied or pickled: save it to a file and open that"
        raise TypeError(line % type(self).__name__)


class Model(_Single):
    """Model(preset="tiny", attention="rope", n_layers=2, ...) has random weights; Model.open(path) reads."""

    def __init__(self, preset="tiny", attention=None, seed=1, threads=0, **fields):
        self._begin(seed, threads)
        table = _lib.cmha_model_table()
        memory = _room("cmha_model_config")
        trainer = _room("cmha_trainer_config")
        self._call(_lib.cmha_preset, self._context, _text("preset", preset), memory, trainer)
        self._trainer_start = trainer
        if attention is not None:
            self._call(_lib.cmha_kind, self._context, _text("attention", attention), memory)
        config = Config(table, memory)
        for name, value in fields.items():
            config._set(self._owner, name, value)
        model = _room("cmha_model")
        self._call(_lib.cmha_model_init, model, self._context, memory)
        self._opened(model)

    @classmethod
    def open(cls, path, seed=1, threads=0):
        """Opens what `save`, or a program of the project, has written."""
        self = cls.__new__(cls)
        self._begin(seed, threads)
        self._trainer_start = None
        model = _room("cmha_model")
        self._call(_lib.cmha_model_open, model, self._context, _path(path))
        self._opened(model)
        return self

    def _begin(self, seed, threads):
        self._owner = _Owner(_seed("seed", seed), _number("threads", threads, most=2**31 - 1))
        self._context = self._owner.context
        self._call = self._owner.call
        remedy = _lib.cmha_blas_remedy()
        if remedy:
            line = "OpenBLAS takes a slow kernel: start Python with %s in its environment"
            warnings.warn(line % remedy.decode(), stacklevel=3)

    def _opened(self, model):
        # a model begins with its context and its configuration; two pointers further on are its parameters
        self._owner.model = self._model = model
        fields = _lib.cmha_sizeof(b"cmha_model_config")
        base = ctypes.addressof(model)
        place = (fields + 7) // 8 * 8 + 3 * ctypes.sizeof(_pointer)
        self._parameters = _Parameters.from_address(base + place)
        if self._parameters.context != ctypes.addressof(self._context):
            raise Error("CMHA_ERR_STATE", "cmha.py: the library's model begins otherwise than this file knows")
        self.config = Config(_lib.cmha_model_table(), _pointer(base + ctypes.sizeof(_pointer)), self._owner)

    def _parameter(self, i):
        return _Parameter.from_address(self._parameters.list + i * _lib.cmha_sizeof(b"cmha_parameter"))

    def _named(self):
        return [self._parameter(i) for i in range(self._parameters.count)]

    @property
    def parameters(self):
        """{name: array}: the weights themselves; what is written into an array, the model has. Of a packed
        model those that are not packed."""
        with self._owner.lock:
            return {p.name.decode(): self._lend("parameters", p.tensor.data, p)
                    for p in self._named() if p.tensor.data}

    @property
    def gradients(self):
        """{name: array} of what learns, once a trainer has been opened: the last step's, until the next."""
        with self._owner.lock:
            return {p.name.decode(): self._lend("gradients", p.tensor.grad, p)
                    for p in self._named() if p.tensor.grad}

    def _lend(self, kind, address, p):
        array, memory = _array(address, tuple(p.tensor.shape[:p.tensor.rank]))
        memory.owner = self._owner
        self._owner.lent[kind][id(memory)] = memory
        return array

    def tune(self, pattern, frozen=None, rate=None, decay=None):
        """Says how parameters learn whose names match "*.delta,*.b"; returns how many do. frozen moves the
        gradients."""
        if frozen is None and rate is None and decay is None:
            raise Error("CMHA_ERR_ARGUMENT", "tune: there are neither frozen, rate nor decay")
        count = _size()
        place, pattern = ctypes.byref(self._parameters), _text("pattern", pattern)
        with self._owner.lock:
            if frozen is not None:
                self._owner.moves("tune", "gradients")
            for what, value in enumerate((frozen, rate, decay)):
                if value is not None:
                    self._call(_lib.cmha_parameters_tune, place, pattern, what, float(value),
                               ctypes.byref(count))
        return count.value

    def save(self, path):
        self._call(_lib.cmha_model_save, self._model, _path(path))

    def read(self, path, strict=1):
        """Reads weights into this model, by name; strict as in cmha_model_read. Returns how many were taken."""
        taken = _size()
        self._call(_lib.cmha_model_read, self._model, _path(path), strict, ctypes.byref(taken))
        return taken.value

    def pack(self, storage="int8"):
        """Keeps the matrices as "int8", "int4", "q4_k" or "bf16" alone: less memory, no more training.
        It moves parameters and gradients."""
        storages = ("bf16", "int8", "int4", "q4_k")
        if storage not in storages:
            line = "pack: storage is %s, not %r" % (" or ".join(storages), storage)
            raise Error("CMHA_ERR_ARGUMENT", line)
        with self._owner.lock:
            self._owner.moves("pack", "parameters", "gradients")
            self._call(_lib.cmha_model_pack, self._model, 1 + storages.index(storage))

    def _result(self, function, batch, width):
        out = numpy.zeros((batch.shape[0],) + width, real)
        with batch as c:
            self._call(function, self._model, c, out.ctypes.data)
        return out

    def logits(self, ids=None, mask=None, features=None, types=None):
        """ids [batch, length], or [length] -> [batch, length, vocabulary]."""
        batch = _Held(self, ids, mask=mask, features=features, types=types)
        return self._result(_lib.cmha_model_logits, batch, (batch.shape[1], self.config["vocabulary"]))

    def classify(self, ids=None, mask=None, features=None, types=None):
        """-> scores [batch, classes], before a softmax."""
        batch = _Held(self, ids, mask=mask, features=features, types=types)
        return self._result(_lib.cmha_model_classify, batch, (self.config["classes"],))

    def predict(self, ids=None, mask=None, features=None, types=None):
        """-> predicted values [batch, length, values]; of a gaussian model means, then log variances."""
        batch = _Held(self, ids, mask=mask, features=features, types=types)
        return self._result(_lib.cmha_model_predict, batch, (batch.shape[1], self._predicted()))

    def _predicted(self):
        """Numbers that are predicted at a position."""
        return self.config["values"] * (2 if self.config["gaussian"] else 1)

    def vectors(self, ids=None, mask=None, features=None, types=None):
        """-> [batch, d_model]: a vector for each sequence, the mean of its tokens' phasors, to be compared."""
        batch = _Held(self, ids, mask=mask, features=features, types=types)
        return self._result(_lib.cmha_model_vectors, batch, (self.config["d_model"],))

    def embeddings(self, ids=None, mask=None, features=None, types=None):
        """-> [batch, length, d_model], the states after the last norm."""
        tape = _room("cmha_tape")
        with _Held(self, ids, mask=mask, features=features, types=types) as c, self._owner.lock:
            try:
                self._call(_lib.cmha_tape_init, tape, self._context, 0)
                states = _lib.cmha_model_states(self._model, tape, c, None)
                self._call(_lib.cmha_tape_status, tape)
                t = states.contents
                return _array(t.data, tuple(t.shape[:t.rank]))[0].copy()
            finally:
                _lib.cmha_tape_close(tape)

    def attention(self, ids=None, layer=0, head=0, what="probabilities", mask=None, features=None,
                  types=None):
        """-> [batch, queries, keys]; what: "probabilities", "scores" or "phases" (radians)."""
        shown = ("probabilities", "scores", "phases")
        if what not in shown:
            raise Error("CMHA_ERR_ARGUMENT", "attention: what is %s, not %r" % (" or ".join(shown), what))
        batch = _Held(self, ids, mask=mask, features=features, types=types)
        layer, head, seen = _number("layer", layer), _number("head", head), shown.index(what)
        out = numpy.zeros((batch.shape[0], batch.shape[1], batch.shape[1]), real)
        with batch as c:
            self._call(_lib.cmha_model_attention, self._model, c, layer, head, seen, out.ctypes.data)
        return out

    def loss(self, ids=None, targets=None, **batch):
        """The mean loss of targets [batch, length] (-1: ignored; of ids alone the next tokens, but not where
        mask is 0), labels [batch], with class_weights [classes], or values (NaN: ignored)."""
        loss = ctypes.c_double()
        with _learned("loss", self, ids, targets, batch) as c:
            self._call(_lib.cmha_model_loss, self._model, c, ctypes.byref(loss))
        return loss.value

    def generate(self, prompt, n, capacity=None, seed=0, on_token=None, **sampler):
        """Continues prompts [batch, length] (or [length], bytes, str) by n tokens: -> [batch, n] or [n].
        sampler: temperature, top_k, top_p, repetition_penalty, penalty_window. capacity: of a cache that
        slides, for more tokens than that. on_token(ids [batch]) sees each token as it comes; if it returns
        something true, or raises, that is the end."""
        prompt = _prompt(self, prompt)
        n, slide = _number("generate: n", n), capacity is not None
        cache = Cache(self, capacity if slide else max(prompt.shape[-1] + n, 1),
                      len(numpy.atleast_2d(prompt)), slide)
        return cache.generate(prompt, n, seed, on_token, **sampler)


class _Part(_Single):
    """What keeps a model, and is closed before it: a trainer, a cache."""
    _memory = None

    def _belong(self, model, close):
        if not isinstance(model, Model):
            raise TypeError("a %s is of a Model, not %r" % (type(self).__name__, model))
        self._owner, self._call, self._close, self.model = model._owner, model._call, close, model

    def __del__(self):
        # when Python ends, a thread may hold the lock for ever
        if self._memory is not None and not sys.is_finalizing():
            with self._owner.lock:
                self._close(self._memory)


class Trainer(_Part):
    """Trains a model: Trainer(model, steps=1000, batch=8, lr=3e-3, optimiser="muon", ...). What is not named
    is as the model's preset says; of an opened model as the library's defaults."""

    def __init__(self, model, **fields):
        self._belong(model, _lib.cmha_trainer_close)
        table = _lib.cmha_trainer_table()
        memory = _room("cmha_trainer_config")
        if model._trainer_start is None:
            _lib.cmha_config_defaults(table, memory)
        else:
            ctypes.memmove(memory, model._trainer_start, ctypes.sizeof(memory))
        config = Config(table, memory)
        for name, value in fields.items():
            config._set(self._owner, name, value)
        trainer = _room("cmha_trainer")
        self._call(_lib.cmha_trainer_init, trainer, model._model, memory)
        self._memory = trainer

    @property
    def config(self):
        """Its settings, which keep it; were they kept by it, a collector alone would free both."""
        # a trainer begins with two pointers and its configuration
        place = _pointer(ctypes.addressof(self._memory) + 2 * ctypes.sizeof(_pointer))
        return Config(_lib.cmha_trainer_table(), place, self)

    def step(self, tokens):
        """One step on pieces drawn from tokens [count], 1, 2 or 4 bytes each. Returns their mean loss."""
        return self._with(_lib.cmha_trainer_step, tokens)

    def evaluate(self, tokens):
        """The mean loss on tokens [count], eval_tokens at most."""
        return self._with(_lib.cmha_trainer_evaluate, tokens)

    def _with(self, function, tokens):
        loss = ctypes.c_double()
        stream = _stream(tokens, self.model)
        self._call(function, self._memory, ctypes.byref(stream), ctypes.byref(loss))
        return loss.value

    def fit(self, ids=None, targets=None, **batch):
        """One step on a batch of the caller's: targets, labels, class_weights or values as `loss` has them,
        with mask, features and types as `logits` has them. Returns the loss."""
        loss = ctypes.c_double()
        with _learned("fit", self.model, ids, targets, batch) as c:
            self._call(_lib.cmha_trainer_step_batch, self._memory, c, ctypes.byref(loss))
        return loss.value

    def save(self, path):
        """Saves model, moments and step: `read` goes on from there, to the bit."""
        self._call(_lib.cmha_trainer_save, self._memory, _path(path))

    def read(self, path):
        """Goes on from what `save` has written, frozen parameters too, which moves the gradients."""
        with self._owner.lock:
            self._owner.moves("read", "gradients")
            self._call(_lib.cmha_trainer_read, self._memory, _path(path))


class Cache(_Part):
    """What a causal model has read of `batch` texts or streams of equal length, so that a call reads only
    what is new: Cache(model, capacity, batch=1, slide=False). A full one raises; with slide = True it goes
    on, exactly where it can; with "forget" it forgets token by token, but never the first `sinks`. storage
    of keys and values: "float" or "bf16". prompt: positions of a call that it has memory for."""

    def __init__(self, model, capacity, batch=1, slide=False, sinks=0, storage="float", prompt=0):
        self._belong(model, _lib.cmha_cache_close)
        if slide not in (False, True, "forget"):
            raise Error("CMHA_ERR_ARGUMENT", "cache: slide is False, True or 'forget', not %r" % (slide,))
        if storage not in ("float", "bf16"):
            raise Error("CMHA_ERR_ARGUMENT", "cache: storage is float or bf16, not %r" % (storage,))
        options = _CacheOptions(storage=("float", "bf16").index(storage),
                                prompt=_number("cache: prompt", prompt), sinks=_number("cache: sinks", sinks))
        batch, capacity = _number("cache: batch", batch, 1), _number("cache: capacity", capacity, 1)
        cache = _room("cmha_cache")
        self._call(_lib.cmha_cache_init, cache, model._model, batch, capacity,
                   2 if slide == "forget" else int(slide), ctypes.byref(options))
        self._memory = cache
        self._start = _CacheStart.from_buffer(cache)

    batch = property(lambda self: self._start.batch, doc="texts or streams")
    capacity = property(lambda self: self._start.capacity, doc="room in positions, of each")
    length = property(lambda self: self._start.length, doc="positions held")
    first = property(lambda self: self._start.first, doc="positions forgotten: the next is first + length")
    exact = property(lambda self: bool(self._start.exact or not self._start.slide),
                     doc="does it always say what the model says of all positions so far?")

    def append(self, ids=None, features=None):
        """Reads what is new, ids [batch, n] and features [batch, n, ..] as `logits` has them -> what `predict`
        says at the last position or, of a model without values, logits [batch, vocabulary]."""
        held = _Held(self.model, ids, features=features)
        self._fits("append", held.shape)
        width = features is not None and self.model._predicted() or self.model.config["vocabulary"]
        out = numpy.zeros((self.batch, width), real)
        with held as c:
            self._call(_lib.cmha_cache_append_features, self._memory, c._obj.ids, c._obj.features,
                       held.shape[1], out.ctypes.data)
        return out

    def _fits(self, call, shape):
        if shape[0] != self.batch or not shape[1]:
            line = "%s: [%d, positions], at least one, not %s"
            raise Error("CMHA_ERR_SHAPE", line % (call, self.batch, list(shape)))

    def generate(self, prompt, n, seed=0, on_token=None, **sampler):
        """Reads a prompt and continues it, as Model.generate does. The last token drawn is not read: begin
        the next prompt with it."""
        n, seed = _number("generate: n", n), _seed("generate: seed", seed)
        prompt = _prompt(self.model, prompt)
        rows = numpy.atleast_2d(prompt)
        self._fits("generate", rows.shape)
        table = _lib.cmha_sampler_table()
        memory = _room("cmha_sampler_config")
        _lib.cmha_config_defaults(table, memory)
        config = Config(table, memory)
        for name, value in sampler.items():
            config._set(self._owner, name, value)
        written, raised, asked = [], [], []
        interrupts = _Interrupts()

        def take(user, tokens, batch):
            try:
                written.append(numpy.array(tokens[:batch], numpy.int32))
                interrupts.wait = on_token is None
                asked.append(bool(on_token and on_token(written[-1])))
                interrupts.wait = True
                return int(asked[-1] or interrupts.waiting is not None)
            except BaseException as error:  # goes on behind the library's call
                interrupts.wait = True
                raised.append(error)
                return 1

        with interrupts:
            try:
                self._call(_lib.cmha_generate, self._memory, rows.ctypes.data, rows.shape[1], n, memory, seed,
                           _TOKEN(take), None)
            except Error as error:
                if error.status != "CMHA_STOPPED":
                    raise
        if raised:
            raise raised[0]
        if len(written) < n and not any(asked[-1:]):  # a signal's exception that ctypes has printed
            raise Error("CMHA_STOPPED", "generate: an exception came between two tokens")
        ids = numpy.stack(written, 1) if written else numpy.zeros((self.batch, 0), numpy.int32)
        if prompt.ndim > 1:
            return ids
        return ids[0].astype(numpy.uint8) if self.model.config["vocabulary"] <= 256 else ids[0]

    def reset(self):
        """Forgets all it has read."""
        with self._owner.lock:
            _lib.cmha_cache_reset(self._memory)

    def save(self, path):
        """Saves what it holds: a cache made alike, in another process too, goes on from there by `read`."""
        self._call(_lib.cmha_cache_save, self._memory, _path(path))

    def read(self, path):
        """Goes on from what `save` has written of a cache made alike, of the same model, to the bit."""
        self._call(_lib.cmha_cache_read, self._memory, _path(path))
