"""Tiles transposed in registers, block by block: what `tiles` calls by address."""

from __future__ import annotations

from typing import Any

from ..runtime.cpu_caches import LINE
from .constants import PIECE
from .jit import Address, inlined, kernel
from .memory import load_word, prefetch, size_of
from .vectors import LINE_ROWS, VECTOR_ROWS, transpose_block


@inlined
def prefetch_rows(line: Address, offsets: Address, count: int) -> None:
    """Prefetch the line of each of `count` rows with these offsets."""
    for k in range(count):
        prefetch(line + load_word(offsets + 8 * k))


@inlined
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
    """Transpose a block of rows, VECTOR_ROWS or LINE_ROWS, by `count` columns.

    The source of the next block, at `ahead`, whose rows have the offsets at `rows_ahead`, is
    prefetched.
    """
    size = size_of(width)
    step_p, step_q = PIECE // size * size_of(pieces), PIECE // size
    many = LINE // size if size_of(block) == size_of(LINE_ROWS) else step_p
    # First if a line has several vectors: bytes take 0.88 of the time (Zen 3). With one, that would
    # delay the loads of a block: bytes, 50 MiB, 1.05 x the time (Zen 5).
    early = size_of(pieces) * PIECE < LINE
    for j in range(0, count, step_q):
        q = min(j, count - step_q)
        quarter = (j // step_q) & 3
        line, row = ahead + (j - quarter * step_q) * size, rows_ahead + 2 * quarter * many
        if early:
            prefetch_rows(line, row, many // 4)
        for h in range(0, many, step_p):
            transpose_block(
                src + q * size, rows + 8 * h, dst + h * size, columns + 8 * q, block, width, pieces
            )
        if not early:
            prefetch_rows(line, row, many // 4)


@kernel
def transpose(
    src: Address,
    rows: Address,
    dst: Address,
    columns: Address,
    count: int,
    ahead: Address,
    rows_ahead: Address,
    high: int,
    line: int,
    width: Any,
    pieces: Any,
) -> None:
    """Transpose rows [0, high) of a tile by `count` columns; the last blocks reach back.

    `src` is the first column of the source; the offsets of rows are at `rows`, those of columns in
    the target at `columns`; `dst` is row 0 of the target. The first line of the target begins at
    row `line`: whole ones are streamed, and rows before the first line and after the last are
    stored together with streamed ones. Nothing is streamed if `line` is negative. What follows the
    tile, at `ahead` and `rows_ahead`, is prefetched.
    """
    size, many = size_of(width), LINE // size_of(width)
    step = PIECE // size * size_of(pieces)
    last, behind = high, high  # rows by vectors: up to `last`, and from `behind` on
    if line >= 0:
        whole = max(0, high - line) // many * many
        last = many if line > 0 else 0
        behind = high - many if line + whole < high else high
        for p in range(line, line + whole, many):
            near, near_rows = ahead, rows_ahead
            if p + 2 * many <= high:
                near, near_rows = src, rows + 8 * (p + many)
            row, into = rows + 8 * p, dst + p * size
            transpose_rows(
                src, row, into, columns, count, near, near_rows, LINE_ROWS, width, pieces
            )
    for begin, end in ((0, last), (behind, high)):
        for i in range(begin, end, step):
            p = max(min(i, end - step), begin)
            near, near_rows = ahead, rows_ahead
            if i + step < end:
                near, near_rows = src, rows + 8 * (p + step)
            row, into = rows + 8 * p, dst + p * size
            transpose_rows(
                src, row, into, columns, count, near, near_rows, VECTOR_ROWS, width, pieces
            )
