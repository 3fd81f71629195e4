"""Casts and scales against the oracle, which is checked against ml_dtypes first."""

import hashlib
import itertools
import json
import os
import pickle
import platform
import random
import subprocess
import sys
from pathlib import Path

import cast_oracle as oracle
import loops
import ml_dtypes
import numpy as np
import pytest
from attack import casts as attack
from cast_oracle import FLOATS, INTEGERS, NARROW, PARTS, REAL
from compiled import COMPILED
from guarded import guarded
from views import codes_of, packed_bytes

import shapejit as sj
from shapejit.engine import patience

FLOAT8 = [name for name in NARROW if oracle.bits_of(name) == 8]
FLOATS16 = [name for name in NARROW if oracle.bits_of(name) == 16]
SMALL = [name for name in REAL if oracle.bits_of(name) <= 16]
ROUND_MODES = ("nearest", "up", "down")
X86 = platform.machine() == "x86_64"
# The targets of each source in the tests by default: each needs a kernel of its own.
FEW = ("uint8", "float4_e2m1fn", "float8_e4m3fn", "bfloat16", "float32")


def ml_cast(x, name):
    """The codes that ml_dtypes makes; what is below float8_e8m0fnu is NaN (ONNX Cast-24)."""
    with np.errstate(all="ignore"):
        codes = oracle.codes_of(x.astype(oracle.numpy_dtype(name)), name)
        below = x.astype(np.float32) < 2.0**-127
    return np.where(below, 255, codes) if name == "float8_e8m0fnu" else codes


def all_codes(name):
    return np.arange(1 << oracle.bits_of(name)) if name != "bool" else np.arange(2)


def tensor(codes, name):
    """A Tensor with these codes."""
    bits = oracle.bits_of(name)
    if bits >= 8:
        return sj.asarray(oracle.array(codes, name))
    packed = packed_bytes(codes.astype(np.uint8), bits)
    return sj.Tensor.frombuffer(packed, name, codes.shape)


def codes_in(x, name):
    """The codes of an ndarray, or of a Tensor."""
    if isinstance(x, sj.Tensor):
        if x.dtype.packed:
            return codes_of(x)
        x = x.numpy()
    return oracle.codes_of(x, name)


def sources_of(codes, name):
    """An ndarray with these codes, where there are such, and a packed Tensor."""
    if sj.dtype(name).numpy is None or oracle.bits_of(name) < 8:
        yield tensor(codes, name)
    if sj.dtype(name).numpy is not None:
        yield oracle.array(codes, name)


def settings_of(target):
    """What makes a difference to casts to this dtype."""
    modes = ROUND_MODES if target == "float8_e8m0fnu" else ROUND_MODES[:1]
    return [
        {"round_mode": mode, "saturate": saturate}
        for mode in modes
        for saturate in ((True, False) if target in FLOAT8 else (True,))
    ]


def check_codes(found, wanted, target, source=None):
    """The codes are those that are wanted."""
    right = oracle.same(found, wanted, target)
    if not right.all():
        wrong = np.flatnonzero(~right)
        first = [(hex(found.flat[i]), hex(wanted.flat[i])) for i in wrong[:5]]
        given = None if source is None else source.flat[wrong[:5]]
        raise AssertionError(f"{wrong.size} wrong, of {given} found and wanted {first}")


def check_cast(codes, source, target, **settings):
    """The cast of these codes, as an array and packed, is that of the oracle."""
    wanted = oracle.cast(codes.astype(oracle.carrier(source)), source, target, **settings)
    for x in sources_of(codes, source):
        if isinstance(x, np.ndarray) and sj.dtype(target).numpy is None:
            continue
        y = sj.cast(x, target, **settings)
        kind = sj.dtype(target)
        assert type(y) is type(x)
        assert y.dtype == (kind if isinstance(y, sj.Tensor) else kind.numpy)
        assert y.shape == codes.shape
        check_codes(codes_in(y, target), wanted, target, codes)


# The oracle ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", NARROW)
def test_the_oracle_decodes_as_ml_dtypes(name):
    codes = all_codes(name)
    with np.errstate(invalid="ignore"):  # signalling NaNs
        found = oracle.array(codes, name).astype(np.float64)
    wanted = oracle.decode(codes, name).astype(np.float64)
    assert np.array_equal(found, wanted, equal_nan=True)
    assert np.array_equal(np.signbit(found), np.signbit(wanted))


@pytest.mark.parametrize("source", NARROW)
def test_the_oracle_encodes_as_ml_dtypes(source):
    """All codes of each float of 16 bits or fewer, to each other that ml_dtypes casts to."""
    codes = all_codes(source).astype(oracle.carrier(source))
    for target in NARROW:
        try:
            wanted = ml_cast(oracle.array(codes, source), target)
        except TypeError:
            assert "float8_e8m0fnu" in (source, target)
            continue
        check_codes(oracle.cast(codes, source, target, saturate=False), wanted, target, codes)


def float32_boundaries(name):
    """Each value, each midpoint, one ulp to each side; all exponents; what is special."""
    values = oracle.values(name)
    values = np.unique(np.abs(values[np.isfinite(values)]))
    points = [values, oracle.halfway(name)] if name != "float8_e8m0fnu" else [values, 1.5 * values]
    points = np.concatenate(points).astype(np.float32)
    assert name == "float8_e8m0fnu" or np.array_equal(points[: values.size], values)
    exponents = np.ldexp(np.float32(1), np.arange(-149, 128))
    special = np.array([0, np.inf, np.nan, 1.5, 3.4028235e38], np.float32)
    points = np.concatenate([points, exponents, special])
    points = beside(points)
    return np.concatenate([points, -points]).view(np.uint32)


def beside(points):
    """The points, and one ulp to each side."""
    with np.errstate(all="ignore"):
        some = [np.nextafter(points, points.dtype.type(end)) for end in (-np.inf, np.inf)]
    return np.concatenate([points, *some])


@pytest.mark.parametrize("target", NARROW)
def test_the_oracle_rounds_as_ml_dtypes(target):
    codes = float32_boundaries(target)
    wanted = ml_cast(codes.view(np.float32), target)
    check_codes(oracle.cast(codes, "float32", target, saturate=False), wanted, target, codes)


def test_the_oracle_by_eye():
    """The tables of ONNX Cast-25, and values beside which one can put a finger."""
    inf, nan = np.inf, np.nan
    x = np.array([0, -0.0, nan, -nan, inf, -inf, 464.5, -1e9, 464, 0.3], np.float32)
    for name, saturate, wanted in [
        ("float8_e4m3fn", True, "00 80 7f ff 7e fe 7e fe 7e 2a"),
        ("float8_e4m3fn", False, "00 80 7f ff 7f ff 7f ff 7e 2a"),
        ("float8_e4m3fnuz", True, "00 00 80 80 7f ff 7f ff 7f 32"),
        ("float8_e4m3fnuz", False, "00 00 80 80 80 80 80 80 80 32"),
        ("float8_e5m2", True, "00 80 7e fe 7b fb 5f fb 5f 35"),
        ("float8_e5m2", False, "00 80 7e fe 7c fc 5f fc 5f 35"),
        ("float4_e2m1fn", False, "00 08 08 00 07 0f 07 0f 07 01"),
    ]:
        found = oracle.cast(x.view(np.uint32), "float32", name, saturate)
        assert found.tobytes().hex(" ") == wanted
    x = np.array([0, 2.0**-140, 2.0**-127, 1, 1.25, 1.5, 2.0**127 * 1.75, inf, nan, -1], np.float32)
    for mode, saturate, wanted in [
        ("up", True, "00 00 00 7f 80 80 fe fe ff ff"),
        ("nearest", True, "00 00 00 7f 7f 80 fe fe ff ff"),
        ("down", True, "00 00 00 7f 7f 7f fe fe ff ff"),
        ("nearest", False, "ff ff 00 7f 7f 80 ff ff ff ff"),
    ]:
        found = oracle.cast(x.view(np.uint32), "float32", "float8_e8m0fnu", saturate, mode)
        assert found.tobytes().hex(" ") == wanted


# Casts --------------------------------------------------------------------------------


@pytest.mark.parametrize("source", [*SMALL, "nf4"])
def test_every_code(source):
    for target in FEW:
        for settings in settings_of(target)[:1]:
            check_cast(all_codes(source), source, target, **settings)


@pytest.mark.parametrize("target", REAL)
def test_every_code_of_a_float(target):
    """The targets that the test above leaves out, and each way to round and to saturate."""
    for settings in settings_of(target):
        check_cast(all_codes("float16"), "float16", target, **settings)


@pytest.mark.parametrize("name", ["float8_e5m2", "float8_e3m4", "float8_e4m3fnuz", "bfloat16"])
def test_the_same_dtype(name):
    """Every bit stays, but float8 has no infinity where it is saturated."""
    for settings in settings_of(name):
        check_cast(all_codes(name), name, name, **settings)
    if name == "bfloat16":
        x = all_codes(name).astype(np.uint16)
        assert sj.cast(oracle.array(x, name), name).tobytes() == x.tobytes()


@pytest.mark.slow
@pytest.mark.parametrize("target", REAL)
def test_every_code_to_every_dtype(target):
    for source in [*SMALL, "nf4"]:
        for settings in settings_of(target):
            check_cast(all_codes(source), source, target, **settings)


@pytest.mark.parametrize("target", NARROW)
def test_rounding_boundaries_of_float32(target):
    for settings in settings_of(target):
        check_cast(float32_boundaries(target), "float32", target, **settings)


@pytest.mark.parametrize("target", [*NARROW, "float32"])
def test_float64_is_rounded_once(target):
    """Beside each boundary by less than a float32 can tell, and by one ulp of a float64."""
    bits = float32_boundaries("bfloat16" if target == "float32" else target)
    with np.errstate(invalid="ignore"):
        x = bits.view(np.float32).astype(np.float64)
    if target == "float32":
        x = np.concatenate([x * (1 + 2.0**-24), x * (1 - 2.0**-25), [1e39, 1e-46, 2.0**-150]])
    codes = np.concatenate([beside(x), x * (1 + 2.0**-40), x * 2.0**90]).view(np.uint64)
    for settings in settings_of(target):
        check_cast(codes, "float64", target, **settings)


def integers_beside_boundaries(bits, signed):
    """Powers of two, and what lies halfway between numbers of so many bits, by 1 more and less."""
    found = {0, 1, 2, 3}
    for power in range(bits):
        for mantissa in (0, 1, 2, 3, 7, 10, 23, 52):
            for odd in (1, 3):
                middle = (1 << power) + (odd << max(power - mantissa - 1, 0))
                found.update((middle - 1, middle, middle + 1))
    rng = np.random.default_rng(bits)
    found.update(int(n) for n in rng.integers(0, 2**63, 2000) >> rng.integers(0, 63, 2000))
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
    found |= {-n for n in found} | {low, high, high - 1}
    inside = sorted(n for n in found if low <= n <= high)
    return np.array([n % (1 << bits) for n in inside], np.uint64)


@pytest.mark.parametrize("source", ["int32", "uint32", "int64", "uint64"])
def test_integers_are_rounded_once(source):
    codes = integers_beside_boundaries(INTEGERS[source], source in oracle.SIGNED)
    for target in ("float32", "float64", *(NARROW if source == "int64" else NARROW[-5:])):
        check_cast(codes, source, target)


@pytest.mark.parametrize("source", ["int16", "uint32", "int64", "uint6"])
def test_integers_keep_their_low_bits(source):
    codes = integers_beside_boundaries(INTEGERS[source], source in oracle.SIGNED)
    for target in ("int1", "uint3", "int4", "uint8", "int16", "int32", "uint64", "bool"):
        check_cast(codes, source, target)


@pytest.mark.parametrize(
    ("source", "targets"),
    [
        ("float16", ["int2", "uint8", "int32"]),
        ("float32", INTEGERS),
        ("float64", ["uint4", "int16", "int64", "uint64"]),
    ],
)
def test_floats_are_truncated_and_clamped(source, targets):
    ends = [2.0**k for k in range(66)]
    points = np.array([0, 0.5, 0.99, 1.5, 2.5, np.inf, np.nan, 1e30, *ends], np.float64)
    points = np.concatenate([points, points - 0.5, points - 1, points + 0.5, points * 1.25])
    with np.errstate(all="ignore"):
        x = np.concatenate([points, -points]).astype(source)
    codes = beside(x).view(oracle.carrier(source))
    for target in targets:
        check_cast(codes, source, target)
    found = sj.cast(np.array([-9.7, 300, np.nan, -np.inf], source), "int8")
    assert found.tolist() == [-9, 127, 0, -128]


@pytest.mark.parametrize("source", PARTS)
def test_complex_numbers_become_complex_numbers(source):
    part = PARTS[source]
    wide = float32_boundaries("float16")
    parts = oracle.cast(wide[: wide.size // 2 * 2], "float32", part)
    x = parts.view(f"V{2 * parts.itemsize}")
    for target in PARTS:
        kind, wanted = sj.dtype(target), oracle.cast(x, source, target)
        y = sj.cast(sj.Tensor.frombuffer(x.tobytes(), source, x.shape), kind)
        found = np.frombuffer(y.tobytes(), wanted.dtype)
        assert (y.dtype, y.shape) == (kind, x.shape)
        assert oracle.same(found, wanted, target).all()


@pytest.mark.parametrize("source", PARTS)
@pytest.mark.parametrize("target", PARTS)
def test_numpys_complex_numbers_have_the_bits_of_kernels(source, target):
    """NaNs in one part or in both, too."""
    parts = np.array([1, np.nan, -np.nan, 2.5, np.nan, np.nan, -np.inf, 0, 65519, 1e-8])
    codes = oracle.cast(parts.view(np.uint64), "float64", PARTS[source])
    x = codes.view(oracle.numpy_dtype(source))
    results = []
    for by in (patience.force_numpy, patience.force_kernels):
        with by():
            results.append(sj.cast(x, target).tobytes())
    assert len({*results}) == 1


def test_what_is_not_zero_is_true():
    for name in ("float32", "float4_e2m1fn", "float8_e8m0fnu"):
        x = np.array([1, 2, 4], oracle.numpy_dtype(name))
        assert sj.cast(x, "bool").tolist() == [True] * 3
    x = np.array([0, -0.0, np.nan, np.inf, 1e-45], np.float32)
    assert sj.cast(x, bool).tolist() == [False, False, True, True, True]
    for name in ("int1", "uint3", "bfloat16", "float8_e5m2fnuz", "uint64"):
        y = sj.cast(tensor(np.array([0, 1]), "bool"), name)
        assert codes_in(y, name).tolist() == oracle.cast(np.array([0, 1]), "bool", name).tolist()


@pytest.mark.parametrize(
    ("source", "target"),
    [
        *[("complex64", name) for name in ("float32", "int8", "bool", "string")],
        *[(name, "complex64") for name in ("float32", "uint4", "bool")],
        *[("float32", name) for name in ("nf4", "string", "F7", "float", None, 7)],
        *[("string", name) for name in ("float32", "string")],
    ],
)
def test_casts_that_do_not_exist(source, target):
    x = np.zeros(3, object if source == "string" else source)
    out = np.full(3, 7, np.int8)
    with pytest.raises((sj.DTypeError, TypeError)):
        sj.cast(x, target)
    with pytest.raises((sj.DTypeError, TypeError)):
        sj.cast(x, target, out=out)
    assert (out == 7).all()


@pytest.mark.parametrize(
    "settings",
    [
        {"round_mode": "up"},
        {"round_mode": "away"},
        {"round_mode": None},
        {"saturate": 2},
        {"saturate": None},
    ],
)
def test_settings_that_make_no_sense(settings):
    with pytest.raises((sj.DTypeError, ValueError)):
        sj.cast(np.zeros(3, np.float32), "float8_e5m2", **settings)


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1, 1)])
def test_no_elements_and_one(shape):
    for x in (np.full(shape, 1.5, np.float32), sj.asarray(np.full(shape, 1.5, np.float32))):
        for y in (sj.cast(x, "int4"), sj.quantize(x, 1.0, dtype="int4", zero_point=-1)):
            assert type(y) is type(x)
            assert y.shape == shape
            assert set(np.asarray(y).astype(int).ravel()) <= {1}


# Scales -------------------------------------------------------------------------------


def test_scales_by_eye():
    codes = np.array([[0, 3, 128], [255, 7, 9]], np.uint8)
    y = sj.dequantize(codes, np.array([[2], [0.5]], np.float32), zero_point=np.uint8([[128], [7]]))
    assert y.tolist() == [[-256, -250, 0], [124, 0, 1]]
    y = sj.dequantize(codes, np.float32([[1, 10], [2, 3]]), block_shape=(1, 2))
    assert y.tolist() == [[0, 3, 1280], [510, 14, 27]]
    x = np.array([0.5, 1.5, 2.5, -0.5, 200, -200, np.nan], np.float32)
    assert sj.quantize(x, 1.0, dtype="int8").tolist() == [0, 2, 2, 0, 127, -128, 0]
    # The quotient is rounded, not the sum: an odd zero point does not change ties.
    assert sj.quantize(x[:3], 1.0, dtype="int8", zero_point=1).tolist() == [1, 3, 3]
    assert sj.quantize(x[:3], 1.0, dtype="int8", zero_point=0.25).tolist() == [1, 2, 3]


@pytest.mark.parametrize("scale", [0.0, -0.0, np.inf, -np.inf, np.nan])
def test_scales_that_are_no_numbers(scale):
    """Allowed in dequantize, an error before anything is written in quantize."""
    scales, x = np.array([[1], [scale]], np.float32), np.ones((2, 3), np.float32)
    with np.errstate(all="ignore"):
        wanted = np.float32(3) * scales * x
    assert np.array_equal(sj.dequantize(3 * x.astype(np.int8), scales), wanted, equal_nan=True)
    out = np.full((2, 3), 7, np.int8)
    with pytest.raises(sj.ShapeJitError, match=r"\(2, 1\)(.|\n)*\(2, 3\)"):
        sj.quantize(x, scales, dtype="int8", out=out)
    with pytest.raises(sj.ShapeJitError):
        sj.quantize(x, scale, dtype="int8", out=out)
    assert (out == 7).all()


@pytest.mark.parametrize(
    ("shape", "block_shape"),
    [
        ((3,), None),
        ((2, 3), None),
        ((4, 3), None),
        ((4, 3), (1, 3)),
        ((4, 2), (1, 6)),
        ((4, 2), (1, 0)),
        ((4, 2), (1, -3)),
        ((4, 2), (3,)),
        ((4, 2), 3),
        ((4, 2), "13"),
        ((), (1, 3)),
        ((4, 6, 1), None),
    ],
)
def test_scales_that_do_not_fit(shape, block_shape):
    x, scale = np.ones((4, 6), np.int8), np.ones(shape, np.float32)
    out = np.full(x.shape, 7, np.float32)
    for call in (
        lambda: sj.dequantize(x, scale, block_shape=block_shape, out=out),
        lambda: sj.quantize(x, scale, block_shape=block_shape, dtype="float32", out=out),
    ):
        with pytest.raises((sj.ShapeJitError, TypeError)) as refused:
            call()
        if shape and block_shape not in (3, "13"):
            assert str(shape) in str(refused.value)
            assert "(4, 6)" in str(refused.value)
    assert (out == 7).all()


def test_zero_points_that_do_not_fit():
    x, scale = np.ones((2, 3), np.uint8), np.ones((2, 1), np.float32)
    for zero_point in (
        np.zeros(2, np.uint8),
        np.zeros((1, 3), np.uint8),
        np.zeros((2, 3), np.uint8),
    ):
        with pytest.raises(sj.ShapeJitError, match=r"\(2, 1\)"):
            sj.dequantize(x, scale, zero_point=zero_point)
    for zero_point in (256, -1, np.int16(300), np.array([[0], [-1]], np.int32), 2**70):
        with pytest.raises(sj.ShapeJitError, match="uint8"):
            sj.dequantize(x, scale, zero_point=zero_point)
        with pytest.raises(sj.ShapeJitError, match="uint8"):
            sj.quantize(x, scale, zero_point=zero_point, dtype="uint8")
    for zero_point in ("0", [0], True, 1j, np.array("a", object)):
        with pytest.raises((sj.ShapeJitError, TypeError)):
            sj.dequantize(x, scale, zero_point=zero_point)
    for kind, zero_point in (("int32", 2**31), ("int64", 2**100), ("uint64", -1)):
        with pytest.raises(sj.FormatError, match=f"zero point {zero_point} .* {kind}"):
            sj.dequantize(np.ones((2, 3), kind), scale, zero_point=zero_point)
    with pytest.raises(sj.FormatError, match=r"zero point 2147483648 .* int32"):
        sj.dequantize(np.ones((2, 3), np.int32), scale, zero_point=np.array([[1], [2**31]]))
    with pytest.raises(sj.FormatError, match=f"zero point {2**100} "):
        sj.dequantize(np.ones((2, 3), ml_dtypes.float8_e5m2), scale, zero_point=2**100)
    ends = np.array([2**31 - 1, -(2**31)], np.int32)
    y = sj.dequantize(ends, np.ones(2, np.float64), zero_point=ends)
    assert y.tolist() == [0, 0]
    assert sj.dequantize(ends, np.ones(2, np.float32), zero_point=ends).tolist() == [0, 0]


@pytest.mark.parametrize("scale", [1.0, np.float64(1)])
@pytest.mark.parametrize(
    ("kind", "codes", "zero"),
    [
        ("int64", [2**63 - 1, 0], 2**63 - 1),
        ("int64", [-(2**63), 0], -(2**63)),
        ("uint64", [2**64 - 1, 1], 2**64 - 1),
        ("uint64", [2**63, 1], 2**63),
        ("float8_e5m2", [0, 1], 2**64 - 1),
        ("float8_e5m2", [0, 1], -(2**63)),
    ],
)
def test_zero_points_of_64_bits(kind, codes, zero, scale):
    """At once and in a program, as one number or as an array."""
    x = np.array(codes, np.float64 if kind.startswith("float") else kind)
    x = x.astype(sj.dtype(kind).numpy)
    made = np.dtype(np.float64 if isinstance(scale, np.floating) else np.float32)
    wanted = [float(made.type(int(code)) - made.type(zero)) for code in codes]
    back = sj.quantize(np.zeros(2, made), scale, dtype=kind, zero_point=zero)
    for given in (zero, np.array(zero)):
        settings = {"zero_point": given}
        found = sj.dequantize(x, scale, **settings)
        assert (found.dtype, found.tolist()) == (made, wanted)
        program = sj.plan((2,), kind, lambda t, s=settings: t.dequantize(scale, **s))
        assert program(x).tolist() == wanted
        assert pickle.loads(pickle.dumps(program))(x).tolist() == wanted
        program = sj.plan((2,), made, lambda t, s=settings: t.quantize(scale, dtype=kind, **s))
        assert program(np.zeros(2, made)).tobytes() == back.tobytes()


@pytest.mark.parametrize("name", ["complex64", "bool", "string"])
def test_codes_and_results_that_are_no_numbers(name):
    x = np.zeros(3, object if name == "string" else name)
    ones = np.ones(3, np.float32)
    for call in (
        lambda: sj.dequantize(x, 1.0),
        lambda: sj.dequantize(ones, 1.0, dtype=name),
        lambda: sj.dequantize(ones, x),
        lambda: sj.quantize(x, 1.0, dtype="int8"),
        lambda: sj.quantize(ones, 1.0, dtype=name),
    ):
        with pytest.raises(sj.DTypeError):
            call()


@pytest.mark.parametrize("count", [1, 3, 100])
@pytest.mark.parametrize("kind", ["float32", "float16", "float64"])
def test_operands_that_change_between_calls(count, kind, kernels):
    """Few of them are known again by their values, many by where they lie: never by an old one."""
    rng = np.random.default_rng(0)
    codes = rng.integers(-100, 100, (count, 5)).astype(np.int8)
    scale, zero = np.ones((count, 1), kind), np.zeros((count, 1), np.int8)
    for _ in range(4):
        for value, shift in ((0.5, 0), (2, 7), (-0.0, 7), (0.0, 7), (3, -100)):
            scale[...], zero[...] = value, shift
            exact = (codes.astype(np.int64) - zero.astype(np.int64)).astype(kind)
            made = sj.dequantize(codes, scale, zero_point=zero)
            assert made.tobytes() == (exact * scale).tobytes()
            made = sj.dequantize(codes, scale)
            assert made.tobytes() == (codes.astype(kind) * scale).tobytes()
            if value:
                found = sj.quantize(exact * scale, scale, zero_point=zero, dtype="int8")
                assert np.array_equal(found, codes)
    one, x = sj.dequantize(codes, 1), sj.dequantize(codes, 1.0)
    assert one.tobytes() == x.tobytes()
    for wrong in (True, [1.0], None, np.array(None), np.zeros(2, "M8[s]")):
        for _ in range(2):
            with pytest.raises(sj.ShapeJitError):
                sj.dequantize(codes, wrong)
    sj.quantize(x, 1.0, dtype="int8", saturate=True)
    with pytest.raises(sj.DTypeError):  # 1 equals True, and is refused
        sj.quantize(x, 1.0, dtype="int8", saturate=1)


def test_outputs_apart_from_the_operands_of_this_call():
    codes = np.arange(8, dtype=np.int8)
    for scale in (np.full(8, 2, np.float32), np.full(8, 2, np.float32)):
        sj.dequantize(codes, scale)
        with pytest.raises(sj.ReshapeError, match="overlaps"):
            sj.dequantize(codes, scale, out=scale)
        out = np.empty(8, np.float32)
        assert sj.dequantize(codes, scale, out=out) is out
        assert out.tolist() == (codes * 2).tolist()


def test_float64_scales_mean_float64_arithmetic():
    x = np.array([1], np.int32)
    scale = np.float64(1) + 2.0**-40
    for call in (
        lambda x: sj.dequantize(x, scale),
        lambda x: sj.dequantize(sj.asarray(x), scale).numpy(),
        sj.plan((1,), "int32", lambda t: t.dequantize(scale)),
    ):
        assert (call(x).dtype, call(x)[0]) == (np.float64, scale)
    assert sj.quantize(np.array([3e300]), np.float64(1e300), dtype="int8").tolist() == [3]
    assert sj.dequantize(x, float(scale)).dtype == np.float32
    assert sj.dequantize(x, np.asarray(scale))[0] == scale
    assert sj.dequantize(x, np.asarray(np.float32(scale)))[0] == 1
    # Rounded to float32 first, this would be a tie, and then 1.
    assert sj.dequantize(x, np.asarray(1 + 2.0**-8 + 2.0**-40), dtype="bfloat16")[0] > 1


def test_float64_with_float32_scales_means_float32_arithmetic():
    x = np.array([1 + 2.0**-40, 3, -7], np.float64)
    half = np.array(0.5, np.float32)
    assert sj.quantize(x, half, dtype="float64").tolist() == [2, 6, -14]
    assert sj.quantize(x, half, dtype="int8", zero_point=1).tolist() == [3, 7, -13]
    assert sj.dequantize(x, half, dtype="float64").tolist() == [0.5, 1.5, -3.5]


# Memory -------------------------------------------------------------------------------


@pytest.mark.parametrize("case", ["cast", "dequantize", "quantize"])
def test_any_view(case, kernels):
    """Views, dtypes, scales and outputs drawn at random; a few dtypes, for few kernels."""
    names = {
        "cast": ("float32", "int4", "float8_e4m3fn", "complex64", "uint3"),
        "dequantize": ("int4", "float8_e4m3fn", "uint8", "float4_e2m1fn"),
        "quantize": ("float32", "bfloat16"),
    }[case]
    for seed in range(15):
        getattr(attack, case)(random.Random(seed), names)


@pytest.mark.parametrize("target", ["float32", "bfloat16", "float8_e4m3fn", "float64"])
@pytest.mark.parametrize("source", ["float64", "float32", "bfloat16", "int8"])
def test_transposed_sources(source, target, kernels):
    """Tiles are converted before or after: narrower and wider, cut and whole ones, whole lines."""
    shapes = (16, 64), (33, 17), (300, 70), (71, 700), (5, 40, 33), (320, 650)
    for shape in shapes if COMPILED else shapes[:2]:
        count = int(np.prod(shape))
        x = sj.cast(np.resize(np.arange(-90, 91) / 4, count).reshape(shape), source)
        for view in (x.T, x[::-1].T, x.T[::-1], np.swapaxes(x, -1, -2)):
            memory = np.full(view.size * sj.dtype(target).numpy.itemsize + 130, 0xAB, np.uint8)
            out = memory[65:-65].view(sj.dtype(target).numpy).reshape(view.shape)
            sj.cast(view, target, out=out)
            assert out.tobytes() == sj.cast(view.copy(), target).tobytes()
            assert (memory[:65] == 0xAB).all()
            assert (memory[-65:] == 0xAB).all()


@pytest.mark.skipif(not COMPILED, reason="large")
@pytest.mark.parametrize("shape", [(1, 2), (4, 2000), (513, 4100), (1030, 3202), (2051, 1601)])
@pytest.mark.parametrize(("source", "target"), [("float32", "bfloat16"), ("float64", "int8")])
def test_merged_rows_at_the_edges_of_memory(source, target, shape, kernels):
    """As many rows as fill an element of the source are converted together, also at its end."""
    kind, size = sj.dtype(target).numpy, int(np.prod(shape))
    numbers = (np.arange(size) * 7919 % 199 - 99).astype(source).reshape(shape)
    for at_end in (False, True):
        memory = guarded(numbers.nbytes)
        part = memory[memory.size - numbers.nbytes :] if at_end else memory[: numbers.nbytes]
        x = part.view(source).reshape(shape)
        x[...] = numbers
        for shift in (0, 16, 24, 1):
            target_memory = guarded(size * kind.itemsize + shift)
            first = target_memory.size - size * kind.itemsize if at_end and not shift else shift
            out = target_memory[first : first + size * kind.itemsize].view(kind).reshape(x.T.shape)
            sj.cast(x.T, target, out=out)
            assert out.tobytes() == sj.cast(numbers, target).T.tobytes()


@pytest.mark.parametrize("target", ["int8", "float8_e4m3fn", "float16"])
@pytest.mark.parametrize("last", [2, 3, 5])
def test_short_rows_in_another_order(last, target, kernels):
    """Boxes hold whole rows, however many of them they hold."""
    sizes = (256, 4096, last) if COMPILED else (16, 8, last)
    x = np.random.default_rng(last).integers(0, 100, sizes, np.uint8)
    view = x.transpose(1, 0, 2)
    made = sj.cast(view, target)
    assert made.shape == view.shape
    assert made.tobytes() == sj.cast(view.copy(), target).tobytes()


@pytest.mark.parametrize("name", ["uint4", "uint2", "uint1"])
def test_packed_elements_in_other_orders(name, kernels):
    """Boxes of packed elements, some of which reach back, with a scale per block or without."""
    numbers = np.random.default_rng(0)
    bits = sj.dtype(name).bits
    orders = ((514, 2114), (1, 0)), ((2114, 64, 8), (1, 0, 2)), ((130, 66, 130), (2, 1, 0))
    for shape, axes in orders if COMPILED else [((18, 66), (1, 0))]:
        codes = numbers.integers(0, 1 << bits, shape, np.uint8)
        turned, packed = codes.transpose(axes), sj.pack(codes, name).permute_dims(axes)
        for part in (slice(None), slice(None, None, -1), slice(2, None), slice(1, None)):
            wanted, x = turned[..., part], packed[..., part]
            size = wanted.shape[-1]
            assert np.array_equal(np.from_dlpack(sj.cast(x, "float32")), wanted)
            scale = numbers.standard_normal((*wanted.shape[:-1], -(-size // 32)))
            scale, blocks = scale.astype(np.float32), (*[1] * (wanted.ndim - 1), 32)
            found = sj.dequantize(x, scale, block_shape=blocks, dtype="float32")
            assert np.array_equal(
                np.from_dlpack(found), wanted * np.repeat(scale, 32, -1)[..., :size]
            )


ORDERS = [
    ((5, 3, 24, 40), (0, 2, 3, 1), (1, 1, 1, 1)),
    ((5, 24, 40, 3), (0, 3, 1, 2), (1, 1, -1, 1)),
    ((4, 3, 6, 16, 5, 16), (0, 2, 4, 1, 3, 5), (1, 1, 1, 1, 1, 1)),
    ((7, 8, 9, 10, 11), (4, 2, 0, 3, 1), (1, -1, 1, 1, 1)),
    ((33, 5, 130), (2, 0, 1), (1, 1, -3)),
    ((40, 7, 31), (0, 2, 1), (-1, 1, 2)),
]


@pytest.mark.parametrize("kind", ["serial", "shuffles", "shuffles streamed"])
@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("float32", "bfloat16"), ("bfloat16", "float32"), ("float64", "uint8"),
        ("uint8", "float64"), ("complex64", "complex128"), ("uint4", "float16"),
        ("uint3", "float32"), ("float32", "uint4"), ("uint8", "uint2"),
    ],
)  # fmt: skip
def test_boxes_in_other_orders(source, target, kind):
    """Elements are put in order by blocks, by networks, or one by one, in boxes of few bytes."""
    numbers = np.random.default_rng(0)
    with loops.used(kind):
        loops.use_boxes()
        for shape, axes, steps in ORDERS:
            codes = numbers.integers(0, 8, shape, np.uint8)
            x = sj.asarray((codes * (1 + 2j)).astype(np.complex64))
            if source != "complex64":
                x = sj.cast(sj.asarray(codes), source)
            view = x[tuple(slice(None, None, step) for step in steps)].permute_dims(axes)
            wanted = sj.cast(sj.ascontiguous(view), target)
            assert sj.cast(view, target).tobytes() == wanted.tobytes(), (shape, axes)


@pytest.mark.parametrize("kind", ["serial", "streamed by one thread"])
def test_blocks_into_outputs_at_any_address(kind):
    """Vectors begin with a line of the output, anywhere in a block."""
    rows, numbers = 3, np.random.default_rng(0)
    with loops.used(kind):
        for block in (16, 24, 32, 80, 128):
            x = numbers.integers(0, 256, (rows, 15 * block), np.uint8)
            scale = numbers.standard_normal((rows, 15)).astype(np.float32)
            zero = numbers.integers(0, 256, scale.shape, np.uint8)
            wide, zeros = (np.repeat(y, block, 1).astype(np.float32) for y in (scale, zero))
            wanted = ((x - zeros) * wide).astype(ml_dtypes.bfloat16).tobytes()
            for at in (0, 1, 16, 34, 62):
                memory = np.full(len(wanted) + 256, 0xAB, np.uint8)
                begin = -memory.ctypes.data % 64 + at
                end = begin + len(wanted)
                out = memory[begin:end].view(ml_dtypes.bfloat16).reshape(x.shape)
                blocks = {"zero_point": zero, "block_shape": (1, block)}
                sj.dequantize(x, scale, **blocks, dtype="bfloat16", out=out)
                assert out.tobytes() == wanted, (block, at)
                assert (memory[:begin] == 0xAB).all()
                assert (memory[end:] == 0xAB).all()


def test_few_subnormal_numbers_and_nans_among_others():
    """Vectors that hold one go another way than the rest."""
    codes = np.full(5000, 0x3F808000, np.uint32)
    codes[77::130] = np.resize([1, 0x80008000, 0x007FFFFF, 0x7F800001, 0xFFFFFFFF, 0xFF800000], 38)
    check_cast(codes, "float32", "bfloat16")


def test_outputs_that_overlap_the_source():
    """Refused, with nothing written, or exact."""
    memory = np.arange(4000, dtype=np.float32).view(np.uint8)
    for shift in (0, 1, 4, 100, 4000):
        for target in ("int32", "bfloat16", "float8_e5m2"):
            before = memory.copy()
            x = before[: 4 * 500].view(np.float32)
            size = 500 * sj.dtype(target).numpy.itemsize
            out = before[shift : shift + size].view(sj.dtype(target).numpy)
            wanted = sj.cast(x.copy(), target)
            try:
                sj.cast(x, target, out=out)
            except sj.ReshapeError:
                assert np.array_equal(before, memory)
            else:
                assert out.tobytes() == wanted.tobytes()


@pytest.mark.parametrize(
    "out",
    [
        np.zeros((3, 2), np.float64),
        np.zeros((2, 3), np.float16),
        np.zeros((2, 3), np.float16).T,
        np.zeros((6,), np.float16),
        sj.asarray(np.zeros((3, 2), np.float16)),
        [0] * 6,
    ],
    ids=str,
)
def test_outputs_that_do_not_fit(out):
    with pytest.raises((sj.ShapeJitError, TypeError)):
        sj.cast(np.ones((3, 2), np.float32), "float16", out=out)
    assert not np.asarray(out).any()


def test_numpy_converts_until_kernels_are_there(tmp_path):
    """Every code of 8 bits, and of wider dtypes as many."""
    code = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})"
        + """
import numpy as np, shapejit as sj, cast_oracle as oracle
names = [name for name in oracle.REAL if sj.dtype(name).numpy is not None]
for source in names:
    codes = np.arange(2 if source == "bool" else 1 << min(8, oracle.bits_of(source)))
    codes = codes.astype(oracle.carrier(source)) << max(oracle.bits_of(source) - 8, 0)
    for target in names:
        found = oracle.codes_of(sj.cast(oracle.array(codes, source), target), target)
        wanted = oracle.cast(codes, source, target)
        assert oracle.same(found, wanted, target).all(), (source, target)
codes = np.arange(200, dtype=np.uint8).reshape(4, 50).T
wanted = (codes.astype(np.float32) - 3) * np.float32(0.5)
assert np.array_equal(sj.dequantize(codes, 0.5, zero_point=3), wanted)
assert np.array_equal(sj.quantize(wanted, 0.5, zero_point=3, dtype="uint8"), codes)
assert {kernel.state for kernel in sj.kernel_status().values()} <= {"missing"}
"""
    )
    own = {"SHAPEJIT_PATIENCE": "inf", "NUMBA_CACHE_DIR": str(tmp_path)}
    environment = {**os.environ, **own}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]


# Other processors, and NumPy ----------------------------------------------------------


def run_alone(code, **environment):
    """What a script prints that knows what this module does, in a process of its own."""
    start = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
    command = [sys.executable, "-c", f"{start}from test_casts import *\n{code}"]
    environment = {**os.environ, **environment}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def some_codes(name):
    """Every code, or of 16 bits and more some, among them what is special."""
    bits = oracle.bits_of(name)
    if bits <= 16:
        return np.resize(all_codes(name), max(300, 1 << bits))[:: 37 if bits == 16 else 1]
    if name in FLOATS:
        with np.errstate(invalid="ignore"):
            x = float32_boundaries("float8_e5m2").view(np.float32).astype(name)
        return x.view(oracle.carrier(name))
    return integers_beside_boundaries(bits, name in oracle.SIGNED)[::4]


# One of each kind of partner: exact or not in float16, by way of float32 or float64, packed or not.
KINDS = ("bool", "int8", "uint32", "int64", "uint4", *FEW[1:], "float16", "float64")


@pytest.mark.skipif(not COMPILED, reason="nothing is compiled")
@pytest.mark.parametrize(
    ("cpu", "features", "names", "others"),
    [
        ("generic", "", ["float16"], KINDS),
        ("generic", "", ["float32", "float8_e5m2", "int64"], ["uint8", "bfloat16", "float64"]),
        pytest.param("generic", "", REAL, REAL, marks=pytest.mark.slow),
        *(
            pytest.param(
                *(cpu, features, ["float16"], ["uint32", "float8_e4m3fn", "float32", "float64"]),
                marks=pytest.mark.skipif(not X86, reason=cpu),
            )
            for cpu, features in (("generic", "+avx2,+fma"), ("x86-64-v3", ""))
        ),
    ],
)
def test_processors_without_instructions_for_float16(cpu, features, names, others):
    """Casts between these dtypes and others; compiled with these features only."""
    code = f"""
pairs = {{*itertools.product({names}, {others}), *itertools.product({others}, {names})}}
for source, target in sorted(pairs):
    check_cast(some_codes(source), source, target)
    check_cast(some_codes(source)[1:2], source, target)
check_cast(float32_boundaries("float16"), "float32", "float16")
"""
    run_alone(code, NUMBA_CPU_NAME=cpu, NUMBA_CPU_FEATURES=features)


def digests():
    """What becomes of every code of each narrow float, many at once and one alone, by its name."""
    made = {}
    for source, target in itertools.product(NARROW, (*FLOATS16, "float32", "float64")):
        x = tensor(all_codes(source), source)
        for name, y in [
            (f"{source} as {target}", sj.cast(x, target)),
            (f"the last {source} as {target}", sj.cast(x[-1:], target)),
            (f"{source} by a scale as {target}", sj.dequantize(x, 0.5, dtype=target)),
        ]:
            made[name] = hashlib.blake2b(codes_in(y, target)).hexdigest()
    return made


def test_numpy_and_kernels_give_the_same_bytes(tmp_path):
    """Of NaNs, too: with their payloads where a bfloat16 becomes a wider float."""
    with_kernels = digests()
    code = "import json; print(json.dumps(digests()))"
    # There are no kernels in an empty folder, and no work is too much for NumPy.
    environment = {"SHAPEJIT_PATIENCE": "inf", "NUMBA_CACHE_DIR": str(tmp_path)}
    assert json.loads(run_alone(code, **environment)) == with_kernels
    bits = all_codes("bfloat16").astype(np.uint32) << 16
    assert with_kernels["bfloat16 as float32"] == hashlib.blake2b(bits).hexdigest()


# All of float32 -----------------------------------------------------------------------


def saturated(x, codes, target):
    """ml_dtypes' codes with saturation: the largest value where numbers became infinity or NaN."""
    row = FLOATS[target]
    if row.special in ("finite", "unsigned") or row.bits > 8:
        return codes
    values = oracle.decode(codes, target).astype(np.float32)
    largest = np.uint8(len(oracle.halfway(target)) - 1)
    negative = np.signbit(x).astype(np.uint8) << np.uint8(7)
    return np.where(np.isfinite(values) | np.isnan(x), codes, largest | negative)


@pytest.mark.slow
@pytest.mark.parametrize("target", [name for name in NARROW if name != "float16"])
def test_every_float32(target):
    """All 2**32 codes, as ml_dtypes has them."""
    step = 1 << 24
    for first in range(0, 1 << 32, step):
        codes = np.arange(first, first + step, dtype=np.uint64).astype(np.uint32)
        x = codes.view(np.float32)
        wanted = ml_cast(x, target)
        found = codes_in(sj.cast(x, target, saturate=False), target)
        assert np.array_equal(found, wanted), hex(first)
        if target in FLOAT8 and target != "float8_e8m0fnu":
            found = codes_in(sj.cast(x, target), target)
            assert np.array_equal(found, saturated(x, wanted, target)), hex(first)


def test_ml_dtypes_has_the_types_of_the_oracle():
    assert all(hasattr(ml_dtypes, name) or hasattr(np, name) for name in FLOATS)


def test_more_dims_than_numpy_has():
    t = sj.asarray(np.array([1.5, -2.5], np.float32)).reshape((1,) * 70 + (2,))
    code = "import numpy as np, shapejit as sj; t = sj.asarray(np.array([1.5, -2.5], np.float32))"
    code += ".reshape((1,) * 70 + (2,)); print(sj.cast(t, 'int8').tobytes().hex())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == sj.cast(t, "int8").tobytes().hex() == "01fe"


def test_scales_that_no_float_holds():
    with pytest.raises(sj.FormatError, match="beyond the range of floats"):
        sj.dequantize(np.zeros(3, np.int8), 10**400)


@pytest.mark.skipif(not COMPILED, reason="nothing is compiled with the JIT off")
@pytest.mark.parametrize("target", ["float32", "bfloat16", "float16"])
def test_kernels_convert_what_is_streamed(target):
    """NumPy does the work of kernels that cannot be built, with the same results."""
    x = np.zeros(1 << 22, np.int8)
    sj.cast(x, target, out=np.empty(x.size, target))
    states = {name: kernel.state for name, kernel in sj.kernel_status().items()}
    assert not [name for name, state in states.items() if state.startswith("failed")]


@pytest.mark.parametrize("rows", [8, 400])  # scales that are known by value, and by address
@pytest.mark.parametrize("blocks", [None, (1, 16)])
def test_known_scaled_calls_fill_out(rows, blocks):
    rng = np.random.default_rng(0)
    codes, out = rng.integers(-9, 9, (rows, 64)).astype(np.int8), np.empty((rows, 64), np.float32)
    scale = rng.random((rows, 1 if blocks is None else 4), np.float32)
    made = np.empty(codes.shape, np.int8)
    for turn in range(4):
        scale += turn
        wanted = codes * np.repeat(scale, 64 // scale.shape[1], axis=1)
        for given in (None, out):
            result = sj.dequantize(codes, scale, block_shape=blocks, out=given)
            np.testing.assert_array_equal(result, wanted)
        sj.quantize(out, scale, dtype="int8", block_shape=blocks, out=made)
        np.testing.assert_array_equal(made, codes)


@pytest.mark.parametrize("rows", [8, 400])
def test_known_scaled_calls_refuse_an_out_that_overlaps_the_scales(rows):
    memory = np.ones(65 * rows, np.float32)
    codes, out = np.ones((rows, 64), np.int8), memory[: 64 * rows].reshape(rows, 64)
    for _ in range(3):
        sj.dequantize(codes, memory[64 * rows :].reshape(rows, 1), out=out)
        with pytest.raises(sj.ReshapeError, match="overlaps another operand"):
            sj.dequantize(codes, memory[63 * rows : 64 * rows].reshape(rows, 1), out=out)
