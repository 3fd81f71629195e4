"""com.microsoft.MatMulNBits: models of onnxruntime's own quantizer, against onnxruntime."""

import itertools
import json
import re

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
from gguf import GGUFReader, quants
from onnx import TensorProto, helper, numpy_helper

import shapejit as sj
from shapejit.__main__ import main

MICROSOFT = "com.microsoft"
SIZES = [*itertools.product((40, 96, 256), (1, 32))]  # K, N


def saved(path, nodes, inputs, outputs, initializers):
    graph = helper.make_graph(nodes, "g", inputs, outputs, initializers)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(MICROSOFT, 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), path)
    return str(path)


def floats(name, *shape, kind=np.float32):
    return helper.make_tensor_value_info(
        name, helper.np_dtype_to_tensor_dtype(np.dtype(kind)), shape
    )


def matmul(k, inputs, **settings):
    return helper.make_node("MatMulNBits", [f"A{k}", *inputs], [f"Y{k}"], domain=MICROSOFT,
                            **settings)  # fmt: skip


def plain(path, sizes, kind=np.float32):
    """A model of a MatMul by a weight of each size."""
    rng = np.random.default_rng(17)
    return saved(
        path,
        [
            helper.make_node("MatMul", [f"A{k}", f"w{k}.weight"], [f"Y{k}"])
            for k in range(len(sizes))
        ],
        [floats(f"A{k}", "M", K, kind=kind) for k, (K, _) in enumerate(sizes)],
        [floats(f"Y{k}", "M", N, kind=kind) for k, (_, N) in enumerate(sizes)],
        [
            numpy_helper.from_array(rng.standard_normal(size).astype(kind), f"w{k}.weight")
            for k, size in enumerate(sizes)
        ],
    )


def quantized(path, sizes, bits, block, symmetric, kind=np.float32, **more):
    """The same, its weights quantised by onnxruntime."""
    own = pytest.importorskip("onnxruntime.quantization.matmul_nbits_quantizer")
    model = onnx.load(plain(path, sizes, kind))
    quantizer = own.MatMulNBitsQuantizer(
        model, bits=bits, block_size=block, is_symmetric=symmetric, **more
    )
    quantizer.process()
    onnx.save(quantizer.model.model, path)
    return str(path)


def multiplied(path):
    """What onnxruntime multiplies by: the products of identity matrices."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    given = {each.name: np.eye(each.shape[1], dtype=np.float32) for each in session.get_inputs()}
    return session.run(None, given)


def parts(K, N, bits, block, zeros="none", flat=False):
    """Random parts of a weight."""
    rng, blocks = np.random.default_rng(bits), -(-K // block)
    made = {
        "B": rng.integers(0, 256, (N, blocks, block * bits // 8), np.uint8),
        "scales": rng.standard_normal((N, blocks)).astype(np.float32),
    }
    if zeros == "packed":
        made["zero_points"] = rng.integers(0, 256, (N, -(-blocks * bits // 8)), np.uint8)
    elif zeros == "floats":
        made["zero_points"] = rng.integers(0, 2**bits, (N, blocks)).astype(np.float32)
    if flat:
        made |= {key: made[key].reshape(-1) for key in made.keys() - {"B"}}
    return made


def single(path, given, K, N, names=None, **settings):
    """A model of one MatMulNBits with these parts."""
    names = {key: f"w_{key}" for key in given} | (names or {})
    order = ("B", "scales", "zero_points", "g_idx", "bias")
    inputs = [names[key] if key in given else "" for key in order]
    while not inputs[-1]:
        inputs.pop()
    return saved(
        path,
        [matmul(0, inputs, K=K, N=N, **settings)],
        [floats("A0", "M", K)],
        [floats("Y0", "M", N)],
        [numpy_helper.from_array(x, names[key]) for key, x in given.items()],
    )


@pytest.mark.parametrize("block", [16, 32, 64, 128])
@pytest.mark.parametrize("symmetric", [True, False], ids=["plain", "zero points"])
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_models_of_onnxruntimes_quantizer(bits, symmetric, block, tmp_path, capsys):
    path = quantized(tmp_path / "m.onnx", SIZES, bits, block, symmetric)
    wanted = multiplied(path)
    found = sj.schemes.detect(sj.load_file(path))
    assert [found.unclear, found.warnings] == [[], []]
    weights = {each.prefix: each for each in found}
    assert list(weights) == [f"w{k}" for k in range(len(SIZES))]
    for (prefix, scheme, each), x in zip(weights.values(), wanted, strict=True):
        assert (each.weight, scheme) == (f"{prefix}.weight", "matmulnbits")
        assert np.array_equal(sj.schemes[scheme].decode(each, dtype="float32").numpy(), x)

    to = str(tmp_path / "o.safetensors")
    assert main(["convert", path, to, "--to", "float32"]) == 0
    for k, x in enumerate(wanted):
        assert np.array_equal(sj.load_file(to)[f"w{k}.weight"].numpy(), x)
    assert main(["verify", path, to]) == 0
    capsys.readouterr()
    assert main(["inspect", path, "--json"]) == 0
    reported = json.loads(capsys.readouterr().out)
    assert [each["name"] for each in reported["weights"]] == [f"{name}.weight" for name in weights]
    assert reported["unclear"] == reported["warnings"] == []


@pytest.mark.parametrize("flat", [False, True], ids=["rows", "flat"])
@pytest.mark.parametrize("zeros", ["none", "packed", "floats"])
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_codes_of_all_values(bits, zeros, flat, tmp_path):
    K, N, block = 72, 5, 16
    given = parts(K, N, bits, block, zeros, flat)
    names = {"B": "17", "scales": "a/b", "zero_points": "Q4"}
    path = single(tmp_path / "m.onnx", given, K, N, names, bits=bits, block_size=block)
    (found,) = sj.schemes.detect(sj.load_file(path))
    x = sj.schemes["matmulnbits"].decode(found.parts, dtype="float32").numpy()
    if zeros == "floats":  # onnxruntime adds the products of zero points up, of 2 and 4 bits only
        ones = np.unpackbits(given["B"].reshape(N, -1), axis=1, bitorder="little")
        codes = ones.reshape(N, -1, bits) @ (1 << np.arange(bits))
        scale, zero = (
            given[key].reshape(N, -1).repeat(block, 1)[:, :K] for key in ("scales", "zero_points")
        )
        assert np.array_equal(x, ((codes[:, :K] - zero) * scale).astype(np.float32).T)
    else:
        assert np.array_equal(x, multiplied(path)[0])


@pytest.mark.parametrize("zeros", ["none", "packed"])
@pytest.mark.parametrize("K", [1, 2, 129])
def test_inputs_behind_the_last_whole_block(K, zeros, tmp_path):
    for bits in (2, 4, 8):
        given = parts(K, 300, bits, 16, zeros)
        path = single(tmp_path / "m.onnx", given, K, 300, bits=bits, block_size=16)
        wide = given | {"scales": np.repeat(given["scales"], 2, 1)[:, ::2]}
        settings = {"dtype": "float32", "bits": bits, "K": K}
        for each in (given, wide):
            x = sj.schemes["matmulnbits"].decode(each, **settings).numpy()
            assert np.array_equal(x, multiplied(path)[0])


def test_weights_of_one_shape_with_other_settings(tmp_path):
    """Tensors of equal shapes that nodes read in different ways; zero points that two share."""
    given, eight = parts(64, 3, 4, 16, "packed"), parts(32, 3, 8, 16, "packed")
    arrays = {
        "a.weight_B": given["B"], "a_s": given["scales"], "z": given["zero_points"],
        "b.weight_B": given["B"], "b_s": given["scales"] / 2,
        "c.weight_B": given["B"][:, :, ::-1], "c_s": eight["scales"],
    }  # fmt: skip
    arrays["c.weight_B"] = arrays["c.weight_B"].reshape(3, 2, 16)
    path = saved(
        tmp_path / "m.onnx",
        [
            matmul(0, ["a.weight_B", "a_s", "z"], K=64, N=3, bits=4, block_size=16),
            matmul(1, ["b.weight_B", "b_s", "z"], K=53, N=3, block_size=16, accuracy_level=1),
            matmul(2, ["c.weight_B", "c_s"], K=30, N=3, bits=8, block_size=16),
            matmul(3, ["c.weight_B", "c_s"], K=30, N=3, bits=8, block_size=16),
        ],
        [floats(f"A{k}", "M", K) for k, K in enumerate((64, 53, 30, 30))],
        [floats(f"Y{k}", "M", 3) for k in range(4)],
        [numpy_helper.from_array(np.ascontiguousarray(x), name) for name, x in arrays.items()],
    )
    plain, packed = str(tmp_path / "o.npz"), str(tmp_path / "o.safetensors")
    assert main(["convert", path, plain, "--to", "float32"]) == 0
    for name, x in zip("abc", multiplied(path), strict=False):
        assert np.array_equal(sj.load_file(plain)[f"{name}.weight"].numpy(), x)
    rules = ["--select", "(a|b|z).*", "--to", "int4:compressed-tensors"]
    assert main(["convert", path, packed, *rules]) == 0
    for name in "ab":
        stored = {
            key: sj.load_file(packed)[f"{name}.{key}"]
            for key in ("weight_packed", "weight_scale", "weight_shape", "weight_zero_point")
        }
        scheme = sj.schemes["int4:compressed-tensors"]
        x = scheme.decode(stored, dtype="float32", group_size=16).numpy()
        assert np.array_equal(x.T, sj.load_file(plain)[f"{name}.weight"].numpy())


def test_weights_of_subgraphs_and_constants(tmp_path):
    given = parts(24, 3, 8, 16, "packed")
    settings = {"K": 24, "N": 3, "bits": 8, "block_size": 16}
    constant = helper.make_node(
        "Constant", [], ["b"], value=numpy_helper.from_array(given["B"], "b")
    )
    node = matmul(0, ["b", "s", "z"], **settings)
    branches = {
        key: helper.make_graph(nodes, key, [], [floats("Y0", "M", 3)])
        for key, nodes in (
            ("then_branch", [constant, node]),
            ("else_branch", [helper.make_node("Identity", ["e"], ["Y0"])]),
        )
    }
    path = saved(
        tmp_path / "m.onnx",
        [helper.make_node("If", ["even"], ["y"], **branches)],
        [floats("A0", "M", 24), helper.make_tensor_value_info("even", TensorProto.BOOL, [])],
        [floats("y", "M", 3)],
        [
            numpy_helper.from_array(given["scales"], "s"),
            numpy_helper.from_array(given["zero_points"], "z"),
            numpy_helper.from_array(np.zeros((1, 3), np.float32), "e"),
        ],
    )
    (found,) = sj.schemes.detect(sj.load_file(path))
    assert found.parts.names == {"B": "y.then_branch/b", "scales": "s", "zero_points": "z"}
    x = sj.schemes["matmulnbits"].decode(found.parts, dtype="float32").numpy()
    bare = single(tmp_path / "one.onnx", given, **settings)
    assert np.array_equal(x, multiplied(bare)[0])


@pytest.mark.parametrize(
    ("to", "suffix", "symmetric", "bits"),
    [
        ("gguf:q4_0", "gguf", True, 4),
        ("gguf:q8_0", "gguf", True, 8),
        ("int4:compressed-tensors", "safetensors", False, 4),
        ("gptq", "safetensors", False, 4),
        ("awq", "npz", False, 4),
    ],
)
def test_weights_go_to_other_schemes(to, suffix, symmetric, bits, tmp_path):
    sizes = [(96, 32), (64, 8)]
    path = quantized(tmp_path / "m.onnx", sizes, bits, 32, symmetric, np.float16)
    out, plain = str(tmp_path / f"o.{suffix}"), str(tmp_path / "o.npz")
    assert main(["convert", path, plain, "--to", "float32"]) == 0
    assert main(["convert", path, out, "--to", to]) == 0
    if to.startswith("gguf"):
        for each in GGUFReader(out).tensors:
            x = quants.dequantize(each.data, each.tensor_type)
            assert np.array_equal(x.T, sj.load_file(plain)[each.name].numpy())
    else:
        assert main(["verify", path, out]) == 0


def test_renamed_weights_are_still_read(tmp_path):
    path = quantized(tmp_path / "m.onnx", [(40, 3)], 8, 16, symmetric=False)
    rules, out = tmp_path / "r.toml", str(tmp_path / "o.npz")
    rules.write_text("[[rule]]\nrename = 's/w0(.*)/v\\1/'\n")
    assert main(["convert", path, out, "--rename", r"s/w0(.*)/v\1/", "--to", "float32"]) == 0
    assert main(["verify", path, out, "--rules", str(rules)]) == 0


def test_nodes_tell_what_shapes_leave_open(tmp_path):
    """Without nodes, zero points may tell the bits; else nothing is guessed."""
    for zeros, fits in (("packed", ["matmulnbits"]), ("none", [])):
        given = parts(96, 5, 4, 32, zeros)
        path = single(tmp_path / "m.onnx", given, 96, 5, bits=4, block_size=32)
        assert [each.scheme for each in sj.schemes.detect(sj.load_file(path))] == ["matmulnbits"]
        bare = sj.schemes.detect(dict(sj.load_file(path)))
        assert [each.scheme for each in bare] == fits
        if fits:
            assert bare.warnings == [
                "w: no config states how many inputs there are: whole blocks are assumed"
            ]
            x = sj.schemes["matmulnbits"].decode(bare[0].parts, dtype="float32").numpy()
            assert np.array_equal(x, multiplied(path)[0])
        else:
            (unclear,) = bare.unclear
            assert "codes of 2 and 4 and 8 bits fit, and no node of" in unclear.reason
    tensors = {"x_Q4": given["B"], "x_scales": given["scales"], "x_g_idx": np.zeros(96, np.int32)}
    (unclear,) = sj.schemes.detect(tensors).unclear
    assert "has no x_g_idx" in unclear.reason
    reported = {"quantization_config": {"bits": 4, "group_size": 32}}
    (found,) = sj.schemes.detect(dict(sj.load_file(path)), reported)
    x = sj.schemes["matmulnbits"].decode(found.parts, dtype="float32").numpy()
    assert np.array_equal(x, multiplied(path)[0])


BAD = {
    "g_idx": ({"g_idx": np.zeros(40, np.int32)}, {}, "its g_idx, which onnxruntime has deprecated"),
    "prepacked": ({}, {"weight_prepacked": 1}, "prepacked"),
    "3 bits": ({}, {"bits": 3}, r"B must have shape \(6, 3, 6\) .*, not \(6, 3, 8\)"),
    "N": ({}, {"N": 7}, r"must have shape \(7, 3, 8\)"),
    "K": ({}, {"K": 72}, r"must have shape \(6, 5, 8\)"),
    "block": ({}, {"block_size": 24}, r"must have shape \(6, 2, 12\)"),
    "no block": ({}, {"block_size": None}, "the node does not define block_size"),
    "zero points": (
        {"zero_points": np.zeros((6, 3), np.uint8)}, {},
        r"zero_points must .* \(6, 2\) \(N K/g\*b/8 of N=6 rows, .*b=4 bits\), not \(6, 3\)",
    ),
    "scales": ({"scales": np.ones((6, 2), np.float32)}, {}, r"scales must .*\(6, 3\).*\(6, 2\)"),
    "codes": ({"B": np.zeros((6, 3, 8), np.int8)}, {}, "B must be uint8, not int8"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_what_is_not_read_is_refused_by_names(name, tmp_path, capsys):
    more, changed, reason = BAD[name]
    settings = {"K": 40, "N": 6, "bits": 4, "block_size": 16, **changed}
    settings = {key: value for key, value in settings.items() if value is not None}
    path = single(tmp_path / "m.onnx", parts(40, 6, 4, 16) | more, **settings)
    out = tmp_path / "o.npz"
    assert main(["convert", path, str(out), "--to", "float32"]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"shapejit: error: {path}: w_B, ")
    assert re.search(reason, said), said
    assert not out.exists()
    found = sj.schemes.detect(sj.load_file(path))
    assert not found
    assert any("w_B" in each.names and re.search(reason, str(each)) for each in found.unclear)


def test_nodes_that_contradict_one_another(tmp_path, capsys):
    given = parts(64, 6, 4, 16)
    nodes = [matmul(k, ["B", "s"], K=K, N=6, bits=4, block_size=16) for k, K in enumerate((64, 60))]
    path = saved(
        tmp_path / "m.onnx",
        nodes,
        [floats("A0", "M", 64), floats("A1", "M", 60)],
        [floats("Y0", "M", 6), floats("Y1", "M", 6)],
        [numpy_helper.from_array(x, n) for n, x in (("B", given["B"]), ("s", given["scales"]))],
    )
    assert main(["convert", path, str(tmp_path / "o.npz"), "--to", "float32"]) == 2
    assert "read its codes in different ways" in capsys.readouterr().err


def test_blocks_of_dequantizelinear_are_no_matmulnbits(tmp_path):
    """The quantiser's other way to store weights."""
    formats = pytest.importorskip("onnxruntime.quantization").QuantFormat
    path = quantized(tmp_path / "m.onnx", [(64, 32)], 4, 32, False, quant_format=formats.QDQ)
    found = sj.schemes.detect(sj.load_file(path))
    assert not found
    (unclear,) = found.unclear
    assert unclear.reason == "ai.onnx.DequantizeLinear is not decoded"
    assert {"w0.weight_DQ_Q4", "w0.weight_DQ_scales"} < {*unclear.names}


def test_biases_stay(tmp_path):
    given = parts(40, 6, 4, 16) | {"bias": np.arange(6, dtype=np.float32)}
    path = single(tmp_path / "m.onnx", given, 40, 6, bits=4, block_size=16)
    out = str(tmp_path / "o.npz")
    assert main(["convert", path, out, "--to", "float32"]) == 0
    found = sj.load_file(out)
    assert list(found) == ["w", "w_bias"]
    x = np.eye(40, dtype=np.float32) @ found["w"].numpy() + found["w_bias"].numpy()
    assert np.array_equal(x, multiplied(path)[0])


def test_codes_are_not_written_to_files_without_their_node(tmp_path, capsys):
    """Nothing there would tell of how many bits they are."""
    given = parts(40, 6, 8, 16)
    path = single(tmp_path / "m.onnx", given, 40, 6, bits=8, block_size=16)
    out = tmp_path / "o.safetensors"
    assert main(["convert", path, str(out)]) == 2
    assert "holds codes of com.microsoft.MatMulNBits" in capsys.readouterr().err
    assert not out.exists()
    assert main(["convert", path, str(out), "--keep", ".*"]) == 0
    for name, tensor in sj.load_file(path).items():
        assert sj.array_equal(sj.load_file(out)[name], tensor)


OTHERS = {
    "GatherBlockQuantized": (["w.qweight", "i", "w.scales", "w.qzeros"], {"block_size": 16}),
    "QMoE": (["A0", "r", "w.qweight", "w.scales", "", "w.qweight", "w.scales"], {"k": 1}),
    "MatMulBnb4": (
        ["A0", "w.qweight", "w.scales"], {"K": 64, "N": 4, "block_size": 16, "quant_type": 1}
    ),
}  # fmt: skip


@pytest.mark.parametrize("operator", OTHERS)
def test_weights_of_other_operators_are_no_matmulnbits(operator, tmp_path, capsys):
    """Their names and shapes may be those of MatMulNBits."""
    inputs, settings = OTHERS[operator]
    given = parts(64, 4, 4, 16, "packed")
    arrays = {"w.qweight": given["B"], "w.scales": given["scales"]}
    if "w.qzeros" in inputs:
        arrays["w.qzeros"] = given["zero_points"]
    own = {"v.qweight": given["B"], "v.scales": given["scales"]}
    path = saved(
        tmp_path / "m.onnx",
        [
            helper.make_node(operator, inputs, ["Y0"], domain=MICROSOFT, **settings),
            matmul(1, [*own], K=64, N=4, bits=4, block_size=16),
        ],
        [floats("A0", "M", 64), floats("A1", "M", 64)],
        [floats("Y0", "M", 4), floats("Y1", "M", 4)],
        [numpy_helper.from_array(x, name) for name, x in (arrays | own).items()],
    )
    out = str(tmp_path / "o.npz")
    assert main(["convert", path, out, "--to", "float32"]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"shapejit: error: {path}: w.qweight")
    assert f"{MICROSOFT}.{operator} is not decoded" in said
    assert main(["convert", path, out, "--exclude", "w.*", "--to", "float32"]) == 0
    assert [each.prefix for each in sj.schemes.detect(sj.load_file(path))] == ["v"]


def test_zero_points_that_are_fractions_keep_their_dtype():
    given = parts(64, 4, 4, 16)
    for kind in (np.float32, np.float16, ml_dtypes.bfloat16):
        zeros = (np.arange(16).reshape(4, 4) / 2).astype(kind)
        scheme, stored = sj.schemes["matmulnbits"], given | {"zero_points": zeros}
        made = scheme.convert(stored, "matmulnbits")
        assert made["zero_points"].numpy().dtype == kind
        assert sj.array_equal(scheme.decode(made), scheme.decode(stored))
