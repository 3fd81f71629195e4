"""The loops that all conversions share: a run of elements, loaded and stored by vectors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from llvmlite import ir

from ..runtime.cpu_caches import LINE
from . import llvm
from .lanes import Lanes, load
from .numbers import Conversion
from .numerics import Values

LANES = 16  # elements of the narrower loop
WIDE = 4  # vectors of the wider loop
AHEAD = 4096  # the distance of prefetching in bytes; 1024 was no better

Own = tuple[Values, Values] | None  # the range of the elements that a vector stores


class Counted:
    """A loop of the builder: `with Counted(builder, count, step) as index`."""

    def __init__(self, builder: Any, count: Any, step: Any) -> None:
        self.builder, self.count, self.step = builder, count, step

    def __enter__(self) -> Any:
        builder = self.builder
        before = builder.block
        self.head = builder.append_basic_block("loop")
        body = builder.append_basic_block("body")
        self.after = builder.append_basic_block("after")
        builder.branch(self.head)
        builder.position_at_end(self.head)
        self.index = builder.phi(llvm.I64)
        self.index.add_incoming(ir.Constant(llvm.I64, 0), before)
        more = builder.icmp_signed("<", self.index, self.count)
        builder.cbranch(more, body, self.after)
        builder.position_at_end(body)
        return self.index

    def __exit__(self, *fault: object) -> None:
        builder = self.builder
        self.index.add_incoming(builder.add(self.index, self.step), builder.block)
        builder.branch(self.head)
        builder.position_at_end(self.after)


class Run:
    """The arguments of a conversion's function, and the steps that load and store vectors.

    If results are streamed, wide vectors begin at a line of the target.
    """

    def __init__(
        self, builder: Any, conversion: Conversion, streams: int, arguments: Sequence[Any]
    ) -> None:
        self.builder, self.conversion, self.streams = builder, conversion, streams
        given: list[Values] = [Lanes(builder, argument, "i8") for argument in arguments]
        self.source, self.target, self.count, self.block, *operands = given
        several = bool(conversion.scales) + bool(conversion.zeros)
        self.operands = list(zip(operands[::2], operands[1::2], strict=True))[:several]
        self.floats = np.dtype(f"f{conversion.arithmetic // 8}") if several else np.dtype("f4")
        self.zero, self.ahead = self.count.constant(0), self.count.constant(AHEAD)
        if streams:  # where a vector stands of which some elements are stored
            room = builder.alloca(ir.ArrayType(llvm.I64, LANES * WIDE))
            self.beside = self.count.of(builder.bitcast(room, llvm.POINTER))

    @contextmanager
    def loop(self, count: Values, step: Values | int) -> Iterator[Values]:
        """A loop over `count` elements, `step` at a time."""
        by = step if isinstance(step, Lanes) else count.constant(step)
        with Counted(self.builder, count.value, by.value) as index:
            yield count.of(index)

    def head(self) -> Values:
        """The elements before the first line of the target; all if no element begins a line."""
        nbytes, before = self.conversion.target.nbytes, -self.target & LINE - 1
        found = np.where(before % nbytes == 0, before // nbytes, self.count)
        return np.minimum(found, self.count)

    def ask_ends(self, head: Values) -> None:
        """Prefetch the lines of the target that are not written as a whole."""
        last = self.target + (self.count * self.conversion.target.nbytes - 1)
        with self.builder.if_then((head != 0).value):
            llvm.prefetch(self.builder, self.target.value, True)
            llvm.prefetch(self.builder, last.value, True)

    @contextmanager
    def ends(self, head: Values, done: Values) -> Iterator[tuple[Values, Values]]:
        """A loop over the elements before the first line and after the last: [from, to)."""
        with self.loop(head.constant(2), 1) as turn:
            tail = turn != 0
            first, end = np.where(tail, done, 0), np.where(tail, self.count, head)
            some: Values = first < end
            with self.builder.if_then(some.value):
                yield first, end

    def loaded(self, index: Values, lanes: int) -> Values:
        """A vector of codes."""
        nbytes = self.conversion.source.nbytes
        begin = self.source + index * nbytes
        codes = load(begin, f"u{nbytes}", lanes)
        if lanes > LANES and self.streams != 1:
            for line in range(0, lanes * nbytes, LINE):
                llvm.prefetch(self.builder, (begin + self.ahead + line).value)
        return codes

    def store(self, value: Values, index: Values, own: Own = None) -> None:
        """Store a vector of results, nontemporally if streamed; or its elements `own` only.

        Other elements are not written, not even masked: a store to a line with pending nontemporal
        stores waits for these.
        """
        builder, nbytes = self.builder, self.conversion.target.nbytes
        if own is None:
            place = self.target + index * nbytes
            stored = llvm.store(builder, value.value, place.value)
            if self.streams and value.count > LANES:
                llvm.nontemporal(builder, stored, LINE)
            return
        llvm.store(builder, value.value, self.beside.value)
        first, end = own
        begin, place = self.beside + (first - index) * nbytes, self.target + first * nbytes
        llvm.copy(builder, place.value, begin.value, ((end - first) * nbytes).value)


def first_of(count: Values, group: int, lanes: int, nbytes: int) -> Values:
    """A mask of the lanes among the first `count` of each `group` of lanes.

    By comparison, since NEON expands a bit mask one lane at a time.
    """
    most = count.astype(f"i{nbytes}").spread(lanes)
    return most.constant([k % group for k in range(lanes)]) < most
