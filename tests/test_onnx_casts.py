"""ONNX Cast, CastLike, QuantizeLinear, DequantizeLinear: versions, dtypes, attributes, shapes."""

import inspect
import itertools

import cast_oracle as oracle
import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto
from onnx.reference.ops.op_dequantize_linear import DequantizeLinear_25
from onnx.reference.ops.op_quantize_linear import QuantizeLinear_25

import shapejit as sj
from shapejit.engine import patience

FIRST = {"Cast": 1, "CastLike": 15, "QuantizeLinear": 10, "DequantizeLinear": 10}
SINCE = {
    "Cast": [1, 6, 9, 13, 19, 21, 23, 24, 25, 28],
    "CastLike": [15, 19, 21, 23, 24, 25],
    "QuantizeLinear": [10, 13, 19, 21, 23, 24, 25, 28],
    "DequantizeLinear": [10, 13, 19, 21, 23, 24, 25, 28],
}
VERSIONS = [(operator, since) for operator, opsets in SINCE.items() for since in opsets]
ONNX_TYPES = [d.name for d in sj.dtypes.all() if d.onnx is not None]
each_version = pytest.mark.parametrize(("operator", "since"), VERSIONS)


# Versions -----------------------------------------------------------------------------


def listed(schema, operand):
    """The canonical names of the types of an input or output, as onnx's schema has them."""
    (found,) = (o for o in (*schema.inputs, *schema.outputs) if o.name == operand)
    types = {c.type_param_str: c.allowed_type_strs for c in schema.type_constraints}
    words = types.get(found.type_str, [found.type_str])
    codes = {f"tensor({name.lower()})": code for name, code in TensorProto.DataType.items()}
    return {sj.dtype(codes[word], vocabulary="onnx").name for word in words}


@pytest.mark.parametrize("operator", FIRST)
def test_versions_are_those_of_onnx(operator):
    """Those that onnx.defs knows, their attributes, and the types of every operand."""
    opsets = range(FIRST[operator], onnx.defs.onnx_opset_version() + 1)
    assert {sj.onnx.version(operator, opset).since for opset in opsets} == set(SINCE[operator])
    for opset in opsets:
        schema = onnx.defs.get_schema(operator, opset)
        row = sj.onnx.version(operator, opset)
        assert row.since == schema.since_version
        assert row.attributes == set(schema.attributes)
        assert set(row.operands) <= {o.name for o in (*schema.inputs, *schema.outputs)} | {
            "x_scale"
        }
        for operand, types in row.operands.items():
            assert types == listed(schema, operand), (operand, opset)


@pytest.mark.parametrize("operator", FIRST)
def test_the_defaults_are_those_of_onnx(operator):
    """The newest schema's; a new attribute's default is what older versions do."""
    words = {"Cast": "cast", "CastLike": "cast_like"}
    name = words.get(operator) or operator.replace("Linear", "_linear").lower()
    arguments = inspect.signature(getattr(sj.onnx, name)).parameters
    for attribute in onnx.defs.get_schema(operator, 28).attributes.values():
        default = arguments[attribute.name].default
        if attribute.required:
            assert default is inspect.Parameter.empty
        else:
            wanted = onnx.helper.get_attribute_value(attribute.default_value)
            assert default == (wanted.decode() if isinstance(wanted, bytes) else wanted)


@pytest.mark.parametrize("operator", FIRST)
def test_opsets_before_the_operator(operator):
    for opset in range(1, FIRST[operator]):
        with pytest.raises(sj.ReshapeError, match=f"opset {opset} .*{operator}.*{FIRST[operator]}"):
            sj.onnx.version(operator, opset)
    with pytest.raises(sj.ReshapeError, match="at least 1"):
        sj.onnx.version(operator, 0)
    assert sj.onnx.version(operator, onnx.defs.onnx_opset_version()).since == SINCE[operator][-1]


def sample(name):
    """Two elements of a dtype."""
    if name == "string":
        return np.array(["1", "2"], object)
    return np.array([1, 2]).astype(sj.dtype(name).numpy)


@pytest.mark.parametrize("opset", SINCE["Cast"])
def test_casts_of_every_dtype(opset):
    """From and to each dtype, what the version lists and nothing else; strings are onnx's."""
    types = listed(onnx.defs.get_schema("Cast", opset), "input") - {"string"}
    for name in ONNX_TYPES:
        for source, to in ((name, "float32"), ("float32", name)):
            x, code = sample(source), sj.dtype(to).onnx
            if name in types:
                assert sj.onnx.cast(x, to=code, opset=opset).dtype == sj.dtype(to).numpy
                continue
            with pytest.raises(
                sj.DTypeError, match=rf"onnx\.Cast-{opset} (does not list|from.*string)"
            ):
                sj.onnx.cast(x, to=code, opset=opset)


@pytest.mark.parametrize("opset", [9, 13, 28])
def test_strings_are_left_to_onnx(opset):
    for x, to in ((sample("string"), 1), (sample("float32"), TensorProto.STRING)):
        with pytest.raises(sj.DTypeError, match=r"string.*onnx's own evaluator"):
            sj.onnx.cast(x, to=to, opset=opset)


@pytest.mark.parametrize("to", [0, 99, "float32", None, 1.0, True, np.float32, "FLOAT9"])
def test_targets_that_onnx_does_not_have(to):
    with pytest.raises(sj.DTypeError):
        sj.onnx.cast(sample("int8"), to=to)


def test_names_of_targets():
    """Cast-1 has the name of the type."""
    assert sj.onnx.cast(sample("int8"), to="DOUBLE", opset=1).dtype == np.float64
    assert sj.onnx.cast(sample("int8"), to=np.int64(11)).dtype == np.float64


@each_version
def test_attributes_that_a_version_does_not_have(operator, since):
    row = sj.onnx.version(operator, since)
    x, scale = np.ones((2, 3), np.float32), np.ones((), np.float32)
    codes = x.astype(np.int8)
    calls = {
        "Cast": lambda **a: sj.onnx.cast(x, to=1, opset=since, **a),
        "CastLike": lambda **a: sj.onnx.cast_like(x, x, opset=since, **a),
        "QuantizeLinear": lambda **a: sj.onnx.quantize_linear(x, scale, opset=since, **a),
        "DequantizeLinear": lambda **a: sj.onnx.dequantize_linear(codes, scale, opset=since, **a),
    }
    newest = sj.onnx.version(operator, 28).attributes - {"to"}
    others = {"axis": 0, "block_size": 3, "precision": 1, "saturate": 0, "round_mode": "down"}
    others["output_dtype"] = TensorProto.FLOAT if operator.startswith("D") else TensorProto.UINT8
    for name in newest:
        if name in row.attributes:
            calls[operator](**{name: others[name]})
        else:
            with pytest.raises(
                sj.ReshapeError, match=rf"{row} has no attribute {name} \(opset \d+"
            ):
                calls[operator](**{name: others[name]})


@pytest.mark.parametrize("value", [2, -1, None, "1", 1.0])
def test_saturate_is_a_flag(value):
    x = np.ones(3, np.float32)
    for call in (
        lambda: sj.onnx.cast(x, to=17, saturate=value),
        lambda: sj.onnx.quantize_linear(x, np.array(1.0, np.float32), saturate=value),
    ):
        with pytest.raises(sj.ReshapeError, match="saturate of onnx"):
            call()


@pytest.mark.parametrize("value", ["UP", "away", "", None, 1])
def test_round_modes(value):
    with pytest.raises(sj.ReshapeError, match="round_mode of onnx"):
        sj.onnx.cast(np.ones(3, np.float32), to=24, round_mode=value)


# Cast ---------------------------------------------------------------------------------


def test_rounding_of_powers_is_upwards_by_default():
    x = np.array([1.25, 1.5, 3, 0, 2.0**127 * 1.5], np.float32)
    for settings, wanted in [
        ({}, [128, 128, 129, 0, 254]),
        ({"round_mode": "down"}, [127, 127, 128, 0, 254]),
        ({"round_mode": "nearest"}, [127, 128, 129, 0, 254]),
        ({"round_mode": "nearest", "saturate": 0}, [127, 128, 129, 255, 255]),
    ]:
        y = sj.onnx.cast(x, to=TensorProto.FLOAT8E8M0, **settings)
        assert y.view(np.uint8).tolist() == wanted
        y = sj.onnx.cast_like(x, np.zeros(0, ml_dtypes.float8_e8m0fnu), **settings)
        assert y.view(np.uint8).tolist() == wanted


@pytest.mark.parametrize("name", ["float32", "float64"])
@pytest.mark.parametrize("mode", ["up", "down", "nearest"])
def test_powers_out_of_range(name, mode):
    """The table of Cast-24: E8M0_MIN and E8M0_MAX if they are saturated, else NaN."""
    with np.errstate(over="ignore"):
        ends = np.array([2.0**-127, 2.0**128], name)
    least, above = np.nextafter(ends, ends.dtype.type(0))
    x = np.array([0, 1e-45, 1e-40, least, 2.0**-127, 2.0**127, above, np.inf], name)
    if name == "float64":
        x = np.append(x, [2.0**128, 1e300])
    saturated = [0, 0, 0, 0, 0, 254, 254, 254, 254, 254][: x.size]
    others = [255, 255, 255, 255, 0, 254, 254 if mode == "down" else 255, 255, 255, 255][: x.size]
    for saturate, wanted in ((1, saturated), (0, others)):
        for some in (x, np.tile(x, 100)):  # one by one, and in vectors
            y = sj.onnx.cast(some, to=24, saturate=saturate, round_mode=mode)
            assert y.view(np.uint8).tolist() == wanted * (some.size // x.size)


def test_narrow_integers_keep_the_low_bits():
    """As the operator's own test cases have it; wider ones are clamped."""
    x = np.array([-9.7, 7.9, 16, 1e30, np.nan], np.float32)
    for to, wanted in (
        (TensorProto.INT4, [7, 7, 0, -1, 0]),
        (TensorProto.UINT2, [3, 3, 0, 3, 0]),
        (TensorProto.INT8, [-9, 7, 16, 127, 0]),
        (TensorProto.UINT16, [0, 7, 16, 65535, 0]),
    ):
        assert sj.onnx.cast(x, to=to).astype(int).tolist() == wanted
        packed = sj.onnx.cast(sj.asarray(x), to=to)
        assert isinstance(packed, sj.Tensor)
        assert packed.unpack().astype(int).tolist() == wanted


def test_packed_views_are_cast():
    codes = np.arange(24, dtype=np.uint8).reshape(2, 12) % 16
    t = sj.pack(codes, "int4")[:, ::-1].T
    y = sj.onnx.cast(t, to=TensorProto.FLOAT)
    assert isinstance(y, sj.Tensor)
    assert y.numpy().tolist() == oracle.signed(codes[:, ::-1].T, 4).tolist()


@pytest.mark.parametrize("x", [1.5, [1.5], None, "x", (np.zeros(2),)])
def test_what_is_no_tensor(x):
    scale = np.ones((), np.float32)
    for call in (
        lambda: sj.onnx.cast(x, to=1),
        lambda: sj.onnx.cast_like(x, scale),
        lambda: sj.onnx.cast_like(scale, x),
        lambda: sj.onnx.quantize_linear(x, scale),
        lambda: sj.onnx.quantize_linear(scale, x),
        lambda: sj.onnx.dequantize_linear(x, scale),
        lambda: sj.onnx.dequantize_linear(np.zeros(2, np.int8), scale, "zero"),
    ):
        with pytest.raises(sj.DTypeError):
            call()


# Scales -------------------------------------------------------------------------------

GRANULARITIES = [  # shape of x, of the scale, axis, block size
    ((2, 3), (), 1, 0),
    ((2, 3), (1,), 1, 0),
    ((6,), (), 1, 0),
    ((6,), (6,), 0, 0),
    ((6,), (3,), -1, 2),
    ((2, 3), (3,), 1, 0),
    ((2, 3), (2,), -2, 0),
    ((1, 3, 3, 2), (3,), 1, 0),
    ((4, 7), (4, 3), 1, 3),
    ((4, 7), (2, 7), 0, 3),
    ((2, 4, 5), (2, 1, 5), 1, 4),
    ((2, 4, 5), (2, 1, 5), 1, 9),
    ((0, 3), (3,), 1, 0),
]


def drawn(shape, dtype, seed=0):
    return np.random.default_rng(seed).integers(-6, 7, shape).astype(dtype)


def spread(scale, shape, axis, block_size):
    """One scale per element, by the text."""
    if scale.shape in ((), (1,)):
        return np.broadcast_to(scale.reshape(()), shape)
    if block_size:
        return scale.repeat(block_size, axis).take(range(shape[axis]), axis)
    return np.broadcast_to(
        scale.reshape([-1 if i == axis % len(shape) else 1 for i in range(len(shape))]), shape
    )


@pytest.mark.parametrize(("shape", "scale_shape", "axis", "block_size"), GRANULARITIES)
def test_granularities(shape, scale_shape, axis, block_size):
    """Per tensor, per axis and in blocks, with and without zero points, arrays and Tensors."""
    scale = np.random.default_rng(1).choice([0.5, 1, 2, 4], scale_shape).astype(np.float32)
    codes, zeros = drawn(shape, np.int8), drawn(scale_shape, np.int8, 2)
    facts = {"axis": axis, "block_size": block_size}
    each = spread(scale, shape, axis, block_size)
    zero = spread(zeros, shape, axis, block_size)
    for zero_point, shift in ((None, 0), (zeros, zero)):
        x = (codes.astype(np.float32) - shift) * each
        for array in (codes, sj.asarray(codes)):
            y = sj.onnx.dequantize_linear(array, scale, zero_point, **facts)
            assert type(y) is type(array)
            assert np.array_equal(np.asarray(y), x)
        out = {} if zero_point is not None else {"output_dtype": TensorProto.INT8}
        y = sj.onnx.quantize_linear(x, scale, zero_point, **facts, **out)
        assert y.dtype == np.int8
        assert np.array_equal(y, codes)
        if shape[0]:
            own = QuantizeLinear_25.eval(x, scale, zeros, **facts)
            assert np.array_equal(sj.onnx.quantize_linear(x, scale, zeros, **facts), own)
            own = DequantizeLinear_25.eval(codes, scale, zeros, **facts)
            assert np.array_equal(sj.onnx.dequantize_linear(codes, scale, zeros, **facts), own)


@pytest.mark.parametrize(
    ("shape", "scale_shape", "axis", "block_size", "message"),
    [
        ((2, 3), (2,), 1, 0, r"\(2,\).*\(2, 3\) must be \(3,\) for axis 1"),
        ((2, 3), (3,), 2, 0, r"\(3,\).*\(2, 3\): axis 2 is not in \[-2, 1\]"),
        ((2, 3), (3,), -3, 0, r"axis -3"),
        ((6,), (6,), 1, 0, r"axis 1"),
        ((2, 3), (1, 3), 1, 0, r"must be \(3,\)"),
        ((2, 3), (2, 1), 1, 2, r"must be \(2, 2\) for axis 1 and block_size 2"),
        ((2, 3), (3,), 1, 1, r"must be \(2, 3\)"),
        ((2, 3), (2, 3), 1, -1, r"block_size.*-1"),
    ],
)
def test_scales_that_do_not_fit(shape, scale_shape, axis, block_size, message):
    scale = np.ones(scale_shape, np.float32)
    facts = {"axis": axis, "block_size": block_size}
    with pytest.raises(sj.ReshapeError, match=message):
        sj.onnx.quantize_linear(np.ones(shape, np.float32), scale, **facts)
    with pytest.raises(sj.ReshapeError, match=message):
        sj.onnx.dequantize_linear(np.ones(shape, np.int8), scale, **facts)


@pytest.mark.parametrize("value", [None, 1.0, "1", True, [1]])
def test_axis_and_block_size_are_integers(value):
    x, scale = np.ones((2, 3), np.int8), np.ones(3, np.float32)
    for name in ("axis", "block_size"):
        with pytest.raises(sj.DTypeError, match=f"{name} must hold ints only, .*onnx"):
            sj.onnx.dequantize_linear(x, scale, **{name: value})


def test_zero_points_have_the_shape_of_the_scale():
    x, scale = np.ones((2, 3), np.int8), np.ones(3, np.float32)
    for shape in ((), (1,), (2,), (1, 3), (2, 3)):
        zero = np.zeros(shape, np.int8)
        with pytest.raises(sj.ReshapeError, match=r"\(3,\)"):
            sj.onnx.dequantize_linear(x, scale, zero)
        with pytest.raises(sj.ReshapeError, match=r"\(3,\)"):
            sj.onnx.quantize_linear(x.astype(np.float32), scale, zero)
    for scale_shape, shape in itertools.product([(), (1,)], repeat=2):
        scale, zero = np.ones(scale_shape, np.float32), np.ones(shape, np.int8)
        assert sj.onnx.dequantize_linear(x, scale, zero).tolist() == [[0] * 3] * 2


def test_opset_10_has_scalars_alone():
    x, scale = np.ones((2, 3), np.int8), np.ones(3, np.float32)
    with pytest.raises(sj.ReshapeError, match=r"scalar.*opset 13"):
        sj.onnx.dequantize_linear(x, scale, opset=10)
    assert sj.onnx.dequantize_linear(x, scale[0], opset=10).tolist() == x.tolist()


@pytest.mark.parametrize("opset", SINCE["DequantizeLinear"])
@pytest.mark.parametrize("name", [name for name in ONNX_TYPES if name != "string"])
def test_dtypes_of_dequantize_linear(opset, name):
    """As x, as the scale and as the output: what the version lists, nothing else."""
    schema = onnx.defs.get_schema("DequantizeLinear", opset)
    some, codes, one = sample(name), np.ones(2, np.int8), np.ones((), np.float32)
    # Powers of two are scales, but no outputs.
    to = {"output_dtype": TensorProto.FLOAT} if name == "float8_e8m0fnu" else {}

    def call(*arguments, **facts):
        return sj.onnx.dequantize_linear(*arguments, **facts, opset=opset).dtype

    calls = {
        "x": [lambda: call(some, one), lambda: call(some, one, some[:1])],
        "x_scale": [lambda: call(codes, some[0], **to)],
        "y": [lambda: call(codes, one, output_dtype=sj.dtype(name).onnx)] if opset >= 23 else [],
    }
    check_calls(schema, name, calls, {"x": np.float32, "x_scale": np.float32 if to else some.dtype})


def check_calls(schema, name, calls, dtypes):
    """The operand's calls with this dtype make that of `dtypes`, or `name`, or are refused."""
    for operand, some in calls.items():
        for call in some:
            if name in listed(schema, operand):
                assert call() == dtypes.get(operand, sj.dtype(name).numpy)
            else:
                with pytest.raises(sj.ShapeJitError, match=r"does not list|has no attribute"):
                    call()


@pytest.mark.parametrize("opset", SINCE["QuantizeLinear"])
@pytest.mark.parametrize("name", [name for name in ONNX_TYPES if name != "string"])
def test_dtypes_of_quantize_linear(opset, name):
    schema = onnx.defs.get_schema("QuantizeLinear", opset)
    some, x, one = sample(name), np.array([1, 2], np.float32), np.ones((), np.float32)
    like = 19 <= opset < 23  # x and the scale are both T1

    def call(*arguments, **facts):
        return sj.onnx.quantize_linear(*arguments, **facts, opset=opset).dtype

    calls = {
        "x": [lambda: call(some, some[0] if like else one)],
        "y_scale": [lambda: call(some if like else x, some[0])],
        "y": [lambda: call(x, one, some[0])],
    }
    if opset >= 21:
        calls["y"] += [lambda: call(x, one, output_dtype=sj.dtype(name).onnx)]
    check_calls(schema, name, calls, {"x": np.uint8, "y_scale": np.uint8})


def test_dtypes_that_must_agree():
    x, one = np.ones(3, np.float32), np.ones((), np.float32)
    with pytest.raises(sj.DTypeError, match=r"x_zero_point.*int8.*uint8"):
        sj.onnx.dequantize_linear(np.ones(3, np.int8), one, np.uint8([0])[0])
    with pytest.raises(sj.DTypeError, match=r"y_zero_point.*int8.*uint8"):
        sj.onnx.quantize_linear(x, one, np.zeros((), np.uint8), output_dtype=TensorProto.INT8)
    for opset in (19, 21):
        with pytest.raises(sj.DTypeError, match=r"y_scale.*float32.*float16"):
            sj.onnx.quantize_linear(x, one.astype(np.float16), opset=opset)
    assert sj.onnx.quantize_linear(x, one.astype(np.float16), opset=23).tolist() == [1, 1, 1]
    with pytest.raises(sj.DTypeError, match=r"float8_e8m0fnu in its T of y"):
        sj.onnx.dequantize_linear(np.ones(3, np.int8), np.ones((), ml_dtypes.float8_e8m0fnu))


def test_the_quotient_has_the_precision_of_the_scale():
    """In float16, 101.49 / 1 is 101.5, a tie; in float32 it is not."""
    x = np.array([101.49, 100.49, 3], np.float32)
    half, single = np.ones((), np.float16), np.ones((), np.float32)
    assert sj.onnx.quantize_linear(x, single).tolist() == [101, 100, 3]
    assert sj.onnx.quantize_linear(x, half).tolist() == [102, 100, 3]
    own = QuantizeLinear_25.eval(x, single, precision=TensorProto.FLOAT16)
    y = sj.onnx.quantize_linear(x, single, precision=TensorProto.FLOAT16)
    assert y.tolist() == own.tolist() == [102, 100, 3]
    y = sj.onnx.quantize_linear(x, half, precision=TensorProto.FLOAT)
    assert y.tolist() == [101, 100, 3]
    zero = np.array(7, np.int8)
    y = sj.onnx.quantize_linear(x, single, zero, precision=TensorProto.BFLOAT16)
    assert y.tolist() == QuantizeLinear_25.eval(x, single, zero, precision=16).tolist()
    for precision in (
        TensorProto.INT8,
        TensorProto.BOOL,
        TensorProto.STRING,
        TensorProto.FLOAT4E2M1,
    ):
        with pytest.raises(sj.DTypeError, match="does not divide in"):
            sj.onnx.quantize_linear(x, single, precision=precision)


@pytest.mark.parametrize("precision", [TensorProto.FLOAT16, TensorProto.BFLOAT16])
def test_precision_in_blocks_with_zero_points(precision):
    rng = np.random.default_rng(3)
    x = rng.normal(size=(6, 50)).astype(np.float32) * 20
    scale = rng.uniform(0.1, 0.9, (6, 13)).astype(np.float32)
    zero = rng.integers(0, 255, (6, 13)).astype(np.uint8)
    facts = {"axis": 1, "block_size": 4, "precision": precision}
    own = QuantizeLinear_25.eval(x, scale, zero, **facts)
    assert np.array_equal(sj.onnx.quantize_linear(x, scale, zero, **facts), own)


def test_scales_of_whole_numbers_and_of_powers():
    x = np.array([7, -7, 2**30 + 1], np.int32)
    two = np.array(2, np.int32)
    y = sj.onnx.quantize_linear(x, two, np.zeros((), np.int16), opset=28)
    assert y.tolist() == QuantizeLinear_25.eval(x, two, np.zeros((), np.int16)).tolist()
    power = np.array(4, ml_dtypes.float8_e8m0fnu)
    assert sj.onnx.quantize_linear(np.float32([10, 14]), power).tolist() == [2, 4]
    y = sj.onnx.dequantize_linear(np.int8([3]), power, output_dtype=TensorProto.BFLOAT16)
    assert (y.tolist(), y.dtype) == ([12], ml_dtypes.bfloat16)


def test_saturation_of_float8():
    x, one = np.array([1e6, -1e6, np.nan], np.float32), np.ones((), np.float32)
    zero = np.zeros((), ml_dtypes.float8_e4m3fn)
    assert sj.onnx.quantize_linear(x, one, zero).view(np.uint8).tolist() == [0x7E, 0xFE, 0x7F]
    y = sj.onnx.quantize_linear(x, one, zero, saturate=0)
    assert y.view(np.uint8).tolist() == [0x7F, 0xFF, 0x7F]


@pytest.mark.parametrize("scale", [0.0, np.inf, np.nan])
def test_scales_that_are_no_numbers(scale):
    x, bad = np.ones((2, 3), np.float32), np.array([1, scale, 1], np.float32)
    with pytest.raises(sj.ShapeJitError, match=r"\(2, 3\)"):
        sj.onnx.quantize_linear(x, bad)
    with np.errstate(all="ignore"):
        wanted = x * bad
    y = sj.onnx.dequantize_linear(np.ones((2, 3), np.int8), bad)
    assert np.array_equal(y, wanted, equal_nan=True)


@pytest.mark.parametrize("code", [[1], {}, np.array(1), True, 1.0, "float"], ids=repr)
def test_dtypes_are_codes_of_onnx_and_nothing_that_equals_them(code):
    x, scale = np.arange(4, dtype=np.int8), np.float32(2)
    assert sj.onnx.dequantize_linear(x, scale, output_dtype=1).dtype == np.float32
    with pytest.raises(sj.DTypeError):
        sj.onnx.dequantize_linear(x, scale, output_dtype=code)
    with pytest.raises(sj.DTypeError):
        sj.onnx.quantize_linear(np.ones(4, np.float32), scale, precision=code)


def test_errors_name_the_operand_that_is_no_array():
    x, scale = np.arange(4, dtype=np.int8), np.float32(2)
    with pytest.raises(sj.DTypeError, match="x_zero_point of "):
        sj.onnx.dequantize_linear(x, scale, 1.0)
    with pytest.raises(sj.DTypeError, match="y_zero_point of "):
        sj.onnx.quantize_linear(np.ones(4, np.float32), scale, 1.0)


def test_concat_takes_any_iterable():
    a, b = np.ones((1, 2), np.float32), np.zeros((2, 2), np.float32)
    expected = np.concatenate([a, b])
    for inputs in ({0: a, 1: b}.values(), (x for x in (a, b))):
        assert (sj.onnx.concat(inputs, axis=0) == expected).all()


@pytest.mark.parametrize("operator", [sj.onnx.dequantize_linear, sj.onnx.quantize_linear])
def test_equal_attributes_of_other_types(operator):
    """A call that was made before does not let others pass that are equal to it."""
    x = np.ones((2, 3), np.uint8 if operator is sj.onnx.dequantize_linear else np.float32)
    scale = np.full(3, 0.5, np.float32)
    first = operator(x, scale, axis=1)
    for _ in range(3):
        assert np.array_equal(operator(x, scale, axis=1), first)
    for axis in (True, 1.0, [1]):
        with pytest.raises(TypeError):
            operator(x, scale, axis=axis)
    with pytest.raises(TypeError):
        operator(x, scale, opset=25.0)
    scale[:] = 0.25
    assert not np.array_equal(operator(x, scale, axis=1), first)


@pytest.mark.parametrize("by", [patience.force_numpy, patience.force_kernels])
@pytest.mark.parametrize("indices", [3, 70])  # their scales are compared by value, or by address
def test_first_calls_read_their_scales(indices, by):
    """Scales that were changed, or replaced by others in the same memory, are read again."""
    codes = np.arange(indices * 3).reshape(indices, 3).astype(np.int8)
    for factor in (1, 2, 3):
        scale = np.full((indices, 1), factor, np.float32)
        for _ in range(2):
            with by():
                dequantized = sj.dequantize(codes, scale)
                quantized = sj.quantize(codes * scale, scale, dtype="int8")
                by_axis = sj.onnx.dequantize_linear(codes, scale[:, 0], axis=0)
            assert np.array_equal(dequantized, codes * scale)
            assert np.array_equal(quantized, codes)
            assert np.array_equal(by_axis, codes * scale)
            scale *= 2
        del scale
