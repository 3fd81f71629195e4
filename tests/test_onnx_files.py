"""ONNX models as files of tensors, against onnx's own loader, checker and onnxruntime."""

import json
import os
import re
import tracemalloc

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import shapejit as sj
from shapejit.__main__ import main
from shapejit.files import file_formats
from shapejit.files.onnx import wire, writer
from shapejit.files.open_files import OpenFile

W = np.arange(24, dtype=np.float32).reshape(4, 6) / 8
NF4 = sj.Tensor.frombuffer(bytes(12), "nf4", (4, 6))
TEXT = """
<ir_version: 10, opset_import: ["": 21, "own": 1], metadata_props: ["by": "hand"]>
g (float[N, 4] x, bool even) => (float[N, 2, 3] y)
<float[4, 6] w, int64[3] sizes = {0, 2, 3}, float[6] unused = {1, 2, 3, 4, 5, 6}, float[N, 6] m>
{
  m = MatMul(x, w)
  c = Constant <value: tensor = float[6] {1, 2, 3, 4, 5, 6}> ()
  s = Add(m, c)
  r = own.twice(s)
  z = If (even) <
    then_branch = even_branch () => (float[N, 6] t) <float[1] b = {2.0}> { t = Add(r, b) },
    else_branch = odd_branch () => (float[N, 6] e) <float[1] b = {3.0}> {
      k = Constant <value: tensor = float[1] {0.5}> ()
      p = Add(r, b)
      e = Mul(p, k)
    }
  >
  y = Reshape(z, sizes)
}
<domain: "own", opset_import: ["": 21]>
twice (a) => (b) { two = Constant <value: tensor = float {2.0}> ()  b = Mul(a, two) }
"""
NAMES = ["w", "sizes", "unused", "c", "z.then_branch/b", "z.else_branch/b", "z.else_branch/k",
         "own.twice/two"]  # fmt: skip


def model():
    made = onnx.parser.parse_model(TEXT)
    made.graph.initializer.insert(0, numpy_helper.from_array(W, "w"))
    if made.graph.initializer[1].name == "w":
        del made.graph.initializer[1]
    return made


@pytest.fixture(params=["inside", "outside"])
def path(request, tmp_path):
    """A model with its larger tensors in raw data, or in external data."""
    path = tmp_path / "m.onnx"
    outside = request.param == "outside"
    onnx.save_model(model(), path, save_as_external_data=outside, size_threshold=50, location="m.d")
    return path


def run(path):
    """What onnxruntime computes."""
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    return [session.run(None, {"x": x, "even": np.array(even)})[0] for even in (True, False)]


def by_hand(w=W, sizes=(-1, 2, 3), c=range(1, 7), b=(2, 3), k=0.5, two=2):
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    r = (x @ w.astype(np.float32) + np.array(c, np.float32)) * np.float32(two)
    return [(r + np.float32(b[0])).reshape(sizes), ((r + np.float32(b[1])) * k).reshape(sizes)]


def check(path, wanted):
    onnx.checker.check_model(path, full_check=True)
    for found, x in zip(run(path), wanted, strict=True):
        np.testing.assert_array_equal(found, x)


def save(tensors, path, source, **words):
    sj.save_file(tensors, path, source=source, **words)


def test_tensors_are_read_by_their_names(path):
    found = sj.load_file(path)
    assert list(found) == NAMES
    assert {name: found[name].numpy().tolist() for name in NAMES[1:]} == {
        "sizes": [0, 2, 3],
        "unused": [1, 2, 3, 4, 5, 6],
        "c": [1, 2, 3, 4, 5, 6],
        "z.then_branch/b": [2],
        "z.else_branch/b": [3],
        "z.else_branch/k": [0.5],
        "own.twice/two": 2,
    }
    assert sj.array_equal(found["w"], W)
    assert not found["w"].buffer.flags.writeable
    assert file_formats.read(path).metadata == {"by": "hand"}


@pytest.mark.parametrize("kind", [k for k in sj.dtypes.all() if k.onnx and k.bits], ids=str)
def test_every_dtype_in_every_storage(kind, tmp_path):
    array = np.array([[0, 1, 1], [1, 0, 1]]).astype(kind.numpy)
    raw = numpy_helper.from_array(array, "raw")
    typed = helper.make_tensor("typed", kind.onnx, array.shape, array)
    outside = numpy_helper.from_array(array, "outside")
    onnx.external_data_helper.set_external_data(outside, "data", 3, len(outside.raw_data))
    (tmp_path / "data").write_bytes(b"123" + outside.raw_data)
    outside.ClearField("raw_data")
    graph = helper.make_graph([], "g", [], [], [raw, typed, outside])
    (tmp_path / "a.onnx").write_bytes(helper.make_model(graph).SerializeToString())
    found = sj.load_file(tmp_path / "a.onnx")
    assert list(found) == ["raw", "typed", "outside"]
    for t in found.values():
        assert (t.dtype, t.shape) == (kind, (2, 3))
        assert t.unpack().tobytes() == array.tobytes()
    save({name: t[::-1] for name, t in found.items()}, tmp_path / "b.onnx", tmp_path / "a.onnx")
    again = onnx.load(tmp_path / "b.onnx")
    for proto in again.graph.initializer:
        assert numpy_helper.to_array(proto).tobytes() == array[::-1].tobytes()


def test_the_same_tensors_make_the_same_model(path, tmp_path):
    copy = tmp_path / "copy.onnx"
    save(sj.load_file(path), copy, path)
    check(path, by_hand())
    check(copy, by_hand())
    before, after = onnx.load(path), onnx.load(copy)
    for proto in (*before.graph.initializer, *after.graph.initializer):
        proto.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(proto), proto.name))
    assert [*after.graph.initializer] == [*before.graph.initializer]
    for made in (before, after):
        del made.graph.initializer[:]
        for _, attribute in constants(made):
            attribute.t.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(attribute.t)))
        for graph in branches(made):
            del graph.initializer[:]
    assert after == before
    data = sorted(p.name for p in tmp_path.iterdir())
    assert data == (["copy.onnx", "copy.onnx.data", "m.d", "m.onnx"] if (tmp_path / "m.d").exists()
                    else ["copy.onnx", "m.onnx"])  # fmt: skip


def branches(made):
    return [a.g for node in made.graph.node for a in node.attribute if a.HasField("g")]


def constants(made):
    graphs = [made.graph, *made.functions, *branches(made)]
    return [(n, a) for g in graphs for n in g.node if n.op_type == "Constant" for a in n.attribute]


def test_new_numbers_are_computed_with(path, tmp_path):
    tensors = {**sj.load_file(path)}
    tensors["w"] = sj.asarray(np.asfortranarray(W * 2))
    tensors["c"] = np.arange(6, dtype=np.float32)
    tensors["z.else_branch/b"] = np.full(1, 9, np.float32)
    tensors["own.twice/two"] = np.array(4, np.float32)
    save(tensors, tmp_path / "b.onnx", path)
    check(tmp_path / "b.onnx", by_hand(W * 2, c=range(6), b=(2, 9), two=4))


def test_a_model_is_replaced_by_itself(path, tmp_path):
    names = {p.name for p in tmp_path.iterdir()}
    for _ in range(3):
        tensors = {**sj.load_file(path)}
        tensors["w"] = sj.asarray(tensors["w"].numpy() + 1)
        save(tensors, path, path)
    check(path, by_hand(W + 3))
    made = {p.name for p in tmp_path.iterdir()} - names
    assert len(made) == ("m.d" in names)  # one file of external data, those before are gone


def test_metadata(path, tmp_path):
    tensors = sj.load_file(path)
    save(tensors, tmp_path / "a.onnx", path, metadata={"k": "v"})
    assert file_formats.read(tmp_path / "a.onnx").metadata == {"k": "v"}
    save(tensors, tmp_path / "a.onnx", path)
    assert file_formats.read(tmp_path / "a.onnx").metadata == {"by": "hand"}


STORED = """
<ir_version: {ir}, opset_import: ["": 21]>
g (float[2, 4] x{inputs}) => (float[2, 6] y) <float[4, 6] w, float[4, 6] v>
{{ v = Cast <to: int = 1> (w)  y = MatMul(x, v) }}
"""


@pytest.mark.parametrize(
    ("ir", "inputs"), [(10, ""), (10, ", float[4, 6] w"), (3, ", float[4, 6] w")]
)
def test_other_dtypes_where_the_graph_allows_them(ir, inputs, tmp_path):
    made = onnx.parser.parse_model(STORED.format(ir=ir, inputs=inputs))
    del made.graph.initializer[:]
    made.graph.initializer.append(numpy_helper.from_array(W, "w"))
    onnx.save_model(made, tmp_path / "a.onnx")
    half = sj.cast(W, "float16")
    save({"w": half}, tmp_path / "b.onnx", tmp_path / "a.onnx")
    onnx.checker.check_model(tmp_path / "b.onnx", full_check=True)
    x = np.eye(2, 4, dtype=np.float32)
    session = onnxruntime.InferenceSession(tmp_path / "b.onnx")
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], x @ W)
    after = onnx.load(tmp_path / "b.onnx")
    declared = {v.name: v.type.tensor_type.elem_type for v in after.graph.input}
    assert declared == {"x": 1, "w": 10} if inputs else {"x": 1}
    assert {v.name for v in after.graph.value_info} <= {"v"}


def test_other_shapes_where_the_graph_allows_them(tmp_path):
    text = """<ir_version: 10, opset_import: ["": 21]>
    g (float[2, 4] x) => (float[2, 6] y)
    <float[3, 8] w, int64[2] to = {4, 6}, float[4, 6] v, float[8, 3] t>
    { t = Transpose(w)  v = Reshape(w, to)  y = MatMul(x, v) }"""
    made = onnx.parser.parse_model(text)
    made.graph.initializer.append(numpy_helper.from_array(W.reshape(3, 8), "w"))
    onnx.save_model(made, tmp_path / "a.onnx")
    tensors = {**sj.load_file(tmp_path / "a.onnx"), "w": W.reshape(2, 12)}
    save(tensors, tmp_path / "b.onnx", tmp_path / "a.onnx")
    after = onnx.load(tmp_path / "b.onnx")
    declared = {v.name: v.type.tensor_type.shape.dim for v in after.graph.value_info}
    shapes = {name: [dim.dim_value for dim in dims] for name, dims in declared.items()}
    assert shapes == {"t": [12, 2], "v": [4, 6]}
    with pytest.raises(sj.FileFormatError, match=r"cannot reshape \(4, 3\) into \[4, 6\]"):
        save({**tensors, "w": W[:, :3]}, tmp_path / "b.onnx", tmp_path / "a.onnx")


@pytest.mark.parametrize(
    ("change", "tensor", "reason"),
    [
        (lambda t: {**t, "w": W.astype(np.float16)}, None, "the graph does not allow"),
        (lambda t: {**t, "w": W.T}, None, "the graph does not allow"),
        (lambda t: {**t, "sizes": np.array([0, 2, 3], np.int32)}, None, "the graph does not allow"),
        (lambda t: {**t, "more": W}, "more", "is not in the graph of the source"),
        (lambda t: {n: x for n, x in t.items() if n != "c"}, "c", "is in the graph, but missing"),
        (
            lambda t: {**t, "w": sj.Tensor.frombuffer(bytes(12), "nf4", (4, 6))},
            "w",
            "no dtype for nf4",
        ),
    ],
)
def test_what_the_graph_does_not_allow_is_refused(change, tensor, reason, path, tmp_path):
    (tmp_path / "b.onnx").write_bytes(b"old")
    names = sorted(os.listdir(tmp_path))
    with pytest.raises(sj.FileFormatError, match=reason) as raised:
        save(change(sj.load_file(path)), tmp_path / "b.onnx", path)
    assert raised.value.tensor == tensor
    assert (tmp_path / "b.onnx").read_bytes() == b"old"
    assert sorted(os.listdir(tmp_path)) == names


def test_a_source_is_needed(path, tmp_path):
    sj.save_file({"w": W}, tmp_path / "w.npz")
    for source in (None, tmp_path / "w.npz"):
        with pytest.raises(sj.FileFormatError, match="needs the graph of an ONNX model"):
            save({"w": W}, tmp_path / "b.onnx", source)


def test_a_failure_leaves_the_old_files_alone(path, tmp_path, monkeypatch):
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    calls, replace = [], os.replace

    def failing(*args):
        calls.append(args)
        if len(calls) == 1 + ("m.d" in before):  # the model, which is the last one
            raise OSError(28, "No space left on device")
        replace(*args)

    monkeypatch.setattr(os, "replace", failing)
    with pytest.raises(OSError, match="No space"):
        save({**sj.load_file(path), "w": W + 1}, path, path)
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before


def test_a_model_that_is_too_large_gets_external_data(tmp_path, monkeypatch):
    onnx.save_model(model(), tmp_path / "a.onnx")
    monkeypatch.setattr(writer, "MAX_MESSAGE", os.path.getsize(tmp_path / "a.onnx") - 1)
    monkeypatch.setattr(writer, "LEAST_OUTSIDE", 90)
    save(sj.load_file(tmp_path / "a.onnx"), tmp_path / "b.onnx", tmp_path / "a.onnx")
    check(tmp_path / "b.onnx", by_hand())
    assert sj.array_equal(sj.load_file(tmp_path / "b.onnx")["w"], W)
    assert (tmp_path / "b.onnx.data").read_bytes() == W.tobytes()


def test_strings_and_other_tensors_are_kept(tmp_path):
    text = """<ir_version: 10, opset_import: ["": 21]>
    g (string[2] x) => (bool[2] y, float[2] z) <string[1] w = {"a"}>
    { n = Constant <value_ints: ints = [2]> ()  y = Equal(x, w)
      z = ConstantOfShape <value: tensor = float[1] {7.0}> (n) }"""
    made = onnx.parser.parse_model(text)
    value = made.graph.node[-1].attribute[0].t
    value.CopyFrom(numpy_helper.from_array(np.array([7], np.float32)))
    assert value.HasField("raw_data")
    onnx.save_model(made, tmp_path / "a.onnx")
    assert dict(sj.load_file(tmp_path / "a.onnx")) == {}
    save({}, tmp_path / "b.onnx", tmp_path / "a.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "b.onnx")
    y, z = session.run(None, {"x": np.array(["a", "b"], object)})
    assert (y.tolist(), z.tolist()) == ([True, False], [7, 7])


# inspect

SHAPES = """
<ir_version: 10, opset_import: ["": 21]>
g (float[0, 3] x, float[N, 4] n, int64[1] s) => (float[A, B] y)
<float[4, 6] w, int64[2] keep = {0, -1}, float[D, E] m, float[F] k>
{
  y = Reshape(x, keep)
  a = Reshape <allowzero: int = 1> (w, keep)
  layers_0_b = Reshape(w, keep)
  layers_1_b = Reshape(w, keep)
  c = Constant <value_ints: ints = [3, 2, 4]> ()
  d = Reshape(w, c)
  m = Reshape(n, keep)
  k = Reshape(n, s)
}
"""


def inspected(text, tmp_path, capsys, *words):
    made = onnx.parser.parse_model(text)
    made.graph.initializer.append(numpy_helper.from_array(W, "w"))
    for node in made.graph.node:
        node.output[0] = node.output[0].replace("_", ".")
    onnx.save_model(made, tmp_path / "a.onnx")
    assert main(["inspect", str(tmp_path / "a.onnx"), *words]) == 0
    return capsys.readouterr().out


def test_inspect_tells_where_the_specifications_disagree(tmp_path, capsys):
    lines = [line.split() for line in inspected(SHAPES, tmp_path, capsys).splitlines()]
    for words in (
        "w float32 [4,6] 96",
        "y onnx.Reshape-21 [0,3] [0,-1] 0 error DISAGREE",
        "a onnx.Reshape-21 [4,6] [0,-1] 1 error all refuse",
        "layers.#.b x 2 onnx.Reshape-21 [4,6] [0,-1] 0 [4,6] agree",
        "d onnx.Reshape-21 [4,6] [3,2,4] 0 [3,2,4] agree",
        "m onnx.Reshape-21 [N,4] [0,-1] 0 [D,4] unknown",
        "k onnx.Reshape-21 [N,4] unknown 0 [F] unknown",
        "y: openvino: [0,3]",
        "a: onnx: cannot reshape (4, 6) into [0, -1];",
    ):
        found = [line for line in lines if line[: len(words.split())] == words.split()]
        assert len(found) == 1, (words, lines)
    assert [line[:3] for line in lines if line[0] == "y:"] == [
        ["y:", "onnx:", "cannot"],
        ["y:", "openvino:", "[0,3]"],
        ["y:", "onednn:", "cannot"],
    ]
    nodes = json.loads(inspected(SHAPES, tmp_path, capsys, "--json"))["nodes"]
    assert [(n["name"], n["result"], n["disagree"]) for n in nodes[:2]] == [
        ("y", None, True),
        ("a", None, False),
    ]
    assert nodes[0]["outcomes"]["openvino"] == [0, 3]


def test_inspect_names_nodes_that_have_a_name(tmp_path, capsys):
    text = SHAPES.replace("a = Reshape", "[first] a = Reshape").replace("m = R", "[other] m = R")
    nodes = json.loads(inspected(text, tmp_path, capsys, "--json"))["nodes"]
    assert [n["name"] for n in nodes] == [
        "y", "first", "layers.0.b", "layers.1.b", "d", "other", "k",
    ]  # fmt: skip


def test_inspect_looks_into_subgraphs_and_functions(tmp_path, capsys):
    text = """<ir_version: 10, opset_import: ["": 13, "own": 1]>
    g (bool even, float[4, 6] w) => (float[N] y) <int64[1] flat = {-1}> {
      f = own.flattened(w)
      y = If (even) <
        then_branch = b () => (float[N] t) { t = Reshape(w, flat) },
        else_branch = c () => (float[N] e) <int64[1] flat2 = {24}> { e = Reshape(w, flat2) }>
    }
    <domain: "own", opset_import: ["": 4]>
    flattened (a) => (b) { b = Reshape <shape: ints = [0, -1]> (a) }"""
    nodes = json.loads(inspected(text, tmp_path, capsys, "--json"))["nodes"]
    assert [(n["name"], n["version"], n["target"], n["result"]) for n in nodes] == [
        ("y.then_branch/t", "onnx.Reshape-13", [-1], [24]),
        ("y.else_branch/e", "onnx.Reshape-13", [24], [24]),
        ("own.flattened/b", "onnx.Reshape-1", [0, -1], None),
    ]


@pytest.mark.parametrize("ir", [10, 99])
def test_models_of_newer_opsets_are_inspected(ir, tmp_path, capsys):
    text = SHAPES.replace('10, opset_import: ["": 21', f'{ir}, opset_import: ["": 99')
    lines = [line.split() for line in inspected(text, tmp_path, capsys).splitlines()]
    assert ["w", "float32", "[4,6]", "96"] in [line[:4] for line in lines]
    for words in (
        "y onnx.Reshape, opset 99 [0,3] [0,-1] 0 [A,B] unknown",
        "k onnx.Reshape, opset 99 [N,4] unknown 0 [F] unknown",
    ):
        assert [line for line in lines if line[: len(words.split())] == words.split()], lines


@pytest.mark.parametrize("value", [1, "a", [1], 0.5])
@pytest.mark.parametrize(("name", "right"), [("allowzero", 1), ("not UTF-8", None)])
def test_attributes_of_other_names_and_types_are_inspected(name, right, value, tmp_path, capsys):
    x, y = (helper.make_tensor_value_info(n, 1, [2, 3]) for n in "xy")
    sizes = numpy_helper.from_array(np.array([3, 2]), "s")
    node = helper.make_node("Reshape", ["x", "s"], ["y"])
    node.attribute.append(helper.make_attribute(name, value))
    made = helper.make_model(helper.make_graph([node], "g", [x], [y], [sizes]))
    raw = made.SerializeToString().replace(b"not UTF-8", b"not \xff\xff\xff-8")
    (tmp_path / "a.onnx").write_bytes(raw)
    assert main(["inspect", "--json", str(tmp_path / "a.onnx")]) == 0
    (found,) = json.loads(capsys.readouterr().out)["nodes"]
    assert isinstance(found["outcomes"]["onnx"], list) == (right in (None, value))


def test_inspect_tells_where_tensors_are(path, capsys):
    assert main(["inspect", str(path), "--json"]) == 0
    first, second, *_ = json.loads(capsys.readouterr().out)["tensors"]
    if "external" in first:
        assert first["external"] == "m.d"
        assert "offsets" not in first
    else:
        begin, end = first["offsets"]
        assert path.read_bytes()[begin:end] == W.tobytes()
    assert second["name"] == "sizes"


# Hostile files


def tensor(**fields):
    return helper.make_model(
        helper.make_graph([], "g", [], [], [TensorProto(**{"name": "w", **fields})])
    ).SerializeToString()


@pytest.mark.parametrize(
    ("raw", "tensor", "reason"),
    [
        (b"PyTorch", None, "it is not an ONNX model"),
        (b"", None, "it has no graph"),
        (b"\x08", None, "the number at byte 1 does not end"),
        (b"\x3a\x05", None, "the field at byte 0 does not end within its message"),
        (b"\x3a" + b"\xff" * 9 + b"\x01", None, "does not end within its message"),
        (b"\x3b\x3c", None, "has the wire type 3"),
        (b"\x3a\x02\x2a\x01", None, "does not end within its message"),
        (tensor(data_type=1, dims=[3], raw_data=bytes(8)), "w", "12 bytes, but its raw_data has 8"),
        (tensor(data_type=1, dims=[-3], raw_data=bytes(8)), "w", "-3"),
        (tensor(data_type=1, dims=[2**40, 2**40], raw_data=bytes(8)), "w", "int64"),
        (tensor(data_type=99, dims=[1], raw_data=bytes(8)), "w", "99"),
        (tensor(data_type=1, dims=[2], float_data=[1]), "w", "need 2 entries of float_data"),
        (tensor(data_type=1, dims=[1], float_data=[1], raw_data=bytes(4)), "w", "only one field"),
        (tensor(data_type=1, dims=[1]), "w", "all fields are empty"),
        (tensor(name="", data_type=1, dims=[0]), None, "has no name"),
        (tensor(data_type=1, dims=[1], data_location=1), "w", "no location"),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)  # fmt: skip
def test_hostile_models_are_refused(raw, tensor, reason, tmp_path):
    (tmp_path / "a.onnx").write_bytes(raw)
    with pytest.raises(sj.FileFormatError, match=reason) as raised:
        sj.load_file(tmp_path / "a.onnx")
    assert raised.value.tensor == tensor


def test_deep_messages_are_refused(tmp_path):
    raw = b""
    for _ in range(50):  # node, attribute, graph
        for number in (6, 5, 1):
            raw = bytes([number << 3 | 2]) + varint(len(raw)) + raw
    (tmp_path / "a.onnx").write_bytes(b"\x3a" + varint(len(raw)) + raw)
    with pytest.raises(sj.FileFormatError, match="nested more than 100 times"):
        sj.load_file(tmp_path / "a.onnx")


def varint(n):
    return bytes([n & 127 | 128, *varint(n >> 7)]) if n > 127 else bytes([n])


@pytest.mark.parametrize(
    ("text", "reason"),
    [(b"m.d", "external_data are not UTF-8"), (b"unused", r"the name b'unus\xffd' is not UTF-8"),
     (b"hand", "metadata are not UTF-8")],
)  # fmt: skip
def test_text_that_is_not_utf8_is_refused(text, reason, tmp_path):
    """proto2 has it as bytes."""
    path = tmp_path / "m.onnx"
    onnx.save_model(model(), path, save_as_external_data=True, size_threshold=20, location="m.d")
    raw = path.read_bytes()
    assert text in raw
    path.write_bytes(raw.replace(text, text[:-2] + b"\xff" + text[-1:]))
    with pytest.raises(sj.FileFormatError, match=re.escape(reason)):
        sj.load_file(path)


@pytest.mark.parametrize(
    ("location", "offset", "reason"),
    [
        ("../secret", 0, "leads out"),
        ("/etc/passwd", 0, "relative"),
        ("data", 9, "beyond the file's"),
    ],
)
def test_external_data_outside_are_refused(location, offset, reason, tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    for place in (folder / "data", tmp_path / "secret"):
        place.write_bytes(bytes(10))
    proto = TensorProto(data_type=2, dims=[2], name="w", data_location=1)
    for key, value in (("location", location), ("offset", str(offset))):
        proto.external_data.add(key=key, value=value)
    graph = helper.make_graph([], "g", [], [], [proto])
    (folder / "a.onnx").write_bytes(helper.make_model(graph).SerializeToString())
    with pytest.raises(sj.FileFormatError, match=reason):
        sj.load_file(folder / "a.onnx")


def test_two_tensors_of_one_name(tmp_path):
    proto = numpy_helper.from_array(W, "w")
    graph = helper.make_graph([], "g", [], [], [proto, proto])
    (tmp_path / "a.onnx").write_bytes(helper.make_model(graph).SerializeToString())
    with pytest.raises(sj.FileFormatError, match="two tensors have this name"):
        sj.load_file(tmp_path / "a.onnx")


def test_a_model_of_three_gigabytes_takes_little_memory(tmp_path):
    """Raw data, which are a hole in the file, are neither parsed nor read."""
    size = 3 * 2**30
    proto = TensorProto(name="w", data_type=2, dims=[size]).SerializeToString()
    body = proto + b"\x4a" + varint(size)
    graph = b"\x2a" + varint(len(body) + size) + body
    head = b"\x08\x0a\x3a" + varint(len(graph) + size) + graph
    with open(tmp_path / "a.onnx", "wb") as file:
        file.write(head)
        file.truncate(len(head) + size)
    sj.load_file(tmp_path / "a.onnx")  # what is imported takes memory, too
    tracemalloc.start()
    t = sj.load_file(tmp_path / "a.onnx")["w"]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (t.shape, int(t[-1].numpy())) == ((size,), 0)
    assert peak < 9 * 2**20  # it is read in pieces of 8 MiB


def test_the_wire_format_is_protobufs(tmp_path):
    path = tmp_path / "a.onnx"
    made = model()
    made.graph.node[0].attribute.append(helper.make_attribute("odd", [1.5, 2.5]))
    path.write_bytes(made.SerializeToString())
    file = OpenFile(str(path))
    parts, size = wire.expanded(bytes(wire.skeleton(file)))
    raw = b"".join(part if isinstance(part, bytes) else bytes(file.bytes(*part)) for part in parts)
    assert len(raw) == size
    assert onnx.ModelProto.FromString(raw) == made


def test_tensors_of_another_file_replace_those_of_a_model(path, tmp_path):
    sj.save_file({**sj.load_file(path), "w": W * 4}, tmp_path / "w.safetensors")
    save(sj.load_file(tmp_path / "w.safetensors"), tmp_path / "b.onnx", path)
    check(tmp_path / "b.onnx", by_hand(W * 4))
