"""What numbers mean, and how they are rounded: expressions over NumPy's arrays, or over Lanes.

Kernels are generated from these functions, and NumPy evaluates them where no kernel is used (see
`plain_conversions`): so both compute the same bits. Codes are unsigned integers, or signed ones
where LLVM compares these in fewer steps.

A *word* is a bfloat16, or a float32 truncated to one, or rounded to odd: its last bit is set if any
lower bit was. Rounding such a word to six digits or fewer is equal to rounding the float32.
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
NEGATIVE_NAN = NAN - (1 << 31)  # in a signed integer
FRACTION = 7  # bits of a word after the leading one
WORD_INFINITY = INFINITY >> 16


def rarely(test: Values, made: Values, values: Values) -> Values:
    """`values`, replaced by `made` where a test holds; arrays skip this if it never holds."""
    if isinstance(test, np.ndarray) and not test.any():
        return values
    return np.where(test, made() if callable(made) else made, values)


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
    return values & ((1 << target.bits) - 1) if target.bits < 8 else values


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
    codes = codes + (bias & (1 << 8 * codes.dtype.itemsize) - 1)
    return codes & (1 << bits) - 1 if bits < 8 else codes


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


def encoded(values: Values, made: Conversion, narrow: Round) -> Values:
    """The codes of floats of the conversion's arithmetic.

    `narrow` rounds them to floats of 16 bits or fewer.
    """
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
    codes = codes.astype(f"u{number.nbytes}", copy=False)
    return codes & ((1 << number.bits) - 1) if number.bits < 8 else codes


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
    mantissa, bias, down = number.mantissa, number.bias, 23 - number.mantissa
    magnitude = bits & 0x7FFFFFFF
    half = (magnitude >> down & 1) + ((1 << down - 1) - 1)
    codes = (magnitude + half >> down) - ((127 - bias) << mantissa)
    # Adding a number whose last bit is the smallest subnormal number rounds to it.
    least = magnitude.view("f4") + 2.0 ** (24 - bias - mantissa)
    least = least.view("i4") - ((151 - bias - mantissa) << 23)
    codes = np.where(magnitude < (128 - bias) << 23, least, codes)
    return finished(codes, magnitude > INFINITY, bits, made)


def finished(codes: Values, lost: Values, signs: Values, made: Conversion) -> Values:
    """Rounded codes, completed by overflow, NaN and signs (the top bits of `signs`)."""
    number, top = made.target, made.target.exponent + made.target.mantissa
    most = number.infinity if number.special == "ieee" else number.largest + 1
    codes = np.where(codes >= most, number.beyond(made.saturate), codes)
    sign = signs >> 8 * codes.dtype.itemsize - 1 - top & (1 << top)
    if number.special == "finite":
        # As in ml_dtypes: NaN is zero with its sign turned around.
        sign = sign ^ (lost.astype(codes.dtype) << top)
        return np.where(lost, 0, codes) | sign
    if number.special == "fnuz":
        signed = np.where(codes == 0, codes, codes | sign)
        if not made.saturate:
            signed = np.where(codes == number.nan, codes, signed)
        return np.where(lost, number.nan, signed)
    return np.where(lost, number.nan, codes) | sign


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


# By words, for which there is an instruction that shifts each lane by a count of its own


def nearest_words(words: Values, made: Conversion) -> Values:
    """The codes of a narrower float: the nearest, ties to even."""
    number = made.target
    mantissa, first = number.mantissa, 128 - number.bias
    exponent, digits = _parts_of(words)
    # Subnormal numbers lose more bits: all have the exponent of the smallest normal one.
    kept = FRACTION - mantissa
    more = first + kept - exponent
    down = np.where(more > kept, more, kept).view("u2")
    half = (digits | 0xFFFF) >> 17 - down
    codes = digits + half + (digits >> down & 1) >> down
    above = np.where(exponent > first, exponent, first) - first
    codes = codes.view("i2") + (above << mantissa)
    return finished(codes, _lost(words), words.view("i2"), made)


def whole_words(words: Values, number: Number) -> Values:
    """Convert bfloat16 to integers: truncated, clamped to the range, 0 for NaN."""
    exponent, digits = _parts_of(words)
    top = number.bits - 1 if number.kind == "int" else number.bits
    values = digits >> (127 + FRACTION - exponent).view("u2")
    over = words & 0x7FFF >= (127 + top) << FRACTION
    values = np.where(over, (1 << top) - 1, values)
    minus = (words.view("i2") >> 15).view("u2")
    if number.kind == "int":
        # Turned around, the largest integer is the least one where it is what lies beyond.
        values = (values ^ minus) - np.where(over, 0, minus)
    else:
        values = values & ~minus
    codes = np.where(_lost(words), 0, values).astype("u1")
    return codes & ((1 << number.bits) - 1) if number.bits < 8 else codes


def _lost(words: Values) -> Values:
    """A mask of the words that are NaN."""
    return words & 0x7FFF > WORD_INFINITY


def _parts_of(words: Values) -> tuple[Values, Values]:
    """The exponents, and all digits including the leading one, which zero has here, too."""
    leading = 1 << FRACTION
    exponent = (words & 0x7FFF) >> FRACTION
    return exponent.view("i2"), words & leading - 1 | leading
