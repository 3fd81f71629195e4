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
from operator import and_, or_
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
PREFETCH_DISTANCE = 4096  # the distance of prefetching in bytes; 1024 was no better
SCALE_GROUPS = 16, 32  # elements with one scale, of which a wide vector holds several
TABLED = 32  # elements that are looked up together
CODES = 16  # the results of a table
TABLE = np.dtype("u2" if VECTOR == 64 else "u1")  # of a table, see `planes_of`

# source, target, count, block, scale, scale step (bytes), zero point, its step
SIGNATURE = ir.FunctionType(ir.VoidType(), [POINTER, POINTER, I64, I64, *[POINTER, I64] * 2])


def write(function: Any, what: tuple[Conversion, bool]) -> None:
    """Write the function of (conversion, streamed): whether lines of the target pass the caches.

    If elements become narrower, without scales, and `block` is 0, those of as many rows as fill one
    of the source are converted, and become one element.
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
        self.tabled = conversion.scales == "blocks" and has_tables(conversion)
        if self.tabled:
            self.table = builder.alloca(type_of(TABLE, 2 * CODES // TABLE.itemsize))
            self.left, self.at = builder.alloca(I64), builder.alloca(I64)

    def write(self) -> None:
        """Write code that converts all elements.

        Stores across lines take twice the time. A store to a line with pending nontemporal stores
        waits for these: the elements before and after whole lines are copied from a vector. By
        vectors of their own, casts on two threads took 1.6 times as long (Zen 3).
        """
        count, zero, nbytes = self.count, self.zero, self.conversion.target.nbytes
        before = -self.target & LINE - 1
        least = before // nbytes + WIDEST if self.streamed else 2 * WIDEST
        begins = (before % nbytes == 0) & (count >= least)  # some element begins a line
        head = np.where(begins, before // nbytes, count if self.streamed else 0)
        whole = count - head & -WIDEST
        if self.streamed:  # lines that are not written as a whole are read before
            for edge in (self.target, self.target + count * nbytes):
                with self.builder.if_then((-edge & LINE - 1 != 0).value):
                    llvm.prefetch(self.builder, edge.value, True)
        else:
            with self.builder.if_then((head != 0).value):
                self._elements(zero, WIDEST)
        with self.builder.if_then((whole != 0).value):
            self._wide(head, whole)
        if not self.streamed:
            by_vectors(head + whole, count, zero, LANES, self._elements)
            return
        with self.builder.if_else((whole != 0).value) as (long, short):
            with short:
                by_vectors(zero, count, zero, LANES, self._elements)
            with long, loop(count.constant(2)) as turn:
                tail = turn != 0
                first: Values = np.where(tail, head + whole, 0)
                end: Values = np.where(tail, count, head)
                with self.builder.if_then((first < end).value):
                    self._own = first, end
                    self._elements(np.minimum(first, count - WIDEST), WIDEST)
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
        if self.tabled:
            whole = self.block & TABLED - 1 == 0
            rest = np.where(whole, 0, rest)
            with self.builder.if_then(whole.value):
                self._looked_up(begin, count)
        for group in SCALE_GROUPS if self.conversion.scales == "blocks" else ():
            steps = (step == self.floats.itemsize for _, step in self.operands)
            grouped = reduce(and_, steps, self.block == group)
            some: Values = np.where(grouped, rest, 0)
            rest = rest - some
            ahead = begin & group - 1
            with loop(some, WIDEST) as index:
                self._grouped(begin + index, group, ahead)
        with loop(rest, WIDEST) as index:
            self._elements(begin + index, WIDEST)

    def _looked_up(self, begin: Values, count: Values) -> None:
        """Convert `count` elements by a table for each block, with the results of all codes."""
        first = begin // self.block
        self._take(first, (first + 1) * self.block - begin)
        with loop(count, TABLED) as index:
            place = begin + index
            codes = self._loaded(place, TABLED)
            with self.builder.if_then((self._taken(self.left) == 0).value):
                self._take(self._taken(self.at) + 1, self.block)
            left, found = self._taken(self.left), self._found(codes)
            with self.builder.if_else((left >= TABLED).value) as (one, two):
                with one:
                    self._store(found, place)
                    self.builder.store((left - TABLED).value, self.left)
                with two:
                    self._take(self._taken(self.at) + 1, left + (self.block - TABLED))
                    own = first_of(left, TABLED, TABLED, 1)
                    self._store(np.where(own, found, self._found(codes)), place)

    def _take(self, block: Values, left: Values) -> None:
        """Take a block, of whose elements so many are left: make the table of its results."""
        codes = block.constant([*range(CODES)], "u1")
        table = planes_of(self._result(codes, self._one(block, CODES)))
        for value, at in ((block, self.at), (left, self.left), (table, self.table)):
            self.builder.store(value.value, at)

    def _taken(self, at: Any) -> Values:
        """A number of the block that was taken."""
        return self.zero.of(self.builder.load(at))

    def _found(self, codes: Values) -> Values:
        """The results of codes in the block that was taken."""
        return found_in(self.zero.of(self.builder.load(self.table), TABLE), codes)

    def _grouped(self, index: Values, group: int, ahead: Values) -> None:
        """Convert a vector of blocks of `group` elements; it begins at element `ahead` of one."""
        size, blocks = self.floats.itemsize, WIDEST // group
        first = first_of(group - ahead, group, WIDEST, size)
        before = index // group
        after, operands = before + (ahead != 0).astype("i8"), list[Values]()
        for begin, _ in self.operands:
            ends = [load(begin + block * size, self.floats, blocks) for block in (before, after)]
            operands.append(np.where(first, *(end.repeated(group) for end in ends)))
        self._converted(index, WIDEST, operands)

    def _elements(self, index: Values, lanes: int) -> None:
        """Convert a vector of elements."""
        if self.conversion.scales != "blocks":
            size = self.floats.itemsize
            each = [load(begin + index * size, self.floats, lanes) for begin, _ in self.operands]
            self._converted(index, lanes, each)
            return
        before = index // self.block
        if lanes <= LANES:
            operands = self._one(before, lanes) if lanes == 1 else self._several(index, lanes)
            self._converted(index, lanes, operands)
            return
        left = (before + 1) * self.block - index
        with self.builder.if_else((left >= lanes).value) as (one_block, blocks):
            with one_block:
                self._converted(index, lanes, self._one(before, lanes))
            with blocks:
                self._converted(index, lanes, self._several(index, lanes))

    def _one(self, block: Values, lanes: int) -> list[Values]:
        """The operands of the elements of one block."""
        places = (begin + block * step for begin, step in self.operands)
        return [load(place, self.floats).spread(lanes) for place in places]

    def _several(self, index: Values, lanes: int) -> list[Values]:
        """The operands of elements of several blocks, each of `LANES` elements or more."""
        parts = []
        for k in range(0, lanes, LANES):
            before = (index + k) // self.block
            left = (before + 1) * self.block - (index + k)
            blocks = before, before + (left < LANES).astype("i8")
            first = first_of(np.minimum(left, LANES), LANES, LANES, self.floats.itemsize)
            ends = zip(*(self._one(block, LANES) for block in blocks), strict=True)
            parts.append([np.where(first, *both).value for both in ends])
        many = (llvm.joined(self.builder, [*found]) for found in zip(*parts, strict=True))
        return [self.zero.of(value, self.floats) for value in many]

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


def first_of(count: Values, group: int, lanes: int, nbytes: int) -> Values:
    """A mask of the lanes among the first `count` of each `group` of lanes.

    By comparison, since NEON expands a bit mask one lane at a time.
    """
    most = count.astype(f"i{nbytes}").spread(lanes)
    return most.constant([k % group for k in range(lanes)]) < most
