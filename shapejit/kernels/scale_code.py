"""The scales of blocks by the rules of `quantization.rules`, several blocks in a vector.

Each does the steps of the rule whose name it has, in float32 and in the same order.
"""

from __future__ import annotations

from collections.abc import Callable
from math import frexp

import numpy as np

from .encodings import FLOAT32, LARGEST, SAFE, Encoding
from .nearest_code import MULTIPLIES
from .number_vectors import decoded, encoded
from .numbers import Conversion
from .numerics import Values

# Scales as they are stored, what elements are scaled by, and which blocks NumPy has to encode.
Scales = tuple[Values, Values, Values]


def scales(what: Encoding, most: Values, factor: Values) -> Scales:
    """The scales of blocks whose largest numbers are `most`; the `factor` is that of all."""
    stored, by, rare = _RULES[what.rule.name](what, most, factor)
    rare = rare | _is_infinite(most)
    if what.rule.name not in (*MULTIPLIES, LARGEST):
        rare = rare | _is_unsafe(by)
    return stored, by, rare


def _is_unsafe(by: Values) -> Values:
    """Which scales are not fit to divide by; codes of all that is divided by 0 are 0."""
    least, most = SAFE
    return ~((by >= least) & (by <= most) | (by == 0))


def _is_infinite(x: Values) -> Values:
    """Which numbers are infinite, or NaN."""
    return ~(np.absolute(x) < np.inf)


# Rules


def _most(what: Encoding, most: Values, factor: Values) -> Scales:
    return _divided(what, _instead(most / what.rule.top, 1))


def _range(what: Encoding, most: Values, factor: Values) -> Scales:
    return _divided(what, _instead(most / (what.rule.top / 2), what.rule.more))


def _divided(what: Encoding, scale: Values) -> Scales:
    """Scales as they are stored, by which elements are divided."""
    stored = _rounded(what, scale)
    by = _read(what, stored)
    return stored, by, by == 0


def _power(what: Encoding, most: Values, factor: Values) -> Scales:
    """The inverse of a power of two is exact: a product has the bits of the quotient."""
    one, (_, largest) = 1 << 23, frexp(what.rule.top)
    up = one - int((2 * what.rule.more - 1) * one)
    exponent = (most.view("u4") + up >> 23).view("i4") - (largest - 1)
    exponent = np.clip(exponent, 0, 254)
    inverse = np.where(exponent == 254, 1 << 22, (254 - exponent) << 23)
    return exponent.view("u4").astype("u1"), inverse.view("f4"), _none(most)


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
    """Scales as they are stored; elements are multiplied with what they were before."""
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
    """Numbers, and another one instead of 0."""
    return np.where(x == 0, other, x)


def _inverse(x: Values) -> Values:
    """1 / x, 0 for 0."""
    return np.where(x == 0, 0, 1 / _instead(x, 1))


def _rounded(what: Encoding, scale: Values) -> Values:
    return encoded(scale, Conversion(FLOAT32, what.scale, 32, "quantize"), scale)


def _read(what: Encoding, stored: Values) -> Values:
    return decoded(stored, Conversion(what.scale, FLOAT32, 32))
