"""What becomes of blocks of floats that are encoded: the scale of each, and its codes.

Importing this module does not import numba; `encode_code` makes code of an Encoding.
"""

from __future__ import annotations

from typing import NamedTuple

from .numbers import Number

FLOAT32 = Number("float", 32, 8, 23, 127, "ieee")
LEAST = 16  # elements of a block, and of a vector of codes
LINED_UP = 16  # blocks whose scales are computed together
LIMITS = 8  # words of a block that codes of four bits are counted by: see `nearest_code.limits`
STAGED = 2 + LIMITS  # words of 32 bits that the stage has for a block

# Scales by which a fused division is exact: neither its remainders nor inverses underflow.
SAFE = 2.0**-90, 2.0**90

# Rules that only find the largest magnitude, that have one scale for all, given as the factor,
# and for which the sign of the number of largest magnitude counts.
LARGEST, FIXED, WIDEST = "largest", "fixed", "widest"


class Rule(NamedTuple):
    """The `name` of one of `scale_code`'s rules, with its numbers.

    `top` is what the largest magnitude is divided by, `more` what a scale of 0 becomes: of
    powers the fraction from which on the next one is taken.
    """

    name: str
    top: float = 1.0
    more: float = 0.0


class Encoding(NamedTuple):
    """Blocks of `block` elements of a row (0: of all), and of some rows, become codes and scales.

    Codes mean numbers of `target`, with `bias` added. Of each `lanes` elements they begin at the
    bits `places`, `step` bytes on for the next ones; without places a byte each lies side by
    side. Scales are stored as `scale`, some of them at the bits `scale_places`, `scale_step`
    bytes on for the next ones.
    """

    source: Number
    target: Number
    scale: Number
    rule: Rule
    block: int
    lanes: int = LEAST
    places: tuple[int, ...] = ()
    step: int = 0
    bias: int = 0
    scale_places: tuple[int, ...] = (0,)
    scale_step: int = 0
