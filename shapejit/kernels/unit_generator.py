"""Generator of the function of a Unit: reads the codes of units of planes (see `planes`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial, reduce
from math import gcd
from typing import Any

from llvmlite import ir

from ..runtime.cpu_caches import LINE
from . import llvm
from .llvm import POINTER
from .planes import Plane, Unit
from .pointers import moved

Fetch = Callable[[list[int]], Any]  # the bytes at some offsets, as a vector
Piece = tuple[Any, list[int]]  # a vector of bytes, and their offsets

# source, target, a table of offsets, blocks, step to the next block in both, distances of
# prefetching in both
SIGNATURE = ir.FunctionType(ir.VoidType(), [POINTER] * 3 + [llvm.I64] * 5)


@contextmanager
def blocks(function: Any, size: int = 0) -> Iterator[tuple[Any, Any, Any]]:
    """The loop of a function with this SIGNATURE: a builder, and a block's source and target.

    If blocks have a `size`, they follow one another in the target.
    """
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    source, target, _, count, source_step, target_step, _, _ = function.args
    if size:
        target_step = llvm.number(size)
    with llvm.counted(builder, count, llvm.number(1)) as k:
        begin = moved(builder, source, builder.mul(k, source_step))
        yield builder, begin, moved(builder, target, builder.mul(k, target_step))
    builder.ret_void()


def write(function: Any, unit: Unit) -> None:
    """Write the function that reads units; it needs no table."""
    lanes = gcd(unit.size, LINE)
    with blocks(function, unit.size) as (builder, begin, into):
        for first in range(0, unit.size, lanes):
            planes = [p._replace(places=p.places[first : first + lanes]) for p in unit.planes]
            value = joined(builder, partial(_bytes, builder, begin), planes)
            llvm.store(builder, value, llvm.at(builder, into, first))


def joined(builder: Any, fetch: Fetch, planes: Iterable[Plane]) -> Any:
    """The bits of some planes as one vector, with a byte for each element."""
    return reduce(builder.or_, (_plane(builder, fetch, plane) for plane in planes))


def _plane(builder: Any, fetch: Fetch, plane: Plane) -> Any:
    """The bits of a plane, with a byte for each element, at their position in the code."""
    bits, low, places = plane
    firsts, lasts = ([(place + more) >> 3 for place in places] for more in (0, bits - 1))
    if bits == 8:
        return fetch(firsts)
    if bits == 1:
        value = fetch(firsts)
        masks = ir.Constant(value.type, [1 << (place & 7) for place in places])
        zero, one = (llvm.constant(n, value.type) for n in (0, 1 << low))
        there = builder.icmp_unsigned("!=", builder.and_(value, masks), zero)
        return builder.select(there, one, zero)
    found = dict[int, Any]()
    for octets in [firsts] if lasts == firsts else [firsts, lasts]:
        value = fetch(octets)
        shifts = [place - 8 * octet - low for place, octet in zip(places, octets, strict=True)]
        for shift in sorted({*shifts} - found.keys()):
            # The bits of an element that are in this byte.
            mask = (255 >> shift if shift > 0 else 255 << -shift & 255) & ((1 << bits) - 1) << low
            masks = ir.Constant(value.type, [mask if other == shift else 0 for other in shifts])
            found[shift] = builder.and_(shifted(builder, value, shift), masks)
    return reduce(builder.or_, found.values())


def shifted(builder: Any, value: Any, right: int) -> Any:
    """Bytes shifted right, or left by a negative count, with bits of neighbours shifted in."""
    if right == 0:
        return value
    kind = value.type
    wide = ir.VectorType(ir.IntType(16), kind.count // 2) if kind.count > 1 else kind
    words, by = builder.bitcast(value, wide), llvm.constant(abs(right), wide)
    return builder.bitcast((builder.lshr if right > 0 else builder.shl)(words, by), kind)


def _bytes(builder: Any, begin: Any, order: list[int]) -> Any:
    """Exactly the bytes at the given offsets, as a vector."""
    pieces = list[Piece]()
    for first, count in _runs(sorted(set(order))):
        loaded = llvm.load(builder, llvm.at(builder, begin, first), ir.VectorType(llvm.I8, count))
        pieces.append((loaded, list(range(first, first + count))))
    return picked(builder, side_by_side(builder, pieces), order)


def picked(builder: Any, piece: Piece, order: list[int]) -> Any:
    """The bytes with the given offsets, as a vector."""
    value, offsets = piece
    where = [offsets.index(at) for at in order]
    if where == list(range(value.type.count)):
        return value
    return llvm.shuffle(builder, value, value, where)


def side_by_side(builder: Any, pieces: list[Piece]) -> Piece:
    """All pieces in one vector; unused lanes have the offset -1."""
    size = max(len(offsets) for _, offsets in pieces)
    vectors, held = list[Any](), list[int]()
    for value, offsets in pieces:
        spare = [0] * (size - len(offsets))
        if spare:
            value = llvm.shuffle(builder, value, value, [*range(len(offsets)), *spare])
        vectors.append(value)
        held += [*offsets, *(-1 for _ in spare)]
    count = 1 << (len(vectors) - 1).bit_length()
    return llvm.joined(builder, vectors + vectors[:1] * (count - len(vectors))), held


def _runs(offsets: list[int]) -> list[tuple[int, int]]:
    """Ascending offsets as runs (first, count) whose lengths are powers of two, up to a line."""
    made, k = list[tuple[int, int]](), 0
    while k < len(offsets):
        count = 1
        while count < LINE and offsets[k : k + 2 * count][-1] == offsets[k] + 2 * count - 1:
            count *= 2
        made.append((offsets[k], count))
        k += count
    return made
