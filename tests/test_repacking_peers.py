"""Packing formats compared with the implementations that define them."""

import json
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import scheme_fixtures

import shapejit as sj

RANDOM = np.random.default_rng(15)


def codes_of(bits, shape, signed=False):
    codes = RANDOM.integers(0, 1 << bits, shape, np.uint8)
    return (codes.astype(np.int16) - (1 << (bits - 1))).astype(np.int8) if signed else codes


def packed(codes, dtype, target, source="padded", **settings):
    """Codes, one byte each, as a format has them."""
    given = {"shape": codes.shape, "dtype": dtype, "source": source, "target": target}
    return sj.repack(codes, **given, **settings)


# ggml: blocks whose scale is 1, and whose minimum is 0


GGUF = {"q4_0": "int4", "q4_1": "uint4", "q5_0": "int8", "q5_1": "uint8", "q8_0": "int8"}
BITS = {"q4_0": 4, "q4_1": 4, "q5_0": 5, "q5_1": 5, "q8_0": 8}


@pytest.mark.parametrize("name", GGUF)
def test_gguf(name):
    """gguf-py reads our codes beside scales that `out` holds, and we read those that it makes."""
    gguf = pytest.importorskip("gguf")
    kind, form = getattr(gguf.GGMLQuantizationType, name.upper()), f"gguf:{name}"
    signed = GGUF[name].startswith("int")
    codes = codes_of(BITS[name], (6, 96), signed)
    out = np.zeros(sj.formats[form].stored(codes.shape, GGUF[name]).shape, np.uint8)
    blocks = out.reshape(18, -1)
    blocks[:, :2] = np.array([1], np.float16).view(np.uint8)
    packed(codes, GGUF[name], form, out=out)
    np.testing.assert_array_equal(gguf.quants.dequantize(out, kind), codes.astype(np.float32))
    numbers = RANDOM.normal(size=(6, 96)).astype(np.float32)
    stored = gguf.quants.quantize(numbers, kind)
    found = packed_back(stored, codes.shape, GGUF[name], form)
    blocks = stored.reshape(18, -1)
    scale, low = blocks[:, :4].copy().view(np.float16).astype(np.float32).T[:, :, None]
    made = found.astype(np.float32).reshape(18, 32) * scale
    made = made + low if name.endswith("1") else made
    expected = gguf.quants.dequantize(stored, kind).reshape(18, 32)
    np.testing.assert_array_equal(made, expected)


def packed_back(stored, shape, dtype, source):
    return sj.repack(stored, shape=shape, dtype=dtype, source=source, target="padded")


def test_gguf_mxfp4():
    gguf = pytest.importorskip("gguf")
    kind = gguf.GGMLQuantizationType.MXFP4
    codes = codes_of(4, (3, 64))
    out = np.full(sj.formats["gguf:mxfp4"].stored((3, 64), "float4_e2m1fn").shape, 127, np.uint8)
    packed(codes, "float4_e2m1fn", "gguf:mxfp4", out=out)
    values = codes.view(ml_dtypes.float4_e2m1fn).astype(np.float32)
    np.testing.assert_array_equal(gguf.quants.dequantize(out, kind), values)


# MLX: scale 1, bias 0


@pytest.mark.parametrize("bits", [2, 3, 4, 6, 8])
def test_mlx(bits):
    mx = pytest.importorskip("mlx.core")
    codes = codes_of(bits, (4, 128))
    words = packed(codes, f"uint{bits}", "mlx")
    scales, biases = mx.ones((4, 4)), mx.zeros((4, 4))
    found = mx.dequantize(mx.array(words), scales, biases, group_size=32, bits=bits)
    np.testing.assert_array_equal(np.array(found), codes.astype(np.float32))
    numbers = mx.array(RANDOM.normal(size=(4, 128)).astype(np.float32))
    theirs, scales, biases = mx.quantize(numbers, group_size=32, bits=bits)
    codes = packed_back(np.array(theirs), (4, 128), f"uint{bits}", "mlx")
    given = np.repeat(np.array(scales), 32, 1), np.repeat(np.array(biases), 32, 1)
    found = mx.dequantize(theirs, scales, biases, group_size=32, bits=bits)
    made = codes.astype(np.float32) * given[0] + given[1]
    np.testing.assert_allclose(made, np.array(found), rtol=1e-6, atol=1e-6)


# ONNX: TensorProto.raw_data, and MatMulNBits


@pytest.mark.parametrize("dtype", ["int2", "uint4", "int4", "float4_e2m1fn", "float6_e2m3fn"])
def test_onnx(dtype):
    onnx = pytest.importorskip("onnx")
    kind = sj.dtype(dtype)
    values = codes_of(kind.bits, (3, 5)).view(kind.numpy)
    proto = onnx.numpy_helper.from_array(values)
    assert packed(values, dtype, "onnx").tobytes() == proto.raw_data
    assert proto.data_type == kind.onnx


@pytest.mark.parametrize(("bits", "block"), [(2, 16), (4, 32), (4, 64), (8, 16)])
def test_matmulnbits(bits, block):
    """An identity matrix times B is B: codes less 2**(bits - 1), rows padded to blocks."""
    onnx = pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    inputs, outputs = 80, 6
    codes = codes_of(bits, (outputs, inputs))
    stored = packed(codes, f"uint{bits}", "onnx:matmulnbits", block_size=block)
    scales = np.ones(stored.shape[:2], np.float32)
    make, types = onnx.helper, onnx.TensorProto
    sizes = {"K": inputs, "N": outputs, "bits": bits, "block_size": block}
    names = ["A", "B", "scales"]
    node = make.make_node("MatMulNBits", names, ["Y"], domain="com.microsoft", **sizes)
    rows, made = (
        make.make_tensor_value_info(name, types.FLOAT, [inputs, size])
        for name, size in (("A", inputs), ("Y", outputs))
    )
    constants = [
        onnx.numpy_helper.from_array(stored, "B"),
        onnx.numpy_helper.from_array(scales.reshape(-1), "scales"),
    ]
    graph = make.make_graph([node], "g", [rows], [made], constants)
    opsets = [make.make_opsetid("", 21), make.make_opsetid("com.microsoft", 1)]
    model = make.make_model(graph, opset_imports=opsets, ir_version=10)
    session = runtime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    (found,) = session.run(None, {"A": np.eye(inputs, dtype=np.float32)})
    expected = codes.T.astype(np.float32) - (1 << (bits - 1))
    np.testing.assert_allclose(found, expected, atol=1e-3)


# OpenVINO: a Constant, converted to f32


OPENVINO = {
    "u1": ("uint1", "openvino:u1"),
    "u2": ("uint2", "openvino"),
    "u3": ("uint3", "openvino:u3u6"),
    "u4": ("uint4", "openvino"),
    "i4": ("int4", "openvino"),
    "u6": ("uint6", "openvino:u3u6"),
    "f4e2m1": ("float4_e2m1fn", "openvino"),
}


def test_openvino():
    pytest.importorskip("openvino")
    cases, expected = [], []
    for name, (dtype, target) in OPENVINO.items():
        kind = sj.dtype(dtype)
        codes = codes_of(kind.bits, (24,))
        cases.append((name, packed(codes, dtype, target).tobytes().hex(), 24))
        values = codes if kind.numpy is None else codes.view(kind.numpy)
        expected.append(values.astype(np.float32).tolist())
    peer = Path(__file__).with_name("openvino_peer.py")
    question = json.dumps({"ask": "converted", "of": [cases]})
    done = subprocess.run(
        [sys.executable, peer], input=question, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == expected


# NumPy and ml_dtypes


def test_bits_of_numpy():
    codes = codes_of(1, (75,))
    assert packed(codes, "uint1", "msb").tobytes() == np.packbits(codes).tobytes()
    little = np.packbits(codes, bitorder="little")
    assert packed(codes, "uint1", "lsb").tobytes() == little.tobytes()


@pytest.mark.parametrize("dtype", ["int2", "uint4", "int4", "float6_e3m2fn", "float4_e2m1fn"])
def test_arrays_of_ml_dtypes(dtype):
    kind = sj.dtype(dtype)
    values = codes_of(kind.bits, (7, 24)).view(kind.numpy)
    stored = packed(values, dtype, "compressed-tensors")
    back = packed_back(stored, values.shape, dtype, "compressed-tensors")
    assert back.dtype == values.dtype
    np.testing.assert_array_equal(back.view(np.uint8), values.view(np.uint8))


# Fixtures of the projects that own the formats: see fixtures/README.md


def fixtures(*schemes):
    found = [x for scheme in schemes for x in scheme_fixtures.by_scheme()[scheme]]
    return pytest.mark.parametrize("fixture", found, ids=lambda fixture: fixture.name)


def check_codes(stored, codes, bits, name):
    """Both ways between the stored array of a project and its plain codes."""
    inputs_first = sj.formats[name].inputs_first
    rows = np.ascontiguousarray(codes.T if inputs_first else codes)
    given = {"shape": codes.shape, "dtype": f"uint{bits}", "source": name}
    found = sj.repack(np.ascontiguousarray(stored), target="padded", **given)
    np.testing.assert_array_equal(found.view(np.uint8), rows)
    made = packed(rows, f"uint{bits}", name)
    np.testing.assert_array_equal(made.reshape(stored.shape), stored)


@fixtures("gptq")
def test_fixtures_of_gptq(fixture):
    bits, parts = fixture.settings["bits"], fixture.parts
    check_codes(parts["qweight"], fixture.codes, bits, "gptq:qweight")
    if fixture.settings.get("version") == 1:  # others leave it to their config
        groups, outputs = parts["scales"].shape
        v2 = sj.repack(
            parts["qzeros"], shape=(groups, outputs), dtype=f"uint{bits}",
            source="gptq:qzeros@v1", target="gptq:qzeros@v2",
        )  # fmt: skip
        fields = np.unpackbits(v2.view(np.uint8), axis=1, bitorder="little")
        zeros = np.packbits(fields.reshape(groups, outputs, bits), axis=2, bitorder="little")[
            ..., 0
        ]
        given = {"shape": (groups, outputs), "dtype": f"uint{bits}", "source": "gptq:qzeros@v1"}
        plain = sj.repack(parts["qzeros"], target="padded", **given).view(np.uint8)
        np.testing.assert_array_equal(plain.T, zeros)
        groups_of = parts["g_idx"].astype(int)
        scales = parts["scales"].astype(np.float32)[groups_of]
        values = scales * (fixture.codes.astype(np.float32) - zeros.astype(np.float32)[groups_of])
        np.testing.assert_array_equal(values.T, fixture.expected["float32"])


@fixtures("awq")
def test_fixtures_of_awq(fixture):
    parts, version = fixture.parts, fixture.settings["version"]
    codes = fixture.codes if version == "gemm" else fixture.codes.T
    check_codes(parts["qweight"], codes, 4, f"awq:{version}")
    given = {"dtype": "uint4", "source": "awq:gemm"}
    for scheme, others in fixture.converted.items():
        name, target = {
            "gptq": ("qweight", "gptq:qweight"),
            "int4:compressed-tensors": ("weight_packed", "compressed-tensors"),
        }[scheme]
        made = sj.repack(parts["qweight"], shape=codes.shape, target=target, **given)
        np.testing.assert_array_equal(made, others[name])
        if scheme == "gptq":
            shape, target = parts["scales"].shape, "gptq:qzeros@v2"
            zeros = sj.repack(parts["qzeros"], shape=shape, target=target, **given)
            np.testing.assert_array_equal(zeros, others["qzeros"])


@fixtures("int4:compressed-tensors")
def test_fixtures_of_compressed_tensors(fixture):
    bits, stored = fixture.settings["bits"], fixture.parts["weight_packed"]
    if bits not in (5, 7):  # there are no such dtypes
        codes = (fixture.codes.astype(np.int16) + (1 << (bits - 1))).astype(np.uint8)
        check_codes(stored, codes, bits, "compressed-tensors")
    if bits in (2, 4, 8):
        given = {"shape": fixture.codes.shape, "dtype": f"int{bits}", "target": "padded"}
        found = sj.repack(stored, source="compressed-tensors", **given)
        np.testing.assert_array_equal(found.astype(np.int8), fixture.codes)


@fixtures("format:nvfp4:scale-swizzle", "format:torchao:tinygemm", "format:torch:x2")
def test_fixtures_of_formats(fixture):
    name = fixture.scheme.removeprefix("format:")
    (stored,) = (x for key, x in fixture.parts.items() if key in ("scale", "int_data", "data"))
    bits = 8 if "scale" in fixture.parts else 4
    check_codes(stored, fixture.codes, bits, name)


@fixtures("bnb:nf4", "bnb:fp4")
def test_fixtures_of_bitsandbytes(fixture):
    """Equal codes of one block are equal values, in the order of the table of codes."""
    values = fixture.expected["float32"].reshape(-1)
    given = {"shape": (values.size,), "dtype": "uint4", "source": "bitsandbytes"}
    stored = np.ascontiguousarray(fixture.parts["weight"])
    codes = sj.repack(stored, target="padded", **given).view(np.uint8)
    table = fixture.parts["weight.quant_map"][codes]
    block = fixture.settings["block"]
    for at in range(0, table.size, block):
        part, of = values[at : at + block], table[at : at + block]
        order = np.argsort(of, kind="stable")
        assert (np.diff(part[order]) >= 0).all()
        assert len(np.unique(part)) == len(np.unique(of))


def test_fixtures_of_gpt_oss():
    fixture = scheme_fixtures.named("mxfp4-gpt-oss-gguf")
    stored, scales = (fixture.parts[f"gate_up_proj_{name}"] for name in ("blocks", "scales"))
    for at, name in enumerate(("gate", "up")):
        theirs = fixture.converted["mxfp4:gguf"][name]
        out = np.zeros_like(theirs)
        blocks = np.ascontiguousarray(stored[:, at::2])
        shape = (*blocks.shape[:2], 32 * blocks.shape[2])
        given = {"shape": shape, "dtype": "float4_e2m1fn", "source": "gpt-oss:blocks"}
        sj.repack(blocks, target="gguf:mxfp4", out=out, **given)
        # What gguf encodes again may have other scales: the same numbers, and only then codes.
        same = theirs.reshape(-1, 17)[:, 0] == scales[:, at::2].reshape(-1)
        assert same.any()
        made, wanted = (x.reshape(-1, 17)[same, 1:] for x in (out, theirs))
        for x in (made, wanted):
            x[x & 0x77 == 0] = 0  # -0.0 is +0.0 there
        np.testing.assert_array_equal(made, wanted)
