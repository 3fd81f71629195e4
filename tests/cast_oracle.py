"""Casts and scales from the texts of the specifications, as plainly as NumPy can say them.

A number is a row: how wide its exponent and mantissa are, its bias, and which special
values it has. All its codes are listed with their values, so that to round is to look
for the nearest value in a list. Values are long doubles, which hold every float64,
int64 and uint64 exactly: nothing here is rounded twice.
"""

from functools import cache
from typing import NamedTuple

import ml_dtypes
import numpy as np

Wide = np.longdouble
assert np.finfo(Wide).nmant >= 63, "long doubles must hold any int64"


class Float(NamedTuple):
    """A sign (unless `special` is "unsigned"), `exponent` and `mantissa` bits, and a bias.

    `special`: "ieee" has infinities and NaNs in the last exponent, "fn" one NaN, all bits
    set, "fnuz" one NaN in the place of -0, "finite" and "unsigned" (powers of two, and
    a NaN of all bits) what their names say.
    """

    bits: int
    exponent: int
    mantissa: int
    bias: int
    special: str


FLOATS = {
    "float4_e2m1fn": Float(4, 2, 1, 1, "finite"),
    "float6_e2m3fn": Float(6, 2, 3, 1, "finite"),
    "float6_e3m2fn": Float(6, 3, 2, 3, "finite"),
    "float8_e3m4": Float(8, 3, 4, 3, "ieee"),
    "float8_e4m3": Float(8, 4, 3, 7, "ieee"),
    "float8_e4m3b11fnuz": Float(8, 4, 3, 11, "fnuz"),
    "float8_e4m3fn": Float(8, 4, 3, 7, "fn"),
    "float8_e4m3fnuz": Float(8, 4, 3, 8, "fnuz"),
    "float8_e5m2": Float(8, 5, 2, 15, "ieee"),
    "float8_e5m2fnuz": Float(8, 5, 2, 16, "fnuz"),
    "float8_e8m0fnu": Float(8, 8, 0, 127, "unsigned"),
    "bfloat16": Float(16, 8, 7, 127, "ieee"),
    "float16": Float(16, 5, 10, 15, "ieee"),
    "float32": Float(32, 8, 23, 127, "ieee"),
    "float64": Float(64, 11, 52, 1023, "ieee"),
}
NARROW = [name for name, row in FLOATS.items() if row.bits <= 16]
SIGNED = {f"int{bits}": bits for bits in (1, 2, 4, 8, 16, 32, 64)}
UNSIGNED = {f"uint{bits}": bits for bits in (1, 2, 3, 4, 6, 8, 16, 32, 64)}
INTEGERS = SIGNED | UNSIGNED
PARTS = {  # of a complex number
    "complex32": "float16",
    "bcomplex32": "bfloat16",
    "complex64": "float32",
    "complex128": "float64",
}
# QLoRA (arXiv 2305.14314), appendix E.
NF4 = [
    *(-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453),
    *(-0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0),
    *(0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224),
    *(0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0),
]
WHOLE = ["bool", *INTEGERS]
REAL = [*WHOLE, *FLOATS]


def bits_of(name):
    return FLOATS[name].bits if name in FLOATS else INTEGERS.get(name, 4 if name == "nf4" else 8)


def carrier(name):
    """The unsigned NumPy integer that holds a code."""
    return np.dtype(f"u{max(bits_of(name) // 8, 1)}")


# Codes to values


def value_of(code, name):
    """The value of one code of a float, by the definition of its format."""
    row = FLOATS[name]
    if row.special == "unsigned":
        return float("nan") if code == 255 else 2.0 ** (code - row.bias)
    negative = code >> (row.exponent + row.mantissa)
    field = (code >> row.mantissa) & ((1 << row.exponent) - 1)
    fraction = code & ((1 << row.mantissa) - 1)
    last = field == (1 << row.exponent) - 1
    size = (
        2.0 ** (1 - row.bias) * (fraction / 2**row.mantissa)
        if field == 0
        else 2.0 ** (field - row.bias) * (1 + fraction / 2**row.mantissa)
    )
    if row.special == "ieee" and last:
        size = float("nan") if fraction else float("inf")
    if row.special == "fn" and last and fraction == (1 << row.mantissa) - 1:
        size = float("nan")
    if row.special == "fnuz" and negative and size == 0:
        size = float("nan")
    return -size if negative else size


@cache
def values(name):
    """The values of all codes of a float of 16 bits or fewer; NaNs have the sign of their code."""
    if name == "nf4":
        return np.array(NF4, np.float32).astype(Wide)
    codes = range(1 << FLOATS[name].bits)
    return np.array([value_of(code, name) for code in codes], np.float64).astype(Wide)


def decode(codes, name):
    """The values of codes as long doubles."""
    if name in ("float32", "float64"):
        with np.errstate(invalid="ignore"):  # signalling NaNs
            return codes.view(name).astype(Wide)
    if name == "bool":
        return codes.astype(Wide)
    if name in FLOATS or name == "nf4":
        return values(name)[codes]
    if name in SIGNED:
        return signed(codes, SIGNED[name]).astype(Wide)
    return codes.astype(Wide)


def signed(codes, bits):
    """Two's complement: the codes of so many bits as int64."""
    shift = np.int64(64 - bits)
    return codes.astype(np.uint64).view(np.int64) << shift >> shift


# Values to codes


@cache
def halfway(name):
    """What lies halfway between each finite value and the next; the last next does not exist."""
    row = FLOATS[name]
    positive = values(name)[: 1 << (row.exponent + row.mantissa)]
    finite = positive[np.isfinite(positive)]
    following = [*finite[1:], 2 * finite[-1] - finite[-2]]
    return (finite + following) / 2


def encode(x, name, saturate=True, round_mode="nearest"):
    """The codes of numbers: rounded once, to the nearest, ties to the even code."""
    x = np.asarray(x, Wide)
    with np.errstate(all="ignore"):
        if name == "bool":
            return (x != 0).astype(np.uint8)
        if name in INTEGERS:
            return truncated(x, name)
        if name in ("float32", "float64"):
            return x.astype(name).view(carrier(name))
        if name == "float8_e8m0fnu":
            return powers(x, saturate, round_mode).astype(np.uint8)
        return rounded(x, name, saturate).astype(carrier(name))


def rounded(x, name, saturate):
    row = FLOATS[name]
    size, sign = np.abs(x), np.signbit(x).astype(np.int64) << (row.exponent + row.mantissa)
    below = np.searchsorted(halfway(name), size, "left")  # ties down
    above = np.searchsorted(halfway(name), size, "right")  # ties up
    codes = np.where(below % 2 == 0, below, above)
    largest = len(halfway(name)) - 1
    if row.special == "finite" or (saturate and row.bits == 8):
        codes = np.minimum(codes, largest)
    too_large = codes > largest
    infinity = ((1 << row.exponent) - 1) << row.mantissa
    every = (1 << (row.exponent + row.mantissa)) - 1
    nan = {
        "ieee": infinity | 1 << (row.mantissa - 1) | sign,
        "fn": every | sign,
        "fnuz": every + 1,
        "finite": sign ^ every + 1,  # ml_dtypes: zero, of the other sign
    }[row.special]
    if row.special == "ieee":
        codes = np.where(too_large, infinity, codes)
        too_large = False
    if row.special == "fnuz":
        sign = np.where(codes == 0, 0, sign)
    return np.where(np.isnan(x) | too_large, nan, codes | sign)


def powers(x, saturate, round_mode):
    """Powers of two from 2**-127 to 2**127; there is no zero, and nothing is negative.

    What is nearest to a number between 2**-127 and 2**-126 is 2**-126 for ml_dtypes and
    onnx, which count down to a zero.
    """
    low = Wide(2.0) ** -127
    finite = np.where(np.isfinite(x) & (x > 0), x, 1)
    fraction, exponent = np.frexp(finite)  # fraction in [0.5, 1)
    down = exponent - 1
    up = down + (fraction > 0.5)
    nearest = np.where((finite < 2 * low) & (finite > low), -126, down + (fraction >= 0.75))
    found = {"down": down, "up": up, "nearest": nearest}[round_mode]
    codes = np.maximum(found + 127, 0)
    lost = (found > 127) | (x < low) | (x == np.inf)
    if saturate:
        codes = np.minimum(codes, 254)
        codes = np.where(x < low, 0, np.where(x == np.inf, 254, codes))
        lost = False
    return np.where(lost | np.isnan(x) | (x < 0), 255, codes)


def limits(name):
    """The least and the largest value of an integer."""
    bits = INTEGERS[name]
    return (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if name in SIGNED else (0, 2**bits - 1)


def truncated(x, name):
    """Towards zero, into the integer's range; NaN is 0."""
    low, high = limits(name)
    whole = np.clip(np.trunc(np.where(np.isnan(x), 0, x)), Wide(low), Wide(high))
    codes = np.array([int(v) % 2 ** INTEGERS[name] for v in whole.ravel()], np.uint64)
    return codes.reshape(x.shape).astype(carrier(name))


def same(found, codes, name):
    """Which codes are the same; NaNs of 16 bits and more may differ in their payload."""
    if name in PARTS:
        parts = [a.reshape(*a.shape, 1).view(carrier(PARTS[name])) for a in (found, codes)]
        return same(*parts, PARTS[name]).all(axis=-1)
    if bits_of(name) <= 8 or name not in FLOATS:
        return found == codes
    one, other = decode(found, name), decode(codes, name)
    nan = np.isnan(one) & np.isnan(other) & (np.signbit(one) == np.signbit(other))
    return (found == codes) | nan


# Whole operations


def cast(codes, source, target, saturate=True, round_mode="nearest"):
    """The target's codes of the source's codes."""
    if source == target:
        return kept(codes, source, saturate)
    if source in PARTS:
        parts = codes.reshape(*codes.shape, 1).view(carrier(PARTS[source]))
        made = cast(parts, PARTS[source], PARTS[target]).astype(carrier(PARTS[target]))
        return made.view(f"V{2 * made.itemsize}")[..., 0]
    if source in WHOLE and target in INTEGERS:  # the low bits
        low = signed(codes, SIGNED[source]) if source in SIGNED else codes
        mask = np.uint64(2 ** INTEGERS[target] - 1)
        return (low.astype(np.uint64) & mask).astype(carrier(target))
    return encode(decode(codes, source), target, saturate, round_mode)


def kept(codes, name, saturate):
    """Every bit, but a float8 that is saturated has no infinity, and one NaN of each sign."""
    whole = name not in FLOATS or FLOATS[name].bits != 8 or not saturate
    if whole or not np.isinf(values(name)).any():
        return codes
    return encode(values(name)[codes], name)


def arithmetic(scale):
    """float64 where the scale is, float32 for all others."""
    return np.float64 if scale == "float64" else np.float32


def spread(scale, shape, block_shape):
    """A scale for each element: every scale repeated over its block."""
    if scale.ndim == 0:
        return np.broadcast_to(scale, shape)
    for axis, (size, block) in enumerate(zip(shape, block_shape, strict=True)):
        scale = scale.repeat(block, axis).take(range(size), axis)
    return scale


def dequantize(x, scale, zero_point, floats):
    """(x - zero_point) * scale of values as long as each other, in float32 or float64."""
    with np.errstate(all="ignore"):
        x = x.astype(floats)
        if zero_point is not None:
            x = x - zero_point.astype(floats)
        return x * scale.astype(floats)


def quantize(x, scale, zero_point, floats, target, saturate=True, whole_zeros=True):
    """The codes of x / scale + zero_point, half to even.

    For integers the quotient is rounded, before whole zero points are added and after others.
    """
    with np.errstate(all="ignore"):
        y = x.astype(floats) / scale.astype(floats)
        if target in INTEGERS and whole_zeros:
            y = np.rint(y)
        if zero_point is not None:
            y = y + zero_point.astype(floats)
        return encode(np.rint(y) if target in INTEGERS else y, target, saturate)


# Arrays of any dtype


def numpy_dtype(name):
    """The NumPy or ml_dtypes dtype of this name; uint8 (codes) where there is none."""
    return np.dtype(getattr(ml_dtypes, name, None) or getattr(np, name, None) or np.uint8)


def array(codes, name):
    """An ndarray with these codes; types of fewer than 8 bits have one byte an element."""
    return codes.astype(carrier(name)).view(numpy_dtype(name))


def codes_of(x, name):
    """The codes of an ndarray's elements, without what ml_dtypes ignores."""
    codes = np.ascontiguousarray(x).view(carrier(name)).reshape(x.shape)
    return codes & codes.dtype.type(2 ** bits_of(name) - 1)
