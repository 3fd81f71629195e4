"""The float of largest magnitude in each block, found by comparing integers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np

from .numerics import Values


def magnitudes(codes: Values) -> Values:
    """Codes of floats, as unsigned integers, without their signs."""
    return codes & (1 << 8 * codes.dtype.itemsize - 1) - 1


def largest(vectors: Sequence[Values], count: int, signed: bool) -> Values:
    """The codes of largest magnitude of `count` blocks, whose codes fill vectors one by one.

    Neighbours are compared in several rounds: a block has a power of two of codes. If not `signed`,
    codes have lost their signs, and vectors of one block are compared as such; else each result is
    the first of its magnitude.
    """

    def above(a: Values, b: Values) -> Values:
        first, second = (magnitudes(a), magnitudes(b)) if signed else (a, b)
        return np.where(first >= second, a, b)

    def pairs(a: Values, b: Values | None) -> Values:
        even = list(range(0, a.count if b is None else 2 * a.count, 2))
        return above(a.chosen(even, b), a.chosen([k + 1 for k in even], b))

    several = 1 if signed else max(1, len(vectors) // count)
    vectors = [reduce(above, vectors[k : k + several]) for k in range(0, len(vectors), several)]
    while sum(codes.count for codes in vectors) > count:
        seconds = vectors[1::2] or [None]
        vectors = [pairs(a, b) for a, b in zip(vectors[::2], seconds, strict=True)]
    return vectors[0].astype("u4")
