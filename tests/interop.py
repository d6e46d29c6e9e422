#!/usr/bin/env python3
"""interop.py FOLDER [FILE...]: an independent reader and writer of safetensors files, by the format's public description.

Reads FOLDER/ours.safetensors, which tests/test_interop.c has written, as strictly as the Python library does, and compares every
number. Writes FOLDER/<dtype>.safetensors and others for the test to read. Each FILE is checked and written again in F64, under the
same names. If the Python library safetensors is there, it reads and writes as well (FOLDER/library.safetensors)."""
import json
import os
import struct
import sys

WIDTH = {"BOOL": 1, "U8": 1, "I8": 1, "F8_E5M2": 1, "F8_E4M3": 1, "I16": 2, "U16": 2, "F16": 2, "BF16": 2, "I32": 4, "U32": 4,
         "F32": 4, "I64": 8, "U64": 8, "C64": 8, "F64": 8}


def unique(pairs):
    names = [k for k, _ in pairs]
    assert len(set(names)) == len(names), "a name comes twice"
    return dict(pairs)


def read(path):
    """metadata, {name: (dtype, shape, bytes)}; every rule of the format is an assertion"""
    with open(path, "rb") as f:
        raw = f.read()
    length = struct.unpack("<Q", raw[:8])[0]
    assert length <= 100_000_000 and 8 + length <= len(raw), "header length"
    text = raw[8:8 + length].decode("utf-8")
    assert text[0] == "{" and text.rstrip(" ")[-1] == "}", "the header is { ... } and spaces"
    assert (8 + length) % 8 == 0, "the data is aligned"
    header = json.loads(text, object_pairs_hook=unique)
    metadata = header.pop("__metadata__", {})
    assert all(isinstance(k, str) and isinstance(v, str) for k, v in metadata.items()), "metadata are texts"
    tensors, end = {}, 0
    for name, t in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        assert set(t) == {"dtype", "shape", "data_offsets"}, "fields of a tensor"
        count = 1
        for n in t["shape"]:
            assert isinstance(n, int) and n >= 0, "a shape of whole numbers"
            count *= n
        first, last = t["data_offsets"]
        assert first == end and last - first == count * WIDTH[t["dtype"]], "no holes, no overlaps, sizes as the shapes say"
        end = last
        tensors[name] = (t["dtype"], t["shape"], raw[8 + length + first:8 + length + last])
    assert 8 + length + end == len(raw), "the tensors fill the file"
    return metadata, tensors


def write(path, tensors, metadata=None, blanks=False):
    header, data = {}, b""
    if metadata is not None:
        header["__metadata__"] = metadata
    for name, (dtype, shape, raw) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header, indent=2 if blanks else None, separators=None if blanks else (",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


def value(i):
    """What number i of a tensor is in these tests: exact in every dtype"""
    return (i % 16 - 7) * (0.5 if i % 3 else 8.0)


def encode(dtype, values):
    if dtype == "BF16":
        return b"".join(struct.pack("<f", v)[2:] for v in values)
    if dtype == "I64":
        return struct.pack("<%dq" % len(values), *(int(8 * v) for v in values))
    return struct.pack("<%d%s" % (len(values), {"F64": "d", "F32": "f", "F16": "e"}[dtype]), *values)


def decode(dtype, raw):
    if dtype == "C64":  # pairs of floats: real part, imaginary part
        return struct.unpack("<%df" % (len(raw) // 4), raw)
    n = len(raw) // WIDTH[dtype]
    return struct.unpack("<%d%s" % (n, {"F64": "d", "F32": "f", "F16": "e", "I64": "q"}[dtype]), raw)


def library(folder):
    try:
        import safetensors
    except ImportError:
        print("SKIP there is no Python library safetensors")
        return
    with open(os.path.join(folder, "ours.safetensors"), "rb") as f:
        theirs = {name: (bytes(t["data"]), list(t["shape"])) for name, t in safetensors.deserialize(f.read())}
    ours = read(os.path.join(folder, "ours.safetensors"))[1]
    assert {name: (raw, shape) for name, (_, shape, raw) in ours.items()} == theirs, "the library reads what we read"
    names = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64"}
    made = {d: {"dtype": names[d], "shape": [4, 6], "data": encode(d, [value(i) for i in range(24)])} for d in names}
    with open(os.path.join(folder, "library.safetensors"), "wb") as f:
        f.write(safetensors.serialize(made, {"by": "the library"}))


def main():
    folder = sys.argv[1]
    metadata, tensors = read(os.path.join(folder, "ours.safetensors"))
    assert metadata == {"key": "value", "odd \"key\"\\": "tab\t, line\n, \u00e9, \u20ac, \U0001F600, \x01, \x7f"}, metadata
    assert list(tensors) == ["matrix", "caf\u00e9 \"quoted\"", "none", "scalar", "complex"], list(tensors)
    assert tensors["complex"][:2] == ("C64", [4, 3]), tensors["complex"][:2]
    assert list(decode("C64", tensors.pop("complex")[2])) == [value(i) for i in range(24)], "complex"
    for name, shape in (("matrix", [4, 6]), ("caf\u00e9 \"quoted\"", [3]), ("none", [2, 0]), ("scalar", [])):
        dtype, got, raw = tensors[name]
        assert got == shape and dtype in ("F32", "F64"), name
        assert list(decode(dtype, raw)) == [value(i) for i in range(len(raw) // WIDTH[dtype])], name
    for dtype in ("F64", "F32", "F16", "BF16", "I64"):
        numbers = encode(dtype, [value(i) for i in range(24)])
        write(os.path.join(folder, dtype + ".safetensors"), {dtype: (dtype, [4, 6], numbers), "none": (dtype, [0, 3], b"")})
    write(os.path.join(folder, "C64.safetensors"), {"C64": ("C64", [4, 3], encode("F32", [value(i) for i in range(24)]))})
    write(os.path.join(folder, "blanks.safetensors"),
          {"z": ("F32", [2, 3, 4], encode("F32", [value(i) for i in range(24)])), "\u20ac": ("U8", [3], b"abc")},
          {"format": "pt", "\u00e9": "\n"}, blanks=True)
    for i, path in enumerate(sys.argv[2:]):
        notes, found = read(path)
        wide = {name: ("F64", shape, struct.pack("<%dd" % len(decode(dtype, raw)), *decode(dtype, raw)))
                for name, (dtype, shape, raw) in found.items()}
        write(os.path.join(folder, "again%d.safetensors" % i), wide, notes)
    library(folder)
    print("done")


main()
