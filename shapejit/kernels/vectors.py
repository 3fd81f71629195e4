"""Blocks of elements in registers: transposed, interleaved, or every n-th picked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir

from . import llvm
from .constants import PIECE, WIDTHS, padded, per_piece
from .llvm import Address, Builder, Tag, Value, emits
from .network_generator import exchanged, permute
from .networks import Network, parts
from .pointers import moved

_PIECE = ir.VectorType(llvm.I8, PIECE)

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

    Row i is 16 bytes at `src` + rows[i]; there are `pieces` * 16 / width rows. Elements whose width
    is no power of two are padded in registers, so there are fewer. Column k of all rows
    is written contiguously to `dst` + columns[k]. Columns are stored in order: stores may run over
    the end of a column if the next one overwrites that. A part of LINE_ROWS is stored
    nontemporally: then `dst` + columns[k] are aligned to a vector.
    """

    def place(i: int) -> Address:
        return moved(builder, src, llvm.entry(builder, rows, i))

    for k, column in enumerate(_columns(builder, place, width, pieces)):
        into = moved(builder, dst, llvm.entry(builder, columns, k))
        for first, part in _without_padding(builder, column, llvm.size(width)):
            stored = llvm.store(builder, part, llvm.at(builder, into, first))
            if llvm.size(block) > 1:
                llvm.nontemporal(builder, stored, llvm.size(pieces) * PIECE)


@emits()
def transpose_even(
    builder: Builder,
    src: Address,
    pitch: Value,
    dst: Address,
    spacing: Value,
    half: Value,
    width: Tag,
    pieces: Tag,
) -> None:
    """`transpose_block` of rows at multiples of `pitch`.

    Columns go to multiples of `spacing`, those of the second half of the rows `half` bytes further.
    """
    # Of eight rows each: few multiples of `pitch` are needed. With one start int4 takes 1.05 x.
    starts = [src]
    for _ in range(8, llvm.size(pieces) * per_piece(llvm.size(width)), 8):
        starts.append(llvm.at(builder, starts[-1], 8, pitch))

    def place(i: int) -> Address:
        return llvm.at(builder, starts[i // 8], i % 8, pitch)

    columns = _columns(builder, place, width, pieces)
    for k, column in enumerate(columns):
        second, at = divmod(k, -(-len(columns) // 2))
        into = llvm.at(builder, llvm.at(builder, dst, second, half), at, spacing)
        llvm.store(builder, column, into)


def _columns(
    builder: Builder, place: Callable[[int], Address], width: Any, pieces: Any
) -> list[Any]:
    """The columns of rows of 16 bytes, row i at `place(i)`, each as a vector."""
    size, each, count = llvm.size(width), per_piece(llvm.size(width)), llvm.size(pieces)
    vectors = []
    for k in range(each):
        rows = range(k, count * each, each)
        loaded = [_with_padding(builder, llvm.load(builder, place(i), _PIECE), size) for i in rows]
        vectors.append(llvm.joined(builder, loaded))
    nbytes, unit = PIECE * count, padded(size)
    digits = (unit, 1), (each, nbytes), (count, PIECE), (each, unit)
    column = exchanged(builder, Network(8, nbytes, nbytes, digits), vectors, nbytes)
    return [column(k * nbytes, nbytes) for k in range(each)]


def _with_padding(builder: Builder, row: Any, size: int) -> Any:
    """A row of elements of `size` bytes, padded to a power of two."""
    if size == padded(size):
        return row
    order = [i // padded(size) * size + i % padded(size) for i in range(PIECE)]
    return llvm.shuffle(builder, row, row, order)


def _without_padding(builder: Builder, column: Any, size: int) -> list[tuple[int, Any]]:
    """The parts of a column to store, each with its first byte."""
    if size == padded(size):
        return [(0, column)]
    whole = column.type.count // padded(size) * size
    order = [i // size * padded(size) + i % size for i in range(whole)]
    return [
        (first, llvm.shuffle(builder, column, column, order[first : first + part]))
        for first, part in parts(len(order))
    ]


@emits()
def interleave(
    builder: Builder,
    src: Address,
    pitch: Value,
    dst: Address,
    factor: Tag,
    width: Tag,
    pieces: Tag,
) -> None:
    """Interleave the elements of `factor` rows: a0 b0 c0 a1 b1 c1 and so on.

    Row i is `pieces` * 16 bytes at `src` + i * `pitch`; all are written to `dst`.
    """
    nbytes, size, parts = PIECE * llvm.size(pieces), llvm.size(width), factor.count
    digits = (size, 1), (parts, nbytes), (nbytes // size, size)
    places = (llvm.at(builder, src, i, pitch) for i in range(parts))
    permute(builder, Network(8, nbytes, parts * nbytes, digits), places, [dst])


@emits()
def pick(
    builder: Builder, src: Address, dst: Address, spacing: Tag, width: Tag, pieces: Tag
) -> None:
    """Write `pieces` * 16 bytes of elements, of which the source has one every `spacing` elements.

    Nothing after the last element is read.
    """
    size, nbytes = llvm.size(width), PIECE * llvm.size(pieces)
    step = spacing.count * size
    read = (nbytes // size - 1) * step + size
    network = Network(8, read, nbytes, ((size, 1), (nbytes // size, step)))
    permute(builder, network, [src], [dst])
