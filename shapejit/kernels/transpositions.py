"""Blocks of rows transposed in registers, for as many columns as a tile has.

`src` and `dst` are the addresses of the first column of the source and the first row of the target;
the offsets of rows are at the address `rows`, those of columns at `columns`. The source of the next
block, at `ahead`, whose rows have the offsets at `rows_ahead`, is prefetched.
"""

from __future__ import annotations

from typing import Any

from ..runtime.cpu_caches import LINE
from .constants import PIECE
from .jit import Address, kernel
from .memory import load_word, prefetch, size_of
from .vectors import LINE_ROWS, VECTOR_ROWS, transpose_block


@kernel
def transpose_rows(
    src: Address,
    rows: Address,
    dst: Address,
    columns: Address,
    count: int,
    ahead: Address,
    rows_ahead: Address,
    block: Any,
    width: Any,
    pieces: Any,
) -> None:
    """Transpose a block of rows, VECTOR_ROWS or LINE_ROWS, by `count` columns."""
    size = size_of(width)
    step_p, step_q = PIECE // size * size_of(pieces), PIECE // size
    many = LINE // size if size_of(block) == size_of(LINE_ROWS) else step_p
    for j in range(0, count, step_q):
        q = min(j, count - step_q)
        quarter = (j // step_q) & 3
        line = ahead + (j - quarter * step_q) * size
        for k in range(many // 4):
            prefetch(line + load_word(rows_ahead + 8 * (quarter * (many // 4) + k)))
        for h in range(0, many, step_p):
            transpose_block(
                src + q * size, rows + 8 * h, dst + h * size, columns + 8 * q, block, width, pieces
            )


@kernel
def transpose_lines(
    src: Address,
    rows: Address,
    dst: Address,
    columns: Address,
    count: int,
    ahead: Address,
    rows_ahead: Address,
    lines: tuple[int, int, int],
    width: Any,
    pieces: Any,
) -> None:
    """Transpose rows straight to the target, whose whole lines are streamed.

    `lines` are the first row, the end, and the row at which the first line of a column begins.
    `src` and `rows` belong to the first row, `dst` to row 0. Rows before the first line, and after
    the last, are stored together with streamed ones.
    """
    size, many = size_of(width), LINE // size_of(width)
    low, high, line = lines
    begin = low + (line - low) % many
    whole = max(0, high - begin) // many * many
    rows -= 8 * low
    for p in range(begin, begin + whole, many):
        then, there = rows_ahead, ahead
        if p + 2 * many <= high:
            then, there = rows + 8 * (p + many), src
        row, into = rows + 8 * p, dst + p * size
        transpose_rows(src, row, into, columns, count, there, then, LINE_ROWS, width, pieces)
    for p, left in ((low, line - low), (high - many, high - begin - whole)):
        for h in range(p, p + many if left > 0 else p, PIECE // size * size_of(pieces)):
            row, into = rows + 8 * h, dst + h * size
            transpose_rows(
                src, row, into, columns, count, ahead, rows_ahead, VECTOR_ROWS, width, pieces
            )
