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
from operator import and_
from typing import Any

import numpy as np
from llvmlite import ir

from . import llvm, numerics
from .lanes import load
from .llvm import I64, POINTER, Address, Builder, Value, emits
from .lookups import Lookups, looks_up
from .number_vectors import decoded, encoded, takes_words, words_of
from .numbers import Conversion
from .numerics import Values
from .run_loops import LANES, WIDE, Own, Run, first_of

WIDEST = LANES * WIDE
GROUPS = 16, 32  # elements with one scale, of which a wide vector holds several


# source, target, count, block, scale, scale step (bytes), zero point, its step
SIGNATURE = ir.FunctionType(ir.VoidType(), [POINTER, POINTER, I64, I64, *[POINTER, I64] * 2])


def write(function: Any, what: tuple[Conversion, int]) -> None:
    """Write the function of (conversion, streams), which `convert` calls.

    Unless `streams` is 0, whole lines of the target are streamed: `STREAMED_PARTS` parts of a run
    alternately if the source is in memory, 1 if it is in a cache.
    """
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    if looks_up(what[0]):
        tables = Lookups(builder, *what, function.args)
        with builder.if_then(tables.fit().value):
            tables.write()
            builder.ret_void()
    _Loops(builder, *what, function.args).write()
    builder.ret_void()


class _Loops(Run):
    """The loops over one run: wide vectors, vectors of which the last reaches back, elements."""

    def write(self) -> None:
        """Convert all elements."""
        count = self.count
        with self.builder.if_else((count < LANES).value) as (few, many):
            with few, self.loop(count, 1) as index:
                self._elements(index, 1)
            with many:
                if self.streams:
                    self._streamed()
                else:
                    whole = count & -WIDEST
                    self._wide(self.zero, whole)
                    self._vectors(whole)

    def _streamed(self) -> None:
        """Convert all elements; those of whole lines of the target are streamed."""
        head = self.head()
        left = self.count - head
        with self.builder.if_else((left >= WIDEST).value) as (long, short):
            with short:
                self._vectors(self.zero)
            with long:
                self.ask_ends(head)
                whole = left & -WIDEST
                self._wide(head, whole)
                with self.ends(head, head + whole) as (first, end):
                    index = np.minimum(first, self.count - WIDEST)
                    self._elements(index, WIDEST, (first, end))

    def _vectors(self, begin: Values) -> None:
        """Convert the elements from `begin` on; the last vector reaches back."""
        last = self.count - LANES
        with self.loop(self.count - begin, LANES) as index:
            self._elements(np.minimum(begin + index, last), LANES)

    def _wide(self, begin: Values, count: Values) -> None:
        """Convert `count` elements by wide vectors."""
        rest = count
        for group in GROUPS if self.conversion.scales == "blocks" else ():
            steps = (step == self.floats.itemsize for _, step in self.operands)
            grouped = reduce(and_, steps, self.block == group)
            rest = np.where(grouped, 0, rest)
            with self.builder.if_then(grouped.value):
                ahead = begin & group - 1
                with self.loop(count, WIDEST) as index:
                    self._grouped(begin + index, group, ahead)
        if self.streams > 1:
            part = rest // self.streams & -WIDEST
            done = part * self.streams
            self.ahead = done * self.conversion.source.nbytes
            with self.loop(part, WIDEST) as index, self.loop(done, part) as stream:
                self._elements(begin + (stream + index), WIDEST)
            begin, rest = begin + done, rest - done
        with self.loop(rest, WIDEST) as index:
            self._elements(begin + index, WIDEST)

    def _grouped(self, index: Values, group: int, ahead: Values) -> None:
        """Convert a vector of blocks of `group` elements, `ahead` of whose first come before it."""
        size, blocks = self.floats.itemsize, WIDEST // group
        first = first_of(group - ahead, group, WIDEST, size)
        before = index // group
        after, operands = before + (ahead != 0).astype("i8"), list[Values]()
        for begin, _ in self.operands:
            ends = [load(begin + block * size, self.floats, blocks) for block in (before, after)]
            operands.append(np.where(first, *(end.repeated(group) for end in ends)))
        self._converted(index, WIDEST, operands)

    def _elements(self, index: Values, lanes: int, own: Own = None) -> None:
        """Convert a vector of elements, and store those of `own`."""
        if self.conversion.scales != "blocks":
            size = self.floats.itemsize
            each = [load(begin + index * size, self.floats, lanes) for begin, _ in self.operands]
            self._converted(index, lanes, each, own)
            return
        before = index // self.block
        if lanes <= LANES:
            operands = self._one(before, lanes) if lanes == 1 else self._several(index, lanes)
            self._converted(index, lanes, operands, own)
            return
        left = (before + 1) * self.block - index
        with self.builder.if_else((left >= lanes).value) as (one_block, blocks):
            with one_block:
                self._converted(index, lanes, self._one(before, lanes), own)
            with blocks:
                self._converted(index, lanes, self._several(index, lanes), own)

    def _converted(
        self, index: Values, lanes: int, operands: Sequence[Values], own: Own = None
    ) -> None:
        made = self.conversion
        codes, bits = self.loaded(index, lanes), made.source.bits
        if bits < 8:
            codes = codes & (1 << bits) - 1
        if not made.arithmetic:
            value = numerics.resized(codes, made)
        elif takes_words(lanes, made):
            value = words_of(codes, made.source)
        else:
            value = decoded(codes, made)
            if made.scales:
                scale, zero = (*operands, None)[:2]
                value = numerics.scaled(value, made, scale, zero)
            value = encoded(value, made, codes)
        self.store(value, index, own)

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


@emits()
def convert(
    builder: Builder,
    entry: Value,
    src: Address,
    dst: Address,
    count: Value,
    block: Value,
    scale: Address,
    scale_step: Value,
    zero: Address,
    zero_step: Value,
) -> None:
    """Convert `count` elements from address to address by the function at `entry`."""
    function = builder.inttoptr(entry, SIGNATURE.as_pointer())
    builder.call(function, [src, dst, count, block, scale, scale_step, zero, zero_step])
