"""Moves of a few bytes between bit addresses, for elements narrower than a byte.

Elements are packed least significant bits first. A code is an element in a byte of its own. The
width of elements, 1, 2, 3, 4 or 6 bits, is passed as the length of a tuple.
"""

from __future__ import annotations

from math import lcm
from typing import Any

from llvmlite import ir
from numba import types

from ..runtime.cpu_caches import LINE
from . import llvm
from .bit_permutations import (
    Piece,
    bits_of,
    load_shifted,
    loaded,
    permuted,
    picked,
    side_by_side,
)
from .constants import PIECE
from .llvm import Address, Builder, Tag, Value, emits
from .planes import Plane
from .pointers import moved

_BIT, _WORDS = ir.IntType(1), ir.VectorType(llvm.I64, LINE // 8)


def spaced(bits: int, apart: int, total: int) -> int:
    """The mask of `bits` ones at every multiple of `apart` below `total`."""
    return sum(((1 << bits) - 1) << at for at in range(0, total, apart))


@emits()
def shift_words(builder: Builder, dst: Address, src: Address, shift: Value, words: Tag) -> None:
    """Copy `words` of 8 bytes from `shift` bits (1 to 7) after an address."""
    llvm.store(builder, load_shifted(builder, src, shift, 8 * words.count), dst)


@emits()
def stream_shifted(builder: Builder, dst: Address, src: Address, shift: Value) -> None:
    """`shift_words` of a line, to an aligned line of memory, by nontemporal stores."""
    stored = llvm.store(builder, load_shifted(builder, src, shift, LINE), dst)
    llvm.nontemporal(builder, stored, LINE)


@emits()
def set_bits(builder: Builder, address: Address, mask: Value, value: Value) -> None:
    """Set the bits of `mask` in a byte to those of `value`; other threads may set the rest."""
    mask, value = (builder.trunc(bits, llvm.I8) for bits in (mask, value))
    builder.atomic_rmw("and", address, builder.not_(mask), "monotonic")
    builder.atomic_rmw("or", address, builder.and_(value, mask), "monotonic")


def swapped(builder: Builder, a: Value, b: Value, far: Value) -> tuple[Value, Value]:
    """Exchange the upper of two fields of `far` bits in one vector with the lower in another."""
    shift, mask = _fields(builder, far, a.type.count)
    differ = builder.and_(builder.xor(builder.lshr(a, shift), b), mask)
    return builder.xor(a, builder.shl(differ, shift)), builder.xor(b, differ)


@emits()
def exchange(builder: Builder, first: Address, second: Address, far: Value) -> None:
    """`swapped` fields of `far` bits, 1, 2 or 4, of two lines of memory."""
    places = first, second
    a, b = (llvm.load(builder, place, _WORDS) for place in places)
    for place, line in zip(places, swapped(builder, a, b, far), strict=True):
        llvm.store(builder, line, place)


@emits()
def exchange_neighbours(builder: Builder, line: Address, far: Value, apart: Tag) -> None:
    """`exchange` of the words of a line with those `apart` words after them, 1, 2 or 4."""
    count, step = _WORDS.count, apart.count
    value, others = llvm.load(builder, line, _WORDS), [k ^ step for k in range(count)]
    a, b = swapped(builder, value, llvm.shuffle(builder, value, value, others), far)
    order = [count + other if other < k else k for k, other in enumerate(others)]
    llvm.store(builder, llvm.shuffle(builder, a, b, order), line)


def _fields(builder: Builder, far: Value, count: int) -> tuple[Value, Value]:
    """A width of fields, 1, 2 or 4, and the mask of every other one, for each of some words."""
    mask = llvm.number(spaced(1, 2, 64))
    for n in (2, 4):
        wider = builder.icmp_signed(">=", far, llvm.number(n))
        mask = builder.select(wider, llvm.number(spaced(n, 2 * n, 64)), mask)
    return llvm.splat(builder, far, count), llvm.splat(builder, mask, count)


def _eight(builder: Builder, first: Value, step: Value) -> tuple[list[Value], Any]:
    """The first byte of each of 8 positions in bits, and the bits before it, as a vector."""
    positions = [builder.add(first, builder.mul(step, llvm.number(k))) for k in range(8)]
    steps = builder.mul(llvm.splat(builder, step, 8), ir.Constant(_WORDS, list(range(8))))
    shifts = builder.add(llvm.splat(builder, first, 8), steps)
    places = [builder.ashr(position, llvm.number(3)) for position in positions]
    return places, builder.and_(shifts, llvm.constant(7, _WORDS))


@emits()
def split_eight(builder: Builder, dst: Address, src: Address, first: Value, spacing: Value) -> None:
    """Write 8 words from bits that are `spacing` bits apart; 57 bits of each mean something.

    The first one is `first` (0 to 7) after an address.
    """
    places, shifts = _eight(builder, first, spacing)
    value = ir.Constant(_WORDS, ir.Undefined)
    for k, place in enumerate(places):
        word = llvm.load(builder, moved(builder, src, place), llvm.I64)
        value = builder.insert_element(value, word, llvm.number(k))
    llvm.store(builder, builder.lshr(value, shifts), dst)


@emits()
def join_eight(
    builder: Builder, dst: Address, first: Value, src: Address, nbits: Value, mask: Value
) -> None:
    """Append the first `nbits` bits, 8 to 57 with this mask, of 8 words to `first` bits (0 to 7).

    The word before them ends with the bits that are there already.
    """
    places, shifts = _eight(builder, first, nbits)
    width, used = (llvm.splat(builder, value, 8) for value in (nbits, mask))
    value, earlier = (
        builder.and_(llvm.load(builder, llvm.at(builder, src, at), _WORDS), used) for at in (0, -8)
    )
    earlier = builder.lshr(earlier, builder.sub(width, shifts))
    value = builder.or_(builder.shl(value, shifts), earlier)
    for k, place in enumerate(places):
        word = builder.extract_element(value, llvm.number(k))
        llvm.store(builder, word, moved(builder, dst, place))


@emits()
def unpack_line(builder: Builder, dst: Address, src: Address, shift: Value, bits: Tag) -> None:
    """Write 64 codes of the elements from `shift` bits (0 to 7) after an address.

    With shift 0 nothing is read after the last element's byte.
    """
    on_byte = builder.icmp_signed("==", shift, llvm.number(0))
    with builder.if_else(on_byte) as branches:
        for branch, by in zip(branches, (None, shift), strict=True):
            with branch:
                pieces = loaded(builder, src, LINE * bits.count // 8, shift=by)
                codes = _codes(builder, side_by_side(builder, pieces), bits.count, LINE)
                llvm.store(builder, codes, dst)


def _codes(builder: Any, packed: Piece, width: int, count: int) -> Any:
    """The codes of the first `count` elements in a vector."""
    plane = Plane(width, 0, tuple(range(0, count * width, width)))
    return permuted(builder, picked, packed, bits_of([plane]))


@emits(types.int64)
def spread(builder: Builder, word: Value, bits: Tag) -> Value:
    """The codes of the 8 elements at the start of a word."""
    packed = builder.bitcast(word, ir.VectorType(llvm.I8, 8)), list(range(8))
    return builder.bitcast(_codes(builder, packed, bits.count, 8), llvm.I64)


@emits()
def pack_line(builder: Builder, dst: Address, src: Address, bits: Tag) -> None:
    """Write 64 elements from 64 codes with any high bits; 4 more bytes may change."""
    width, group = bits.count, lcm(8, bits.count) // bits.count
    if width == 1:
        codes = llvm.load(builder, src, ir.VectorType(llvm.I8, LINE))
        packed = builder.trunc(codes, ir.VectorType(_BIT, LINE))
        llvm.store(builder, builder.bitcast(packed, llvm.I64), dst)
        return
    wide = ir.VectorType(ir.IntType(8 * group), LINE // group)
    value = _compacted(builder, llvm.load(builder, src, wide), width)
    if 8 % width == 0:
        packed = builder.trunc(value, ir.VectorType(llvm.I8, wide.count))
        llvm.store(builder, packed, dst)
        return
    value = builder.bitcast(value, ir.VectorType(llvm.I8, LINE))
    used = 2 * width
    for k in range(LINE // PIECE):
        kept = [PIECE * k + group * (byte // 3) + byte % 3 for byte in range(used)]
        kept += [PIECE * k] * ((16 if width == 6 else 8) - used)
        part = llvm.shuffle(builder, value, value, kept)
        llvm.store(builder, part, llvm.at(builder, dst, k * used))


def _compacted(builder: Any, value: Any, width: int) -> Any:
    """The elements of the codes in each lane, side by side; high bits of codes are ignored."""
    nbits, count = value.type.element.width, 1
    while 16 * count <= nbits:
        near, apart = spaced(count * width, 16 * count, nbits), count * (8 - width)
        high = builder.and_(value, llvm.constant(near << 8 * count, value.type))
        low = builder.and_(value, llvm.constant(near, value.type))
        value = builder.or_(low, builder.lshr(high, llvm.constant(apart, value.type)))
        count *= 2
    return value
