"""Encoding: how blocks of floats become codes with a scale per block.

Importing this module does not import numba; `encode_generator` makes code of an Encoding.
"""

from __future__ import annotations

from typing import NamedTuple

from .numbers import Number

FLOAT32 = Number("float", 32, 8, 23, 127, "ieee")
SCALES_AT_ONCE = 16  # blocks whose scales are computed together
STAGED = 3  # words of 32 bits that the stage has for a block

# Scales that are divided by: smaller ones have few digits, so that quotients may be too large.
SAFE = 2.0**-90, 2.0**90

# Rules that only find the largest magnitude, and that have one scale for all, given as the factor.
LARGEST, FIXED = "largest", "fixed"


class ScaleRule(NamedTuple):
    """The `name` of a rule of `encoding_rules`, with its numbers.

    `top` is the divisor of the largest magnitude. `more` replaces a scale of 0; for powers, it is
    the fraction from which the next power is taken. `signed`: the sign of the number of largest
    magnitude counts.
    """

    name: str
    top: float = 1.0
    more: float = 0.0
    signed: bool = False


class Encoding(NamedTuple):
    """Blocks of `block` elements of a row (0: of all), and of some rows, become codes and scales.

    Codes are numbers of `target`, with `bias` added. Those of several elements begin at the bits
    `places`, those of the next ones `step` bytes further; without places, codes are contiguous
    bytes. Scales are stored as `scale`, some of them at the bytes `scale_places`, the next ones
    `scale_step` bytes further.
    """

    source: Number
    target: Number
    scale: Number
    rule: ScaleRule
    block: int
    places: tuple[int, ...] = ()
    step: int = 0
    bias: int = 0
    scale_places: tuple[int, ...] = (0,)
    scale_step: int = 0
