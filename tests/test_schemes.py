"""Schemes against the projects that own them: in fixtures, or run here (gguf, mlx, onnxruntime)."""

import copy
import gc
import pickle
import tracemalloc
from dataclasses import replace

import loops
import ml_dtypes
import mlx.core as mx
import numpy as np
import onnx
import pytest
from gguf import GGMLQuantizationType, quants
from guarded import guarded
from onnx import TensorProto, helper
from plain_schemes import DECODED, ENCODED
from scheme_fixtures import by_scheme, named

import shapejit as sj
from shapejit.engine import patience
from shapejit.quantization import bands, decoding

BLOCKS = {  # elements and bytes of a block, and where it has float16 numbers
    "Q4_0": (32, 18, [0]),
    "Q4_1": (32, 20, [0, 2]),
    "Q5_0": (32, 22, [0]),
    "Q5_1": (32, 24, [0, 2]),
    "Q8_0": (32, 34, [0]),
    "Q4_K": (256, 144, [0, 2]),
    "Q5_K": (256, 176, [0, 2]),
    "Q6_K": (256, 210, [208]),
    "MXFP4": (32, 17, []),
    "NVFP4": (64, 36, []),
    "IQ4_NL": (32, 18, [0]),
    "IQ2_XS": (256, 74, [0]),
    "IQ3_S": (256, 110, [0]),
    "Q3_K": (256, 110, [108]),
    "TQ1_0": (256, 54, [52]),
}
OWN = {"MXFP4": "mxfp4:gguf", "NVFP4": "nvfp4:gguf"}
FIXTURES = [f for scheme, group in by_scheme().items() if scheme in sj.schemes for f in group]
LOOK_ALIKES = [f for s, group in by_scheme().items() if s.startswith("look-alike:") for f in group]


def rng():
    return np.random.default_rng(7)


def check_same(found, wanted):
    """Every bit is the same."""
    found = found.numpy() if isinstance(found, sj.Tensor) else found
    assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
    bits = f"u{found.itemsize}"
    wrong = np.flatnonzero(
        np.ascontiguousarray(found).view(bits) != np.ascontiguousarray(wanted).view(bits)
    )
    assert wrong.size == 0, (wrong.size, found.flat[wrong[:5]], wanted.flat[wrong[:5]])


def detected(fixture):
    """The one group of a fixture, as a checkpoint with its config."""
    found = sj.schemes.detect(fixture.checkpoint(), fixture.config)
    assert [(prefix, scheme) for prefix, scheme, _ in found] == [(fixture.prefix, fixture.scheme)]
    assert (found.unclear, found.warnings) == ([], [])
    assert found[0].parts.keys() == fixture.parts.keys()
    return found[0].parts


@pytest.mark.parametrize("fixture", FIXTURES, ids=lambda f: f.name)
def test_fixtures_are_detected_and_decoded(fixture):
    parts = detected(fixture)
    scheme = sj.schemes[fixture.scheme]
    for name, wanted in fixture.expected.items():
        if "-" in name:  # another project's zeros
            continue
        once = fixture.rounded_once.get(name, True) and "float32" in fixture.expected
        rounding = "once" if once or name == "float32" else "reference"
        check_same(scheme.decode(parts, dtype=name, rounding=rounding), wanted)
    out = scheme.decode(parts)
    again = sj.Tensor.frombuffer(bytearray(out.nbytes), "bfloat16", out.shape)
    assert scheme.decode(parts, out=again) is again
    check_same(again, out.numpy())


def gptq_v2(**more):
    return {"quant_method": "gptq", "bits": 4, "group_size": 32, **more}


TOLD = {"checkpoint_format": "gptq_v2"}
MODULE = named("gptq-4bit-v2").prefix


@pytest.mark.parametrize(
    "config",
    [
        {"quantization_config": gptq_v2(), "quantize_config.json": gptq_v2(**TOLD)},
        {"quantization_config": gptq_v2(), "quantize_config.json": TOLD, "version": "v1.5"},
        {"thinker_config": {"text_config": {"quantization_config": gptq_v2(**TOLD)}}},
        {"quantization_config": {}, "text_config": {"quantization_config": gptq_v2(**TOLD)}},
        {"quantization_config": None, "a_b_config": {"quantization_config": gptq_v2(**TOLD)}},
        {"quantization_config": gptq_v2(checkpoint_format="GPTQ_V2")},
        {"quantization_config": gptq_v2(format="gptq_v2")},
        {"quantization_config": gptq_v2(**TOLD, **{MODULE: {"bits": 4}})},
        {"quantization_config": gptq_v2(**TOLD, **{MODULE: {"bits": 4}}) | {"bits": 2}},
        {"quantization_config": gptq_v2(**TOLD, extra_config={MODULE: {"bits": 4}}) | {"bits": 2}},
        gptq_v2(**TOLD),
        TOLD,
    ],
    ids=repr,
)
def test_the_version_of_gptq_is_found_wherever_it_is_reported(config):
    fixture = named("gptq-4bit-v2")
    ((_, scheme, parts),) = sj.schemes.detect(fixture.checkpoint(), config)
    check_same(sj.schemes[scheme].decode(parts, dtype="float32"), fixture.expected["float32"])


@pytest.mark.parametrize(
    ("name", "config", "reason"),
    [
        ("gptq-4bit-v2", {"quantize_config.json": {"checkpoint_format": "gptq"}}, "contradicts"),
        ("gptq-4bit-v2", {"quantize_config.json": {"checkpoint_format": "marlin"}}, "marlin"),
        ("gptq-4bit-v2", {"text_config": {"compression_config": {"version": "Turned"}}}, "turned"),
        ("gptq-auto-round-auto-gptq-4bit", {"checkpoint_format": "gptq_v2"}, "contradicts"),
        ("gptq-4bit-v2", {"quantization": {"packing_format": "auto_round:mlx"}}, "auto_round:mlx"),
        ("awq-gemm", {"quantization": {"packing_format": "auto_round:auto_gptq"}}, "auto_gptq"),
        ("int4-ct-act-order", {"quantization": {"actorder": "random"}}, "random"),
    ],
)
def test_layouts_that_are_unknown_or_contradict_each_other(name, config, reason):
    fixture = named(name)
    found = sj.schemes.detect(fixture.checkpoint(), {**fixture.config, **config})
    assert found == []
    assert reason in str(found.unclear[0]).lower()


@pytest.mark.parametrize("fixture", LOOK_ALIKES, ids=lambda f: f.name)
def test_look_alikes_are_reported(fixture):
    found = sj.schemes.detect(fixture.checkpoint(), fixture.config)
    assert found == []
    names = {name for unclear in found.unclear for name in unclear.names}
    assert names == set(fixture.checkpoint())


def gguf_bytes(name, rows=6, columns=1024):
    """Random blocks with finite scales."""
    size, nbytes, halves = BLOCKS[name]
    raw = rng().integers(0, 256, (rows, columns // size, nbytes), dtype=np.uint8)
    for at in halves:
        numbers = rng().standard_normal(raw.shape[:2]).astype(np.float16)
        raw[..., at : at + 2] = numbers[..., None].view(np.uint8)
    if name == "MXFP4":
        raw[..., 0] %= 255
    if name == "NVFP4":
        raw[..., :4] %= 127
    return raw.reshape(rows, -1)


@pytest.mark.parametrize("name", BLOCKS)
def test_gguf(name):
    raw = gguf_bytes(name)
    with np.errstate(over="ignore"):
        wanted = quants.dequantize(raw, GGMLQuantizationType[name])
    scheme = OWN.get(name, f"gguf:{name.lower()}")

    class Read:
        data, tensor_type = raw, GGMLQuantizationType[name]

    ((prefix, found, parts),) = sj.schemes.detect({"blk.0.ffn_up.weight": Read})
    assert (prefix, found) == ("blk.0.ffn_up", scheme)
    check_same(sj.schemes[scheme].decode(parts, dtype="float32"), wanted)
    check_same(sj.schemes[scheme].decode(parts), wanted.astype(ml_dtypes.bfloat16))


def weights(rows=16, columns=256):
    """Numbers with an outlier, blocks of zeros, and blocks of one sign."""
    x = rng().standard_normal((rows, columns)).astype(np.float32)
    x[3, :64], x[5, 7] = 0, 40
    x[2, 64:128], x[1, 64:128] = abs(x[2, 64:128]), -abs(x[1, 64:128])
    return x


@pytest.mark.parametrize("name", ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "MXFP4"])
def test_gguf_is_encoded_as_by_gguf(name):
    scheme = sj.schemes[OWN.get(name, f"gguf:{name.lower()}")]
    wanted = quants.quantize(weights(), GGMLQuantizationType[name])
    check_same(scheme.encode(weights())["weight"], wanted)


def from_mlx(x):
    """An ndarray; NumPy cannot read MLX's bfloat16."""
    if x.dtype == mx.bfloat16:
        return np.array(x.view(mx.uint16)).view(ml_dtypes.bfloat16)
    return np.array(x)


@pytest.mark.parametrize("bits", [2, 3, 4, 5, 6, 8])
def test_mlx(bits):
    scheme, names = sj.schemes["mlx"], ("weight", "scales", "biases")
    group, kind = (32, mx.float32) if bits % 2 else (128, mx.bfloat16)
    weight = mx.array(weights()).astype(kind)
    stored = mx.quantize(weight, group, bits)
    parts = {k: from_mlx(x) for k, x in zip(names, stored, strict=True)}
    if kind == mx.float32:
        made = scheme.encode(weights(), bits=bits, group_size=group, scale_dtype="float32")
        for k in names:
            check_same(made[k], parts[k])
    wanted = from_mlx(mx.dequantize(*stored, group, bits))
    config = {"quantization": {"group_size": group, "bits": bits}}
    found = sj.schemes.detect({f"q.{k}": x for k, x in parts.items()}, config)
    assert [each.scheme for each in found] == ["mlx"]
    check_same(scheme.decode(found[0].parts, dtype=wanted.dtype, rounding="reference"), wanted)


@pytest.mark.parametrize("mode", ["mxfp4", "nvfp4", "mxfp8"])
def test_mlx_without_biases(mode):
    stored = [np.array(x) for x in mx.quantize(mx.array(weights()), mode=mode)]
    parts = dict(zip(("weight", "scales"), stored, strict=True))
    wanted = np.array(mx.dequantize(*map(mx.array, stored), mode=mode, dtype=mx.float32))
    scheme = sj.schemes["mlx"]
    check_same(scheme.decode(parts, dtype="float32"), wanted)
    codes = "float8_e4m3fn" if mode == "mxfp8" else "float4_e2m1fn"
    made = scheme.encode(weights(), dtype=codes, group_size=16 if mode == "nvfp4" else 32)
    for name, x in parts.items():
        check_same(made[name], x)


def matmul_n_bits(parts, settings):
    """The weight that onnxruntime multiplies by: of an identity matrix the product."""
    onnxruntime = pytest.importorskip("onnxruntime")  # an emulated arm64 has none
    inputs = ["A", *parts]
    K, N = settings["K"], settings["N"]
    node = helper.make_node("MatMulNBits", inputs, ["Y"], domain="com.microsoft", **settings)
    graph = helper.make_graph(
        [node],
        "one",
        [helper.make_tensor_value_info("A", TensorProto.FLOAT, [K, K])],
        [helper.make_tensor_value_info("Y", TensorProto.FLOAT, [K, N])],
        [onnx.numpy_helper.from_array(x, name) for name, x in parts.items()],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return session.run(None, {"A": np.eye(K, dtype=np.float32)})[0]


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("zeros", ["none", "packed", "floats"])
def test_matmulnbits(bits, zeros):
    N, K, size = 24, 80, 32
    blocks = -(-K // size)
    codes = rng().integers(0, 256, (N, blocks, size * bits // 8), dtype=np.uint8)
    scales = rng().standard_normal((N, blocks)).astype(np.float32)
    parts = {"B": codes, "scales": scales.reshape(-1)}
    if zeros == "packed":
        row = -(-blocks * bits // 8)
        parts["zero_points"] = rng().integers(0, 256, N * row, dtype=np.uint8)
    elif zeros == "floats":
        parts["zero_points"] = rng().integers(0, 2**bits, N * blocks).astype(np.float32)
    found = sj.schemes["matmulnbits"].decode(parts, dtype="float32", bits=bits, K=K).numpy()
    if zeros == "floats":  # onnxruntime adds the products of zero points up on their own
        plain = {"bits": bits, "K": K, "dtype": "float32"}
        none = {**parts, "zero_points": parts["zero_points"] * 0}
        base = sj.schemes["matmulnbits"].decode(none, **plain)
        ones = (np.float32(1) * scales).repeat(size, 1)[:, :K].T
        zero = parts["zero_points"].reshape(N, blocks).repeat(size, 1)[:, :K].T
        codes = np.rint(base.numpy() / ones)
        assert np.array_equal(found, (codes - zero) * ones)
        return
    wanted = matmul_n_bits(parts, {"K": K, "N": N, "bits": bits, "block_size": size})
    assert np.array_equal(found, wanted)  # zeros have either sign


def encoded_settings(fixture):
    config = fixture.config.get("quantization_config", {})
    if fixture.scheme == "int4:compressed-tensors":
        settings = {"bits": fixture.settings["bits"], "symmetric": fixture.settings["symmetric"]}
        settings["group_size"] = fixture.settings["group_size"] or fixture.source.shape[1]
    elif fixture.scheme.startswith("bnb:"):
        return {"group_size": fixture.settings["block"]}
    else:
        block = config.get("weight_block_size")
        settings = {} if block is None else {"weight_block_size": block}
    scale = next(
        x for name, x in fixture.parts.items() if name.startswith(("weight_scale", "scale"))
    )
    fixed = fixture.scheme.startswith(("nvfp4", "deepseek", "mxfp"))
    return settings if fixed else {**settings, "scale_dtype": scale.dtype}


@pytest.mark.parametrize(
    "fixture", [f for f in FIXTURES if f.source is not None], ids=lambda f: f.name
)
def test_sources_are_encoded_as_in_the_fixtures(fixture):
    made = sj.schemes[fixture.scheme].encode(fixture.source, **encoded_settings(fixture))
    if fixture.name == "fp8-block-transformers":  # its scales are inverses of inverses
        x = sj.schemes[fixture.scheme].decode(made, dtype="float32").numpy()
        assert abs(x - fixture.source.astype(np.float32)).max() < 0.06
        return
    asymmetric = fixture.settings.get("symmetric") is False  # computed in bfloat16 there
    for name, wanted in fixture.parts.items():
        if asymmetric and name not in ("weight_scale", "weight_shape"):
            continue
        nested = "nested" in name or (name.endswith("absmax") and wanted.dtype == np.uint8)
        if name in ("input_scale", "comfy_quant") or nested or "quant_state" in name:
            continue
        found = made[name].numpy()
        if name == "weight" and fixture.name.endswith("ragged"):
            found, wanted = found[:-1], wanted[:-1]  # the last nibble is no element
        check_same(found.reshape(wanted.shape), wanted)
    x = sj.schemes[fixture.scheme].decode(made, dtype="float32").numpy()
    x = x[tuple(slice(n) for n in fixture.source.shape)]
    worst = {"int1": 1.6, "int2": 0.75}.get(fixture.name[:4], 0.3)
    assert abs(x - fixture.source.astype(np.float32)).max() < worst


CONVERTIBLE = [
    ("int8-group-ct-asymmetric", "int4:compressed-tensors"),
    ("int8-channel-ct", "int4:compressed-tensors"),
    ("int8-ct-asymmetric", "int8:compressed-tensors"),
    ("int8-ct-tensor-asymmetric", "int8:compressed-tensors"),
    ("fp8-group-ct", "fp8:block"),
    ("fp8-experts-transformers", "fp8:block"),
    ("fp8-experts-fbgemm-down", "fp8:channel"),
    ("fp8-experts-transformers-tensor", "fp8:tensor"),
    ("nvfp4-experts-modelopt-down-proj", "nvfp4:modelopt"),
    ("awq-gemm", "gptq"),
    ("awq-gemm", "int4:compressed-tensors"),
    ("awq-gemm", "matmulnbits"),
    ("gptq-4bit-v1", "awq"),
    ("gptq-3bit-v1", "int4:compressed-tensors"),
    ("gptq-8bit-v2", "matmulnbits"),
    ("int4-ct-group32", "gguf:q4_0"),
    ("int4-ct-group32", "matmulnbits"),
    ("int5-ct-asymmetric", "int4:compressed-tensors"),
    ("mxfp4-gpt-oss-gate-up", "mxfp4:gguf"),
    ("mxfp4-gpt-oss-down", "mlx"),
    ("deepseek-v4-expert", "mxfp4:gguf"),
    ("nvfp4-modelopt", "nvfp4:comfyui"),
    ("nvfp4-comfyui", "nvfp4:modelopt"),
    ("bnb-nf4-nested", "bnb:nf4"),
    ("fp8-channel-bf16", "fp8:channel"),
]


@pytest.mark.parametrize(("name", "to"), CONVERTIBLE)
def test_converted_weights_are_the_same(name, to):
    fixture = named(name)
    parts = detected(fixture)
    made = sj.schemes[fixture.scheme].convert(parts, to, version=2 if to == "gptq" else None)
    x = sj.schemes[fixture.scheme].decode(parts, dtype="float32").numpy()
    y = sj.schemes[to].decode(made, dtype="float32").numpy()
    turned = sj.schemes[to].decode(made).shape != x.shape
    assert np.array_equal(x, y.swapaxes(-1, -2) if turned else y)
    for key, wanted in fixture.converted.get(to, {}).items():
        if key in made:
            check_same(made[key].numpy().reshape(wanted.shape), wanted)


@pytest.mark.parametrize(
    ("name", "to", "reason"),
    [
        ("gptq-4bit-act-order", "awq", "act-order"),
        ("int4-ct-act-order", "gptq", "act-order"),
        ("int8-tensor-ct", "int4:compressed-tensors", "has a scale for each"),
        ("gptq-4bit-v1", "gguf:q4_0", "no zero points"),
        ("gptq-4bit-symmetric", "gguf:q4_0", r"\(1, 32\) elements, not \(1, 16\)"),
        ("gptq-4bit-v1", "gguf:q4_k", "only be decoded"),
        ("nvfp4-modelopt", "nvfp4:compressed-tensors", "inverse"),
        ("nvfp4-modelopt", "mxfp4:gguf", "scale"),
        ("fp8-channel-f32", "fp8:tensor", "elements"),
        ("bnb-nf4", "mlx", "dims"),
        ("awq-gemm", "bnb:nf4", "of 1 dim, these have 2"),
        ("bnb-fp4", "bnb:nf4", r"\(-1, .*\), not one of 16 values \(0, "),
        ("fp8-block-128", "gptq", "integer"),
        ("int4-ct-group32", "gguf:q4_1", "offset"),
        ("gptq-4bit-v1", "gguf:iq4_nl", "only be decoded"),
        ("awq-gemm", "marlin", "unknown scheme"),
    ],
)
def test_what_does_not_carry_over_is_refused(name, to, reason):
    fixture = named(name)
    with pytest.raises(sj.FormatError, match=reason):
        sj.schemes[fixture.scheme].convert(detected(fixture), to)


def test_gpt_oss_becomes_ggufs_gate_and_up():
    fixture = named("mxfp4-gpt-oss-gguf")
    scheme = sj.schemes["mxfp4:gpt-oss"]
    parts = detected(fixture)
    both = [{key: x[:, first::2] for key, x in parts.items()} for first in range(2)]
    for each, name in zip(both, ("gate", "up"), strict=True):
        made = scheme.convert(each, "mxfp4:gguf")["weight"].numpy()
        x = quants.dequantize(made, GGMLQuantizationType.MXFP4)
        wanted = quants.dequantize(
            fixture.converted["mxfp4:gguf"][name], GGMLQuantizationType.MXFP4
        )
        assert np.array_equal(x, wanted)


def test_tensors_beside_others_that_are_called_their_scales_are_plain():
    x = np.ones((2, 3), np.float32)
    tensors = {"logit": x, "logit_scale": x[0], "a.k": x, "a.k_scale": x, "b_weight_scale": x}
    assert (found := sj.schemes.detect(tensors)) == []
    assert found.unclear == []


@pytest.mark.parametrize("name", ["fp8-experts-fbgemm-down", "fp8-experts-transformers"])
@pytest.mark.parametrize("scale", [np.float32(3), np.full((1,), 3, np.float32)])
def test_stacked_experts_may_have_one_scale(name, scale):
    fixture = named(name)
    codes = next(x for x in fixture.parts.values() if x.dtype.itemsize == 1)
    tensors = {"h.up_proj": codes, "h.up_proj_weight_scale": np.asarray(scale)}
    tensors |= {"up.weight": codes, "up.weight_scale": np.asarray(scale)}
    found = sj.schemes.detect(tensors)
    assert [each.parts.weight for each in found] == ["h.up_proj", "up.weight"]
    for _, scheme, parts in found:
        wanted = codes.astype(np.float32) * np.float32(3)
        assert np.array_equal(sj.schemes[scheme].decode(parts, dtype="float32").numpy(), wanted)
        made = sj.schemes[scheme].convert(parts, "fp8:block")
        assert made["weight_scale_inv"].shape == (2, 1, 1)
        x = sj.schemes["fp8:block"].decode(made, dtype="float32").numpy()
        assert np.array_equal(np.sort(x, axis=None), np.sort(wanted, axis=None))


def stacked(experts):
    """The parts of several weights with a first dim for them."""
    return {key: sj.stack([parts[key] for parts in experts]) for key in experts[0]}


def test_stacked_experts_have_global_scales_of_their_own():
    scheme = sj.schemes["nvfp4:modelopt"]
    experts = [scheme.encode(weights() * size) for size in (1, 3)]
    both = stacked(experts)
    assert both["weight_scale_2"].shape == (2,)
    for found, parts in zip(scheme.decode(both).numpy(), experts, strict=True):
        check_same(np.ascontiguousarray(found), scheme.decode(parts).numpy())


def test_a_checkpoint_of_many_schemes():
    names = ["awq-gemm", "nvfp4-ct", "bnb-fp4", "mxfp4-gpt-oss-down", "int4-ct-group32"]
    tensors, wanted = {"model.norm.weight": np.ones(8, np.float32)}, []
    for k, name in enumerate(names):
        fixture = named(name)
        tensors |= {f"layers.{k}.{part}": x for part, x in fixture.parts.items()}
        wanted.append((f"layers.{k}", fixture.scheme))
    found = sj.schemes.detect(tensors)
    assert [(prefix, scheme) for prefix, scheme, _ in found] == wanted
    assert (found.unclear, found.warnings) == ([], [])


def test_names_that_are_unknown():
    for ask in (sj.schemes.__getitem__, sj.schemes.facts, sj.formats.facts):
        with pytest.raises(sj.UnknownNameError, match=r"unknown .* 'awqq'"):
            ask("awqq")


def test_nothing_is_guessed():
    rows = np.zeros((128, 64), np.uint8)
    fp8 = sj.cast(np.ones((128, 8), np.float32), "float8_e4m3fn")
    both = {
        "a.weight": rows[:, :32],
        "a.weight_scale": fp8[:, :4],
        "a.weight_scale_2": np.float32(0.1),
    }
    found = sj.schemes.detect({k: np.asarray(x) for k, x in both.items()})
    assert found == []
    assert [u.schemes for u in found.unclear] == [("nvfp4:modelopt", "nvfp4:comfyui")]
    config = {"quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4"}}
    found = sj.schemes.detect({k: np.asarray(x) for k, x in both.items()}, config)
    assert [each.scheme for each in found] == ["nvfp4:modelopt"]
    scaled = {**both, "a.pre_quant_scale": np.ones(64, np.float32)}
    found = sj.schemes.detect({k: np.asarray(x) for k, x in scaled.items()}, config)
    assert (found, "has no a.pre_quant_scale" in str(found.unclear[0])) == ([], True)
    lone = {"b.weight": fp8, "c.weight_scale": np.ones(3), "d.qweight": np.zeros((4, 4), np.int32)}
    found = sj.schemes.detect({**lone, "e.weight": np.ones((4, 4), np.float32)})
    assert found == []
    assert {name for u in found.unclear for name in u.names} == set(lone)
    assert all(str(u).startswith(u.names[0]) for u in found.unclear)


def test_what_is_missing_is_said_once():
    text = "fp8:block: needs weight_scale_inv, weight_scale or scale_inv; got 'weight'"
    with pytest.raises(sj.FormatError) as fault:
        sj.schemes["fp8:block"].decode({"weight": np.zeros((2, 2), np.float32)})
    assert str(fault.value) == text


def test_what_contradicts_itself_is_warned_of():
    scheme = sj.schemes["nvfp4:modelopt"]
    gate, up = (scheme.encode(weights() * size) for size in (1, 2))
    tensors = {
        f"mlp.{n}_proj.{k}": x for n, p in (("gate", gate), ("up", up)) for k, x in p.items()
    }
    (text,) = sj.schemes.detect(tensors).warnings
    assert "mlp.gate_proj" in text
    assert "different global scales" in text
    fp8 = sj.schemes["fp8:block"].encode(np.ones((128, 128), np.float32))
    config = {"quantization_config": {"quant_method": "fp8", "fmt": "e5m2"}}
    (text,) = sj.schemes.detect({f"x.{k}": v for k, v in fp8.items()}, config).warnings
    assert text == "x: the config says fmt 'e5m2', it is float8_e4m3fn"
    inverse = {**gate, "weight_scale_2": np.float32(1000).reshape(())}
    (text,) = sj.schemes.detect({f"x.{k}": v for k, v in inverse.items()}).warnings
    assert "reciprocal" in text
    expert = named("deepseek-v4-expert").parts
    raw = {"w1.weight": expert["weight"], "w1.scale": expert["scale"].view(np.uint8)}
    (text,) = sj.schemes.detect(raw).warnings
    assert "stored as uint8" in text
    comfy = {f"y.{k}": v for k, v in named("nvfp4-comfyui").parts.items() if k != "comfy_quant"}
    (text,) = sj.schemes.detect(comfy).warnings
    assert "comfy_quant" in text
    linear = {
        **named("nvfp4-modelopt").parts,
        "comfy_quant": named("nvfp4-comfyui").parts["comfy_quant"],
    }
    found = sj.schemes.detect({f"z.{k}": v for k, v in linear.items()})
    assert found == []
    assert "z.weight_scale" in found.unclear[0].names


@pytest.mark.parametrize("name", sj.schemes)
def test_parts_that_do_not_fit(name):
    scheme = sj.schemes[name]
    out = sj.Tensor.frombuffer(bytearray(b"\x07" * 64), "bfloat16", (4, 8))
    for parts in (
        {},
        {"weight": np.zeros((4, 9), np.complex64)},
        {"weights": np.zeros((4, 8), np.uint8)},
        {"weight": np.zeros((), np.uint8), "weight_scale": np.zeros((), np.float32)},
        {"weight": np.zeros((5, 7), np.uint8), "weight_scale_2": np.zeros((3, 3), np.float32)},
        {"qweight": np.zeros((3, 5), np.int32), "scales": np.zeros((2, 2), np.float16)},
    ):
        with pytest.raises(sj.FormatError, match=name):
            scheme.decode(parts, out=out)
    assert out.tobytes() == b"\x07" * 64
    for bad in (None, 7, [1]):
        with pytest.raises(sj.DTypeError):
            scheme.decode(bad)


@pytest.mark.parametrize("name", sj.schemes)
def test_what_is_encoded_is_decoded_and_stored_again(name):
    scheme = sj.schemes[name]
    x = weights(32, 512)
    if all(form.rule is None for form in scheme.row.forms):
        with pytest.raises(sj.FormatError, match="only be decoded"):
            scheme.encode(x)
        return
    parts = scheme.encode(x)
    y = scheme.decode(parts, dtype="float32").numpy()
    assert y.shape == x.shape
    most = 8.5 if name.startswith("mxfp4") else 3.5  # of 40, which MX's rule makes 32
    assert abs(y - x).max() < most
    again = scheme.convert(parts, scheme)
    assert again.keys() == parts.keys()
    for key, part in parts.items():
        check_same(again[key], part.numpy())


@pytest.mark.parametrize(
    "name", ["gptq", "awq", "bnb:nf4", "mxfp4:gpt-oss", "matmulnbits", "gguf:q5_1", "mxfp4:gguf"]
)
def test_weights_that_no_cache_holds(name):
    """Codes of a few rows at a time are put in order, then scaled."""
    turned = name in ("mxfp4:gpt-oss", "matmulnbits")  # their weights are (in, out)
    x = rng().standard_normal((8192, 544) if turned else (544, 8192)).astype(np.float32)
    scheme, parts = sj.schemes[name], sj.schemes[name].encode(x)
    with patience.force_kernels():
        check_same(scheme.decode(parts), by_numpy(name, parts, x.shape))


def by_numpy(name, parts, shape):
    stored = {key: part.numpy() for key, part in parts.items()}
    wanted = DECODED[name](stored, *shape).astype(ml_dtypes.bfloat16)
    return np.ascontiguousarray(wanted)


@pytest.mark.parametrize("by", [patience.force_kernels, patience.force_numpy])
@pytest.mark.parametrize("name", ENCODED)
def test_what_is_encoded_is_what_the_rule_says(name, by):
    x = np.sin(np.arange(256 * 1024, dtype=np.float32)).reshape(256, 1024)
    with by():
        made = sj.schemes[name].encode(x.astype(ml_dtypes.bfloat16))
    wanted = ENCODED[name](x.astype(ml_dtypes.bfloat16).astype(np.float32))
    assert made.keys() == wanted.keys()
    for key, part in made.items():
        check_same(part, wanted[key].reshape(part.shape))


@pytest.mark.parametrize("shape", [(128, 256), (256, 128), (128, 768)])
@pytest.mark.parametrize("name", [name for name in sj.schemes if sj.schemes[name].encodes])
def test_small_weights_are_decoded_by_kernels_as_by_numpy(name, shape):
    """Swizzled scales of 128 rows are a unit with the scales of more elements than a run has."""
    parts = sj.schemes[name].encode(rng().standard_normal(shape, np.float32))
    with patience.force_numpy():
        wanted = sj.schemes[name].decode(parts).numpy()
    with patience.force_kernels():
        check_same(sj.schemes[name].decode(parts), wanted)


@pytest.mark.parametrize("by", [patience.force_kernels, patience.force_numpy])
@pytest.mark.parametrize("name", [name for name in sj.schemes if sj.schemes[name].encodes])
def test_later_weights_of_a_kind_are_decoded_like_the_first(name, by):
    """The second one has other numbers; then it is the first one whose memory has gaps."""
    scheme = sj.schemes[name]
    weights = [scheme.encode(x) for x in rng().standard_normal((2, 128, 256), np.float32)]
    gaps = {
        key: np.repeat(t.numpy()[..., None], 3, axis=-1)[..., 1] for key, t in weights[1].items()
    }
    with by():
        for rounding in ("once", "reference"):
            first, second, again = (
                scheme.decode(weights[k], rounding=rounding).numpy() for k in (0, 1, 0)
            )
            apart = scheme.decode(gaps, rounding=rounding, **weights[1].settings)
            check_same(again, first)
            check_same(apart, second)
            assert (first != second).any()


@pytest.mark.parametrize("by", [patience.force_kernels, patience.force_numpy])
def test_later_weights_are_refused_for_their_own_numbers(by):
    scheme = sj.schemes["nvfp4:compressed-tensors"]
    parts = dict(scheme.encode(rng().standard_normal((64, 128), np.float32)))
    with by():
        first = scheme.decode(parts).numpy()
        for wrong in (0, np.inf, np.nan):
            with pytest.raises(sj.FormatError, match="must be finite and not 0"):
                scheme.decode(parts | {"weight_global_scale": np.full(1, wrong, np.float32)})
        check_same(scheme.decode(parts), first)
    scheme = sj.schemes["gptq"]
    parts = dict(scheme.encode(rng().standard_normal((64, 256), np.float32)))
    inputs = rng().permutation(256)
    mixed = parts | {"g_idx": parts["g_idx"].numpy()[inputs]}
    with by():
        first = scheme.decode(parts).numpy()
        found = scheme.decode(mixed).numpy()
        assert (found != first).any()
        with pytest.raises(sj.FormatError, match="g_idx"):
            scheme.decode(parts | {"g_idx": np.full(256, -1, np.int32)})
        check_same(scheme.decode(parts), first)
        check_same(scheme.decode(mixed), found)


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 12, 15, 16, 24])
def test_scales_of_few_codes(size):
    N, K = 67, 240
    codes, scales = rng().integers(0, 16, (N, K), np.uint8), rng().standard_normal((N, K // size))
    scales = scales.astype(np.float32)
    packed = (codes[:, ::2] | codes[:, 1::2] << 4).view(np.int32)
    wanted = (codes.astype(np.float32) - 8) * scales.repeat(size, 1)
    parts = {"weight_packed": packed, "weight_scale": scales}
    decode = sj.schemes["int4:compressed-tensors"].decode
    assert np.array_equal(decode(parts, dtype="float32", group_size=size).numpy(), wanted)
    blocks = {"dtype": "float32", "weight_block_size": (1, size)}
    for x in (codes, np.asfortranarray(codes)):
        parts = {"weight": x.astype(ml_dtypes.float8_e4m3fn), "weight_scale_inv": scales}
        wanted = codes.astype(np.float32) * scales.repeat(size, 1)
        found = sj.schemes["fp8:block"].decode(parts, **blocks).numpy()
        assert np.array_equal(found, wanted)


@pytest.mark.parametrize("kind", ["shuffles", "shuffles streamed"])
def test_scales_and_zero_points_of_columns_in_outputs_at_any_address(kind):
    """Neither lies in the order of the result, whose rows begin within lines."""
    N, K, g = 192, 640, 32
    codes = rng().integers(0, 16, (N, K), np.uint8)
    scales, zeros = (rng().standard_normal((N, K // g)).astype(np.float32) for _ in range(2))
    each = [np.repeat(y, g, 1) for y in (zeros, scales)]
    wanted = np.ascontiguousarray(((codes - each[0]) * each[1]).T).astype(ml_dtypes.bfloat16)
    packed = (codes[:, ::2] | codes[:, 1::2] << 4).reshape(N, K // g, g // 2)
    parts = {"B": packed, "scales": scales, "zero_points": zeros}
    with loops.used(kind):
        for begin in (0, 1, 16, 34):
            pages = guarded(wanted.nbytes + 64)
            end = pages.size - begin
            out = sj.Tensor.frombuffer(pages[end - wanted.nbytes : end], "bfloat16", (K, N))
            sj.schemes["matmulnbits"].decode(parts, out=out)
            check_same(out, wanted)
            assert not pages[: end - wanted.nbytes].any()
            assert not pages[end:].any()


def test_stacked_experts_are_decoded_as_each_of_them():
    scheme = sj.schemes["mxfp4:gpt-oss"]
    one = scheme.encode(rng().standard_normal((1024, 544)).astype(np.float32))
    other = {key: sj.asarray(np.flip(part.numpy(), 0).copy()) for key, part in one.items()}
    both = scheme.decode(stacked([one, other]))
    for found, parts in zip(both.numpy(), (one, other), strict=True):
        check_same(found, by_numpy("mxfp4:gpt-oss", parts, (1024, 544)))
        check_same(scheme.decode(parts), found)


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("size", [32, 64])
@pytest.mark.parametrize(
    ("name", "key", "alone"),
    [
        ("gptq", "g_idx", ""),
        ("int8:compressed-tensors", "weight_g_idx", ""),
        ("int4:compressed-tensors", "weight_g_idx", "weight_shape"),
    ],
)
def test_stacked_experts_have_groups_in_order_or_are_refused(name, key, alone, size, count):
    x = rng().standard_normal((count, 32, 64)).astype(np.float32)
    scheme = sj.schemes[name]
    experts = [dict(scheme.encode(each, group_size=size)) for each in x]
    both = stacked([{k: t for k, t in each.items() if k not in (key, alone)} for each in experts])
    wanted = np.stack([scheme.decode(each).numpy() for each in experts])
    check_same(scheme.decode(both), wanted)
    order = np.tile(np.arange(64, dtype=np.int32) // size, (count, 1))
    check_same(scheme.decode({**both, key: order}), wanted)
    order[-1] = order[-1, ::-1]
    if size < 64:
        with pytest.raises(sj.FormatError, match="one g_idx for all stacked experts"):
            scheme.decode({**both, key: order})


def test_scales_are_products_of_all_their_factors():
    scheme = sj.schemes["nvfp4:modelopt"]
    group = scheme._group(scheme.encode(weights()), {})
    factor = group.form.scales[1]
    twice = replace(group, form=replace(group.form, scales=(*group.form.scales, factor)))
    once = decoding.decode(group, sj.dtype("float32"), None).numpy()
    with patience.force_kernels():
        found = decoding.decode(twice, sj.dtype("float32"), None).numpy()
    by = group.tensors["weight_scale_2"].numpy()
    assert np.allclose(found, once * by, rtol=1e-6, atol=0)


def test_bands_are_of_known_sizes():
    scheme = sj.schemes["fp8:block"]
    group = scheme._group(scheme.encode(np.ones((256, 256), np.float32)), {})
    without = {name: size for name, size in group.known.items() if name != "m"}
    assert len(bands.bands(group, 1)) == 2
    with pytest.raises(AssertionError, match="N/m is unknown"):
        bands.bands(replace(group, known=without), 1)


def test_bad_arguments():
    fixture = named("awq-gemm")
    scheme = sj.schemes["awq"]
    for given in (
        {"dtype": "int8"},
        {"rounding": "twice"},
        {"group": 3},
        {"bits": 0},
        {"group_size": 48},
    ):
        with pytest.raises(sj.FormatError, match=r"awq|rounding"):
            scheme.decode(fixture.parts, **given)
    wrong = fixture.parts | {"scales": fixture.parts["scales"][:-1]}
    with pytest.raises(sj.FormatError, match=r"awq: qzeros must|awq: scales must"):
        scheme.decode(wrong)
    with pytest.raises(sj.FormatError, match="'fp8:block'"):
        sj.schemes["fp8:blok"]
    assert "fp8:blok" not in sj.schemes
    act_order = dict(named("gptq-4bit-act-order").parts)
    act_order["g_idx"] = act_order["g_idx"] + 100
    with pytest.raises(sj.FormatError, match="g_idx"):
        sj.schemes["gptq"].decode(act_order)
    state = dict(named("bnb-nf4").parts)
    state["weight.quant_state.bitsandbytes__nf4"] = np.frombuffer(b"[1", np.uint8)
    with pytest.raises(sj.FormatError, match="JSON"):
        sj.schemes["bnb:nf4"].decode(state)
    for x in (np.full((4, 32), np.inf, np.float32), np.zeros(32, np.float32)):
        with pytest.raises(sj.FormatError):
            sj.schemes["gguf:q8_0"].encode(x)
    with pytest.raises(sj.FormatError, match="only be decoded"):
        sj.schemes["gguf:q6_k"].encode(np.zeros((1, 256), np.float32))
    with pytest.raises(sj.DTypeError):
        sj.schemes["gguf:q8_0"].encode(np.zeros((4, 32), np.int8))
    with pytest.raises(
        sj.FormatError, match="needs rows of a multiple of"
    ):  # 1000 bits are no whole words
        sj.schemes["mlx"].encode(np.ones((2, 200), np.float32), bits=5, group_size=40)
    with pytest.raises(sj.DTypeError):
        sj.schemes.detect([1])


@pytest.mark.parametrize("shape", [(0, 4, 1), (2, 0, 1), (2, 4, 0), (4, 0), (0, 1)])
@pytest.mark.parametrize("rounding", ["once", "reference"])
def test_weights_without_elements_are_decoded(shape, rounding):
    *lead, rows, blocks = shape
    parts = {"blocks": np.zeros((*shape, 16), np.uint8), "scales": np.zeros(shape, np.uint8)}
    decoded = sj.schemes["mxfp4:gpt-oss"].decode(parts, rounding=rounding)
    assert decoded.shape == (*lead, 32 * blocks, rows)


def test_blocks_without_rows_do_not_fit_scales():
    shape = (4, 1, 128, 0)
    parts = {
        "a.weight": np.zeros(shape, ml_dtypes.float8_e4m3fn),
        "a.weight_scale_inv": np.zeros(shape, np.float32),
    }
    found = sj.schemes.detect(parts)
    assert list(found) == []
    assert [each.names for each in found.unclear] == [tuple(parts)]


def test_weights_without_elements_are_converted():
    rows = sj.schemes["fp8:channel"].encode(np.zeros((0, 64), np.float32))
    assert sj.schemes["fp8:channel"].convert(rows, "fp8:block")["weight"].shape == (0, 64)
    with pytest.raises(sj.FormatError, match=r"no scale for a weight of \(0, 64\)"):
        sj.schemes["fp8:channel"].convert(rows, "fp8:tensor")
    experts = sj.schemes["nvfp4:comfyui"].encode(np.zeros((0, 64, 64), np.float32))
    made = sj.schemes["nvfp4:comfyui"].convert(experts, "nvfp4:modelopt")
    assert made["weight"].shape == (0, 64, 32)


@pytest.mark.parametrize("bits", [5, 7])
@pytest.mark.parametrize("kernels", [True, False])
@pytest.mark.parametrize("columns", [96, 90])
def test_rows_of_compressed_tensors_are_streams_of_bits(bits, kernels, columns):
    scheme, half = sj.schemes["int4:compressed-tensors"], 1 << (bits - 1)
    x = rng().standard_normal((6, columns)).astype(np.float32)
    with patience.force_kernels() if kernels else patience.force_numpy():
        parts = scheme.encode(x, bits=bits, group_size=columns // 3, scale_dtype="float32")
        decoded = scheme.decode(parts, dtype="float32")
    scale = parts["weight_scale"].numpy().repeat(columns // 3, axis=1)
    codes = np.clip(np.rint(x / scale) + half, 0, 2 * half - 1).astype(np.uint8)
    ones = np.unpackbits(codes[..., None], axis=-1, count=bits, bitorder="little")
    stream = np.packbits(ones.reshape(6, -1), axis=-1, bitorder="little")
    words = np.zeros((6, -(-columns * bits // 32) * 4), np.uint8)
    words[:, : stream.shape[1]] = stream
    assert parts["weight_packed"].numpy().view(np.uint8).tobytes() == words.tobytes()
    check_same(decoded, (codes.astype(np.float32) - half) * scale)


@pytest.mark.parametrize("scheme", ["mxfp4:gpt-oss", "gptq"])
def test_names_of_parts(scheme):
    """By the keys of the parts, also of copies."""
    tensors = by_scheme()[scheme][0].checkpoint()
    (found,) = sj.schemes.detect(tensors)
    assert {*found.parts.names.values()} == {*tensors}
    for parts in (found.parts, copy.deepcopy(found.parts), pickle.loads(pickle.dumps(found.parts))):
        assert {*parts.names} == {*parts}
        for key, part in parts.items():
            assert parts.names[key].endswith(key)
            assert tensors[parts.names[key]].tobytes() == part.numpy().tobytes()


def test_what_is_detected_pickles():
    """As its tensors, settings and names: what a form computes stays behind."""
    stored = sj.schemes["nvfp4:comfyui"].encode(np.eye(32, dtype=np.float32))
    found = sj.schemes.detect({f"fc.{name}": part for name, part in stored.items()})
    (prefix, scheme, parts), *_ = pickle.loads(pickle.dumps(found))
    assert (prefix, scheme, parts.weight) == ("fc", "nvfp4:comfyui", "fc.weight")
    again = sj.schemes[scheme].decode(parts, dtype="float32")
    assert again.tobytes() == np.eye(32, dtype=np.float32).tobytes()


def test_a_checkpoint_of_two_groups_of_different_formats():
    """compressed-tensors' mixed-precision: each weight is what its own tensors are."""
    fixtures = [named("two-groups-ct-fp8"), named("two-groups-ct-int4")]
    tensors = fixtures[0].checkpoint() | fixtures[1].checkpoint()
    found = sj.schemes.detect(tensors, fixtures[0].config)
    assert (found.unclear, found.warnings) == ([], [])
    by_prefix = {prefix: (scheme, parts) for prefix, scheme, parts in found}
    assert len(by_prefix) == 2
    for fixture in fixtures:
        scheme, parts = by_prefix[fixture.prefix]
        assert scheme == fixture.scheme
        check_same(sj.schemes[scheme].decode(parts, dtype="float32"), fixture.expected["float32"])


def test_decoders_of_many_sizes_hold_no_numbers(kernels):
    """What is kept of each kind of weight is a few KiB, though one float32 per scale is read."""

    def decoded(rows):
        group = {"weight": np.zeros((rows, 256), np.uint32)}
        group |= {name: np.ones((rows, 32), np.float32) for name in ("scales", "biases")}
        given = {"bits": 4, "group_size": 64, "rounding": "reference"}
        sj.schemes["mlx"].decode(group, dtype="bfloat16", **given)

    keep = sj.set_result_cache(0)
    try:
        decoded(1024)
        tracemalloc.start()
        for rows in range(1025, 1041):
            decoded(rows)
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] < 16 * 1024 * 32 * 4 / 2
    finally:
        tracemalloc.stop()
        sj.set_result_cache(keep)
