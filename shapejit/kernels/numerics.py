"""What numbers mean, and how they are rounded: expressions over NumPy's arrays, or over Lanes.

Kernels are generated from these functions, and NumPy evaluates them where no kernel is used (see
`plain_conversions`): so both compute the same bits. Codes are unsigned integers, or signed ones
where LLVM compares these in fewer steps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .numbers import Conversion, Number

Values = Any  # an array, or Lanes: whose results NumPy's stubs take for arrays
Read = Callable[[Values, Number], Values]
Round = Callable[[Values, Conversion], Values]

INTEGERS = "int", "uint"
NAN, INFINITY = 0x7FC00000, 0x7F800000  # of float32
MAGNITUDE = 0x7FFFFFFF  # all bits but the sign
NEGATIVE_NAN = NAN - (1 << 31)  # in a signed integer


def rarely(test: Values, made: Values, values: Values) -> Values:
    """`values`, replaced by `made` where a test holds; arrays skip this if it never holds."""
    if isinstance(test, np.ndarray) and not test.any():
        return values
    return np.where(test, made() if callable(made) else made, values)


def low_bits(codes: Values, bits: int) -> Values:
    """Codes narrower than a byte without the other bits; others as they are."""
    return codes & (1 << bits) - 1 if bits < 8 else codes


# From codes


def integers(codes: Values, number: Number) -> Values:
    """The values of integer codes."""
    if number.kind != "int":
        return codes
    values, sign = codes.view(f"i{codes.dtype.itemsize}"), 1 << number.bits - 1
    return values if number.bits >= 8 else (values ^ sign) - sign


def resized(codes: Values, made: Conversion) -> Values:
    """Integers (or bools) converted to others, plus a bias: the low bits are kept."""
    source, target = made.source, made.target
    if target.kind == "bool":
        return (codes != 0).view("u1")
    if source.kind == "bool":
        codes = (codes != 0).view("u1")
    values = integers(codes, source).astype(f"i{target.nbytes}", copy=False)
    values = values.view(f"u{target.nbytes}")
    if made.bias:
        values = values + (made.bias & ((1 << 8 * target.nbytes) - 1))
    return low_bits(values, target.bits)


def decoded(codes: Values, made: Conversion, read: Read) -> Values:
    """The values as floats of the conversion's arithmetic; `read` knows floats of few bits."""
    number, floats = made.source, f"f{made.arithmetic // 8}"
    if number.kind == "bool":
        return (codes != 0).astype(floats)
    if number.kind in INTEGERS:
        values = integers(_biased(codes, made.bias, number.bits), number)
        direct = made.step != "cast" or made.target.bits >= made.arithmetic
        if number.bits == made.arithmetic and not direct:
            values = _to_odd(values)
    elif number.bits >= 32:
        values = codes.view(f"f{number.nbytes}")
    else:
        values = read(codes, number)
    return values.astype(floats, copy=False)


def _biased(codes: Values, bias: int, bits: int) -> Values:
    """Integer codes plus a bias, modulo their range."""
    if not bias:
        return codes
    return low_bits(codes + (bias & (1 << 8 * codes.dtype.itemsize) - 1), bits)


def _to_odd(values: Values) -> Values:
    """Integers rounded to odd in the bits of a float as wide; a later rounding is then exact."""
    size = values.dtype.itemsize
    kept, unsigned = 53 if size == 8 else 24, f"u{size}"
    lost = 8 * size - kept
    bits, low, least = values.view(unsigned), (1 << lost) - 1, 1 << kept
    cut = bits & ((1 << 8 * size) - 1 - low) | (bits & low != 0).astype(unsigned) << lost
    large = bits + least >= 2 * least if values.dtype.kind == "i" else bits >= least
    return np.where(large, cut, bits).view(values.dtype)


def is_shifted(number: Number) -> bool:
    """Whether a float consists of the upper bits of a float32."""
    return number.exponent == 8 and number.special == "ieee"


def float_of(codes: Values, number: Number) -> Values:
    """The float32 values of float codes of 16 bits or fewer."""
    exponent, mantissa, bias = number.exponent, number.mantissa, number.bias
    wide, up, top = codes.astype("u4").view("i4"), 23 - mantissa, exponent + mantissa
    if number.special == "unsigned":
        bits = np.where(wide == 0, 1 << 22, wide << up)
        return np.where(wide == 255, NAN, bits).view("f4")
    if is_shifted(number):
        return (wide << up).view("f4")
    magnitude = wide & ((1 << top) - 1)
    sign = (wide & (1 << top)) << 31 - top
    bits = (magnitude << up) + ((127 - bias) << 23)
    # Subnormal numbers are integers times the smallest one.
    least = magnitude.astype("f4") * 2.0 ** (1 - bias - mantissa)
    bits = np.where(magnitude < 1 << mantissa, least.view("i4"), bits)
    if number.special == "ieee":
        bits = np.where(magnitude == number.infinity, INFINITY, bits)
        bits = np.where(magnitude > number.infinity, NAN, bits)
    elif number.special == "fn":
        bits = np.where(magnitude == number.nan, NAN, bits)
    bits = bits | sign
    if number.special == "fnuz":
        # As in ml_dtypes: the one NaN has the sign bit.
        bits = np.where(wide == number.nan, NEGATIVE_NAN, bits)
    return bits.view("f4")


# To codes


def scaled(values: Values, made: Conversion, scale: Values, zero: Values) -> Values:
    """The scaled values; see `Conversion`."""
    if made.step == "dequantize":
        if made.zeros == "offset":
            return values * scale + zero
        if made.zeros == "positive":
            values = values + 0.0
        return (values if zero is None else values - zero) * scale
    values = values / scale
    if zero is not None and made.zeros == "float":
        values = values + zero
    if made.target.kind in INTEGERS:
        values = np.rint(values)
    return values + zero if zero is not None and made.zeros == "integer" else values


def single(values: Values) -> Values:
    """float64 rounded to odd in float32, so that a later rounding is exact."""
    if values.dtype == "f4":
        return values
    near = values.astype("f4")
    back = near.astype("f8")
    bits = near.view("u4") - (np.absolute(back) > np.absolute(values))
    return (bits | (back != values)).view("f4")


def narrowed(values: Values, made: Conversion, halves: bool = True) -> Values:
    """Codes of floats of 16 bits or fewer; `halves`: `astype` rounds to float16."""
    number = made.target
    if number.special == "unsigned":
        return powers(values, made)
    values = single(values)
    if number.exponent == 8:
        return cut(values, made)
    return (half if halves and number.bits == 16 else rounded)(values, made)


def encoded(values: Values, made: Conversion, narrow: Round = narrowed) -> Values:
    """The codes of floats of the conversion's arithmetic."""
    number = made.target
    if number.kind == "bool":
        return (values != 0).view("u1")
    if number.kind in INTEGERS:
        return clamped(values, number)
    if number.bits >= 32:
        return values.astype(f"f{number.nbytes}", copy=False).view(f"u{number.nbytes}")
    return narrow(values, made).astype(f"u{number.nbytes}", copy=False)


def clamped(values: Values, number: Number) -> Values:
    """Convert to integers: truncated, clamped to the range, 0 for NaN."""
    low, high = number.range
    if number.bits < 8 * values.dtype.itemsize - 8:  # floats have both ends
        values = np.clip(rarely(np.isnan(values), 0.0, values), float(low), float(high))
        codes = values.astype("u4" if low == 0 and number.bits == 32 else "i4").view("u4")
    else:
        # No float is beyond the ends that lies between them and the next power of two.
        above, below = float(high + 1), float(low)
        over, under = values >= above, values <= below
        kept = rarely(~(np.absolute(values) < above), 0.0, values)
        if number.kind == "uint":
            kept = rarely(under, 0.0, kept)
        kept = kept.astype(f"{number.kind[0]}{number.nbytes}")
        codes = rarely(under, low, rarely(over, high, kept)).view(f"u{number.nbytes}")
    return low_bits(codes.astype(f"u{number.nbytes}", copy=False), number.bits)


def cut(values: Values, made: Conversion) -> Values:
    """Codes of floats with the exponent range of float32: rounded if `made` is not exact."""
    bits, number, down = values.view("u4"), made.target, 23 - made.target.mantissa
    codes = bits >> down
    if made.exact:
        return codes
    rounded = bits + ((1 << down - 1) - 1) + (codes & 1) >> down
    sign = 1 << number.bits - 1
    return rarely(np.isnan(values), lambda: codes & sign | number.nan, rounded)


def half(values: Values, made: Conversion) -> Values:
    """Codes of float16, by the processor's instructions."""
    codes, number = values.astype("f2").view("u2"), made.target
    return rarely(np.isnan(values), lambda: codes & 1 << 15 | number.nan, codes)


def rounded(values: Values, made: Conversion) -> Values:
    """Codes of floats narrower than 32 bits, rounded to the nearest, ties to even."""
    number, bits = made.target, values.view("i4")
    magnitude, sign = bits & MAGNITUDE, 1 << number.exponent + number.mantissa
    codes = nearest(magnitude, number, number.beyond(made.saturate))
    finite, nan = signed(codes, bits, number), signed(number.nan, bits, number)
    if number.special == "fnuz":  # NaN comes after the largest number; neither it nor 0 has a sign
        finite, nan = np.where(codes & sign - 1 == 0, codes, finite), number.nan
    elif number.special == "finite":  # as in ml_dtypes: NaN is zero with its sign turned around
        nan = nan ^ 2 * sign - 1
    every: Values = np.where(magnitude > INFINITY, nan, finite)
    return every & 2 * sign - 1


def nearest(magnitude: Values, number: Number, most: int) -> Values:
    """The codes of magnitudes, given as bits: the nearest up to `most`, ties to even.

    Adding a power of two whose last bit is that of the code rounds a magnitude there. The last bits
    of the sum count steps from the power of two in its first bits: these, and a constant that is
    added, too, complete the code. Bits above it are undefined.
    """
    mantissa, up, least = number.mantissa, 23 - number.mantissa, 128 - number.bias
    magnitude = np.minimum(magnitude, most + ((127 - number.bias) << mantissa) << up)
    power = np.maximum(magnitude & 0xFF << 23, least << 23).view("f4")
    begin = -(least + up << mantissa) % (1 << number.bits)
    times = 2.0**up * (1 + begin * 2.0**-23)  # exact: a power of two times a float
    total = (magnitude.view("f4") + power * times).view("i4")
    return (total >> up) + total


def signed(codes: Values, bits: Values, number: Number) -> Values:
    """Codes with the signs of float32 in signed integers; bits above the codes are undefined."""
    below = (1 << number.exponent + number.mantissa) - 1
    return codes & below | bits >> 32 - number.bits & ~below


def powers(values: Values, made: Conversion) -> Values:
    """Codes of powers of two; negative numbers become NaN, too small ones the smallest or NaN."""
    bits = single(values).view("u4")
    bits = rarely(bits == 1 << 31, 0, bits)
    if made.round_mode == "nearest":  # ties upwards, to the even significand
        codes = bits + ((1 << 22) - 1) + (bits >= 1 << 23) >> 23
    elif made.round_mode == "up":
        codes = rarely(bits <= 1 << 22, 0, bits + ((1 << 23) - 1) >> 23)
    else:
        codes = bits >> 23
    if made.saturate:
        codes, lost = np.minimum(codes, 254), bits > INFINITY
    else:
        least = 1 << 22
        lost = bits - least >= INFINITY - least
        if values.dtype == "f8":  # whose bits, rounded to odd, are no infinity
            lost = lost | (values >= 2.0**128)
    return rarely(lost, 255, codes)
