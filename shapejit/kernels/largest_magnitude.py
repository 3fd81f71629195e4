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

LANE = 16  # bytes within which instructions interleave


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

    def takes(self, block: int) -> bool:
        """Whether `of_blocks` takes blocks of so many codes."""
        return block & (block - 1) == 0

    def of_blocks(self, begin: Values, block: int, count: int) -> Values:
        """Those of so many blocks: pairs are compared, then the larger ones of these."""
        # The codes of a long block are compared vector by vector, where their order is not asked.
        long = 1 if self.signed else max(1, block // self.fit)

        def left(at: int, vectors: int) -> tuple[Values, list[int]]:
            """What is left of so many vectors, and the blocks that it belongs to."""
            if vectors > 1:
                half = vectors // 2
                return self._pairs(*left(at, half), left(at + half, half))
            first = at * long * self.fit
            owners = [(first + k) // block for k in range(self.fit)]
            return self._loaded(begin, first, self.fit, long), owners

        found, owners = left(0, block * count // (long * self.fit))
        while len(owners) > count:
            found, owners = self._pairs(found, owners)
        return found.chosen(sorted(range(count), key=owners.__getitem__)).astype("u4")

    def _loaded(self, begin: Values, at: int, lanes: int, vectors: int) -> Values:
        """The larger ones of vectors that lie side by side."""
        made: Values = None
        for k in range(vectors):
            codes = load(begin + (at + k * lanes) * self.dtype.itemsize, self.dtype, lanes)
            codes = codes if self.signed else self.magnitudes(codes)
            made = codes if made is None else self._above(made, codes)
        return made

    def _pairs(
        self, a: Values, owners: list[int], other: tuple[Values, list[int]] | None = None
    ) -> tuple[Values, list[int]]:
        """The larger ones of pairs that one or two vectors have of each block.

        Neighbours are paired if the first of equal ones counts, else what instructions bring
        together that interleave halves of 16 bytes, or else larger halves.
        """
        count, part = len(owners), LANE // self.dtype.itemsize
        halves = [k for k in range(count) if k % part < part // 2]
        both = halves, [k + part // 2 for k in halves]
        interleaved = other is not None and not self.signed and _alike(owners, *both)
        size = 1 if self.signed else count // 2
        while not interleaved:
            first = [k for k in range(count) if k // size % 2 == 0]
            both = first, [k + size for k in first]
            if _alike(owners, *both):
                break
            size //= 2
        b, beside = (None, []) if other is None else other

        def order(half: list[int]) -> list[int]:
            if interleaved:
                return [at for k in half for at in (k, count + k)]
            return half if other is None else half + [count + k for k in half]

        above = self._above(*(a.chosen(order(half), b) for half in both))
        return above, [(owners + beside)[k] for k in order(both[0])]

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


def _alike(owners: list[int], first: list[int], second: list[int]) -> bool:
    """Whether pairs belong to one block each."""
    return all(owners[a] == owners[b] for a, b in zip(first, second, strict=True))
