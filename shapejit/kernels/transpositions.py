"""Blocks of rows transposed in registers, for as many columns as a tile has.

`src` and `dst` are the addresses of the first column of the source and the first row of the target;
the offsets of rows begin at index `first` of `offsets`, those of columns at the address `columns`.
The source of the next block, at `ahead`, is prefetched.
"""

from __future__ import annotations

from typing import Any

from ..runtime.cpu_caches import LINE
from .constants import PIECE, WIDTHS
from .jit import Address, Numbers, kernel
from .memory import address_of, move_piece, prefetch, size_of
from .vectors import transpose_block, transpose_interleaved, transpose_streamed

# Tags: how many rows a block has.
VECTOR = WIDTHS[1]  # rows that fill a vector of each column
WHOLE_LINES = WIDTHS[2]  # rows that fill a line, which is streamed

NEAR = 4  # distance in rows of prefetching for the bounce buffer


@kernel
def transpose_rows(
    src: Address,
    first: int,
    dst: Address,
    columns: Address,
    count: int,
    ahead: Address,
    offsets: Numbers,
    first_ahead: int,
    block: Any,
    width: Any,
    pieces: Any,
) -> None:
    """Transpose a block of rows by `count` columns."""
    size, rows = size_of(width), address_of(offsets) + 8 * first
    step_p, step_q = PIECE // size * size_of(pieces), PIECE // size
    streamed = size_of(block) == size_of(WHOLE_LINES)
    many = LINE // size if streamed else step_p
    for j in range(0, count, step_q):
        q = min(j, count - step_q)
        quarter = (j // step_q) & 3
        line = ahead + (j - quarter * step_q) * size
        for k in range(many // 4):
            prefetch(line + offsets[first_ahead + quarter * (many // 4) + k])
        for h in range(0, many, step_p):
            place, into = rows + 8 * h, dst + h * size
            if streamed:
                transpose_streamed(src + q * size, place, into, columns + 8 * q, width, pieces)
            else:
                transpose_block(src + q * size, place, into, columns + 8 * q, width, pieces)


@kernel
def transpose_lines(
    src: Address,
    first: int,
    dst: Address,
    columns: Address,
    count: int,
    ahead: Address,
    offsets: Numbers,
    first_ahead: int,
    lines: tuple[int, int, int],
    width: Any,
    pieces: Any,
) -> None:
    """Transpose rows straight to the target, whose whole lines are streamed.

    `lines` are the first row, the end, and the row where the first line of a column begins. `first`
    and `src` belong to the first row, `dst` to row 0. Rows before the first line, and after the
    last, are stored together with streamed ones.
    """
    size, many = size_of(width), LINE // size_of(width)
    low, high, lead = lines
    begin = low + (lead - low) % many
    whole = max(0, high - begin) // many * many
    first -= low
    for p in range(begin, begin + whole, many):
        then, there = first_ahead, ahead
        if p + 2 * many <= high:
            then, there = first + p + many, src
        transpose_rows(
            src,
            first + p,
            dst + p * size,
            columns,
            count,
            there,
            offsets,
            then,
            WHOLE_LINES,
            width,
            pieces,
        )
    for p, left in ((low, lead - low), (high - many, high - begin - whole)):
        for h in range(0, many if left > 0 else 0, PIECE // size * size_of(pieces)):
            transpose_rows(
                src,
                first + p + h,
                dst + (p + h) * size,
                columns,
                count,
                ahead,
                offsets,
                first_ahead,
                VECTOR,
                width,
                pieces,
            )


@kernel
def transpose_buffered(
    src: Address,
    first: int,
    dst: Address,
    columns: Address,
    count: int,
    ahead: Address,
    offsets: Numbers,
    first_ahead: int,
    buffer: Address,
    width: Any,
    pieces: Any,
) -> None:
    """The same through a buffer of interleaved rows, so that each line is read once."""
    size = size_of(width)
    step_p, step_q = PIECE // size * size_of(pieces), PIECE // size
    for r in range(step_p):
        if r + NEAR < step_p:
            near = src + offsets[first + r + NEAR]
        else:
            near = ahead + offsets[first_ahead + r + NEAR - step_p]
        row = src + offsets[first + r]
        into = buffer + (r % step_q * (step_p // step_q) + r // step_q) * PIECE
        for j in range(0, count, step_q):
            q = min(j, count - step_q)
            if j * size & (LINE - 1) == 0:
                prefetch(near + j * size)
            move_piece(into + j * (step_p * size), row + q * size)
    for j in range(0, count, step_q):
        q = min(j, count - step_q)
        rows = buffer + j * (step_p * size)
        transpose_interleaved(rows, dst, columns + 8 * q, width, pieces)
