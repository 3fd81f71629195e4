"""Generates the code of a Network: a loop that loads, permutes and stores blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import reduce
from typing import Any

import numpy as np
from llvmlite import ir
from numpy.typing import NDArray

from ..runtime.cpu_caches import LINE
from . import llvm
from .bit_permutations import Bits, Pick, Piece, loaded, permuted, picked, side_by_side
from .bit_vectors import spaced, swapped
from .constants import PIECE
from .memory import VECTOR
from .networks import Network, parts
from .pointers import moved
from .unit_generator import SIGNATURE as SIGNATURE, blocks

# Bytes that are put in place at a time: as many as an instruction moves to any place.
AT_A_TIME = VECTOR if VECTOR == LINE else PIECE


def write(function: Any, network: Network) -> None:
    """Write the function that permutes blocks."""
    table, source_ahead, target_ahead = (function.args[k] for k in (2, 6, 7))
    reads, writes = network.pieces
    with blocks(function) as (builder, begin, into):

        def places(start: Any, indices: range, ahead: Any, written: bool) -> Iterator[Any]:
            for index in indices:
                at = moved(builder, start, llvm.entry(builder, table, index))
                llvm.prefetch(builder, moved(builder, at, ahead), written)
                yield at

        sources = places(begin, range(reads), source_ahead, False)
        targets = places(into, range(reads, reads + writes), target_ahead, True)
        permute(builder, network, sources, targets)


def permute(builder: Any, network: Network, sources: Iterable[Any], targets: Iterable[Any]) -> None:
    """Permute one block, given the addresses of its pieces."""
    pieces = list[Piece]()
    for i, at in enumerate(sources):
        pieces += loaded(builder, at, network.read, i * network.read)
    if network.exchanged:
        made = exchanged(builder, network, [piece for piece, _ in pieces], min(LINE, network.block))
    else:
        made = _mixed(builder, network, pieces)
    for i, at in enumerate(targets):
        for far, part in parts(network.written):
            value = made(i * network.written + far, part)
            if network.flips:
                tops = spaced(1, network.width, 8) << (network.width - 1)
                value = builder.xor(value, llvm.constant(tops, value.type))
            llvm.store(builder, value, llvm.at(builder, at, far))


Vectors = Callable[[int, int], Any]  # the bytes of a block from one on, as a vector


def _mixed(builder: Any, network: Network, pieces: list[Piece]) -> Vectors:
    """The block in any order; a vector has as many pieces of the target as fit."""
    order, per = network.order(), 8 // network.width
    together = max(1, LINE // network.written) * network.written
    pick: Pick = _gathered
    source: Any = pieces
    whole = side_by_side(builder, pieces)
    if network.read < 2 * PIECE or _of_two(network, whole[1]):
        pick, source = picked, whole

    def vector(first: int, nbytes: int) -> Any:
        places = np.resize(order[per * first : per * (first + together)], per * nbytes)
        return permuted(builder, pick, source, _bits(places, network.width))

    if network.written >= LINE:
        return vector
    vectors = [vector(first, LINE) for first in range(0, network.block, together)]
    return lambda first, part: _part(builder, vectors[first // together], first % together, part)


def _bits(order: NDArray[np.int64], width: int) -> Bits:
    """The bits of packed elements of `width` bits with these indices in the source."""
    return (order[:, None] * width + np.arange(width)).reshape(-1, 8)


def _of_two(network: Network, offsets: list[int]) -> bool:
    """Whether each vector of the target comes from at most two of the source, at these offsets."""
    octets, some = network.order() * network.width // 8, 8 * VECTOR // network.width
    lanes = {offset: lane for lane, offset in enumerate(offsets)}
    vectors = [lanes[octet] // VECTOR for octet in octets.tolist()]
    return all(len({*vectors[k : k + some]}) < 3 for k in range(0, len(vectors), some))


def _gathered(builder: Any, pieces: list[Piece], order: list[int]) -> Any:
    """The bytes with the given offsets: some of them at a time are put in place among zeros.

    LLVM splits one shuffle of them all, and may then move bytes one by one: 100 times as slowly.
    """
    made, left = list[Any](), {*range(len(order))}
    for value, offsets in pieces:
        for first in range(0, value.type.count, AT_A_TIME):
            lanes = range(first, min(first + AT_A_TIME, value.type.count))
            part = {offsets[lane]: lane - first for lane in lanes}
            there = {k: part[order[k]] for k in left if order[k] in part}
            left -= there.keys()
            if there:
                piece = llvm.shuffle(builder, value, value, [*lanes])
                places = [there.get(k, len(lanes)) for k in range(len(order))]
                made.append(llvm.shuffle(builder, piece, llvm.constant(0, piece.type), places))
    return reduce(builder.or_, made)


def _part(builder: Any, vector: Any, first: int, count: int) -> Any:
    """A part of a vector."""
    return llvm.shuffle(builder, vector, vector, list(range(first, first + count)))


def exchanged(builder: Any, network: Network, pieces: list[Any], nbytes: int) -> Vectors:
    """The block, whose index digits are bits, as vectors of `nbytes`.

    Bits of the index of a vector are exchanged with bits within vectors until each vector has its
    own elements. `now` lists for each bit of the current index, lowest first, the bit of the target
    that it is.
    """
    octet, lane, high = ((8 * n // network.width).bit_length() - 1 for n in (1, PIECE, nbytes))
    digits, count = list[tuple[int, range]](), 0
    for size, step in network.digits:
        digits.append((step, range(count, count + size.bit_length() - 1)))
        count = digits[-1][1].stop
    now = [bit for _, bits in sorted(digits, key=lambda digit: abs(digit[0])) for bit in bits]
    back = {bit for step, bits in digits if step < 0 for bit in bits}
    each = nbytes // pieces[0].type.count
    vectors = [llvm.joined(builder, pieces[i : i + each]) for i in range(0, len(pieces), each)]
    for place in range(high):
        other = now.index(place)
        # Selecting bits costs more than an exchange, so bits within bytes are put in place at once.
        if now[place] < high and (other < high or place >= octet):
            continue
        if other < high:
            other = next(p for p in range(high, count) if now[p] < high)
        move, leaves = _exchange, place
        if octet <= place < lane <= high and now[lane - 1] >= high:
            move, leaves = _interleave, lane - 1
        now.insert(place, now[other])
        now[other] = now.pop(leaves + 1)
        apart = 1 << (other - high)
        for k in (k for k in range(len(vectors)) if not k & apart):
            pair = vectors[k], vectors[k + apart]
            vectors[k], vectors[k + apart] = move(builder, *pair, network.width << place)

    def found(low: int, high: int) -> list[int]:
        """The original index of each element, or vector, numbered by bits [low, high)."""
        where = [(now[low:high].index(bit), bit - low, bit in back) for bit in range(low, high)]
        return [
            sum((k >> bit & 1 ^ turned) << place for place, bit, turned in where)
            for k in range(1 << (high - low))
        ]

    bits = _bits(np.array(found(0, high)), network.width)
    whole = [(vectors[k], list(range(nbytes))) for k in found(high, count)]
    made = [permuted(builder, picked, piece, bits) for piece in whole]
    return lambda first, part: _part(builder, made[first // nbytes], first % nbytes, part)


def _exchange(builder: Any, a: Any, b: Any, far: int) -> list[Any]:
    """Exchange alternate fields of `far` bits between two vectors."""
    if far < 8:
        wide = ir.VectorType(llvm.I64, a.type.count // 8)
        first, second = (builder.bitcast(vector, wide) for vector in (a, b))
        pair = swapped(builder, first, second, llvm.number(far))
        return [builder.bitcast(vector, a.type) for vector in pair]
    count, apart = a.type.count, far // 8
    first = [i if not i & apart else count + i - apart for i in range(count)]
    second = [i + apart if not i & apart else count + i for i in range(count)]
    return [llvm.shuffle(builder, a, b, order) for order in (first, second)]


def _interleave(builder: Any, a: Any, b: Any, far: int) -> list[Any]:
    """Fields of `far` bits of two vectors in turn: of lower halves of 16 bytes, of upper ones."""
    fields = np.arange(2 * a.type.count).reshape(2, -1, 2, PIECE * 4 // far, far // 8)
    halves = fields.transpose(2, 1, 3, 0, 4).reshape(2, -1).tolist()
    return [llvm.shuffle(builder, a, b, order) for order in halves]
