"""Blocks of elements permuted in registers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir

from . import llvm
from .constants import PIECE, WIDTHS
from .llvm import Address, Builder, Tag, Value, emits
from .pointers import moved

# Tags: how many rows a block has.
VECTOR_ROWS = WIDTHS[1]  # rows that fill a vector of each column
LINE_ROWS = WIDTHS[2]  # rows that fill a line, which is streamed


@emits()
def transpose_block(
    builder: Builder,
    src: Address,
    rows: Address,
    dst: Address,
    columns: Address,
    block: Tag,
    width: Tag,
    pieces: Tag,
) -> None:
    """Transpose one block in registers.

    Row i is 16 bytes at `src` + rows[i]; there are `pieces` * 16 / width of them. Column k of all
    rows is written contiguously to `dst` + columns[k]. Columns are stored in order: stores may run
    over the end of a column, if the next one overwrites that. A part of LINE_ROWS is stored
    nontemporally: then `dst` + columns[k] are aligned to a vector.
    """

    def place(i: int) -> Address:
        return moved(builder, src, llvm.entry(builder, rows, i))

    for k, column in enumerate(_columns(builder, place, width, pieces)):
        into = moved(builder, dst, llvm.entry(builder, columns, k))
        stored = llvm.store(builder, column, into)
        if llvm.size(block) > 1:
            llvm.nontemporal(builder, stored, llvm.size(pieces) * PIECE)


@emits()
def transpose_even(
    builder: Builder,
    src: Address,
    pitch: Value,
    dst: Address,
    apart: Value,
    width: Tag,
    pieces: Tag,
) -> None:
    """`transpose_block` of rows `pitch` bytes apart, whose columns go `apart` bytes apart."""

    def place(i: int) -> Address:
        return llvm.at(builder, src, i, pitch)

    for k, column in enumerate(_columns(builder, place, width, pieces)):
        llvm.store(builder, column, llvm.at(builder, dst, k, apart))


@emits()
def transpose_interleaved(
    builder: Builder, src: Address, dst: Address, columns: Address, width: Tag, pieces: Tag
) -> None:
    """`transpose_block` of interleaved rows, whose pieces are in place already.

    Vector k at `src` holds rows k, k + n, k + 2n ..., 16 bytes of each; n = 16 / width.
    """
    nbytes, unit = llvm.size(pieces) * PIECE, min(llvm.size(width), 8)
    vector = ir.VectorType(llvm.element(unit), nbytes // unit)
    places = [llvm.at(builder, src, k * nbytes) for k in range(PIECE // llvm.size(width))]
    vectors = [llvm.load(builder, place, vector) for place in places]
    for k, column in enumerate(llvm.interleaved(builder, vectors, PIECE // unit)):
        llvm.store(builder, column, moved(builder, dst, llvm.entry(builder, columns, k)))


def _columns(
    builder: Builder, place: Callable[[int], Address], width: Any, pieces: Any
) -> list[Any]:
    """The columns of rows of 16 bytes, row i at `place(i)`, each as a vector."""
    unit, each = min(llvm.size(width), 8), PIECE // llvm.size(width)
    piece = ir.VectorType(llvm.element(unit), PIECE // unit)
    vectors = []
    for k in range(each):
        rows = range(k, llvm.size(pieces) * each, each)
        parts = [llvm.load(builder, place(i), piece) for i in rows]
        vectors.append(llvm.joined(builder, parts))
    return llvm.interleaved(builder, vectors, piece.count)


@emits()
def interleave(
    builder: Builder,
    src: Address,
    rows: Address,
    dst: Address,
    factor: Tag,
    width: Tag,
    pieces: Tag,
) -> None:
    """Interleave the elements of `factor` rows: a0 b0 c0 a1 b1 c1 and so on.

    Row i is `pieces` * 16 bytes at `src` + rows[i]; all are written to `dst`.
    """
    nbytes, parts = PIECE * llvm.size(pieces), factor.count
    count = nbytes // llvm.size(width)
    vector = ir.VectorType(ir.IntType(8 * llvm.size(width)), count)
    places = [moved(builder, src, llvm.entry(builder, rows, i)) for i in range(parts)]
    loaded = [llvm.load(builder, place, vector) for place in places]
    for k in range(parts):
        wanted = [(at % parts, at // parts) for at in range(k * count, (k + 1) * count)]
        llvm.store(builder, _picked(builder, loaded, wanted), llvm.at(builder, dst, k * nbytes))


@emits()
def pick(
    builder: Builder,
    src: Address,
    dst: Address,
    apart: Tag,
    direction: Tag,
    width: Tag,
    pieces: Tag,
) -> None:
    """Write `pieces` * 16 bytes of elements that are `apart` from one another in the source.

    A `direction` of one byte means forwards, from `src` up; of two bytes backwards, from the
    element at `src` down. Nothing before the first or after the last element is read.
    """
    size, far = llvm.size(width), apart.count
    count, backwards = PIECE * llvm.size(pieces) // size, llvm.size(direction) == 2
    vector = ir.VectorType(ir.IntType(8 * size), count)
    # That range has (count - 1) * far + 1 elements: the last load reaches back.
    length = (count - 1) * far + 1
    start = llvm.at(builder, src, -(length - 1) * size if backwards else 0)
    begins = [min(i * count, length - count) for i in range(far)]
    loaded = [llvm.load(builder, llvm.at(builder, start, b * size), vector) for b in begins]
    wanted = []
    for j in range(count):
        place = (count - 1 - j if backwards else j) * far
        part = min(place // count, far - 1)
        wanted.append((part, place - begins[part]))
    llvm.store(builder, _picked(builder, loaded, wanted), dst)


def _picked(builder: Builder, vectors: list[Any], wanted: list[tuple[int, int]]) -> Any:
    """One vector whose element j is element wanted[j][1] of vectors[wanted[j][0]]."""
    count = len(wanted)
    value = vectors[0]
    order = [at if part == 0 else 0 for part, at in wanted]
    for k in range(1, max(len(vectors), 2)):
        other = vectors[k] if k < len(vectors) else value
        chosen = zip(wanted, order, strict=True)
        lanes = [count + at if part == k else before for (part, at), before in chosen]
        value = llvm.shuffle(builder, value, other, lanes)
        order = list(range(count))
    return value
