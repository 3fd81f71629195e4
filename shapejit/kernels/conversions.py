"""Loops that convert numbers: from one representation to another, scaled or not.

There is one generator: a Conversion has two representations and the operations between them, and
becomes one small function of machine code that converts `count` contiguous elements. Each element
is decoded to float32 or float64 (integers that only change their width stay integers), scaled, and
rounded once to the target.

Codes narrower than a byte have a byte each, whose other bits are ignored in the source and zero in
the target. `plain_conversions` does the same by NumPy.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from itertools import pairwise
from operator import or_
from typing import Any

import numpy as np
from llvmlite import ir

from ..runtime.cpu_caches import LINE
from . import llvm, numerics
from .lanes import Lanes, by_vectors, load, loop, type_of
from .llvm import I64, POINTER
from .memory import VECTOR
from .number_vectors import (
    WORD,
    decoded,
    encoded,
    found_in,
    has_tables,
    looks_up,
    planes_of,
    words_of,
)
from .numbers import Conversion
from .numerics import Values

LANES = 16  # elements of the narrower loop
WIDEST = 4 * LANES  # of the wider loop
MERGED = max(LANES, VECTOR // 2)  # of each row that is merged with others
# Bytes from the codes that are read to those that are prefetched; 1024 was no better. Without it
# float32 to floats of 4 to 8 bits takes 1.1 to 1.2 x the time.
PREFETCH_DISTANCE = 4096
TABLED = 32  # elements that are looked up together
CODES = 16  # the results of a table
TABLE = np.dtype("u2" if VECTOR == 64 else "u1")  # of a table, see `planes_of`

# source, target, count, block, scale, scale step (bytes), zero point, its step
SIGNATURE = ir.FunctionType(ir.VoidType(), [POINTER, POINTER, I64, I64, *[POINTER, I64] * 2])


def write(function: Any, what: tuple[Conversion, bool]) -> None:
    """Write the function of (conversion, streamed): whether lines of the target pass the caches.

    If elements become narrower, without scales, it also merges rows: if `block` is 0, results of as
    many rows as fill an element of the source become one element. As functions of their own these
    would be 23 more objects of `shapejit warmup`.
    """
    conversion, streamed = what
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    run = _Run(builder, conversion, streamed, function.args)
    narrower = conversion.target.nbytes < conversion.source.nbytes
    if streamed or conversion.operands or not narrower:
        run.write()
    else:
        with builder.if_else((run.block == 0).value) as (several, one):
            with several:
                run.merge()
            with one:
                run.write()
    builder.ret_void()


class _Run:
    """The loops over one run: wide vectors, vectors that may reach back, single elements.

    If results are streamed, wide vectors begin at a line of the target.
    """

    def __init__(
        self, builder: Any, conversion: Conversion, streamed: bool, arguments: Sequence[Any]
    ) -> None:
        self.builder, self.conversion, self.streamed = builder, conversion, streamed
        given: list[Values] = [Lanes(builder, argument, "i8") for argument in arguments]
        self.source, self.target, self.count, self.block, *operands = given
        self.rows, several = operands[0], conversion.operands
        self.operands = list(zip(operands[::2], operands[1::2], strict=True))[:several]
        self.floats = np.dtype(f"f{conversion.arithmetic // 8}") if several else np.dtype("f4")
        self.zero = self.count.constant(0)
        self._own: tuple[Values, Values] | None = None  # the elements that a vector stores
        if streamed:
            room = builder.alloca(ir.ArrayType(I64, WIDEST))
            self.beside = self.count.of(builder.bitcast(room, POINTER))
        self.blocks = conversion.scales == "blocks"
        self.tabled = self.blocks and has_tables(conversion)
        # The operands of the next element's block, how many of its elements are left, its table.
        self.places = [builder.alloca(POINTER) for _ in self.operands]
        self.left = builder.alloca(I64)
        self.table = builder.alloca(type_of(TABLE, 2 * CODES // TABLE.itemsize))

    def write(self) -> None:
        """Write code that converts all elements.

        Stores across lines take twice the time. A store to a line with pending nontemporal stores
        waits for these: the elements before and after whole lines are copied from a vector. By
        vectors of their own, casts on two threads took 1.6 times as long (Zen 3).
        """
        count, zero, nbytes = self.count, self.zero, self.conversion.target.nbytes
        if not self.streamed:
            whole = count & -WIDEST
            with self.builder.if_then((whole != 0).value):
                self._wide(zero, whole)
            by_vectors(whole, count, zero, LANES, self._alone)
            return
        before = -self.target & LINE - 1
        begins = (before % nbytes == 0) & (count >= before // nbytes + WIDEST)
        head = np.where(begins, before // nbytes, count)  # some element begins a line
        whole = count - head & -WIDEST
        with self.builder.if_else((whole != 0).value) as (long, short):
            with short:
                by_vectors(zero, count, zero, LANES, self._alone)
            with long:
                self._wide(head, whole)
                with loop(count.constant(2)) as turn:
                    self._edge(turn != 0, head, head + whole)

    def _edge(self, tail: Values, head: Values, rest: Values) -> None:
        """Store the elements before or after whole lines, of which all are in one vector."""
        first: Values = np.where(tail, rest, 0)
        end: Values = np.where(tail, self.count, head)
        with self.builder.if_then((first < end).value):
            self._own = first, end
            self._alone(np.minimum(first, self.count - WIDEST), WIDEST)
            self._own = None

    def merge(self) -> None:
        """Convert rows at the offsets in a table, where other conversions have their scales.

        The rows after them are prefetched.
        """
        size, made = self.conversion.source.nbytes, self.conversion.target.nbytes
        rows = size // made
        begins = [self.source + load(self.rows + 8 * k, "i8") for k in range(2 * rows)]

        def word(k: int, index: Values, lanes: int) -> Values:
            """Some results of row k, at their position in an element of the source's width."""
            codes = load(begins[k] + index * size, f"u{size}", lanes)
            for line in range(0, lanes * size if lanes > 1 else 0, LINE):
                llvm.prefetch(self.builder, (begins[rows + k] + (index * size + line)).value)
            result = self._result(codes, []).view(f"u{made}").astype(f"u{size}")
            return result << 8 * made * k

        def step(index: Values, lanes: int) -> None:
            merged: Values = reduce(or_, (word(k, index, lanes) for k in range(rows)))
            llvm.store(self.builder, merged.value, (self.target + index * size).value)

        by_vectors(self.zero, self.count, self.zero, MERGED, step)

    def _wide(self, begin: Values, count: Values) -> None:
        """Convert `count` elements by wide vectors."""
        rest = count
        if self.blocks:
            self._seek(begin)
        if self.tabled:
            whole = self.block & TABLED - 1 == 0
            rest = np.where(whole, 0, rest)
            with self.builder.if_then(whole.value):
                self._tabulate()
                with loop(count, TABLED) as index:
                    self._looked_up(begin + index)
        with loop(rest, WIDEST) as index:
            self._next(begin + index, WIDEST)

    def _alone(self, index: Values, lanes: int) -> None:
        """Convert a vector of elements anywhere."""
        if self.blocks:
            self._seek(index)
            several = lanes > 1
            operands = self._several(lanes) if several else self._one(self._block()[0], lanes)
            self._converted(index, lanes, operands)
        else:
            self._converted(index, lanes, self._each(index, lanes))

    def _each(self, index: Values, lanes: int) -> list[Values]:
        """The operands of elements that have their own."""
        at = index * self.floats.itemsize
        return [load(begin + at, self.floats, lanes) for begin, _ in self.operands]

    def _next(self, index: Values, lanes: int) -> None:
        """Convert the next vector of elements."""
        if not self.blocks:
            self._converted(index, lanes, self._each(index, lanes))
            return
        places, left = self._block()
        with self.builder.if_else((left >= lanes).value) as (one_block, blocks):
            with one_block:
                self._converted(index, lanes, self._one(places, lanes))
                self._advance(lanes)
            with blocks:
                alike = self.block & LANES - 1 == 0
                with self.builder.if_else(alike.value) as (same, different):
                    with same:
                        self._converted(index, lanes, self._several(lanes, self.own))
                    with different:
                        self._converted(index, lanes, self._several(lanes))

    # Blocks: the one of the next element is known, so that none is found by division

    def _seek(self, index: Values) -> None:
        """Begin at an element."""
        at = index // self.block
        left = (at + 1) * self.block - index
        self._keep([begin + at * step for begin, step in self.operands], left)
        self.own = first_of((left - 1 & LANES - 1) + 1, LANES, self.floats.itemsize)

    def _block(self) -> tuple[list[Values], Values]:
        """The operands of the next element's block, and how many of its elements are left."""
        *places, left = (self.zero.of(self.builder.load(at)) for at in (*self.places, self.left))
        return places, left

    def _keep(self, places: Sequence[Values], left: Values) -> None:
        for value, at in zip((*places, left), (*self.places, self.left), strict=True):
            self.builder.store(value.value, at)

    def _advance(self, lanes: int) -> None:
        """Go on by a vector, which ends in this block or in the next one."""
        places, left = self._block()
        ended = left <= lanes
        self._keep(self._after(places, ended), left - lanes + np.where(ended, self.block, 0))

    def _after(self, places: Sequence[Values], ended: Values) -> list[Values]:
        """The operands of the next block, if one has ended."""
        pairs = zip(places, self.operands, strict=True)
        return [place + np.where(ended, step, 0) for place, (_, step) in pairs]

    def _one(self, places: Sequence[Values], lanes: int) -> list[Values]:
        """The operands of the elements of one block."""
        return [load(place, self.floats).spread(lanes) for place in places]

    def _several(self, lanes: int, own: Values | None = None) -> list[Values]:
        """The operands of elements of several blocks, each of `LANES` elements or more.

        `own`: of each `LANES` elements, those in the block of the first one. Unless given, it is
        found each time, which takes up to a tenth longer.
        """
        firsts, operands = list[Values](), list[list[Values]]()
        for _ in range(0, lanes, LANES):
            places, left = self._block()
            size = self.floats.itemsize
            firsts.append(first_of(np.minimum(left, LANES), LANES, size) if own is None else own)
            operands.append(self._one(places, LANES))
            last = self._after(places, left < LANES)
            self._advance(LANES)
        operands.append(self._one(last, LANES))
        many = []
        for each in zip(*operands, strict=True):
            pairs = zip(firsts, pairwise(each), strict=True)
            parts = [np.where(first, *both).value for first, both in pairs]
            many.append(self.zero.of(llvm.joined(self.builder, parts), self.floats))
        return many

    # Tables of the results of all codes in a block

    def _looked_up(self, index: Values) -> None:
        """Convert the next `TABLED` elements."""
        codes, (_, left) = self._loaded(index, TABLED), self._block()
        with self.builder.if_then((left == self.block).value):
            self._tabulate()
        found = self._found(codes)
        self._advance(TABLED)
        with self.builder.if_else((left >= TABLED).value) as (one, two):
            with one:
                self._store(found, index)
            with two:
                self._tabulate()
                own = first_of(left, TABLED, 1)
                self._store(np.where(own, found, self._found(codes)), index)

    def _tabulate(self) -> None:
        """Make the table of a block."""
        places, left = self._block()
        codes = left.constant([*range(CODES)], "u1")
        table = planes_of(self._result(codes, self._one(places, CODES)))
        self.builder.store(table.value, self.table)

    def _found(self, codes: Values) -> Values:
        """The results of codes in the block whose table was made last."""
        return found_in(self.zero.of(self.builder.load(self.table), TABLE), codes)

    def _converted(self, index: Values, lanes: int, operands: Sequence[Values]) -> None:
        self._store(self._result(self._loaded(index, lanes), operands), index)

    def _result(self, codes: Values, operands: Sequence[Values]) -> Values:
        """The results of codes."""
        made, bits = self.conversion, self.conversion.source.bits
        if bits < 8:
            codes = codes & (1 << bits) - 1
        if not made.arithmetic:
            return numerics.resized(codes, made)
        plain = made.step == "cast" and not made.bias
        if plain and made.target[:4] == WORD and looks_up(codes.count, made.source):
            return words_of(codes, made.source)
        value = decoded(codes, made)
        if made.scales:
            scale, zero = (*operands, None)[:2]
            value = numerics.scaled(value, made, scale, zero)
        return encoded(value, made)

    def _loaded(self, index: Values, lanes: int) -> Values:
        """A vector of codes."""
        nbytes = self.conversion.source.nbytes
        begin = self.source + index * nbytes
        codes = load(begin, f"u{nbytes}", lanes)
        if lanes > LANES and self.conversion.source.bits >= 8:  # packed ones are on the stage
            for line in range(0, lanes * nbytes, LINE):
                llvm.prefetch(self.builder, (begin + (PREFETCH_DISTANCE + line)).value)
        return codes

    def _store(self, value: Values, index: Values) -> None:
        """Store a vector of results, nontemporally if streamed, or some of its elements."""
        nbytes = self.conversion.target.nbytes
        if self._own is not None:
            llvm.store(self.builder, value.value, self.beside.value)
            first, end = self._own
            begin, place = self.beside + (first - index) * nbytes, self.target + first * nbytes
            llvm.copy(self.builder, place.value, begin.value, ((end - first) * nbytes).value)
            return
        place = self.target + index * nbytes
        stored = llvm.store(self.builder, value.value, place.value)
        if self.streamed and value.count > LANES:
            llvm.nontemporal(self.builder, stored, LINE)


def first_of(count: Values, lanes: int, nbytes: int) -> Values:
    """A mask of the first `count` lanes.

    By comparison, since NEON expands a bit mask one lane at a time.
    """
    most = count.astype(f"i{nbytes}").spread(lanes)
    return most.constant([*range(lanes)]) < most
