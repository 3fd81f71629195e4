"""The number of largest magnitude among codes of floats, by integers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from llvmlite import ir

from . import llvm
from .encodings import LEAST
from .lanes import Lanes, called, load, type_of
from .memory import VECTOR
from .numerics import Values


class Largest:
    """Finds it; if `signed`, the first code of that magnitude with its sign, else without.

    Codes have the `dtype`, an unsigned one, and come by so many `lanes`.
    """

    def __init__(self, builder: Any, dtype: str, signed: bool, lanes: Sequence[int]) -> None:
        self.builder, self.dtype, self.signed = builder, np.dtype(dtype), signed
        self.top = 1 << 8 * self.dtype.itemsize - 1
        self.fit = max(LEAST, VECTOR // self.dtype.itemsize)
        self.kept = {n: builder.alloca(type_of(dtype, n)) for n in lanes}

    def magnitudes(self, codes: Values) -> Values:
        """Codes without their signs."""
        return codes & self.top - 1

    def _above(self, a: Values, b: Values) -> Values:
        """The larger ones of two; of equal ones those of the first."""
        first, second = (self.magnitudes(a), self.magnitudes(b)) if self.signed else (a, b)
        return np.where(first >= second, a, b)

    # Of several blocks, one after the other

    def of_blocks(self, begin: Values, block: int, count: int) -> Values:
        """Those of so many blocks, whose sizes are powers of two: neighbours are compared in turn.

        The codes of a long block are compared vector by vector, unless their order counts.
        """
        long = 1 if self.signed else max(1, block // self.fit)
        starts = range(0, block * count, self.fit * long)
        vectors = [self._loaded(begin, at, long) for at in starts]
        while sum(codes.count for codes in vectors) > count:
            seconds = vectors[1::2] or [None]
            vectors = [self._pairs(a, b) for a, b in zip(vectors[::2], seconds, strict=True)]
        return vectors[0].astype("u4")

    def _loaded(self, begin: Values, at: int, vectors: int) -> Values:
        """The larger ones of vectors that lie side by side."""
        made: Values = None
        for k in range(at, at + vectors * self.fit, self.fit):
            codes = load(begin + k * self.dtype.itemsize, self.dtype, self.fit)
            codes = codes if self.signed else self.magnitudes(codes)
            made = codes if made is None else self._above(made, codes)
        return made

    def _pairs(self, a: Values, b: Values | None) -> Values:
        """The larger ones of neighbours in one or two vectors."""
        even = list(range(0, a.count if b is None else 2 * a.count, 2))
        return self._above(a.chosen(even, b), a.chosen([k + 1 for k in even], b))

    # Of one block

    def clear(self, lanes: Sequence[int]) -> None:
        """Begin with a block whose codes are taken by so many lanes."""
        for n in lanes:
            self.builder.store(llvm.constant(0, type_of(self.dtype, n)), self.kept[n])

    def take(self, codes: Values) -> None:
        """Take some of its codes."""
        most = self._above(self._kept(codes.count), self.magnitudes(codes))
        self.builder.store(most.value, self.kept[codes.count])

    def taken(self, lanes: Sequence[int]) -> Values:
        """What was found."""
        made, *others = (self._reduced(self._kept(n)) for n in lanes)
        for other in others:
            made = np.maximum(other, made)
        return made.astype("u4")

    def first_of(self, codes: Values) -> Values:
        """The first of a vector of codes that has the largest magnitude."""
        builder, flags = self.builder, ir.IntType(codes.count)
        magnitudes = self.magnitudes(codes)
        most = self._reduced(magnitudes)
        same, minus = magnitudes == most.spread(codes.count), codes > self.top - 1
        first = builder.cttz(builder.bitcast(same.value, flags), ir.Constant(ir.IntType(1), 1))
        sign = builder.lshr(builder.bitcast(minus.value, flags), first)
        negative = most.of(builder.trunc(sign, ir.IntType(1)), "?")
        return np.where(negative, most | self.top, most).astype("u4")

    def _kept(self, lanes: int) -> Values:
        return Lanes(self.builder, self.builder.load(self.kept[lanes]), self.dtype)

    def _reduced(self, codes: Values) -> Values:
        """The largest of a vector."""
        name = f"llvm.vector.reduce.umax.v{codes.count}i{8 * self.dtype.itemsize}"
        return codes.of(called(self.builder, name, type_of(self.dtype), codes.value))
