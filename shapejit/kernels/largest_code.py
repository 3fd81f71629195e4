"""The number of largest magnitude among codes of floats, by integers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llvmlite import ir

from . import llvm
from .encodings import LEAST
from .llvm import I32
from .memory import VECTOR
from .vector_steps import Steps


class Largest:
    """Finds it; if `signed`, the first code of that magnitude with its sign, else without.

    Codes have the type `code`, and come by so many `lanes`.
    """

    def __init__(self, builder: Any, code: Any, signed: bool, lanes: Sequence[int]) -> None:
        self.builder, self.code, self.signed = builder, code, signed
        self.bits, self.fit = code.width, max(LEAST, 8 * VECTOR // code.width)
        self.kept = {n: builder.alloca(ir.VectorType(code, n)) for n in lanes}

    def magnitudes(self, codes: Any) -> Any:
        """Codes without their signs."""
        return self.builder.and_(codes, llvm.constant((1 << self.bits - 1) - 1, codes.type))

    def _above(self, a: Any, b: Any) -> Any:
        """The larger ones of two; of equal ones those of the first."""
        sizes = (self.magnitudes(a), self.magnitudes(b)) if self.signed else (a, b)
        return self.builder.select(self.builder.icmp_unsigned(">=", *sizes), a, b)

    def _wide(self, codes: Any) -> Any:
        """In 32 bits."""
        if self.bits == 32:
            return codes
        kind = codes.type
        vector = isinstance(kind, ir.VectorType)
        return self.builder.zext(codes, ir.VectorType(I32, kind.count) if vector else I32)

    # Of several blocks, one after the other

    def takes(self, block: int) -> bool:
        """Whether `of_blocks` takes blocks of so many codes."""
        return block & (block - 1) == 0

    def of_blocks(self, begin: Any, block: int, count: int) -> Any:
        """Those of so many blocks: neighbours are compared, then the larger ones of these."""
        # The codes of a long block are compared vector by vector, where their order is not asked.
        long = 1 if self.signed else max(1, block // self.fit)
        least = long.bit_length() - 1

        def left(at: int, codes: int, levels: int) -> Any:
            """What is left of codes from one on."""
            if levels == least:
                return self._loaded(begin, at, codes // long, long)
            if codes >> (levels - 1) <= self.fit:
                both = left(at, codes, levels - 1)
                return self._neighbours(both, both, both.type.count // 2)
            half = codes // 2
            first, second = (left(place, half, levels - 1) for place in (at, at + half))
            return self._neighbours(first, second, first.type.count)

        return self._wide(left(0, block * count, block.bit_length() - 1))

    def _loaded(self, begin: Any, at: int, lanes: int, vectors: int) -> Any:
        """The larger ones of vectors that lie side by side."""
        made = None
        for k in range(vectors):
            place = llvm.at(self.builder, begin, (at + k * lanes) * self.bits // 8)
            codes = llvm.load(self.builder, place, ir.VectorType(self.code, lanes))
            codes = codes if self.signed else self.magnitudes(codes)
            made = codes if made is None else self._above(made, codes)
        return made

    def _neighbours(self, a: Any, b: Any, count: int) -> Any:
        """The larger ones of so many pairs of neighbours in two vectors, counted through."""
        pairs = ([*range(k, 2 * count, 2)] for k in (0, 1))
        return self._above(*(llvm.shuffle(self.builder, a, b, order) for order in pairs))

    # Of one block

    def clear(self, lanes: Sequence[int]) -> None:
        """Begin with a block whose codes are taken by so many lanes."""
        for n in lanes:
            self.builder.store(llvm.constant(0, ir.VectorType(self.code, n)), self.kept[n])

    def take(self, codes: Any) -> None:
        """Take some of its codes."""
        kept = self.kept[codes.type.count]
        self.builder.store(self._above(self.builder.load(kept), self.magnitudes(codes)), kept)

    def taken(self, lanes: Sequence[int]) -> Any:
        """What was found."""
        made, *others = (self._reduced(self.builder.load(self.kept[n])) for n in lanes)
        for other in others:
            made = self.builder.select(self.builder.icmp_unsigned(">", other, made), other, made)
        return self._wide(made)

    def first_of(self, codes: Any) -> Any:
        """The first of a vector of codes that has the largest magnitude."""
        builder, kind = self.builder, codes.type
        magnitudes, flags = self.magnitudes(codes), ir.IntType(kind.count)
        most = self._reduced(magnitudes)
        same = builder.icmp_unsigned("==", magnitudes, llvm.splat(builder, most, kind.count))
        minus = builder.icmp_signed("<", codes, llvm.constant(0, kind))
        first = builder.cttz(builder.bitcast(same, flags), ir.Constant(ir.IntType(1), 1))
        sign = builder.trunc(builder.lshr(builder.bitcast(minus, flags), first), ir.IntType(1))
        top = ir.Constant(self.code, 1 << self.bits - 1)
        return self._wide(builder.select(sign, builder.or_(most, top), most))

    def _reduced(self, vector: Any) -> Any:
        """The largest of a vector of unsigned integers."""
        kind = vector.type
        name = f"llvm.vector.reduce.umax.v{kind.count}i{self.bits}"
        function = Steps(self.builder, kind.count).declared(name, kind.element, [kind])
        return self.builder.call(function, [vector])
