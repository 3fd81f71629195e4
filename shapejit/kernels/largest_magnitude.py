"""The float of largest magnitude in each block, found by comparing integers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np

from . import llvm
from .encodings import LEAST
from .lanes import Lanes, called, load, type_of
from .memory import VECTOR
from .numerics import Values


def magnitudes(codes: Values) -> Values:
    """Codes of floats, as unsigned integers, without their signs."""
    return codes & (1 << 8 * codes.dtype.itemsize - 1) - 1


# Of several blocks, one after the other


def of_blocks(begin: Values, dtype: str, block: int, count: int, signed: bool) -> Values:
    """The largest magnitudes of `count` blocks, whose sizes are powers of two.

    Neighbours are compared in several rounds. If `signed`, each is the first code of that
    magnitude, with its sign. The codes of a long block are compared vector by vector, unless their
    order counts.
    """
    size = np.dtype(dtype).itemsize
    fit = min(block * count, max(LEAST, VECTOR // size))
    long = 1 if signed else max(1, block // fit)

    def loaded(at: int) -> Values:
        codes = load(begin + at * size, dtype, fit)
        return codes if signed else magnitudes(codes)

    def above(a: Values, b: Values) -> Values:
        first, second = (magnitudes(a), magnitudes(b)) if signed else (a, b)
        return np.where(first >= second, a, b)

    def pairs(a: Values, b: Values | None) -> Values:
        even = list(range(0, a.count if b is None else 2 * a.count, 2))
        return above(a.chosen(even, b), a.chosen([k + 1 for k in even], b))

    starts = range(0, block * count, fit * long)
    vectors = [reduce(above, map(loaded, range(at, at + fit * long, fit))) for at in starts]
    while sum(codes.count for codes in vectors) > count:
        seconds = vectors[1::2] or [None]
        vectors = [pairs(a, b) for a, b in zip(vectors[::2], seconds, strict=True)]
    return vectors[0].astype("u4")


class Largest:
    """The largest magnitude of one block, whose codes are passed in vectors of `lanes`."""

    def __init__(self, builder: Any, dtype: str, lanes: Sequence[int]) -> None:
        self.builder, self.dtype = builder, np.dtype(dtype)
        self.kept = {n: builder.alloca(type_of(dtype, n)) for n in lanes}

    def clear(self) -> None:
        """Start a block."""
        for n, kept in self.kept.items():
            self.builder.store(llvm.constant(0, type_of(self.dtype, n)), kept)

    def take(self, codes: Values) -> None:
        """Add some of its codes."""
        most = np.maximum(self._kept(codes.count), magnitudes(codes))
        self.builder.store(most.value, self.kept[codes.count])

    def taken(self) -> Values:
        """The result."""
        made = reduce(np.maximum, (self._reduced(self._kept(n)) for n in self.kept))
        return made.astype("u4")

    def _kept(self, lanes: int) -> Values:
        return Lanes(self.builder, self.builder.load(self.kept[lanes]), self.dtype)

    def _reduced(self, codes: Values) -> Values:
        """The largest of a vector."""
        name = f"llvm.vector.reduce.umax.v{codes.count}i{8 * self.dtype.itemsize}"
        return codes.of(called(self.builder, name, type_of(self.dtype), codes.value))
