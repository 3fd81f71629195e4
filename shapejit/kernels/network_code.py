"""Machine code of networks: a loop over blocks, which are loaded, permuted and stored."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir

from ..runtime.cpu_caches import LINE
from . import llvm
from .bit_vectors import spaced
from .networks import Network
from .planes import Plane
from .run_loops import Counted
from .unit_code import joined

# source, target, offsets of the vectors in both, blocks, step to the next block in both,
# steps to what is asked for in both
SIGNATURE = ir.FunctionType(ir.VoidType(), [llvm.I64] * 8)


def write(function: Any, network: Network) -> None:
    """Write the function that permutes blocks, which `shuffles.shuffle` calls."""
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    source, target, table, count, source_step, target_step, source_ahead, target_ahead = (
        function.args
    )
    reads, writes = network.block // network.read, network.block // network.written

    def place(begin: Any, index: int) -> Any:
        return builder.add(begin, llvm.entry(builder, table, index))

    with Counted(builder, count, llvm.number(1)) as k:
        begin = builder.add(source, builder.mul(k, source_step))
        into = builder.add(target, builder.mul(k, target_step))
        pieces = []
        for i in range(reads):
            at = place(begin, i)
            llvm.ask(builder, builder.add(at, source_ahead))
            for far, part in _powers(network.read):
                kind = ir.VectorType(llvm.I8, part)
                pieces.append(llvm.load(builder, llvm.at(builder, at, far), kind))
        make = _exchanged if network.exchanged else _mixed
        made, each = make(builder, network, pieces), _whole(network.written)
        for i in range(writes):
            at = place(into, reads + i)
            llvm.ask(builder, builder.add(at, target_ahead), True)
            for far, part in _powers(network.written):
                index, first = divmod(i * network.written + far, each)
                order = list(range(first, first + part))
                value = llvm.shuffle(builder, made[index], made[index], order)
                llvm.store(builder, value, llvm.at(builder, at, far))
    builder.ret_void()


def _whole(nbytes: int) -> int:
    """As many bytes of a vector as whole pieces fill, all if there is no room for one."""
    return LINE // nbytes * nbytes or LINE


def _powers(nbytes: int) -> list[tuple[int, int]]:
    """Powers of two that come to `nbytes`, the largest first, none beyond a vector: (at, bytes)."""
    found, at = [], 0
    while at < nbytes:
        part = min(LINE, 1 << ((nbytes - at).bit_length() - 1))
        found.append((at, part))
        at += part
    return found


def _mixed(builder: Any, network: Network, pieces: list[Any]) -> list[Any]:
    """The block in any order, each vector with whole pieces of the target if there is room."""
    first, second = _side_by_side(builder, pieces)

    def fetch(order: list[int]) -> Any:
        return llvm.shuffle(builder, first, second, order)

    width, per = network.width, 8 // network.width
    places, each = network.order() * width, per * _whole(network.written)
    made = []
    for at in range(0, len(places), each):
        vector = np.resize(places[at : at + each], per * LINE).tolist()
        planes = [Plane(width, k * width, tuple(vector[k::per])) for k in range(per)]
        made.append(joined(builder, fetch, planes))
    return made


def _side_by_side(builder: Any, pieces: list[Any]) -> list[Any]:
    """Pieces that two vectors have room for, as these."""
    kind, end = ir.VectorType(llvm.I8, LINE), 0
    vectors = [ir.Constant(kind, ir.Undefined)] * 2
    for piece in pieces:
        first, count = end, piece.type.count
        end += count
        wide = llvm.shuffle(builder, piece, piece, [i % count for i in range(LINE)])
        for k in range(2):
            there = range(k * LINE, k * LINE + LINE)
            order = [LINE + at - first if first <= at < end else at - k * LINE for at in there]
            if max(order) >= LINE:
                vectors[k] = llvm.shuffle(builder, vectors[k], wide, order)
    return vectors


def _exchanged(builder: Any, network: Network, pieces: list[Any]) -> list[Any]:
    """The block with bits exchanged, in vectors."""
    return _Bits(builder, network).permuted(pieces)


class _Bits:
    """The vectors of a block of bits, on their way through a network.

    A bit of an element's place tells the elements of a byte apart, the bytes of a vector, or
    the vectors. `now` has for each bit of a place, the lowest first, that of the target that it is.
    """

    def __init__(self, builder: Any, network: Network) -> None:
        self.builder, self.network = builder, network
        self.nbytes = min(LINE, network.block)
        self.low = (8 // network.width).bit_length() - 1
        self.high = self.low + self.nbytes.bit_length() - 1
        bits, begin = list[range](), 0
        for size in network.sizes:
            bits.append(range(begin, begin + size.bit_length() - 1))
            begin = bits[-1].stop
        self.now = [bit for digit in network.source for bit in bits[digit]]
        self.back = {bit for digit in network.back for bit in bits[digit]}

    def permuted(self, pieces: list[Any]) -> list[Any]:
        """The vectors as the target has them."""
        each = self.nbytes // pieces[0].type.count
        starts = range(0, len(pieces), each)
        self.vectors = [llvm.joined(self.builder, pieces[i : i + each]) for i in starts]
        now, low, high = self.now, self.low, self.high
        for place in range(low):
            if now[place] != place:
                self._exchange(place, now.index(place))
        for place in range(low, high):
            if not low <= now[place] < high:
                self._exchange(
                    place, next(p for p in range(high, len(now)) if low <= now[p] < high)
                )
        order, ranks = self._found(low, high), self._found(high, len(now))
        made = [self._reordered(self.vectors[rank], order) for rank in ranks]
        for place in range(low):
            if place in self.back:
                made = [self._turned(vector, place) for vector in made]
        return [self._biased(vector) for vector in made] if self.network.bias else made

    def _found(self, low: int, high: int) -> list[int]:
        """Where each byte of a vector, or each vector, is found, whose bits are [low, high)."""
        found = [0] * (1 << (high - low))
        for place in range(len(found)):
            for bit in range(low, high):
                flag = place >> (bit - low) & 1 ^ (bit in self.back)
                found[place] |= flag << (self.now[low:high].index(bit))
        return found

    def _reordered(self, vector: Any, order: list[int]) -> Any:
        if order == list(range(len(order))):
            return vector
        return llvm.shuffle(self.builder, vector, vector, order)

    def _exchange(self, first: int, second: int) -> None:
        """Exchange two bits of all places, of which the first is the lower one."""
        low, high, now = self.low, self.high, self.now
        now[first], now[second] = now[second], now[first]
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
        count, apart = self.nbytes, 1 << (place - self.low)
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
        count = self.nbytes
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
        return llvm.constant(value, ir.VectorType(llvm.I8, self.nbytes))

    def _up(self, vector: Any, far: int) -> Any:
        """Bytes shifted by `far` bits up."""
        return self.builder.shl(vector, self._bytes_of(far))

    def _down(self, vector: Any, far: int) -> Any:
        return self.builder.lshr(vector, self._bytes_of(far))
