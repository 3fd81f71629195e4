"""What all loops of conversions begin with: a run of elements, loaded and stored by vectors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from llvmlite import ir

from ..runtime.cpu_caches import LINE
from . import llvm
from .number_vectors import Vector
from .numbers import Conversion

LANES = 16  # elements of the narrower loop
WIDE = 4  # times as many elements of the wider loop
AHEAD = 4096  # bytes between what is converted and the lines asked for; 1024 was no better

Own = tuple[Any, Any] | None  # the first of the elements that a vector stores, and their end


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

    Where results are streamed, wide vectors begin with a line of the target.
    """

    def __init__(
        self, builder: Any, conversion: Conversion, streams: int, arguments: Sequence[Any]
    ) -> None:
        self.builder, self.conversion, self.streams = builder, conversion, streams
        self.arguments = arguments
        self.source, self.target, self.count, self.block, *operands, self.shift = arguments
        several = bool(conversion.scales) + bool(conversion.zeros)
        self.operands = list(zip(operands[::2], operands[1::2], strict=True))[:several]
        self.ahead = llvm.number(AHEAD)
        if streams:  # where a vector stands of which some elements are stored
            room = builder.alloca(ir.ArrayType(llvm.I64, LANES * WIDE))
            self.beside = llvm.address(builder, room)

    def head(self) -> Any:
        """The elements before the first line of the target: all where no element begins one."""
        builder, nbytes = self.builder, llvm.number(self.conversion.target.nbytes)
        before = builder.and_(builder.neg(self.target), llvm.number(LINE - 1))
        even = builder.icmp_unsigned("==", builder.urem(before, nbytes), llvm.number(0))
        found = builder.select(even, builder.udiv(before, nbytes), self.count)
        few = builder.icmp_signed("<", found, self.count)
        return builder.select(few, found, self.count)

    def ask_ends(self, head: Any) -> None:
        """Ask for the lines of the target that are not written as a whole, some time before."""
        builder, nbytes = self.builder, llvm.number(self.conversion.target.nbytes)
        end = builder.add(self.target, builder.mul(self.count, nbytes))
        with builder.if_then(builder.icmp_signed("!=", head, llvm.number(0))):
            llvm.ask(builder, self.target, True)
            llvm.ask(builder, llvm.at(builder, end, -1), True)

    @contextmanager
    def ends(self, head: Any, done: Any) -> Iterator[tuple[Any, Any]]:
        """A loop over the elements before the first line and those behind the last: [from, to)."""
        builder = self.builder
        with Counted(builder, llvm.number(2), llvm.number(1)) as turn:
            tail = builder.trunc(turn, ir.IntType(1))
            first = builder.select(tail, done, llvm.number(0))
            end = builder.select(tail, self.count, head)
            with builder.if_then(builder.icmp_signed("<", first, end)):
                yield first, end

    def loaded(self, vector: Vector, index: Any) -> Any:
        """A vector of codes, as they stand."""
        builder, source = self.builder, self.conversion.source
        begin = builder.add(self.source, builder.mul(index, llvm.number(source.nbytes)))
        codes = llvm.load(builder, begin, vector.ints(8 * source.nbytes))
        if vector.lanes > LANES and self.streams != 1:
            for line in range(0, vector.lanes * source.nbytes, LINE):
                llvm.ask(builder, llvm.at(builder, builder.add(begin, self.ahead), line))
        return codes

    def store(self, value: Any, index: Any, own: Own = None) -> None:
        """Store a vector of results, past the caches where they are streamed; or elements `own`.

        Nothing else is touched: a store to a line that is on its way past the caches waits for
        it, even if it is masked there.
        """
        builder, nbytes = self.builder, llvm.number(self.conversion.target.nbytes)
        if own is None:
            stored = llvm.store(
                builder, value, builder.add(self.target, builder.mul(index, nbytes))
            )
            if self.streams and value.type.count > LANES:
                llvm.once(builder, stored, LINE)
            return
        llvm.store(builder, value, self.beside)
        first, end = own
        size = builder.mul(builder.sub(end, first), nbytes)
        begin = builder.add(self.beside, builder.mul(builder.sub(first, index), nbytes))
        llvm.copy(builder, builder.add(self.target, builder.mul(first, nbytes)), begin, size)
