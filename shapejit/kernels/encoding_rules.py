"""The rules of `quantization.rules` for kernels: the scales of blocks, and their codes.

A row of `_RULES` is what a rule does. Its functions have the steps of NumPy's, in float32 and in
the same order; scales are computed for several blocks at once.
"""

from __future__ import annotations

from collections.abc import Callable
from math import frexp
from typing import NamedTuple

import numpy as np

from . import numerics
from .encodings import FIXED, FLOAT32, LARGEST, SAFE, Encoding
from .number_vectors import decoded, encoded
from .numbers import Conversion
from .numerics import Values

_BELOW_HALF = 0x3EFFFFFF  # the bits of what, added to what is cut, rounds halves away from zero


def scales(what: Encoding, most: Values, factor: Values) -> tuple[Values, Values, Values]:
    """The stored scales of blocks with largest numbers `most`; `factor` is common to all.

    Also what `coded` divides or multiplies by, and a mask of blocks that NumPy has to encode.
    """
    rule = _RULES[what.rule.name]
    stored, by = rule.scales(what, most, factor)
    good = _is_finite(by) if rule.multiplies else _is_safe(by)
    if rule.zero_divisors:
        good = good | (by == 0)
    return stored, by, ~(good & _is_finite(most))


def coded(what: Encoding, x: Values, by: Values) -> Values:
    """The codes of finite numbers of blocks, in the low bits of 32."""
    rule = _RULES[what.rule.name]
    value = x * by if rule.multiplies else x / by
    if what.target.kind == "float":
        codes = _floats(value, what, rule.negative_zeros)
    else:
        codes = rule.integers(value, 1 << what.target.bits - 1)
    if rule.zero_divisors:
        codes = np.where(by == 0, 0, codes)
    return codes + what.bias if what.bias else codes


# Scales: what is stored, and what elements are divided or multiplied by


def _divisor(what: Encoding, most: Values, _: Values) -> tuple[Values, Values]:
    stored = _rounded(what, _instead(most / what.rule.top, what.rule.more))
    return stored, _read(what, stored)


def _two_levels(what: Encoding, most: Values, factor: Values) -> tuple[Values, Values]:
    stored = _rounded(what, most / (what.rule.top * factor))
    found = _read(what, stored)
    if what.rule.more:  # is stored for blocks of zeros
        stored = np.where(found == 0, _rounded(what, most.constant(what.rule.more)), stored)
    return stored, found * factor


def _two_inverses(what: Encoding, most: Values, factor: Values) -> tuple[Values, Values]:
    stored, more = _rounded(what, factor * (most / what.rule.top)), most.constant(what.rule.more)
    scale = _read(what, stored)
    stored = np.where(scale == 0, _rounded(what, more), stored)
    return stored, _instead(scale, what.rule.more) / factor


def _power(what: Encoding, most: Values, _: Values) -> tuple[Values, Values]:
    """The inverse of a power of two is exact, so products equal quotients."""
    one, (_, largest) = 1 << 23, frexp(what.rule.top)
    up = one - int((2 * what.rule.more - 1) * one)
    exponent = (most.view("u4") + up >> 23).view("i4") - (largest - 1)
    exponent = np.clip(exponent, 0, 254)
    by = np.where(exponent == 254, 1 << 22, (254 - exponent) << 23).view("f4")
    return exponent.view("u4").astype("u1"), by


def _lower_power(what: Encoding, most: Values, factor: Values) -> tuple[Values, Values]:
    stored, by = _power(what, most, factor)
    return stored, by * (1 - 2.0**-24)  # the least bit less: ties are nearer to zero


def _stored_inverse(what: Encoding, most: Values, _: Values) -> tuple[Values, Values]:
    stored = _rounded(what, most / what.rule.top)
    return stored, _inverse(_read(what, stored))


def _exact_inverse(what: Encoding, most: Values, _: Values) -> tuple[Values, Values]:
    scale = most / what.rule.top
    return _rounded(what, scale), _inverse(scale)


def _largest(what: Encoding, most: Values, _: Values) -> tuple[Values, Values]:
    return _rounded(what, most), most


# Codes


def _floats(value: Values, what: Encoding, negative_zeros: bool) -> Values:
    """Codes of floats; a cast, which handles NaN, takes a third longer."""
    number, bits = what.target, value.view("i4")
    codes = numerics.nearest(bits & numerics.MAGNITUDE, number, number.largest)
    made = numerics.signed(codes, bits, number)
    magnitudes = codes & (1 << number.bits - 1) - 1
    return made if negative_zeros else np.where(magnitudes == 0, codes, made)


def _half_to_even(value: Values, half: int) -> Values:
    """Codes of integers whose range is centred like that of the numbers; ties to even."""
    return np.clip(np.rint(value).astype("i4") + half, 0, 2 * half - 1)


def _half_up(value: Values, half: int) -> Values:
    return np.minimum((value + (half + 0.5)).astype("i4"), 2 * half - 1)


def _half_away(value: Values, half: int) -> Values:
    signed_half = value.view("u4") & 1 << 31 | _BELOW_HALF
    return (value + signed_half.view("f4")).astype("i4") + half


# Rules


class _Rule(NamedTuple):
    """What a rule does: its `scales`, and what it makes of numbers.

    Numbers are divided by what `scales` returns, or multiplied; if it may be a zero, quotients by
    it have the code 0. `integers` rounds to integers. Codes of floats may be negative zeros.
    """

    scales: Callable[[Encoding, Values, Values], tuple[Values, Values]]
    multiplies: bool = False
    zero_divisors: bool = False
    integers: Callable[[Values, int], Values] = _half_to_even
    negative_zeros: bool = True


_RULES = {
    FIXED: _Rule(_divisor),  # which is known before
    LARGEST: _Rule(_largest, multiplies=True),  # there are no codes
    "absmax": _Rule(_divisor),
    "absmax_or_zero": _Rule(_stored_inverse, multiplies=True, negative_zeros=False),
    "signed_absmax": _Rule(_exact_inverse, multiplies=True, integers=_half_up),
    "magnitude": _Rule(_exact_inverse, multiplies=True, integers=_half_away),
    "power": _Rule(_power, multiplies=True),
    "lower_power": _Rule(_lower_power, multiplies=True, negative_zeros=False),
    "two_levels": _Rule(_two_levels, zero_divisors=True),
    "two_inverses": _Rule(_two_inverses, zero_divisors=True),
}


# Steps


def _is_safe(by: Values) -> Values:
    """A mask of scales by which numbers may be divided."""
    least, most = SAFE
    return (by >= least) & (by <= most)


def _is_finite(x: Values) -> Values:
    return np.absolute(x) < np.inf


def _instead(x: Values, other: float) -> Values:
    """Numbers with 0 replaced by another one."""
    return np.where(x == 0, other, x)


def _inverse(x: Values) -> Values:
    """1 / x, 0 for 0."""
    return np.where(x == 0, 0, 1 / _instead(x, 1))


def _rounded(what: Encoding, scale: Values) -> Values:
    return encoded(scale, Conversion(FLOAT32, what.scale, 32, "quantize"))


def _read(what: Encoding, stored: Values) -> Values:
    return decoded(stored, Conversion(what.scale, FLOAT32, 32))
