"""Copies by networks: see `networks`. A network becomes one function of machine code."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from . import llvm, reference
from .bit_vectors import spaced
from .constants import HIGH, LINE, LOW, SPAN, STREAMED, TENSOR
from .copies import small_row, stream
from .jit import COMPILED, Numbers, Table, kernel
from .llvm import Builder, Value, emits
from .machine_code import machine_code
from .memory import copy, prefetch
from .networks import Network, exchanges
from .odometer import seek, step
from .run_loops import Counted
from .shares import take

NAME = "shapejit_shuffle"
# source, target, offsets of the vectors in both, blocks, step to the next block in both,
# steps to what is asked for in both
SIGNATURE = ir.FunctionType(ir.VoidType(), [llvm.I64] * 8)


def entry(network: Network) -> int:
    """What `shuffle` calls: the address of the compiled function."""
    if not COMPILED:
        return reference.network_entry(network)
    return machine_code(NAME, SIGNATURE, _write, network)


def _write(function: Any, network: Network) -> None:
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    source, target, table, count, source_step, target_step, source_ahead, target_ahead = (
        function.args
    )
    size = network.vectors

    def place(begin: Any, index: int) -> Any:
        return builder.add(begin, llvm.entry(builder, table, index))

    reads = size * network.nbytes // network.read
    writes = size * network.nbytes // network.written

    with Counted(builder, count, llvm.number(1)) as k:
        begin = builder.add(source, builder.mul(k, source_step))
        into = builder.add(target, builder.mul(k, target_step))
        piece = ir.VectorType(llvm.I8, network.read)
        pieces = []
        for i in range(reads):
            at = place(begin, i)
            llvm.ask(builder, builder.add(at, source_ahead))
            pieces.append(llvm.load(builder, at, piece))
        each = reads // size
        vectors = [llvm.joined(builder, pieces[i : i + each]) for i in range(0, reads, each)]
        made = _Vectors(builder, network, vectors).permuted()
        for i in range(writes):
            at = place(into, reads + i)
            llvm.ask(builder, builder.add(at, target_ahead), True)
            vector, part = divmod(i * network.written, network.nbytes)
            order = list(range(part, part + network.written))
            llvm.store(builder, llvm.shuffle(builder, made[vector], made[vector], order), at)
    builder.ret_void()


class _Vectors:
    """The vectors of a block, on their way through a network."""

    def __init__(self, builder: Any, network: Network, vectors: list[Any]) -> None:
        self.builder, self.network, self.vectors = builder, network, vectors

    def permuted(self) -> list[Any]:
        """The vectors as the target has them."""
        network = self.network
        steps, now = exchanges(network)
        for first, second in steps:
            self._exchange(first, second)
        low, high = network.per_byte, network.per_vector
        order = self._found(network.target[low:high], now[low:high], network.nbytes)
        ranks = self._found(network.target[high:], now[high:], network.vectors)
        made = [self._reordered(self.vectors[rank], order) for rank in ranks]
        for place in range(low):
            if network.target[place] in network.back:
                made = [self._turned(vector, place) for vector in made]
        return [self._biased(vector) for vector in made] if network.bias else made

    def _found(self, wanted: Any, now: list[int], count: int) -> list[int]:
        """Where each of `count` places finds what it wants."""
        found = [0] * count
        for place in range(count):
            for k, bit in enumerate(wanted):
                flag = place >> k & 1 ^ (bit in self.network.back)
                found[place] |= flag << now.index(bit)
        return found

    def _reordered(self, vector: Any, order: list[int]) -> Any:
        if order == list(range(len(order))):
            return vector
        return llvm.shuffle(self.builder, vector, vector, order)

    def _exchange(self, first: int, second: int) -> None:
        """Exchange two bits of all places, of which the first is the lower one."""
        low, high = self.network.per_byte, self.network.per_vector
        if second < low:
            self.vectors = [self._within_bytes(v, first, second) for v in self.vectors]
        elif second < high:
            self.vectors = [self._with_byte(v, first, 1 << (second - low)) for v in self.vectors]
        else:
            apart, vectors = 1 << (second - high), self.vectors
            for k in (k for k in range(len(vectors)) if not k & apart):
                pair = vectors[k], vectors[k + apart]
                swap = self._elements if first < low else self._bytes
                vectors[k], vectors[k + apart] = swap(*pair, first)

    def _bytes(self, a: Any, b: Any, place: int) -> tuple[Any, Any]:
        """Exchange a bit of the bytes' places with the bit that tells two vectors apart."""
        count, apart = self.network.nbytes, 1 << (place - self.network.per_byte)
        first = [i if not i & apart else count + i - apart for i in range(count)]
        second = [i + apart if not i & apart else count + i for i in range(count)]
        return llvm.shuffle(self.builder, a, b, first), llvm.shuffle(self.builder, a, b, second)

    def _elements(self, a: Any, b: Any, place: int) -> tuple[Any, Any]:
        """The same with a bit of the elements' places in their bytes."""
        builder, far = self.builder, self.network.width << place
        mask = self._bytes_of(spaced(far, 2 * far, 8))
        rest = self._bytes_of(spaced(far, 2 * far, 8) << far)
        first = builder.or_(builder.and_(a, mask), self._up(builder.and_(b, mask), far))
        second = builder.or_(builder.and_(self._down(a, far), mask), builder.and_(b, rest))
        return first, second

    def _with_byte(self, vector: Any, place: int, apart: int) -> Any:
        """Exchange a bit of the elements' places with one of the bytes' places."""
        count = self.network.nbytes
        other = llvm.shuffle(self.builder, vector, vector, [i ^ apart for i in range(count)])
        first, _ = self._elements(vector, other, place)
        _, second = self._elements(other, vector, place)
        order = [i if not i & apart else count + i for i in range(count)]
        return llvm.shuffle(self.builder, first, second, order)

    def _within_bytes(self, vector: Any, first: int, second: int) -> Any:
        """Exchange two bits of the elements' places in their bytes."""
        builder, width = self.builder, self.network.width
        per = 8 // width
        moved = [e for e in range(per) if e >> first & 1 and not e >> second & 1]
        mask = self._bytes_of(sum(((1 << width) - 1) << e * width for e in moved))
        far = (width << second) - (width << first)
        differ = builder.and_(builder.xor(self._down(vector, far), vector), mask)
        return builder.xor(vector, builder.or_(differ, self._up(differ, far)))

    def _turned(self, vector: Any, place: int) -> Any:
        """Elements whose places differ in one bit change places."""
        far = self.network.width << place
        mask = self._bytes_of(spaced(far, 2 * far, 8))
        low, high = self._down(vector, far), self._up(self.builder.and_(vector, mask), far)
        return self.builder.or_(self.builder.and_(low, mask), high)

    def _biased(self, vector: Any) -> Any:
        """Each element plus the bias, carried nowhere."""
        builder, width, bias = self.builder, self.network.width, self.network.bias
        top = spaced(1, width, 8) << (width - 1)
        each = bias * spaced(1, width, 8)
        high = builder.and_(builder.xor(vector, self._bytes_of(each)), self._bytes_of(top))
        rest = builder.and_(vector, self._bytes_of(~top & 255))
        return builder.xor(builder.add(rest, self._bytes_of(each & ~top)), high)

    def _bytes_of(self, value: int) -> Any:
        return llvm.constant(value, ir.VectorType(llvm.I8, self.network.nbytes))

    def _up(self, vector: Any, far: int) -> Any:
        """Bytes shifted by `far` bits up."""
        return self.builder.shl(vector, self._bytes_of(far))

    def _down(self, vector: Any, far: int) -> Any:
        return self.builder.lshr(vector, self._bytes_of(far))


@emits()
def shuffle(
    builder: Builder,
    entry: Value,
    src: Value,
    dst: Value,
    table: Value,
    count: Value,
    src_step: Value,
    dst_step: Value,
    src_ahead: Value,
    dst_ahead: Value,
) -> None:
    """Permute `count` blocks from address to address by the function at `entry`."""
    function = builder.inttoptr(entry, SIGNATURE.as_pointer())
    builder.call(function, [src, dst, table, count, src_step, dst_step, src_ahead, dst_ahead])


@kernel
def shuffle_blocks(
    places: Table,
    work: Numbers,
    span: Numbers,
    stage: int,
    loops: Table,
    offsets: Numbers,
    entry: int,
    count: int,
    most: int,
    source_step: int,
    target_step: int,
    source_ahead: int,
    target_ahead: int,
) -> None:
    """Permute blocks of elements: of `count` side by side in the last loop, `most` at a time."""
    at = span[SPAN:]
    last = loops.shape[0] - 1
    while take(work, span):
        source, target = places[0, span[TENSOR]], places[1, span[TENSOR]]
        s, t = seek(loops, at, span[LOW])
        for _ in range(span[LOW], span[HIGH]):
            some = min(most, count - at[last] * most)
            table = offsets.ctypes.data
            shuffle(
                entry,
                source + s,
                target + t,
                table,
                some,
                source_step,
                target_step,
                source_ahead,
                target_ahead,
            )
            s, t = step(loops, at, s, t)


@kernel
def shuffle_boxes(
    places: Table,
    work: Numbers,
    span: Numbers,
    stage: int,
    loops: Table,
    offsets: Numbers,
    entry: int,
    along: int,
    along_source: int,
    along_target: int,
    count: int,
    source_step: int,
    target_step: int,
    reads: int,
    rows: int,
    pitch: int,
    written: int,
    width: Any,
) -> None:
    """Permute boxes of blocks by way of the stage, which they leave row by row.

    A box is `along` calls for `count` blocks each. A block has a piece of `written` bytes in
    each of `rows` rows, which are `pitch` bytes apart on the stage.
    """
    at, table = span[SPAN:], offsets.ctypes.data
    streamed = work[STREAMED] != 0 and along_target == written
    while take(work, span):
        source, target = places[0, span[TENSOR]], places[1, span[TENSOR]]
        s, t = seek(loops, at, span[LOW])
        for _ in range(span[LOW], span[HIGH]):
            for i in range(along):
                begin, into = source + s + i * along_source, stage + i * written
                shuffle(
                    entry, begin, into, table, count, source_step, rows * pitch, along_source, 0
                )
            for k in range(count):
                for row in range(rows):
                    begin = stage + (k * rows + row) * pitch
                    into = target + t + k * target_step + offsets[reads + rows + row]
                    if streamed:
                        stream(into, begin, along * written)
                    elif along_target == written:
                        copy(into, begin, along * written)
                    else:
                        # The lines of the next row; behind the last one is some other line.
                        ahead = into + offsets[reads + rows + (row + 1) % rows]
                        ahead -= offsets[reads + rows + row]
                        for line in range(0, along * along_target, LINE):
                            prefetch(ahead + line)
                        for i in range(along):
                            small_row(into + i * along_target, begin + i * written, written, width)
            s, t = step(loops, at, s, t)
