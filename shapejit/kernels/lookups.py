"""Codes of at most 4 bits that become numbers by a lookup, in a table of their block's results.

The table has the result of every code, by the steps that convert any other number, so
that looking up gives the same bits. It stays in a register: one instruction looks up a
vector of codes.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from ..runtime.cpu_caches import LINE
from . import llvm
from .memory import FEATURES, VECTOR
from .number_vectors import Vector
from .numbers import Conversion
from .run_loops import Counted, Run

CODES = 16  # that a table has room for
LANES = 32  # elements that are looked up together
# By the bytes of a vector, the instruction that looks up bytes in 16 ones; without it
# there is only arithmetic.
_BYTES = {32: "llvm.x86.avx2.pshuf.b", 16: "llvm.x86.ssse3.pshuf.b.128"}
# Those of AVX-512 look up whole results, by their bytes.
_WHOLE = {2: "llvm.x86.avx512.permvar.hi.512", 4: "llvm.x86.avx512.permvar.si.512"}


def looks_up(made: Conversion) -> bool:
    """Whether blocks of a conversion are looked up, where they are whole vectors."""
    blocks = made.step == "dequantize" and made.scales == "blocks" and made.source.bits <= 4
    shuffles = VECTOR > 16 or "ssse3" in FEATURES
    return blocks and shuffles and made.target.nbytes in _WHOLE


class Lookups(Run):
    """The loops over a run whose blocks are whole vectors."""

    def __init__(self, builder: Any, *given: Any) -> None:
        super().__init__(builder, *given)
        self.nbytes = self.conversion.target.nbytes
        self.entries = LINE // self.nbytes if VECTOR == LINE else CODES
        kind = ir.VectorType(ir.IntType(8 * self.nbytes), self.entries)
        self.table = builder.alloca(kind)  # a register, in the end

    def fit(self) -> Any:
        """Whether blocks are whole vectors, and elements of the target may begin with lines."""
        builder = self.builder
        uneven = builder.or_(self.block, self.count)
        lost = builder.and_(uneven, llvm.number(LANES - 1))
        whole = builder.icmp_signed("==", builder.or_(lost, self.shift), llvm.number(0))
        if not self.streams:
            return whole
        return builder.and_(whole, builder.icmp_signed("<", self.head(), self.count))

    def write(self) -> None:
        """Convert all elements: those before the first line, all vectors, and those left."""
        builder, vector, lanes = self.builder, Vector(self.builder, LANES), llvm.number(LANES)
        builder.store(self._made(llvm.number(0)), self.table)
        if not self.streams:
            self._vectors(vector, llvm.number(0), self.count)
            return
        head, last = self.head(), builder.sub(self.count, lanes)
        count = builder.and_(builder.sub(self.count, head), llvm.number(-LANES))
        self.ask_ends(head)
        first_table = builder.load(self.table)
        self._vectors(vector, head, count)
        with self.ends(head, builder.add(head, count)) as own:
            at_first = builder.icmp_signed("==", own[0], llvm.number(0))
            index = builder.select(at_first, llvm.number(0), last)
            table = builder.select(at_first, first_table, builder.load(self.table))
            self.store(self.found(table, self.loaded(vector, index)), index, own)

    def _vectors(self, vector: Vector, begin: Any, count: Any) -> None:
        """Convert `count` elements by a table for each block, the first of which is made.

        `begin` is in the first block. The last vector of a block ends in the next one
        by as many elements as come before the first.
        """
        builder = self.builder
        last = builder.udiv(builder.sub(self.count, llvm.number(1)), self.block)
        round_up = builder.sub(self.block, llvm.number(1))
        blocks = builder.udiv(builder.add(count, round_up), self.block)
        some, every = self._before(vector, begin), llvm.constant(1, vector.ints(1))
        with Counted(builder, blocks, llvm.number(1)) as k:
            done = builder.mul(k, self.block)
            at, left = builder.add(begin, done), builder.sub(count, done)
            whole = builder.icmp_signed(">=", left, self.block)
            left = builder.select(whole, self.block, left)
            table, most = builder.load(self.table), builder.sub(left, llvm.number(LANES))
            with Counted(builder, most, llvm.number(LANES)) as index:
                place = builder.add(at, index)
                self.store(self.found(table, self.loaded(vector, place)), place)
            after = builder.add(k, llvm.number(1))
            more = builder.icmp_signed("<", after, last)
            following = self._made(builder.select(more, after, last))
            place = builder.add(at, most)
            codes = self.loaded(vector, place)
            ends = self.found(table, codes), self.found(following, codes)
            own = builder.select(whole, some, every)
            self.store(builder.select(own, *ends), place)
            builder.store(following, self.table)

    def _before(self, vector: Vector, begin: Any) -> Any:
        """Which elements of the last vector of a block are its own."""
        builder = self.builder
        over = builder.trunc(builder.and_(begin, llvm.number(LANES - 1)), llvm.I8)
        order = ir.Constant(vector.ints(8), list(range(LANES)))
        own = builder.sub(vector.whole(LANES, 8), llvm.splat(builder, over, LANES))
        return builder.icmp_unsigned("<", order, own)

    def _made(self, block: Any) -> Any:
        """The results of all codes in a block, over and over."""
        builder, made, vector = self.builder, self.conversion, Vector(self.builder, self.entries)
        order = [k % (1 << made.source.bits) for k in range(self.entries)]
        codes = ir.Constant(vector.ints(8), order)
        value = vector.decoded(codes, made)
        kind = vector.float_type(made.arithmetic)
        places = (builder.add(o, builder.mul(block, by)) for o, by in self.operands)
        loaded = (llvm.load(builder, place, kind) for place in places)
        scale, zero = (*(llvm.splat(builder, each, self.entries) for each in loaded), None)[:2]
        return vector.encoded(vector.scaled(value, made, scale, zero), made, codes)

    def found(self, table: Any, codes: Any) -> Any:
        """The results of a vector of codes, a byte each, whose upper bits mean nothing."""
        if VECTOR == LINE:
            parts = Vector(self.builder, LANES).parts(codes, self.entries)
            wide = (self.builder.zext(part, table.type) for part in parts)
            return llvm.joined(
                self.builder, [self._called(_WHOLE[self.nbytes], table, each) for each in wide]
            )
        codes = self.builder.and_(codes, llvm.constant(CODES - 1, codes.type))
        planes = [self._plane(table, byte, codes) for byte in range(self.nbytes)]
        while len(planes) > 1:
            half, lanes = len(planes) // 2, planes[0].type.count
            order = [k for lane in range(lanes) for k in (lane, lanes + lane)]
            pairs = zip(planes[:half], planes[half:], strict=True)
            planes = [llvm.shuffle(self.builder, a, b, order) for a, b in pairs]
        return self.builder.bitcast(planes[0], ir.VectorType(table.type.element, LANES))

    def _plane(self, table: Any, byte: int, codes: Any) -> Any:
        """One byte of each result."""
        down = llvm.constant(8 * byte, table.type)
        narrow = ir.VectorType(llvm.I8, CODES)
        some = self.builder.trunc(self.builder.lshr(table, down), narrow)
        whole = llvm.shuffle(self.builder, some, some, [k % CODES for k in range(VECTOR)])
        parts = Vector(self.builder, LANES).parts(codes, VECTOR)
        return llvm.joined(
            self.builder, [self._called(_BYTES[VECTOR], whole, part) for part in parts]
        )

    def _called(self, name: str, table: Any, codes: Any) -> Any:
        """An instruction that looks up: LLVM has no word of its own for it."""
        function = Vector(self.builder, LANES).declared(name, table.type, [table.type] * 2)
        return self.builder.call(function, [table, codes])
