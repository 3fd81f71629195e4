"""The codes nearest to numbers divided or multiplied by the scale of their block.

The numbers are finite, and their quotients within the range of the codes up to rounding, or clamped
to it. That takes half the steps of a cast, which handles NaN and every range.
"""

from __future__ import annotations

import numpy as np

from .encodings import Encoding
from .numbers import Number
from .numerics import Values

MULTIPLIES = ("widest", "magnitude", "most_or_zero", "power", "lower_power")
_TWO_LEVELS = ("two_levels", "two_inverses")
_BELOW_HALF = 0x3EFFFFFF  # the bits of what, added to what is cut, rounds halves away from zero


def coded(what: Encoding, x: Values, signs: Values, by: Values) -> Values:
    """The codes of numbers of blocks with scales `by`.

    They are in the low bits of 32; the upper bits are undefined. Of floats `x` are the magnitudes,
    and the first bits of `signs` their signs.
    """
    value = x * by if what.rule.name in MULTIPLIES else x / by
    codes = _float(value, signs, what) if what.target.kind == "float" else _int(value, what)
    if what.rule.name in _TWO_LEVELS:
        codes = np.where(by == 0, 0, codes)
    return codes + what.bias if what.bias else codes


# Floats


def _float(size: Values, signs: Values, what: Encoding) -> Values:
    """The code of the nearest number; ties to even, or towards zero by `lower_power`.

    Adding a power of two whose last bit is that of the code rounds a magnitude there. The last bits
    of the sum count steps from the power of two in its first bits: adding a constant to both gives
    the code.
    """
    number = what.target
    up, least, top = 23 - number.mantissa, 128 - number.bias, 1 << (number.bits - 1)
    if what.rule.name == "lower_power":
        codes = _lower(size)
    else:
        bits = size.view("i4")
        if not _fits(what):
            bits = np.minimum(bits, _float_bits(number))
        power = np.maximum(bits & 0xFF << 23, least << 23).view("f4")
        above = bits.view("f4")
        begin = -(least + up << number.mantissa) % top
        times = 2.0**up * (1 + begin * 2.0**-23)  # exact: a power of two times a float
        codes = (above + power * times).view("u4")
        codes = (codes >> up) + codes
    codes = codes & ~top
    signed = codes | (signs >> 32 - number.bits & top)
    if _has_one_zero(what):
        return np.where(codes & top - 1 == 0, codes, signed)
    return signed


def _has_one_zero(what: Encoding) -> bool:
    """Whether no negative number becomes the code of -0."""
    name = what.rule.name
    return name == "lower_power" or (name == "most_or_zero" and what.target.bits == 4)


def _lower(size: Values) -> Values:
    """The codes of magnitudes in float4_e2m1fn, ties towards zero."""
    normal = (size.view("u4") + ((1 << 21) - 1) >> 22) - (126 << 1)
    subnormal = (size > 0.25).astype("u4") + (size > 0.75).astype("u4")
    return np.where(size < 1, subnormal, np.minimum(normal, 7))


# Integers


def _int(value: Values, what: Encoding) -> Values:
    """Codes of integers whose range is centred like that of the numbers."""
    name, top, most = what.rule.name, what.rule.top, (1 << what.target.bits) - 1
    if name == "widest":
        return np.minimum((value + (top + 0.5)).astype("i4"), most)
    if name == "magnitude":
        half = value.view("u4") & 1 << 31 | _BELOW_HALF
        return (value + half.view("f4")).astype("i4") + 128
    return np.clip(np.rint(value).astype("i4") + int(top + 1) // 2, 0, most)


def _fits(what: Encoding) -> bool:
    """Whether no magnitude exceeds the largest number by so much that it would be rounded up.

    With a threshold of 7/8 the next power is taken; the scale of a float16 may have less than three
    bits.
    """
    name, rule = what.rule.name, what.rule
    return (name == "power" and rule.more < 1) or (
        name in ("most", "fixed") and what.scale.exponent == 8
    )


def _float_bits(number: Number) -> int:
    """The bits of the float32 that is the largest number of a narrower float."""
    code, mantissa = number.largest, number.mantissa
    return (code + ((127 - number.bias) << mantissa)) << (23 - mantissa)
