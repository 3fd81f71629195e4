"""Generator of the scales of blocks by the rules of `quantization.rules`, several at once.

Each function has the steps of the rule of that name, in float32 and in the same order.
"""

from __future__ import annotations

from collections.abc import Callable
from math import frexp

import numpy as np

from .encodings import FLOAT32, LARGEST, SAFE, Encoding
from .nearest_codes import MULTIPLIES
from .number_vectors import decoded, encoded
from .numbers import Conversion
from .numerics import Values

# Stored scales, the scales of elements, and a mask of blocks that NumPy has to encode.
Scales = tuple[Values, Values, Values]


def scales(what: Encoding, most: Values, factor: Values) -> Scales:
    """The scales of blocks with largest numbers `most`; `factor` is common to all."""
    stored, by, rare = _RULES[what.rule.name](what, most, factor)
    rare = rare | _is_infinite(most)
    if what.rule.name not in (*MULTIPLIES, LARGEST):
        rare = rare | _is_unsafe(by)
    return stored, by, rare


def _is_unsafe(by: Values) -> Values:
    """A mask of scales that are unsafe divisors; numbers divided by 0 have code 0."""
    least, most = SAFE
    return ~((by >= least) & (by <= most) | (by == 0))


def _is_infinite(x: Values) -> Values:
    """A mask of infinities and NaNs."""
    return ~(np.absolute(x) < np.inf)


# Rules


def _most(what: Encoding, most: Values, factor: Values) -> Scales:
    return _divided(what, _instead(most / what.rule.top, 1))


def _range(what: Encoding, most: Values, factor: Values) -> Scales:
    return _divided(what, _instead(most / (what.rule.top / 2), what.rule.more))


def _divided(what: Encoding, scale: Values) -> Scales:
    """Stored scales; elements are divided by these."""
    stored = _rounded(what, scale)
    by = _read(what, stored)
    return stored, by, by == 0


def _power(what: Encoding, most: Values, factor: Values) -> Scales:
    """The inverse of a power of two is exact, so products equal quotients."""
    one, (_, largest) = 1 << 23, frexp(what.rule.top)
    up = one - int((2 * what.rule.more - 1) * one)
    exponent = (most.view("u4") + up >> 23).view("i4") - (largest - 1)
    exponent = np.clip(exponent, 0, 254)
    inverse = np.where(exponent == 254, 1 << 22, (254 - exponent) << 23)
    by = inverse.view("f4")
    if what.rule.name == "lower_power":  # the least bit less, ties are nearer to zero
        by = by * (1 - 2.0**-24)
    return exponent.view("u4").astype("u1"), by, _none(most)


def _two_levels(what: Encoding, most: Values, factor: Values) -> Scales:
    stored = _rounded(what, most / (6 * factor))
    found = _read(what, stored)
    if what.rule.more:  # is stored for blocks of zeros
        stored = np.where(found == 0, _rounded(what, most.constant(what.rule.more)), stored)
    return stored, found * factor, _none(most)


def _two_inverses(what: Encoding, most: Values, factor: Values) -> Scales:
    stored, more = _rounded(what, factor * (most / 6)), most.constant(what.rule.more)
    scale = _read(what, stored)
    stored = np.where(scale == 0, _rounded(what, more), stored)
    return stored, _instead(scale, what.rule.more) / factor, _none(most)


def _most_or_zero(what: Encoding, most: Values, factor: Values) -> Scales:
    stored = _rounded(what, most / what.rule.top)
    return stored, _inverse(_read(what, stored)), _none(most)


def _widest(what: Encoding, most: Values, factor: Values) -> Scales:
    return _multiplied(what, most / -what.rule.top)


def _magnitude(what: Encoding, most: Values, factor: Values) -> Scales:
    return _multiplied(what, most / what.rule.top)


def _multiplied(what: Encoding, scale: Values) -> Scales:
    """Stored scales; elements are multiplied with the scales before rounding."""
    by = _inverse(scale)
    return _rounded(what, scale), by, _is_infinite(by)


def _largest(what: Encoding, most: Values, factor: Values) -> Scales:
    return _rounded(what, most), most, _none(most)


_RULES: dict[str, Callable[[Encoding, Values, Values], Scales]] = {
    "most": _most,
    "range": _range,
    "power": _power,
    "lower_power": _power,
    "two_levels": _two_levels,
    "two_inverses": _two_inverses,
    "most_or_zero": _most_or_zero,
    "widest": _widest,
    "magnitude": _magnitude,
    "largest": _largest,
}


# Steps


def _none(x: Values) -> Values:
    return x.constant(0, "?")


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
