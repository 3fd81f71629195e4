"""Generator of the scales of blocks by the rules of `quantization.rules`, several at once.

Each function has the steps of the rule of that name, in float32 and in the same order.
"""

from __future__ import annotations

from collections.abc import Callable
from math import frexp

import numpy as np

from .encodings import FLOAT32, SAFE, Encoding
from .number_vectors import decoded, encoded
from .numbers import Conversion
from .numerics import Values

# Stored scales, the scales of elements, and a mask of blocks that NumPy has to encode.
Scales = tuple[Values, Values, Values]


def scales(what: Encoding, most: Values, factor: Values) -> Scales:
    """The scales of blocks with largest numbers `most`; `factor` is common to all."""
    stored, by, rare = _RULES[what.rule.name](what, most, factor)
    return stored, by, rare | _is_infinite(most)


def _divided(what: Encoding, most: Values, factor: Values) -> Scales:
    stored = _rounded(what, _instead(most / what.rule.top, what.rule.more))
    by = _read(what, stored)
    return stored, by, ~_is_safe(by)


def _two_levels(what: Encoding, most: Values, factor: Values) -> Scales:
    stored = _rounded(what, most / (what.rule.top * factor))
    found = _read(what, stored)
    if what.rule.more:  # is stored for blocks of zeros
        stored = np.where(found == 0, _rounded(what, most.constant(what.rule.more)), stored)
    by = found * factor
    return stored, by, ~(_is_safe(by) | (by == 0))


def _two_inverses(what: Encoding, most: Values, factor: Values) -> Scales:
    stored, more = _rounded(what, factor * (most / what.rule.top)), most.constant(what.rule.more)
    scale = _read(what, stored)
    stored = np.where(scale == 0, _rounded(what, more), stored)
    by = _instead(scale, what.rule.more) / factor
    return stored, by, ~(_is_safe(by) | (by == 0))


def _power(what: Encoding, most: Values, factor: Values) -> Scales:
    """The inverse of a power of two is exact, so products equal quotients."""
    one, (_, largest) = 1 << 23, frexp(what.rule.top)
    up = one - int((2 * what.rule.more - 1) * one)
    exponent = (most.view("u4") + up >> 23).view("i4") - (largest - 1)
    exponent = np.clip(exponent, 0, 254)
    by = np.where(exponent == 254, 1 << 22, (254 - exponent) << 23).view("f4")
    if what.rule.name == "lower_power":  # the least bit less: ties are nearer to zero
        by = by * (1 - 2.0**-24)
    return exponent.view("u4").astype("u1"), by, most.constant(0, "?")


def _most_or_zero(what: Encoding, most: Values, factor: Values) -> Scales:
    stored = _rounded(what, most / what.rule.top)
    return stored, _inverse(_read(what, stored)), most.constant(0, "?")


def _multiplied(what: Encoding, most: Values, factor: Values) -> Scales:
    scale = most / what.rule.top
    by = _inverse(scale)
    return _rounded(what, scale), by, _is_infinite(by)


def _largest(what: Encoding, most: Values, factor: Values) -> Scales:
    return _rounded(what, most), most, most.constant(0, "?")


_RULES: dict[str, Callable[[Encoding, Values, Values], Scales]] = {
    "most": _divided,
    "range": _divided,
    "power": _power,
    "lower_power": _power,
    "two_levels": _two_levels,
    "two_inverses": _two_inverses,
    "most_or_zero": _most_or_zero,
    "widest": _multiplied,
    "magnitude": _multiplied,
    "largest": _largest,
}


# Steps


def _is_safe(by: Values) -> Values:
    """A mask of scales by which numbers may be divided."""
    least, most = SAFE
    return (by >= least) & (by <= most)


def _is_infinite(x: Values) -> Values:
    """A mask of infinities and NaNs."""
    return ~(np.absolute(x) < np.inf)


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
