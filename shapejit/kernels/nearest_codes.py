"""The nearest codes of numbers divided by the scale of their block, or multiplied with it.

The numbers are finite, and their quotients in the range of the codes but for roundings, or cut to
it. That takes half the steps of a cast, which has to know NaN and every range.

Codes of four bits take half of these again: they count the limits between codes that a magnitude
is above, which are found once for each block, as integers like the numbers themselves.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .encodings import Encoding
from .lanes import fused
from .memory import ARM64, FEATURES
from .number_vectors import WORD
from .numbers import Number
from .numerics import Values

FUSED = "fma" in FEATURES or ARM64  # whether there are fused multiply-adds
MULTIPLIES = ("widest", "magnitude", "most_or_zero", "power", "lower_power")
_TWO_LEVELS = ("two_levels", "two_inverses")
_MIDDLES = (0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0)  # of the magnitudes of float4_e2m1fn
_UNREACHED = 2.0**120  # no number of a block with the scale 0 is so large
_BELOW_HALF = 0x3EFFFFFF  # the bits of what, added to what is cut, rounds halves away from zero
_BELOW_ONE = 1 - 2.0**-24


def inverse_parts(what: Encoding) -> int:
    """The parts of an inverse that divisions of numbers of the source take; 0 if they have none."""
    if what.rule.name in MULTIPLIES or not FUSED:
        return 0
    return 1 if what.source.mantissa <= 10 else 2


def inverses(by: Values, parts: int) -> tuple[Values, ...]:
    """1 / by in so many parts, the first of which is rounded once."""
    if not parts:
        return ()
    by = np.where(by == 0, 1, by)
    first = 1 / by
    return (first,) if parts == 1 else (first, _left(by.constant(1), first, by) * first)


def coded(
    what: Encoding, x: Values, signs: Values, by: Values, inverse: tuple[Values, ...]
) -> Values:
    """The codes of numbers of blocks with scales `by`, whose inverses are at hand, too.

    They stand in 32 bits, of which the upper ones are open. Of floats `x` are the magnitudes, and
    the first bits of `signs` tell their signs.
    """
    value = _scaled(what, x, by, inverse)
    codes = _float(value, signs, what) if what.target.kind == "float" else _int(value, what)
    if what.rule.name in _TWO_LEVELS:
        codes = np.where(by == 0, 0, codes)
    return codes + what.bias if what.bias else codes


def _scaled(what: Encoding, x: Values, by: Values, inverse: tuple[Values, ...]) -> Values:
    return x * by if what.rule.name in MULTIPLIES else _quotient(x, by, inverse)


def _quotient(x: Values, by: Values, inverse: tuple[Values, ...]) -> Values:
    """x / by, rounded once: the inverse gives a neighbour of it, then Markstein's theorem says
    that one step more is exact.

    That neighbour takes both parts of the inverse; for numbers of 11 bits or fewer the first is
    enough, as all of them by all scales have shown.
    """
    if not inverse:
        return x / by
    first, *rest = inverse
    near = x * first
    if rest:
        near = fused(x, first, x * rest[0])
    return fused(_left(x, near, by), first, near)


def _left(x: Values, quotient: Values, by: Values) -> Values:
    """x - quotient * by."""
    return fused(-quotient, by, x)


# Floats


def _float(size: Values, signs: Values, what: Encoding) -> Values:
    """The code of the nearest number, halves to even, or towards zero by `lower_power`.

    To a magnitude a power of two is added whose last bit is that of the code: the sum is
    rounded there. Its last bits count steps from the power of two on that its first ones tell,
    and from what makes the code of both when they are added.
    """
    number, lower = what.target, what.rule.name == "lower_power"
    up, least, top = 23 - number.mantissa, 128 - number.bias, 1 << (number.bits - 1)
    if lower and not FUSED:
        codes = _lower(size)
    else:
        bits = size.view("i4")
        if not _fits(what):
            bits = np.minimum(bits, _float_bits(number))
        power = np.maximum(bits & 0xFF << 23, least << 23).view("f4")
        above = bits.view("f4")
        begin = -(least + up << number.mantissa) % top
        times = 2.0**up * (1 + begin * 2.0**-23)  # exact: a power of two times a float
        if lower:
            made = fused(above, _BELOW_ONE, power * times)
        elif FUSED:
            made = fused(power, times, above)
        else:
            made = above + power * times
        codes = made.view("u4")
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
    """The codes of magnitudes in float4_e2m1fn, halves towards zero, without fused steps."""
    codes = (size > _MIDDLES[0]).astype("u4")
    for middle in _MIDDLES[1:]:
        codes = codes + (size > middle).astype("u4")
    return codes


# Floats of four bits


def is_counted(what: Encoding) -> bool:
    """Whether the codes of an Encoding are counted."""
    return what.target.kind == "float" and what.target.bits == 4 and what.source[:4] == WORD


def limits(what: Encoding, by: Values, inverse: tuple[Values, ...]) -> list[Values]:
    """For each code but 0 the largest bfloat16 that has a lesser one.

    It is the bfloat16 nearest to where both are equally near, or the one before: what is scaled
    shows which. Then come the bits of signs, where blocks with the scale 0 have none. Each stands
    in both halves of 32 bits.
    """
    lower, by_zero = what.rule.name == "lower_power", by == 0
    scale: Values = np.where(by_zero, _UNREACHED, 1 / by if what.rule.name in MULTIPLIES else by)
    made = list[Values]()
    for code, middle in enumerate(_MIDDLES, 1):
        if code > 4 and "power" not in what.rule.name:  # an octave above: no number is subnormal
            made.append(made[code - 3] + (1 << 7 | 1 << 23))
            continue
        near: Values = (scale * middle).view("u4") + (1 << 15) & 0xFFFF << 16
        value = _scaled(what, near.view("f4"), by, inverse)
        above = value >= middle if code % 2 == 0 and not lower else value > middle
        near = near - np.where(above, near.constant(1 << 16), 0)
        made.append(near | near >> 16)
    if what.rule.name in _TWO_LEVELS:
        made.append(np.where(by_zero, by.constant(0, "u4"), 1 << 3 | 1 << 19))
    return made


def counted(what: Encoding, codes: Values, limits: Sequence[Values]) -> Values:
    """The codes of numbers of the source, given the limits of their blocks."""
    size = (codes & (1 << 15) - 1).view("i2")
    above = [size > limit.view("i2") for limit in limits[: len(_MIDDLES)]]
    made = codes >> 12 & (limits[-1] if what.rule.name in _TWO_LEVELS else 1 << 3)
    if _has_one_zero(what):
        made = np.where(above[0], made, 0)
    for each in above:
        made = made + each.astype("u2")
    return made


# Integers


def _int(value: Values, what: Encoding) -> Values:
    """Codes of integers, whose middle is that of the numbers."""
    name, top, most = what.rule.name, what.rule.top, (1 << what.target.bits) - 1
    if name == "widest":
        return np.minimum((value + (top + 0.5)).astype("i4"), most)
    if name == "magnitude":
        half = value.view("u4") & 1 << 31 | _BELOW_HALF
        return (value + half.view("f4")).astype("i4") + 128
    return np.clip(np.rint(value).astype("i4") + int(top + 1) // 2, 0, most)


def _fits(what: Encoding) -> bool:
    """Whether no magnitude is beyond the largest number by as much as would be rounded up.

    By 7/8 of a power the next one is taken; float16 may have less than three bits for a scale.
    """
    name, rule = what.rule.name, what.rule
    return (name == "power" and rule.more < 1) or (
        name in ("most", "fixed") and what.scale.exponent == 8
    )


def _float_bits(number: Number) -> int:
    """The bits of the float32 that is the largest number of a narrower float."""
    code, mantissa = number.largest, number.mantissa
    return (code + ((127 - number.bias) << mantissa)) << (23 - mantissa)
