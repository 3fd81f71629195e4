"""Generator of permutations of bits between vectors of bytes: one for packings, units and networks.

A vector is described by the source of each of its bits. Its bytes are picked from those that hold
these bits, as many times as one of them has bits of several; what moves equally far within bytes is
shifted together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from typing import Any

import numpy as np
from llvmlite import ir
from numpy.typing import NDArray

from . import llvm
from .networks import parts
from .planes import Plane

Bits = NDArray[np.int64]  # a row of 8 for each byte of a vector: the sources of its bits, or -1
Piece = tuple[Any, list[int]]  # a vector of bytes, and their offsets
Pick = Callable[[Any, Any, list[int]], Any]  # the bytes of a source at some offsets, as a vector


def loaded(builder: Any, place: Any, nbytes: int, first: int = 0, shift: Any = None) -> list[Piece]:
    """The `nbytes` from `shift` bits after an address, whose offsets are those from `first` on."""
    pieces = list[Piece]()
    for at, part in parts(nbytes):
        begin, kind = llvm.at(builder, place, at), ir.VectorType(llvm.I8, part)
        if shift is None:
            value = llvm.load(builder, begin, kind)
        else:
            value = builder.bitcast(load_shifted(builder, begin, shift, part), kind)
        pieces.append((value, [*range(first + at, first + at + part)]))
    return pieces


def load_shifted(builder: Any, src: Any, shift: Any, nbytes: int) -> Any:
    """Bytes from `shift` bits (1 to 7) after an address, as words; one byte more is read."""
    kind = ir.VectorType(llvm.I64, nbytes // 8)
    low = llvm.load(builder, src, kind)
    high = llvm.load(builder, llvm.at(builder, src, 1), kind)
    right = llvm.splat(builder, shift, kind.count)
    left = builder.sub(llvm.constant(8, kind), right)
    return builder.or_(builder.lshr(low, right), builder.shl(high, left))


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


def picked(builder: Any, piece: Piece, order: list[int]) -> Any:
    """The bytes with the given offsets, as a vector."""
    value, offsets = piece
    where = [offsets.index(at) for at in order]
    if where == list(range(value.type.count)):
        return value
    return llvm.shuffle(builder, value, value, where)


def bits_of(planes: Sequence[Plane]) -> Bits:
    """The bits of elements in planes, each in a byte of its own."""
    bits = np.full((len(planes[0].places), 8), -1)
    for width, low, places in planes:
        bits[:, low : low + width] = np.add.outer(places, range(width))
    return bits


def permuted(builder: Any, pick: Pick, source: Any, bits: Bits) -> Any:
    """The vector of these bits; each byte has one at least."""
    made, left, to = list[Any](), bits >= 0, np.arange(8)
    octets, places = bits >> 3, bits & 7
    for k in range(8):
        if left[:, k].any():
            here = np.where(left[:, k], octets[:, k], octets.max(axis=1))
            now = left & (octets == here[:, None])
            value, masks = pick(builder, source, here.tolist()), np.where(now, 1 << places, 0)
            made += _moved(builder, value, masks, places - to)
            left &= ~now
    return reduce(builder.or_, made)


def _moved(builder: Any, value: Any, masks: NDArray[Any], shifts: NDArray[Any]) -> Iterator[Any]:
    """Bits of a vector moved right by `shifts`: in one byte each is shifted, or tested.

    `masks` has the bits, 0 if there are none.
    """

    def of(vector: Any, bits: NDArray[Any]) -> Any:
        return builder.and_(vector, ir.Constant(value.type, bits.tolist()))

    targets, apart = np.flatnonzero(masks.any(axis=0)).tolist(), np.unique(shifts[masks > 0])
    if len(targets) < len(apart):
        for k in targets:
            zero, one = (llvm.constant(n, value.type) for n in (0, 1 << k))
            there = builder.icmp_unsigned("!=", of(value, masks[:, k]), zero)
            yield builder.select(there, one, zero)
        return
    for shift in apart.tolist():
        together = np.where((shifts == shift) & (masks > 0), 1 << np.arange(8), 0)
        yield of(shifted(builder, value, shift), together.sum(axis=1))


def shifted(builder: Any, value: Any, right: int) -> Any:
    """Bytes shifted right, or left by a negative count, with bits of neighbours shifted in."""
    if right == 0:
        return value
    kind = value.type
    wide = ir.VectorType(ir.IntType(16), kind.count // 2) if kind.count > 1 else kind
    words, by = builder.bitcast(value, wide), llvm.constant(abs(right), wide)
    return builder.bitcast((builder.lshr if right > 0 else builder.shl)(words, by), kind)
