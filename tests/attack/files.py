"""Valid files and protos, mutated: read correctly, or refused with one of our errors, and soon."""

import json
import tempfile
import tracemalloc
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from math import prod
from pathlib import Path

import numpy as np
from views import dirt, shape_within

import shapejit as sj
from shapejit.__main__ import main
from shapejit.files import safetensors

from .hostile import LONGEST
from .known import DTYPES

KINDS = [kind for kind in DTYPES if kind.safetensors]
PROTOS = [kind for kind in DTYPES if kind.onnx]
PER_BYTE = 60  # bytes that reading may take at a time for each byte of a file
FIXED = 4 * 2**20  # and beside them


def case(random):
    random.choice([safetensors_file, safetensors_file, tensor_proto, any_file])(random)


def bounded(call, nbytes):
    """What the call returns, or None for one of our errors; memory in proportion to the input."""
    tracemalloc.start()
    try:
        made = call()
    except sj.ShapeJitError as fault:
        made, message = None, str(fault)
    else:
        message = ""
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert len(message) < LONGEST, f"a message of {len(message)} characters"
    assert peak < FIXED + PER_BYTE * nbytes, f"{peak} bytes to read {nbytes}"
    return made


def commands(path, good):
    """Commands that read a file succeed, if it is good, or say in one line why not, and exit by 2.

    What they refuse to convert leaves nothing behind.
    """
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "converted.npz"
        convert = ["convert", "--quiet", path, target]
        for words in (["inspect", path], ["verify", path, path], convert):
            with redirect_stdout(StringIO()), redirect_stderr(StringIO()) as reported:
                code = main([*map(str, words)])
            lines = reported.getvalue().splitlines()
            errors = [line for line in lines if line.startswith("shapejit: error: ")]
            assert (code, len(errors)) in ((0, 0), (2, 1)), (words, code, lines)
            assert all(line.startswith("warning: ") for line in lines if line not in errors), lines
        assert good or code
        assert [*Path(folder).iterdir()] == ([] if code else [target])


# Every file format


def any_file(random):
    """A file that NumPy, gguf or onnx wrote, or a folder of shards, with a few bytes changed."""
    with tempfile.TemporaryDirectory() as folder:
        make = random.choice([numpys, numpys, ggufs, shards, models])
        path, changed = make(random, Path(folder))
        content = bytearray(changed.read_bytes())
        for _ in range(random.randrange(4)):
            content[random.randrange(min(len(content), 4096))] = random.randrange(256)
        changed.write_bytes(content[: random.choice([None, random.randrange(len(content))])])
        # Zeros are compressed to a thousandth.
        nbytes = 1000 * len(content) if changed.name == "small.npz" else len(content)
        found = bounded(
            lambda: {name: t.tobytes() for name, t in sj.load_file(path).items()}, nbytes
        )
        commands(path, found is not None)
        if found is None:
            return
        again = Path(folder) / f"again{path.suffix}"
        if path.suffix in (".gguf", ".onnx"):
            bounded(lambda: sj.save_file(sj.load_file(path), again, source=path), nbytes)
        if again.exists():
            assert {name: t.tobytes() for name, t in sj.load_file(again).items()} == found


def numpys(random, folder):
    arrays = {f"layers.{i}": np.zeros((i, 3), random.choice("bhefdF?")) for i in range(5)}
    name = random.choice(["a.npy", "a.npz", "small.npz"])
    if name == "a.npy":
        np.save(folder / name, arrays["layers.4"])
    else:
        {"a.npz": np.savez, "small.npz": np.savez_compressed}[name](folder / name, **arrays)
    return folder / name, folder / name


def ggufs(random, folder):
    import gguf  # imported late: it takes as long as all the rest

    path = folder / "a.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_array("tokens", ["a", "bc"])
    writer.add_tensor("w", np.zeros((2, 32), np.float32))
    writer.add_tensor("q", np.zeros((2, 18), np.uint8), raw_dtype=gguf.GGMLQuantizationType.Q4_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path, path


def models(random, folder):
    import onnx

    raw = dirt(24, random.getrandbits(32))
    weight = onnx.numpy_helper.from_array(raw, "w")
    typed = onnx.helper.make_tensor("t", 1, [3], [1.0, 2.0, 3.0])
    outside = onnx.numpy_helper.from_array(raw, "o")
    onnx.external_data_helper.set_external_data(outside, "data", 0, raw.size)
    outside.ClearField("raw_data")
    (folder / "data").write_bytes(raw)
    body = onnx.helper.make_graph([], "b", [], [], [weight])
    nodes = [
        onnx.helper.make_node("Constant", [], ["c"], value=typed),
        onnx.helper.make_node("If", ["c"], ["i"], then_branch=body, else_branch=body),
        onnx.helper.make_node("Reshape", ["w", "s"], ["r"]),
        onnx.helper.make_node("Shape", ["r"], ["z"], start=-1),
    ]
    sizes = onnx.numpy_helper.from_array(np.array([2, -1]), "s")
    graph = onnx.helper.make_graph(nodes, "g", [], [], [weight, typed, outside, sizes])
    path = folder / "a.onnx"
    path.write_bytes(onnx.helper.make_model(graph).SerializeToString())
    return path, random.choice([path, path, path, folder / "data"])


def shards(random, folder):
    places = {}
    for i in range(3):
        sj.save_file({f"w.{i}": np.arange(i)}, folder / f"{i}.safetensors")
        places[f"w.{i}"] = f"{i}.safetensors"
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": places}))
    return folder, random.choice([index, folder / "1.safetensors"])


# safetensors


def safetensors_file(random):
    """A file whose header or data were tampered with."""
    content, entries = valid_file(random)
    content = random.choice([header_mutated, header_mutated, bytes_mutated, long_header])(
        random, content, entries
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.safetensors"
        path.write_bytes(content)
        found = bounded(lambda: safetensors.read(path), len(content))
        commands(path, found is not None)
        if found is None:
            return
        size = 8 + int.from_bytes(content[:8], "little")
        header, data = json.loads(content[8:size]), content[size:]
        header.pop("__metadata__", None)
        assert found.tensors.keys() == header.keys()
        for name, t in found.tensors.items():
            begin, end = header[name]["data_offsets"]
            assert (t.dtype.safetensors, list(t.shape)) == (
                header[name]["dtype"],
                header[name]["shape"],
            )
            assert t.tobytes() == data[begin:end]


def valid_file(random):
    """The bytes of a file, and the entries of its header."""
    entries, data = {}, b""
    for i in range(random.randint(0, 5)):
        kind = random.choice(KINDS)
        shape = [*shape_within(random, 50), 8]
        raw = dirt(kind.nbytes(prod(shape)), random.getrandbits(32)).tobytes()
        offsets = [len(data), len(data) + len(raw)]
        entries[f"w{i}"] = {"dtype": kind.safetensors, "shape": shape, "data_offsets": offsets}
        data += raw
    if random.random() < 0.3:
        entries["__metadata__"] = {"format": "pt"}
    return with_header(json.dumps(entries).encode(), data), entries


def with_header(header, data):
    header += b" " * (-len(header) % 8)
    return len(header).to_bytes(8, "little") + header + data


def data_of(content):
    return content[8 + int.from_bytes(content[:8], "little") :]


def header_mutated(random, content, entries):
    """The JSON with parts that mean something else."""
    for _ in range(random.randint(1, 3)):
        entries = changed(random, entries)
    text = json.dumps(entries)
    if random.random() < 0.2:
        text = text.replace('"w0"', '"w1"')  # a name that stands twice
    if random.random() < 0.1:
        text = text.replace("8", random.choice(["1e999", "NaN", "8.0", "0x8", "9" * 5000, "-0"]))
    return with_header(text.encode(errors="surrogatepass"), data_of(content))


def changed(random, value):
    """A JSON value with one of its parts, or itself, made another."""
    if isinstance(value, dict | list) and value and random.random() < 0.93:
        made = value.copy()
        at = random.choice(list(made)) if isinstance(made, dict) else random.randrange(len(made))
        if random.random() < 0.15:
            del made[at]
        elif random.random() < 0.1 and isinstance(made, dict):
            made[odd_name(random)] = made.pop(at)
        else:
            made[at] = changed(random, made[at])
        return made
    near = [value - 1, value + 1, -value, 8 * value] if isinstance(value, int) else []
    deep = []
    for _ in range(random.choice([1, 100, 900])):
        deep = [deep]
    words = [kind.safetensors for kind in KINDS]
    return random.choice(
        [
            *near * 6, 0, 1, -1, 2**31, 2**53, 2**63 - 1, 2**63, 10**30, 1.5, True, None, "", [],
            {}, [0], [8, 8], [0, 2**62], [2**32] * 3, [1] * 100, [0] * 10**4, deep,
            odd_name(random), *random.sample(words, 3),
        ]
    )  # fmt: skip


def odd_name(random):
    return random.choice(
        ["__metadata__", "", "w0", "\0", "\x1b[2J", "\ud800", "ü" * 1000, "a" * 10**5, "../x", "\n"]
    )


def bytes_mutated(random, content, entries):
    """Bytes set, cut off or put in."""
    made = bytearray(content)
    for _ in range(random.randint(1, 4)):
        at = random.choice([random.randint(0, 8), random.randint(0, len(made))])
        match random.choice(["set", "set", "set", "cut", "insert"]):
            case "set" if at < len(made):
                made[at] = random.choice([0, 255, 0x7B, 0x22, random.getrandbits(8)])
            case "cut":
                del made[at : at + random.choice([1, 8, 10**6])]
            case _:
                made[at:at] = dirt(random.choice([1, 8, 1000]), random.getrandbits(32)).tobytes()
    return bytes(made)


def long_header(random, content, entries):
    """Some 100 KB to a few MB of JSON."""
    count = random.choice([1000, 30_000])
    entry = {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]}
    header = random.choice(
        [
            lambda: {f"{i}": entry for i in range(count)},
            lambda: {f"{i}": {**entry, "shape": [1] * 60} for i in range(count // 20)},
            lambda: {"w": {**entry, "shape": [1] * (10 * count)}},
            lambda: {"w" * 10 * count: entry},
            lambda: {"w" * 10 * count: {**entry, "dtype": "x" * count}},
            lambda: {"__metadata__": {f"{i}": "x" * 9 for i in range(count)}},
            lambda: {"w": {f"{i}": 0 for i in range(count)}},
            lambda: {"w": [[[0]]] * count},
        ]
    )()
    return with_header(json.dumps(header).encode(), b"")


# TensorProtos


def tensor_proto(random):
    """A TensorProto with fields that do not fit, or whose bytes were changed."""
    from google.protobuf.message import DecodeError
    from onnx import TensorProto

    from shapejit.adapters.onnx_tensors import from_tensorproto, to_tensorproto

    kind, shape = random.choice(PROTOS), shape_within(random, 60)
    memory = dirt(kind.nbytes(prod(shape)), random.getrandbits(32))
    proto = to_tensorproto(sj.Tensor.frombuffer(memory, kind, shape), "w")
    if random.random() < 0.5:
        for _ in range(random.randint(1, 3)):
            proto_mutated(random, proto)
    else:
        try:
            proto = TensorProto.FromString(bytes_mutated(random, proto.SerializeToString(), None))
        except DecodeError:
            return
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "data").write_bytes(bytes(100))
        try:
            made = bounded(lambda: from_tensorproto(proto, base_dir=folder), proto.ByteSize())
        except OSError:
            assert proto.data_location == TensorProto.EXTERNAL
            return
    if made is not None:
        assert made.shape == tuple(proto.dims)
        if isinstance(made, sj.Tensor):
            assert made.dtype.onnx == proto.data_type
            raw = proto.raw_data
            padding = made.size * made.dtype.bits % 8
            assert not raw or padding or made.tobytes() == raw


def proto_mutated(random, proto):
    match random.choice(
        ["dims", "dims", "type", "raw", "field", "field", "external", "external", "segment", "name"]
    ):
        case "dims":
            proto.dims.append(random.choice([-1, 0, 1, 2, 2**31, 2**62, 2**63 - 1, -(2**63)]))
        case "type":
            proto.data_type = random.choice([-1, 0, 8, *range(1, 30), 2**31 - 1])
        case "raw":
            proto.raw_data = bytes(random.choice([0, 1, 3, 1000]))
        case "field":
            name = random.choice(
                ["float_data", "int32_data", "int64_data", "double_data", "uint64_data"]
            )
            proto.ClearField("raw_data") if random.random() < 0.7 else None
            values = [0, 1, 7, 255, 2**31 - 1] + ([] if name == "uint64_data" else [-1, -8])
            count = random.choice([0, 1, prod(proto.dims) % 1000, 60])
            getattr(proto, name).extend(random.choice(values) for _ in range(count))
        case "external":
            proto.data_location = 1
            proto.ClearField("raw_data") if random.random() < 0.7 else None
            numbers = ["0", "1", "-1", "99", "100", "9" * 30, "1e3", "٣", "", " 1", "0x1"]
            places = ["data", "", "..", "../data", "/etc/passwd", ".", "a\0b", "data/x", "x" * 5000]
            for key in random.sample(["location", "offset", "length", "checksum", "location"], 3):
                entry = proto.external_data.add()
                entry.key = key
                entry.value = random.choice(places if key == "location" else numbers)
        case "segment":
            proto.segment.begin = 0
        case "name":
            proto.name = odd_name(random).encode(errors="replace").decode()
