"""Machine code of networks: a loop over blocks, which are loaded, permuted and stored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir

from ..runtime.cpu_caches import LINE
from . import llvm
from .bit_vectors import spaced
from .llvm import Builder, Value
from .networks import Mixed, Network, exchanges
from .run_loops import Counted

# source, target, offsets of the vectors in both, blocks, step to the next block in both,
# steps to what is asked for in both
SIGNATURE = ir.FunctionType(ir.VoidType(), [llvm.I64] * 8)


def write(function: Any, network: Network | Mixed) -> None:
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
            pieces += _parts(builder, at, network.read)
        made = _Mixing(builder, network) if isinstance(network, Mixed) else _Bits(builder, network)
        written = made.permuted(pieces)
        for i in range(writes):
            at = place(into, reads + i)
            llvm.ask(builder, builder.add(at, target_ahead), True)
            for far, part in _powers(network.written):
                llvm.store(
                    builder, written(i * network.written + far, part), llvm.at(builder, at, far)
                )
    builder.ret_void()


def _powers(nbytes: int) -> list[tuple[int, int]]:
    """Powers of two that come to `nbytes`, the largest first, none beyond a vector: (at, bytes)."""
    found, at = [], 0
    while at < nbytes:
        part = min(LINE, 1 << ((nbytes - at).bit_length() - 1))
        found.append((at, part))
        at += part
    return found


def _parts(builder: Builder, at: Value, nbytes: int) -> list[Any]:
    """A piece of the source, in vectors."""
    return [
        llvm.load(builder, llvm.at(builder, at, far), ir.VectorType(llvm.I8, part))
        for far, part in _powers(nbytes)
    ]


class _Mixing:
    """The elements of a block in any order."""

    def __init__(self, builder: Any, network: Mixed) -> None:
        self.builder, self.network = builder, network
        self.kind = ir.VectorType(llvm.I8, LINE)
        self.width, self.per = network.width, 8 // network.width

    def permuted(self, pieces: list[Any]) -> Callable[[int, int], Any]:
        """What gives so many bytes from a byte of the block on."""
        network = self.network
        self.vectors = self._filled(pieces)
        self.shifted: dict[tuple[int, int], Any] = {}
        each = LINE // network.written * network.written or LINE
        made = [
            self._vector(at, min(each, network.block - at)) for at in range(0, network.block, each)
        ]

        def bytes_from(at: int, count: int) -> Any:
            index, first = divmod(at, each)
            order = list(range(first, first + count))
            return llvm.shuffle(self.builder, made[index], made[index], order)

        return bytes_from

    def _filled(self, pieces: list[Any]) -> list[Any]:
        """The pieces side by side, in whole vectors."""
        vectors, used = [ir.Constant(self.kind, ir.Undefined)], 0
        for piece in pieces:
            count = piece.type.count
            wide = llvm.shuffle(self.builder, piece, piece, [i % count for i in range(LINE)])
            done = 0
            while done < count:
                if used == LINE:
                    vectors.append(ir.Constant(self.kind, ir.Undefined))
                    used = 0
                some = min(count - done, LINE - used)
                order = list(range(LINE))
                order[used : used + some] = range(LINE + done, LINE + done + some)
                vectors[-1] = llvm.shuffle(self.builder, vectors[-1], wide, order)
                done, used = done + some, used + some
        return vectors

    def _vector(self, at: int, count: int) -> Any:
        """`count` bytes of the block from byte `at` on, in a vector."""
        made = None
        for slot in range(self.per):
            wanted = self.network.elements[
                self.per * at + slot : self.per * (at + count) : self.per
            ]
            found = self._chosen([(*divmod(element, self.per), slot) for element in wanted])
            if self.per > 1:
                mask = llvm.constant(((1 << self.width) - 1) << slot * self.width, self.kind)
                found = self.builder.and_(found, mask)
            made = found if made is None else self.builder.or_(made, found)
        return made

    def _chosen(self, wanted: list[tuple[int, int, int]]) -> Any:
        """A vector of bytes of the block, each with one of its elements at another place."""
        places = [((byte // LINE, slot - old), byte % LINE) for byte, old, slot in wanted]
        first, *more = dict.fromkeys(source for source, _ in places)
        made, rest, moved = self._moved(*first), [*range(len(places), LINE)], False
        for source in more or [first]:
            order = [
                LINE + byte if own == source else byte if own == first and not moved else i
                for i, (own, byte) in enumerate(places)
            ]
            made = llvm.shuffle(self.builder, made, self._moved(*source), order + rest)
            moved = True  # what the first vector has is where it should be
        return made

    def _moved(self, vector: int, slots: int) -> Any:
        """A vector of the source whose elements have moved up by some places within bytes."""
        if (vector, slots) not in self.shifted:
            builder, made = self.builder, self.vectors[vector]
            if slots:
                # Lanes of 16 bits: there is no shift of bytes. What crosses is masked out later.
                wide = ir.VectorType(ir.IntType(16), LINE // 2)
                made, far = (
                    builder.bitcast(made, wide),
                    llvm.constant(abs(slots) * self.width, wide),
                )
                made = builder.shl(made, far) if slots > 0 else builder.lshr(made, far)
                made = builder.bitcast(made, self.kind)
            self.shifted[vector, slots] = made
        return self.shifted[vector, slots]


class _Bits:
    """The vectors of a block, on their way through a network."""

    def __init__(self, builder: Any, network: Network) -> None:
        self.builder, self.network = builder, network

    def permuted(self, pieces: list[Any]) -> Callable[[int, int], Any]:
        """What gives so many bytes from a byte of the block on."""
        each, nbytes = self.network.nbytes // self.network.read, self.network.nbytes
        starts = range(0, len(pieces), each)
        self.vectors = [llvm.joined(self.builder, pieces[i : i + each]) for i in starts]
        made = self._made()

        def bytes_from(at: int, count: int) -> Any:
            vector, part = divmod(at, nbytes)
            order = list(range(part, part + count))
            return llvm.shuffle(self.builder, made[vector], made[vector], order)

        return bytes_from

    def _made(self) -> list[Any]:
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
