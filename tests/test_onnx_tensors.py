"""TensorProtos against onnx.numpy_helper, bit for bit, in every dtype and every storage."""

import gc
import os
import sys

import ml_dtypes
import numpy as np
import onnx
import onnx_ir
import pytest
from onnx import TensorProto, helper, numpy_helper
from views import codes_of

import shapejit as sj
from shapejit.adapters.onnx_tensors import IRTensor, from_tensorproto, to_tensorproto

FIXED = [d for d in sj.dtypes.all() if d.onnx and d.bits]
SHAPES = [(), (1,), (7,), (3, 5), (2, 3, 4), (0,), (3, 0, 2)]
WORDS = ["", "a", "ünï", "日本", "with\0nul", "tail\0"]


def tensor(dtype, shape, seed=0):
    nbytes = sj.dtype(dtype).nbytes(int(np.prod(shape)))
    memory = np.random.default_rng(seed).integers(0, 256, nbytes, np.uint8)
    if sj.dtype(dtype).name == "bool":
        memory &= 1
    return sj.Tensor.frombuffer(memory, dtype, shape)


def same_bits(t, array):
    """The Tensor's elements are the ndarray's, bit for bit, shape and dtype included."""
    mine = t.unpack()
    return (mine.dtype, mine.shape, mine.tobytes()) == (array.dtype, array.shape, array.tobytes())


def typed(t):
    """The Tensor in its typed field, written down from the text of onnx.proto."""
    kind, proto = t.dtype, TensorProto(data_type=t.dtype.onnx, dims=t.shape, name="w")
    values = t.unpack().reshape(-1)
    if kind.name in ("float32", "float64", "int64"):
        field = {"float32": "float_data", "float64": "double_data", "int64": "int64_data"}
        getattr(proto, field[kind.name]).extend(values.tolist())
    elif kind.kind == "complex":
        field = proto.float_data if kind.name == "complex64" else proto.double_data
        for value in values.tolist():
            field.extend([value.real, value.imag])
    elif kind.name in ("uint32", "uint64"):
        proto.uint64_data.extend(values.tolist())
    elif kind.bits in (2, 4):
        proto.int32_data.extend(t.tobytes())
    elif kind.kind == "integer":
        proto.int32_data.extend(values.tolist())
    else:
        proto.int32_data.extend(values.view(f"u{values.itemsize}").tolist())
    return proto


# Bits in the proto --------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", FIXED, ids=str)
def test_raw_data(dtype, shape):
    t = tensor(dtype, shape)
    proto = to_tensorproto(t, "w")
    assert proto.SerializeToString() == numpy_helper.from_array(t.unpack(), "w").SerializeToString()
    assert to_tensorproto(t.unpack(), "w") == proto
    assert same_bits(t, numpy_helper.to_array(proto))
    again = from_tensorproto(proto)
    assert (again.dtype, again.shape, again.tobytes()) == (dtype, shape, t.tobytes())
    assert again.contiguous
    onnx.checker.check_tensor(proto)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", FIXED, ids=str)
def test_typed_data(dtype, shape):
    t = tensor(dtype, shape)
    if dtype.kind in ("float", "complex") and dtype.bits >= 32:
        # A signalling NaN does not survive a Python float: no field could hold it.
        t = sj.asarray(np.nan_to_num(t.numpy()))
    proto = typed(t)
    again = from_tensorproto(proto)
    assert (again.dtype, again.shape, again.tobytes()) == (dtype, shape, t.tobytes())
    assert same_bits(again, numpy_helper.to_array(proto))


@pytest.mark.parametrize("dtype", FIXED, ids=str)
def test_typed_data_of_onnx(dtype):
    values = np.array([[0, 1, 1], [1, 0, 1]]).astype(dtype.numpy)
    proto = helper.make_tensor("w", dtype.onnx, values.shape, values)
    assert not proto.HasField("raw_data")
    assert same_bits(from_tensorproto(proto), values)


@pytest.mark.parametrize(
    ("dtype", "entries", "codes"),
    [
        ("int4", [0x21, 0xF3], [1, 2, 3]),
        ("float4_e2m1fn", [0x21, 0x43], [1, 2, 3, 4]),
        ("uint2", [0b11100100, 0b01], [0, 1, 2, 3, 1]),
        ("float6_e2m3fn", [1, 63, 2], [1, 63, 2]),
        ("int8", [-1, 255, 127], [255, 255, 127]),
        ("int4", [-1], [15, 15]),
        ("uint16", [65535, -1, 0], [65535, 65535, 0]),
        ("float16", [0x3C00, 0xFC00], [0x3C00, 0xFC00]),
        ("bool", [1, 0], [1, 0]),
    ],
)
def test_int32_data_by_eye(dtype, entries, codes):
    kind = sj.dtype(dtype)
    proto = TensorProto(data_type=kind.onnx, dims=[len(codes)], int32_data=entries)
    t = from_tensorproto(proto)
    found = codes_of(t) if kind.packed else t.numpy().view(f"u{kind.bits // 8}")
    assert found.tolist() == codes
    assert same_bits(t, numpy_helper.to_array(proto))


def test_views_are_written_in_their_order():
    t = tensor("int4", (5, 7))[::-2, 1:].T
    proto = to_tensorproto(t)
    assert (list(proto.dims), proto.name, proto.raw_data) == ([6, 3], "", t.tobytes())
    assert not proto.HasField("name")
    array = np.arange(12, dtype=np.float32).reshape(3, 4)[:, ::-1]
    assert to_tensorproto(array).raw_data == array.tobytes()
    dirty = np.array([0xF1, 0x32], np.uint8).view(ml_dtypes.uint4)
    assert to_tensorproto(dirty).raw_data.hex() == "21"


def test_raw_data_are_wrapped():
    t = from_tensorproto(to_tensorproto(tensor("uint4", (5, 3))))
    base = t.buffer
    while isinstance(base, np.ndarray):
        base = base.base
    assert isinstance(base, memoryview | bytes)
    assert not t.buffer.flags.writeable


# Strings ------------------------------------------------------------------------------


def test_strings():
    texts = np.array(WORDS, object).reshape(2, 3)
    proto = to_tensorproto(texts, "s")
    assert proto == numpy_helper.from_array(texts, "s")
    again = from_tensorproto(proto)
    assert (again.dtype, again.shape, again.tolist()) == (object, (2, 3), texts.tolist())
    for other in (texts.astype(np.dtypes.StringDType()), texts[::-1][::-1]):
        assert to_tensorproto(other, "s") == proto
    encoded = np.array([w.encode() for w in WORDS], object).reshape(2, 3)
    assert to_tensorproto(encoded, "s") == proto
    assert to_tensorproto(np.array(["a", "b"])).string_data == [b"a", b"b"]
    for shape in ((), (0,), (2, 0)):
        empty = np.full(shape, "x", object)
        assert from_tensorproto(to_tensorproto(empty)).tolist() == empty.tolist()


@pytest.mark.parametrize(
    ("array", "error"),
    [
        (np.array(["\ud800"], object), sj.FormatError),
        (np.array([b"\xff"], object), sj.FormatError),
        (np.array([1, "a"], object), sj.DTypeError),
        (np.array([1, 2], "M8[s]"), sj.DTypeError),
        (np.zeros(3, ">f4"), sj.DTypeError),
        (tensor("nf4", (3,)), sj.DTypeError),
        ([1, 2], sj.DTypeError),
        (None, sj.DTypeError),
    ],
    ids=repr,
)
def test_what_no_proto_holds(array, error):
    with pytest.raises(error):
        to_tensorproto(array, "w")


# What protos may not say --------------------------------------------------------------

INT4, FLOAT6, FLOAT = TensorProto.INT4, TensorProto.FLOAT6E2M3, TensorProto.FLOAT
STRING, BOOL = TensorProto.STRING, TensorProto.BOOL


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"data_type": 0, "dims": [1], "raw_data": b"a"}, "unknown onnx dtype 0"),
        ({"data_type": 99, "dims": [1], "raw_data": b"a"}, "unknown onnx dtype 99"),
        ({"data_type": INT4, "dims": [-1], "raw_data": b"a"}, "invalid shape"),
        ({"data_type": INT4, "dims": [2**40, 2**40], "raw_data": b"a"}, "invalid shape"),
        ({"data_type": STRING, "dims": [-1, -1], "string_data": [b"a"]}, "invalid shape"),
        ({"data_type": INT4, "dims": [3], "raw_data": b"a"}, "are 2 bytes, but the buffer has 1"),
        ({"data_type": INT4, "dims": [1], "raw_data": b"ab"}, "are 1 bytes"),
        ({"data_type": FLOAT, "dims": [2**61], "raw_data": b"ab"}, "bytes"),
        ({"data_type": FLOAT, "dims": [2], "raw_data": b""}, "are 8 bytes"),
        ({"data_type": FLOAT, "dims": [2]}, "all fields are empty"),
        ({"data_type": FLOAT, "dims": []}, "all fields are empty"),
        ({"data_type": STRING, "dims": [2]}, "all fields are empty"),
        ({"data_type": STRING, "dims": [1], "raw_data": b"a"}, "belong in string_data"),
        ({"data_type": FLOAT, "dims": [1], "int32_data": [1]}, "belong in float_data"),
        ({"data_type": FLOAT, "dims": [1], "string_data": [b"1"]}, "not in string_data"),
        ({"data_type": INT4, "dims": [1], "int64_data": [1]}, "belong in int32_data"),
        ({"data_type": FLOAT, "dims": [1], "float_data": [1], "raw_data": b"1234"}, "raw_data and"),
        ({"data_type": FLOAT, "dims": [1], "float_data": [1], "int32_data": [1]}, "only one field"),
        ({"data_type": FLOAT, "dims": [1], "float_data": [1, 2]}, "which has 2"),
        ({"data_type": FLOAT, "dims": [2**60], "float_data": [1, 2]}, "which has 2"),
        ({"data_type": FLOAT, "dims": [0], "float_data": [1]}, "which has 1"),
        ({"data_type": INT4, "dims": [3], "int32_data": [1, 2, 3]}, "need 2 entries"),
        ({"data_type": TensorProto.UINT2, "dims": [9], "int32_data": [1, 2]}, "need 3 entries"),
        ({"data_type": FLOAT6, "dims": [4], "int32_data": [1, 2, 3]}, "need 4 entries"),
        ({"data_type": FLOAT6, "dims": [1], "int32_data": [64]}, r"\[0\] = 64"),
        ({"data_type": TensorProto.COMPLEX64, "dims": [2], "float_data": [1, 2]}, "need 4 entries"),
        ({"data_type": INT4, "dims": [2], "int32_data": [256]}, "= 256 is out of range for int4"),
        ({"data_type": TensorProto.UINT8, "dims": [2], "int32_data": [0, -129]}, r"\[1\] = -129"),
        ({"data_type": TensorProto.BFLOAT16, "dims": [1], "int32_data": [65536]}, "= 65536"),
        ({"data_type": BOOL, "dims": [1], "int32_data": [2]}, "= 2 is out of range for bool"),
        ({"data_type": TensorProto.UINT32, "dims": [1], "uint64_data": [2**32]}, "4294967296"),
        ({"data_type": STRING, "dims": [3], "string_data": [b"a"]}, "which has 1"),
        ({"data_type": STRING, "dims": [2], "string_data": [b"a", b"\xff"]}, r"string_data\[1\]"),
        ({"data_type": STRING, "dims": [1] * 65, "string_data": [b"a"]}, "dim"),
        ({"data_type": INT4, "dims": [1] * 1025, "raw_data": b"a"}, "1024 dims"),
        ({"data_type": FLOAT, "dims": [0], "segment": {"begin": 0, "end": 1}}, "segment"),
    ],
)  # fmt: skip
def test_what_a_proto_may_not_say(fields, says):
    for name, title in (("w", "tensor 'w': "), (None, "a tensor without a name: ")):
        with pytest.raises(sj.ShapeJitError, match=says) as raised:
            from_tensorproto(TensorProto(name=name, **fields))
        assert str(raised.value).startswith(title)


@pytest.mark.parametrize("other", [None, b"", onnx.SparseTensorProto(), np.zeros(3)])
def test_only_tensorprotos(other):
    with pytest.raises(sj.DTypeError, match="TensorProto"):
        from_tensorproto(other)


def test_empty_tensors_need_no_field():
    assert from_tensorproto(TensorProto(data_type=INT4, dims=[0, 3])).shape == (0, 3)
    assert from_tensorproto(TensorProto(data_type=STRING, dims=[0])).shape == (0,)


# External data ------------------------------------------------------------------------


def external(kind, dims, **entries):
    proto = TensorProto(data_type=kind, dims=dims, name="w", data_location=TensorProto.EXTERNAL)
    for key, value in entries.items():
        proto.external_data.add(key=key, value=str(value))
    return proto


@pytest.fixture
def folder(tmp_path):
    home = tmp_path / "model"
    (home / "sub").mkdir(parents=True)
    (home / "data").write_bytes(bytes(range(100)))
    (home / "sub" / "data").write_bytes(bytes(range(10)))
    (home / "empty").touch()
    (tmp_path / "secret").write_bytes(bytes(100))
    return home


@pytest.mark.parametrize("dtype", FIXED, ids=str)
def test_external_data_of_onnx(dtype, tmp_path):
    values = {f"w{i}": tensor(dtype, (5, 3), i).unpack() for i in range(3)}
    graph = helper.make_graph(
        [], "g", [], [], [numpy_helper.from_array(v, n) for n, v in values.items()]
    )
    path = tmp_path / "model.onnx"
    onnx.save(helper.make_model(graph), path, save_as_external_data=True, size_threshold=0)
    loaded = onnx.load(path, load_external_data=False).graph.initializer
    tensors = {p.name: from_tensorproto(p, base_dir=tmp_path) for p in loaded}
    for name, value in values.items():
        assert same_bits(tensors[name], value)
        assert not tensors[name].buffer.flags.writeable


def test_external_data_are_mapped(folder):
    data = folder / "data"
    gc.collect()  # what other tests left open
    before = len(os.listdir("/proc/self/fd"))
    tensors = [
        from_tensorproto(external(INT4, [6], location="data", offset=i, length=3), base_dir=folder)
        for i in range(50)
    ]
    assert len(os.listdir("/proc/self/fd")) == before + 1
    assert [t.tobytes()[0] for t in tensors] == list(range(50))
    with data.open("r+b") as file:  # what is written shows, so that it is a map
        file.seek(1)
        file.write(b"\xaa")
    assert tensors[1].tobytes() == b"\xaa\x02\x03"
    tensors.clear()
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_new_file_is_mapped_anew(folder):
    proto = external(TensorProto.UINT8, [2], location="data", offset=4)
    first = from_tensorproto(proto, base_dir=folder)
    (folder / "new").write_bytes(bytes(200))
    os.replace(folder / "new", folder / "data")
    second = from_tensorproto(proto, base_dir=folder)
    assert (first.tobytes(), second.tobytes()) == (bytes([4, 5]), bytes(2))


def test_external_offsets_and_lengths(folder):
    def read(dims, base=folder, **entries):
        t = from_tensorproto(external(TensorProto.INT16, dims, **entries), base_dir=base)
        return t.tobytes()

    assert read([2], location="data") == bytes([0, 1, 2, 3])
    assert read([1, 2], location="data", offset=95, length=4) == bytes([95, 96, 97, 98])
    assert read([50], location="data", checksum="?", basepath="x") == bytes(range(100))
    assert read([1], location="sub/data", offset=8) == bytes([8, 9])
    assert read([1], location="sub/../data") == bytes([0, 1])
    assert read([0], location="data", offset=100, length=0) == b""
    assert read([0], location="empty") == b""
    assert read([1], base=str(folder), location="data") == bytes([0, 1])
    os.symlink("../data", folder / "sub" / "inside")
    assert read([1], location="sub/inside") == bytes([0, 1])


def test_the_current_folder(folder, monkeypatch):
    monkeypatch.chdir(folder)
    assert from_tensorproto(external(INT4, [2], location="data"), base_dir="").tobytes() == b"\0"


def test_base_dir_is_a_folder_of_this_machine(folder, monkeypatch):
    (folder.parent / "memory:").mkdir()
    folder.rename(folder.parent / "memory:" / "model")
    monkeypatch.chdir(folder.parent)
    proto = external(INT4, [2], location="data")
    assert from_tensorproto(proto, base_dir="memory://model").tobytes() == b"\0"


@pytest.mark.parametrize(
    "read",
    [
        lambda folder, proto: sj.load_file(folder / "m.onnx"),
        lambda folder, proto: from_tensorproto(proto, base_dir=folder),
    ],
    ids=["file", "proto"],
)
def test_a_link_that_replaces_external_data_is_not_followed(read, folder, monkeypatch):
    """Not even one that is put there between the check of the location and the opening."""
    proto = external(TensorProto.UINT8, [2], location="data")
    onnx.save(helper.make_model(helper.make_graph([], "g", [], [], [proto])), folder / "m.onnx")
    resolved = os.path.realpath

    def raced(path, **more):
        found = resolved(path, **more)
        if os.path.basename(found) == "data":
            os.remove(found)
            os.symlink(folder.parent / "secret", found)
        return found

    monkeypatch.setattr(os.path, "realpath", raced)
    with pytest.raises(OSError, match="data"):
        read(folder, proto)


@pytest.mark.parametrize(
    ("entries", "says"),
    [
        ({"location": "data", "offset": 98}, "3 bytes from byte 98 on end beyond the file's 100"),
        ({"location": "data", "offset": 10**18}, "beyond the file's 100"),
        ({"location": "data", "length": 4}, "are 3 bytes, but its length is 4"),
        ({"location": "data", "offset": -1}, "offset '-1' is not a number of bytes"),
        ({"location": "data", "offset": "1_0"}, "is not a number"),
        ({"location": "data", "offset": " 1"}, "is not a number"),
        ({"location": "data", "offset": ""}, "is not a number"),
        ({"location": "data", "offset": "9" * 5000}, "is not a number"),
        ({"location": "data", "length": "٣"}, "is not a number"),
        ({"location": "empty"}, "beyond the file's 0"),
        ({"location": "sub"}, "not a regular file"),
        ({"location": "pipe"}, "not a regular file"),
        ({"location": ""}, "can have the name"),
        ({"location": "da\0ta"}, "can have the name"),
        ({"location": "."}, "leads out"),
        ({"location": ".."}, "leads out"),
        ({"location": "../secret"}, "leads out"),
        ({"location": "sub/../../secret"}, "leads out"),
        ({"location": "../model-and-more/data"}, "leads out"),
        ({"location": "link"}, "leads out"),
        ({"location": "way/secret"}, "leads out"),
        ({"location": "/etc/passwd"}, "relative"),
    ],
    ids=str,
)
def test_external_data_that_are_refused(folder, entries, says):
    os.mkfifo(folder / "pipe")
    os.symlink(folder.parent / "secret", folder / "link")
    os.symlink("..", folder / "way")
    (folder.parent / "model-and-more").mkdir()
    with pytest.raises(sj.FileFormatError, match=says) as raised:
        from_tensorproto(external(INT4, [5], **entries), base_dir=folder)
    assert raised.value.tensor == "w"
    assert str(folder) in str(raised.value.path) or entries["location"].startswith("/")


def test_external_data_without_a_file(folder):
    with pytest.raises(FileNotFoundError, match="none"):
        from_tensorproto(external(INT4, [5], location="none"), base_dir=folder)
    with pytest.raises(sj.FormatError, match=r"tensor 'w': .*pass base_dir"):
        from_tensorproto(external(INT4, [5], location="data"))
    with pytest.raises(sj.FormatError, match=r"tensor 'w': .*no location"):
        from_tensorproto(external(INT4, [5], offset=0), base_dir=folder)
    repeated = external(INT4, [5], location="data")
    repeated.external_data.add(key="location", value="empty")
    with pytest.raises(sj.FormatError, match="duplicate key"):
        from_tensorproto(repeated, base_dir=folder)
    both = external(INT4, [2], location="data")
    both.raw_data = b"a"
    with pytest.raises(sj.FormatError, match="only one"):
        from_tensorproto(both, base_dir=folder)
    with pytest.raises(sj.FormatError, match="string_data"):
        from_tensorproto(external(STRING, [2], location="data"), base_dir=folder)


# onnx_ir ------------------------------------------------------------------------------


def test_the_protocols_of_onnx_ir():
    t = tensor("int4", (3, 5))
    assert isinstance(IRTensor(t), onnx_ir.TensorProtocol)
    assert isinstance(t, onnx_ir.ArrayCompatible)
    assert isinstance(t, onnx_ir.DLPackCompatible)


@pytest.mark.parametrize("dtype", FIXED, ids=str)
def test_an_irtensor_is_as_onnx_irs_own(dtype):
    t = tensor(dtype, (3, 5)).T
    mine, own = IRTensor(t, "w", doc_string="d"), onnx_ir.Tensor(t.unpack(), name="w")
    for fact in ("name", "dtype", "shape", "size", "nbytes"):
        assert getattr(mine, fact) == getattr(own, fact), fact
    assert mine.tobytes() == own.tobytes()
    assert (mine.raw, mine.doc_string, mine.metadata_props, mine.meta) == (t, "d", {}, {})
    for array in (mine.numpy(), np.asarray(mine), np.array(mine, dtype=dtype.numpy)):
        assert (array.dtype, array.tobytes()) == (dtype.numpy, own.numpy().tobytes())
    assert mine.__dlpack_device__() == (1, 0)
    assert repr(mine).startswith("IRTensor(Tensor([")
    if not dtype.packed:
        assert sj.array_equal(sj.asarray(mine), t)


def test_an_irtensor_by_dlpack():
    t = tensor("float32", (3, 5)).T
    array = np.from_dlpack(IRTensor(t))
    assert np.shares_memory(array, t.buffer)
    assert sj.array_equal(array, t)


@pytest.mark.parametrize("way", ["initializer", "attribute", "external"])
def test_a_model_of_onnx_ir(way, tmp_path):
    tensors = {d.name: tensor(d, (5, 3)).T for d in FIXED}
    wrapped = [IRTensor(t, name) for name, t in tensors.items()]
    nodes, values = [], []
    for w in wrapped:
        if way == "attribute":
            nodes.append(onnx_ir.node("Constant", [], {"value": w}))
        else:
            values.append(onnx_ir.Value(name=w.name, const_value=w))
    graph = onnx_ir.Graph([], [], nodes=nodes, initializers=values, opset_imports={"": 25})
    model, path = onnx_ir.Model(graph, ir_version=13), tmp_path / "model.onnx"
    onnx_ir.save(
        model,
        path,
        **({"external_data": "data", "size_threshold_bytes": 0} if way == "external" else {}),
    )
    loaded = onnx.load(path, load_external_data=False).graph
    protos = [n.attribute[0].t for n in loaded.node] if way == "attribute" else loaded.initializer
    assert len(protos) == len(tensors)
    for proto in protos:
        t = tensors[proto.name]
        assert (proto.data_type, tuple(proto.dims)) == (t.dtype.onnx, t.shape)
        assert (proto.data_location == TensorProto.EXTERNAL) == (way == "external")
        again = from_tensorproto(proto, base_dir=tmp_path)
        assert again.tobytes() == t.tobytes()
        assert numpy_helper.to_array(proto, str(tmp_path)).tobytes() == t.unpack().tobytes()


def test_what_onnx_ir_lacks():
    with pytest.raises(sj.DTypeError, match="tensor 'w': onnx_ir has no dtype for nf4"):
        IRTensor(tensor("nf4", (4,)), "w")
    with pytest.raises(sj.DTypeError, match="Tensor"):
        IRTensor(np.zeros(3))


@pytest.mark.parametrize("module", ["onnx", "onnx_ir"])
def test_without_the_third_party(module, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    if module == "onnx":
        for name in ("adapters.onnx_tensors", "files.onnx", "files.onnx.tensors"):
            monkeypatch.delitem(sys.modules, f"shapejit.{name}", raising=False)
        with pytest.raises(ImportError, match=r"shapejit\[onnx\]"):
            __import__("shapejit.adapters.onnx_tensors")
    else:
        with pytest.raises(ImportError, match=r"shapejit\[onnx\]"):
            IRTensor(tensor("int4", (4,)))
