"""Loops that convert numbers: from one representation to another, scaled or not.

There is one generator: a Conversion names two representations and what is done between
them, and becomes one small function of machine code that converts `count` elements side
by side. Each element is decoded to a float32 or float64 (integers that only change
their width stay integers), scaled, and rounded once to what it becomes.

Codes narrower than a byte stand in a byte each, whose other bits are ignored in the
source and zero in the target. With the JIT off, `plain_conversions` does the same.
"""

from __future__ import annotations

from functools import reduce
from typing import Any

from llvmlite import ir

from . import llvm
from .llvm import Builder, Value, emits
from .lookups import Lookups, looks_up
from .number_vectors import Vector
from .numbers import Conversion
from .run_loops import LANES, WIDE, Counted, Own, Run

TRUE = ir.Constant(ir.IntType(1), 1)
GROUPS = 16, 32  # elements with one scale, several of which are in a wide vector


# source, target, count, block, scale, scale step (bytes), zero point, its step, shift
SIGNATURE = ir.FunctionType(ir.VoidType(), [llvm.I64] * 9)


def write(function: Any, what: tuple[Conversion, int]) -> None:
    """Write the function of (conversion, streams), which `convert` calls.

    Unless `streams` is 0, whole lines of the target go past the caches: `STREAMED_PARTS` parts of
    a run in turn where the source comes from memory, 1 where it lies in a cache.
    """
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    if looks_up(what[0]):
        tables = Lookups(builder, *what, function.args)
        with builder.if_then(tables.fit()):
            tables.write()
            builder.ret_void()
    _Loops(builder, *what, function.args).write()
    builder.ret_void()


class _Loops(Run):
    """The loops over one run: wide vectors, vectors of which the last reaches back, elements."""

    def write(self) -> None:
        """Convert all elements."""
        builder, count = self.builder, self.count
        with builder.if_else(builder.icmp_signed("<", count, llvm.number(LANES))) as (few, many):
            with few, Counted(builder, count, llvm.number(1)) as index:
                self._elements(index, 1)
            with many:
                if self.streams:
                    self._streamed()
                else:
                    whole = builder.and_(count, llvm.number(-LANES * WIDE))
                    self._wide(llvm.number(0), whole)
                    self._vectors(whole)

    def _streamed(self) -> None:
        """Convert all elements, past the caches those of whole lines of the target."""
        builder, wide, none = self.builder, llvm.number(LANES * WIDE), llvm.number(0)
        head = self.head()
        left = builder.sub(self.count, head)
        many = builder.icmp_signed(">=", left, wide)
        with builder.if_else(many) as (long, short):
            with short:
                self._vectors(none)
            with long:
                self.ask_ends(head)
                whole = builder.and_(left, llvm.number(-LANES * WIDE))
                self._wide(head, whole)
                done = builder.add(head, whole)
                with self.ends(head, done) as (first, end):
                    last = builder.sub(self.count, wide)
                    fits = builder.icmp_signed("<", first, last)
                    index = builder.select(fits, first, last)
                    self._elements(index, LANES * WIDE, (first, end))

    def _vectors(self, begin: Any) -> None:
        """Convert the elements from `begin` on; the last vector reaches back."""
        builder, last = self.builder, self.builder.sub(self.count, llvm.number(LANES))
        with Counted(builder, builder.sub(self.count, begin), llvm.number(LANES)) as index:
            at = builder.add(begin, index)
            short = builder.icmp_signed(">", at, last)
            self._elements(builder.select(short, last, at), LANES)

    def _wide(self, begin: Any, count: Any) -> None:
        """Convert `count` elements by wide vectors."""
        builder, wide, other = self.builder, llvm.number(LANES * WIDE), []
        groups = GROUPS if self.conversion.scales == "blocks" else ()
        for group in groups:
            fits = [builder.icmp_signed("==", self.block, llvm.number(group))]
            size = llvm.number(self.conversion.arithmetic // 8)
            fits += [builder.icmp_signed("==", step, size) for _, step in self.operands]
            grouped = reduce(builder.and_, fits)
            other.append(builder.not_(grouped))
            with builder.if_then(grouped):
                ahead = builder.and_(begin, llvm.number(group - 1))
                with Counted(builder, count, wide) as index:
                    at = builder.add(begin, index)
                    self._grouped(Vector(builder, LANES * WIDE), at, group, ahead)
        rest = builder.select(reduce(builder.and_, other, TRUE), count, llvm.number(0))
        if self.streams > 1:
            each = builder.udiv(rest, llvm.number(self.streams))
            part = builder.and_(each, llvm.number(-LANES * WIDE))
            done = builder.mul(part, llvm.number(self.streams))
            self.ahead = builder.mul(done, llvm.number(self.conversion.source.nbytes))
            with Counted(builder, part, wide) as index, Counted(builder, done, part) as stream:
                at = builder.add(begin, builder.add(stream, index))
                self._elements(at, LANES * WIDE)
            begin, rest = builder.add(begin, done), builder.sub(rest, done)
        with Counted(builder, rest, wide) as index:
            self._elements(builder.add(begin, index), LANES * WIDE)

    def _grouped(self, vector: Vector, index: Any, group: int, ahead: Any) -> None:
        """Convert a vector of blocks of `group` elements, `ahead` of whose first come before it."""
        builder, lanes = self.builder, vector.lanes
        apart, kind = (
            llvm.number(self.conversion.arithmetic // 8),
            vector.float_type(self.conversion.arithmetic),
        )
        within = builder.sub(llvm.number(group), ahead)
        first = vector.first_of(group, within, self.conversion.arithmetic)
        over = builder.icmp_signed("!=", ahead, llvm.number(0))
        before = builder.udiv(index, llvm.number(group))
        operands = []
        for begin, _ in self.operands:
            ends = []
            for block in (before, builder.add(before, builder.zext(over, llvm.I64))):
                place = builder.add(begin, builder.mul(block, apart))
                found = llvm.load(builder, place, ir.VectorType(kind, lanes // group))
                ends.append(llvm.shuffle(builder, found, found, [k // group for k in range(lanes)]))
            operands.append(builder.select(first, *ends))
        self._converted(vector, index, operands)

    def _elements(self, index: Any, lanes: int, own: Own = None) -> None:
        """Convert a vector of elements, and store those of `own`."""
        made, builder = self.conversion, self.builder
        vector = Vector(builder, lanes)
        if made.scales != "blocks":
            operands = [self._each(vector, o, index) for o, _ in self.operands]
            self._converted(vector, index, operands, own)
            return
        before = builder.udiv(index, self.block)
        if lanes == 1:
            self._converted(vector, index, self._one(vector, before), own)
            return
        left = builder.sub(builder.mul(builder.add(before, llvm.number(1)), self.block), index)
        if lanes == LANES:
            self._converted(vector, index, self._several(vector, before, left), own)
            return
        within = builder.icmp_signed(">=", left, llvm.number(lanes))
        with builder.if_else(within) as (one_block, blocks):
            with one_block:
                self._converted(vector, index, self._one(vector, before), own)
            with blocks:
                self._converted(vector, index, self._across(vector, before, left), own)

    def _converted(self, vector: Vector, index: Any, operands: list[Any], own: Own = None) -> None:
        made = self.conversion
        codes = vector.unshifted(self.loaded(vector, index), made.source, self.shift)
        if not made.arithmetic:
            value = vector.resized(codes, made)
        elif vector.takes_words(made):
            value = vector.words_of(codes, made.source)
        else:
            value = vector.decoded(codes, made)
            if made.scales:
                scale, zero = (*operands, None)[:2]
                value = vector.scaled(value, made, scale, zero)
            value = vector.encoded(value, made, codes)
        self.store(value, index, own)

    def _one(self, vector: Vector, block: Any) -> list[Any]:
        """The operands of elements of one block."""
        builder = self.builder
        places = [builder.add(o, builder.mul(block, step)) for o, step in self.operands]
        return [self._splat(vector, place) for place in places]

    def _splat(self, vector: Vector, place: Any) -> Any:
        """A vector of the scale or zero point at an address."""
        kind = vector.float_type(self.conversion.arithmetic)
        return llvm.splat(self.builder, llvm.load(self.builder, place, kind), vector.lanes)

    def _each(self, vector: Vector, begin: Any, index: Any) -> Any:
        """Scales or zero points that lie one per element."""
        builder, bits = self.builder, self.conversion.arithmetic
        place = builder.add(begin, builder.mul(index, llvm.number(bits // 8)))
        return llvm.load(builder, place, vector.floats(bits))

    def _across(self, vector: Vector, before: Any, left: Any) -> list[Any]:
        """Operands of a wide vector in several blocks: two if these are as long as it is."""
        builder, branches, blocks = self.builder, list[list[Any]](), list[Any]()
        long = builder.icmp_signed(">=", self.block, llvm.number(vector.lanes))
        with builder.if_else(long) as (two, several):
            for branch, found in ((two, self._two), (several, self._several)):
                with branch:
                    branches.append(found(vector, before, left))
                    blocks.append(builder.block)
        joined = []
        for values in zip(*branches, strict=True):
            joined.append(builder.phi(values[0].type))
            for value, block in zip(values, blocks, strict=True):
                joined[-1].add_incoming(value, block)
        return joined

    def _two(self, vector: Vector, before: Any, left: Any) -> list[Any]:
        """Operands of elements the first `left` of which are of the block `before`."""
        builder, after = self.builder, self.builder.add(before, llvm.number(1))
        first = vector.first_of(vector.lanes, left, self.conversion.arithmetic)
        ends = (self._one(vector, block) for block in (before, after))
        return [builder.select(first, *pair) for pair in zip(*ends, strict=True)]

    def _several(self, vector: Vector, before: Any, left: Any) -> list[Any]:
        """Operands of elements the first `left` of which are of the block `before`.

        Blocks have at least `LANES` elements.
        """
        builder, lanes, part = self.builder, llvm.number(LANES), Vector(self.builder, LANES)
        none, parts = llvm.number(0), list[list[Any]]()
        places = [builder.add(o, builder.mul(before, step)) for o, step in self.operands]
        for _ in range(vector.lanes // LANES):
            over = builder.icmp_signed("<", left, lanes)
            some, found = builder.select(over, left, lanes), list[Any]()
            first = part.first_of(LANES, some, self.conversion.arithmetic)
            left = builder.sub(left, lanes)
            done = builder.icmp_signed("<=", left, none)
            left = builder.add(left, builder.select(done, self.block, none))
            for k, (_, step) in enumerate(self.operands):
                after = builder.add(places[k], builder.select(over, step, none))
                ends = (self._splat(part, place) for place in (places[k], after))
                found.append(builder.select(first, *ends))
                places[k] = builder.add(places[k], builder.select(done, step, none))
            parts.append(found)
        return [llvm.joined(builder, [*found]) for found in zip(*parts, strict=True)]


@emits()
def convert(
    builder: Builder,
    entry: Value,
    src: Value,
    dst: Value,
    count: Value,
    block: Value,
    scale: Value,
    scale_step: Value,
    zero: Value,
    zero_step: Value,
    shift: Value,
) -> None:
    """Convert `count` elements from address to address by the function at `entry`."""
    function = builder.inttoptr(entry, SIGNATURE.as_pointer())
    given = [src, dst, count, block, scale, scale_step, zero, zero_step, shift]
    builder.call(function, given)
