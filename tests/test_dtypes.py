import copy
import ctypes
import dataclasses
import json
import pickle
import re
import struct
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest

import shapejit as sj

TABLE = sj.dtypes.all()
VOCABULARIES = ["onnx", "openvino", "onednn", "safetensors", "gguf", "dlpack"]
every_dtype = pytest.mark.parametrize("kind", TABLE, ids=str)

ML_DTYPES = {
    name: np.dtype(scalar)
    for name, scalar in vars(ml_dtypes).items()
    if isinstance(scalar, type) and issubclass(scalar, np.generic)
}


def test_names_are_unique():
    assert len({kind.name for kind in TABLE}) == len(TABLE)
    for vocabulary in VOCABULARIES:
        words = [getattr(kind, vocabulary) for kind in TABLE]
        words = [word for word in words if word is not None]
        assert len(set(words)) == len(words), vocabulary


@every_dtype
def test_lookups(kind):
    assert sj.dtype(kind) is kind
    assert sj.dtype(kind.name) is kind
    assert str(kind) == kind.name
    assert repr(kind) == f"shapejit.dtype({kind.name!r})"
    if kind.numpy is not None:
        assert sj.dtype(kind.numpy) is kind
        assert sj.dtype(kind.numpy.type) is kind
        assert sj.dtype(np.zeros(1, kind.numpy).dtype) is kind


@every_dtype
@pytest.mark.parametrize("vocabulary", VOCABULARIES)
def test_round_trip(kind, vocabulary):
    word = getattr(kind, vocabulary)
    if word is not None:
        assert sj.dtype(word, vocabulary=vocabulary) is kind
        assert getattr(sj.dtype(word, vocabulary=vocabulary), vocabulary) == word


@every_dtype
def test_codes_and_names_agree(kind):
    if kind.onnx is not None:
        assert sj.dtype(kind.onnx_name, vocabulary="onnx") is kind
    if kind.gguf is not None:
        assert sj.dtype(kind.gguf_code, vocabulary="gguf") is kind
    if kind.dlpack is not None:
        assert kind.dlpack[1] == kind.bits


@every_dtype
def test_copies_are_the_same_object(kind):
    assert pickle.loads(pickle.dumps(kind)) is kind
    assert copy.copy(kind) is kind
    assert copy.deepcopy(kind) is kind
    assert {kind: 1}[sj.dtype(kind.name)] == 1


@every_dtype
def test_facts_agree_with_each_other(kind):
    assert kind.kind in {"bool", "integer", "float", "complex", "string"}
    assert kind.packed == (kind.name != "string" and kind.bits < 8)
    widths = re.findall(r"\d+", kind.name.split("_")[0])
    if widths:
        assert kind.bits == int(widths[0])
    if kind.kind == "integer":
        assert kind.signed == kind.name.startswith("int")
    if kind.numpy is not None and kind.name != "string":
        assert kind.numpy.itemsize * 8 == max(kind.bits, 8)
        assert kind.codes == kind.numpy
    if kind.numpy is None:
        assert kind.codes == np.uint8
    for count, nbytes in [(0, 0), (1, (kind.bits + 7) // 8), (8, kind.bits)]:
        assert kind.nbytes(count) == nbytes
    with pytest.raises(AttributeError):
        kind.bits = 3


def test_by_eye():
    assert [sj.dtype(n).bits for n in ("int2", "float6_e3m2fn", "bfloat16", "complex128")] == [
        2, 6, 16, 128,
    ]  # fmt: skip
    int4 = sj.dtype("int4")
    assert (int4.kind, int4.signed, int4.onnx, int4.openvino) == ("integer", True, 22, "i4")
    assert (int4.safetensors, int4.gguf, int4.dlpack) == (None, None, (0, 4))
    bf16 = sj.dtype("bfloat16")
    assert (bf16.onnx, bf16.openvino, bf16.onednn) == (16, "bf16", "bf16")
    assert (bf16.safetensors, bf16.gguf, bf16.dlpack) == ("BF16", "BF16", (4, 16))
    assert not sj.dtype("float8_e8m0fnu").signed
    assert {kind.name for kind in TABLE if kind.onednn} == {"float32", "float16", "bfloat16"}
    assert {kind.onednn for kind in TABLE if kind.onednn} == {"f32", "f16", "bf16"}
    assert {kind.name for kind in TABLE if kind.numpy is None} == {"nf4", "uint3", "uint6"}


@every_dtype
def test_a_dtype_equals_what_it_is_made_of(kind):
    assert kind == kind.name
    assert kind.name == kind
    assert (kind != kind.name) is False
    assert {kind: 1}[kind.name] == {kind.name: 1}[kind] == 1
    for other in TABLE:
        assert (kind == other) == (kind is other)
        assert (kind == other.name) == (kind is other)
    if kind.numpy is not None and kind.name != "string":
        for same in (kind.numpy, kind.numpy.type):
            assert kind == same
            assert same == kind
    for other in (None, 4, "int5", [kind], np.dtype("M8[s]"), dataclasses.replace(kind, bits=99)):
        assert kind != other
        assert other != kind


# ml_dtypes and NumPy --------------------------------------------------------------------


@pytest.mark.parametrize("name", ML_DTYPES)
def test_ml_dtypes(name):
    kind = sj.dtype(name)
    assert kind.numpy == ML_DTYPES[name]
    assert kind.name == ML_DTYPES[name].name
    scalar = getattr(ml_dtypes, name)
    assert sj.dtype(scalar) is kind
    if kind.kind == "integer":
        info = ml_dtypes.iinfo(scalar)
        assert kind.bits == info.bits
        assert kind.signed == (info.min < 0)
    elif kind.kind == "float":
        info = ml_dtypes.finfo(scalar)
        assert kind.bits == info.bits
        assert kind.signed == (float(info.min) < 0)
    else:
        assert kind.kind == "complex"
        assert kind.bits == 8 * ML_DTYPES[name].itemsize


def test_ml_dtypes_are_many():
    """The loop above is over what ml_dtypes offers: it must have found it."""
    assert {"bfloat16", "int1", "uint1", "float8_e3m4", "complex32", "bcomplex32"} <= set(ML_DTYPES)


@pytest.mark.parametrize("code", "?bhilqBHILQefdFD")
def test_numpy(code):
    dtype = np.dtype(code)
    kind = sj.dtype(dtype)
    assert kind.name == dtype.name
    assert kind.bits == 8 * dtype.itemsize
    if dtype.kind in "iu":
        assert (kind.kind, kind.signed) == ("integer", dtype.kind == "i")
    elif dtype.kind == "f":
        assert (kind.kind, kind.bits) == ("float", np.finfo(dtype).bits)
    assert sj.dtype(dtype.type) is kind


@pytest.mark.parametrize("x", [bool, int, float, complex, str, bytes, object])
def test_python_types(x):
    names = {bool: "bool", int: "int64", float: "float64", complex: "complex128"}
    assert sj.dtype(x).name == names.get(x, "string")


@pytest.mark.parametrize("x", [np.dtype("U3"), np.dtype("S3"), np.dtypes.StringDType(), np.str_])
def test_strings(x):
    assert sj.dtype(x).name == "string"


@pytest.mark.parametrize("code", [">i2", ">u8", ">f4", ">f8", ">c8", ">c16", ">f2"])
def test_big_endian_is_refused(code):
    with pytest.raises(sj.DTypeError, match="native byte order"):
        sj.dtype(np.dtype(code))
    with pytest.raises(sj.DTypeError, match="native byte order"):
        sj.asarray(np.zeros(2, code))


@pytest.mark.parametrize(
    "x",
    [
        "", "F33", "float", "float8", "int3", "Int8", " int8", "object",
        "<f4", None, 1, 16, 1.5, True, (4, 16), b"int8", ["int8"], ..., np.zeros(1), dict,
        np.dtype("V4"), np.dtype("m8[s]"), np.dtype("M8[ns]"), np.dtype([("a", "i4")]),
        np.dtype((np.int32, (2,))), np.longdouble, np.clongdouble, np.void, np.datetime64,
        np.integer, np.floating, np.generic, np.number, ctypes.Structure,
        ctypes.c_void_p, sj.DType, type(None),
    ],
    ids=repr,
)  # fmt: skip
def test_no_dtype(x):
    with pytest.raises(sj.DTypeError):
        sj.dtype(x)


@pytest.mark.parametrize(
    ("name", "canonical"),
    [
        ("bf16", "bfloat16"), ("BF16", "bfloat16"), ("i4", "int4"), ("u4", "uint4"),
        ("I8", "int8"), ("FLOAT", "float32"), ("half", "float16"), ("double", "float64"),
        ("fp16", "float16"), ("F8_E5M2", "float8_e5m2"), ("F4", "float4_e2m1fn"),
        ("torch.bfloat16", "bfloat16"), ("torch.float8_e4m3fn", "float8_e4m3fn"),
        ("numpy.float32", "float32"), ("ml_dtypes.int4", "int4"),
    ],
)  # fmt: skip
def test_names_that_mean_one_dtype(name, canonical):
    assert sj.dtype(name).name == canonical


@pytest.mark.parametrize(
    ("name", "candidates"),
    [
        ("float", "float32.*float64"), ("int", "int32.*int64"), ("byte", "uint8.*int8"),
        ("F8_E4M3", "float8_e4m3fn .safetensors.*float8_e4m3 "),
        ("fp8", "float8_e4m3fn.*float8_e5m2"),
    ],
)  # fmt: skip
def test_names_that_mean_several_dtypes_are_refused(name, candidates):
    with pytest.raises(sj.DTypeError, match=f"'{name}' is ambiguous: .*{candidates}"):
        sj.dtype(name)


def test_no_name_of_a_vocabulary_is_another_dtypes_canonical_name():
    for vocabulary in VOCABULARIES:
        for kind in TABLE:
            name = getattr(kind, vocabulary)
            if isinstance(name, str) and name in {k.name for k in TABLE}:
                assert name == kind.name


def test_a_name_near_by_is_suggested():
    with pytest.raises(sj.DTypeError, match="did you mean 'bfloat16'"):
        sj.dtype("bfloat61")


@pytest.mark.parametrize("code", ["f2", "f4", "f8", "i2", "c8"])
def test_codes_of_numpy_in_bytes_are_named(code):
    with pytest.raises(sj.DTypeError, match=f"NumPy's code for '{np.dtype(code).name}'"):
        sj.dtype(code)


@pytest.mark.parametrize("name", ["\u0125,", "\ud800x", "01", "f,", "\0,", "a4", "f9", "c1"])
def test_short_names_that_numpy_cannot_read(name):
    with pytest.raises(sj.DTypeError, match="unknown dtype"):
        sj.dtype(name)


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
@pytest.mark.parametrize(
    "word",
    [
        "", "no such", "float99", None, -1, 0.0, 1.0, 16.0, True, False, 999, 2**70, b"BF16", [16],
        {16}, (4,), (4, 17), (4.0, 16.0), (True, 8), (4, 16, 1), ([4], 16), "undefined",
        "UNDEFINED", "dynamic", np.dtype("f4"), np.float32,
    ],
    ids=repr,
)  # fmt: skip
def test_no_word(vocabulary, word):
    with pytest.raises(sj.DTypeError, match=vocabulary):
        sj.dtype(word, vocabulary=vocabulary)


@pytest.mark.parametrize("vocabulary", ["", "numpy", "ONNX", "Torch", 1])
def test_no_vocabulary(vocabulary):
    with pytest.raises(sj.DTypeError, match="unknown vocabulary"):
        sj.dtype("int8", vocabulary=vocabulary)


# The systems' own answers ---------------------------------------------------------------


def test_onnx():
    theirs = dict(onnx.TensorProto.DataType.items())
    assert theirs.pop("UNDEFINED") == 0
    assert len(theirs) == 28
    assert {kind.onnx_name: kind.onnx for kind in TABLE if kind.onnx is not None} == theirs
    for code in theirs.values():
        kind = sj.dtype(code, vocabulary="onnx")
        assert kind.numpy == onnx.helper.tensor_dtype_to_np_dtype(code)
        if kind.numpy != np.dtype(object):
            assert onnx.helper.np_dtype_to_tensor_dtype(kind.numpy) == code


def test_onnx_stores_as_many_bytes():
    """TensorProto's packed raw data has the size that the table works out."""
    for kind in TABLE:
        if kind.onnx is None or kind.name == "string":
            continue
        for count in (0, 1, 3, 5, 8):
            stored = onnx.numpy_helper.from_array(np.zeros(count, kind.numpy))
            assert stored.data_type == kind.onnx
            assert len(stored.raw_data) == kind.nbytes(count), (kind, count)


def test_openvino():
    pytest.importorskip("openvino", reason="openvino is not installed")
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name("openvino_peer.py")],
        input='{"ask": "types", "of": []}',
        capture_output=True,
        text=True,
        check=True,
    )
    theirs = json.loads(done.stdout)
    assert {kind.openvino for kind in TABLE if kind.openvino} == set(theirs)
    for name, row in theirs.items():
        kind = sj.dtype(name, vocabulary="openvino")
        if name != "string":  # theirs has the width of a C++ object
            assert kind.bits == row["bits"]
        if name not in OPENVINO_SAYS:
            assert (kind.kind == "float", kind.signed) == (row["real"], row["signed"]), name
        else:
            assert (row["real"], row["signed"]) == OPENVINO_SAYS[name]


# (real, signed) by openvino.Type where it is not what the dtype is.
OPENVINO_SAYS = {
    "boolean": (False, True),
    "nf4": (False, False),  # the codes are unsigned, the values they stand for are not
    "f8e8m0": (True, True),  # has no sign bit
}


def test_safetensors(tmp_path):
    """Its parser lists every dtype that it knows when it meets one that it does not."""
    safetensors = pytest.importorskip("safetensors", reason="safetensors is not installed")
    header = json.dumps({"x": {"dtype": "?", "shape": [], "data_offsets": [0, 0]}}).encode()
    path = tmp_path / "x.safetensors"
    path.write_bytes(struct.pack("<Q", len(header)) + header)
    with pytest.raises(safetensors.SafetensorError, match="unknown variant") as caught:
        safetensors.safe_open(path, "np")
    theirs = set(re.findall(r"`(\w+)`", str(caught.value)))
    assert {"F32", "F4", "F6_E2M3", "BF16"} <= theirs
    assert {kind.safetensors for kind in TABLE if kind.safetensors} == theirs
    for kind in TABLE:
        if kind.safetensors:
            check_widths(safetensors, path, kind)


def check_widths(safetensors, path, kind):
    """Eight elements of the dtype take as many bytes as the table says, and no byte fewer."""
    for spare in (0, -1):
        size = kind.nbytes(8) + spare
        entry = {"dtype": kind.safetensors, "shape": [8], "data_offsets": [0, size]}
        header = json.dumps({"x": entry}).encode()
        path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(size))
        if spare == 0:
            with safetensors.safe_open(path, "np") as file:
                assert list(file.keys()) == ["x"]
        else:
            with pytest.raises(safetensors.SafetensorError):
                safetensors.safe_open(path, "np")


def test_gguf():
    gguf = pytest.importorskip("gguf", reason="gguf is not installed")
    # Blocks of one element: the others are packings, not dtypes.
    theirs = {
        quant.name: (int(quant), 8 * nbytes)
        for quant, (elements, nbytes) in gguf.GGML_QUANT_SIZES.items()
        if elements == 1
    }
    assert {kind.gguf: (kind.gguf_code, kind.bits) for kind in TABLE if kind.gguf} == theirs
    for quant in gguf.GGMLQuantizationType:
        if quant.name in theirs:
            assert sj.dtype(quant, vocabulary="gguf").gguf == quant.name
        else:
            with pytest.raises(sj.DTypeError):
                sj.dtype(quant, vocabulary="gguf")


# dlpack.h 1.1, DLDataTypeCode; the width is part of the name there from 7 on.
DLPACK = {
    0: "int", 1: "uint", 2: "float", 4: "bfloat16", 5: "complex", 6: "bool",
    7: "float8_e3m4", 8: "float8_e4m3", 9: "float8_e4m3b11fnuz", 10: "float8_e4m3fn",
    11: "float8_e4m3fnuz", 12: "float8_e5m2", 13: "float8_e5m2fnuz", 14: "float8_e8m0fnu",
    15: "float6_e2m3fn", 16: "float6_e3m2fn", 17: "float4_e2m1fn",
}  # fmt: skip


@every_dtype
def test_dlpack(kind):
    if kind.name in ("nf4", "bcomplex32", "string"):
        assert kind.dlpack is None
        return
    code, bits = kind.dlpack
    stem = DLPACK[code]
    assert kind.name == (f"{stem}{bits}" if stem in ("int", "uint", "float", "complex") else stem)


@pytest.mark.parametrize("code", "?bhilBHILefdFD")
def test_dlpack_of_numpy(code):
    """The code and bits in the capsule that NumPy exports."""
    capsule = np.zeros(1, code).__dlpack__()
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    # DLTensor: data pointer (8), device (2 x 4), ndim (4), then code and bits, a byte each.
    written = ctypes.string_at(pointer(capsule, b"dltensor") + 20, 2)
    assert sj.dtype(np.dtype(code)).dlpack == tuple(written)
