"""Tiles: rows that lie side by side in the target by columns that do so in the source.

The arguments are those of `copies`; the words of the table `tile` stand in
`constants`. `offsets` holds the source offsets of the rows, the target offsets of the
columns, and those of the columns on the stage. The last two `loops` walk the blocks of
rows and of columns.
"""

from __future__ import annotations

from typing import Any

from .constants import (
    BLOCK,
    BOUNCED,
    BUFFER_AT,
    COLUMNS,
    COUNT,
    DENSE,
    HIGH,
    LINE,
    LOW,
    PIECE,
    PITCH,
    ROWS,
    SPAN,
    STAGED,
    START,
    STEP,
    TENSOR,
)
from .copies import small_row, stream
from .jit import Numbers, Table, kernel
from .memory import (
    copy,
    move_piece,
    prefetch,
    size_of,
    stream_line,
    transpose_block,
    transpose_dealt,
)
from .odometer import offset_at, seek, step
from .shares import take

NEAR = 4  # rows ahead of the one that is copied to the bounce buffer


@kernel
def block_of(at: Table, tile: Table, loops: Table, over: int, step_p: int, step_q: int) -> Any:
    """The tile at `at`: its rows' own start, the rows [low, high) to fill, the columns [low, high).

    Edge tiles reach back instead of being cut, so that every block of steps is
    whole; rows run `over` further, for the lines that end behind the tile.
    """
    p_own = at[loops.shape[0] - 2] * tile[ROWS, BLOCK]
    p_high = min(p_own + tile[ROWS, BLOCK] + over, tile[ROWS, COUNT])
    p_low = max(min(p_own, p_high - step_p), 0)
    q_low = at[loops.shape[0] - 1] * tile[COLUMNS, BLOCK]
    q_high = min(q_low + tile[COLUMNS, BLOCK], tile[COLUMNS, COUNT])
    return p_own, p_low, p_high, min(q_low, q_high - step_q), q_high


@kernel
def drain(target: int, stage: int, start: int, end: int, limit: int) -> None:
    """Stream the lines that start in [start, end) of a row, which ends at `limit`.

    The first tile of a row also owns the bytes before the first line.
    """
    done = start + (-(target + start) & (LINE - 1))
    if start == 0 and done > 0:
        copy(target, stage, min(done, limit))
    while done < end:
        if done + LINE <= limit:
            stream_line(target + done, stage + done)
        else:
            copy(target + done, stage + done, limit - done)
        done += LINE


@kernel
def tiles(
    places: Table,
    work: Numbers,
    span: Numbers,
    stage: int,
    loops: Table,
    tile: Table,
    offsets: Table,
    width: Any,
    pieces: Any,
) -> None:
    """Transpose tiles of elements in registers, a block of rows and columns at a time."""
    size = size_of(width)
    step_p, step_q = PIECE // size * size_of(pieces), PIECE // size
    over = 0 if stage == 0 else LINE // size
    table = offsets.ctypes.data
    bounce = 0
    if stage != 0 and tile[STAGED, BOUNCED] == 1:
        bounce = stage + tile[STAGED, BUFFER_AT]
    at = span[SPAN:]
    while take(work, span):
        source, target = places[0, span[TENSOR]], places[1, span[TENSOR]]
        low, high = span[LOW], span[HIGH]
        s, t = seek(loops, at, low)
        p_own, p_low, p_high, q_low, q_high = block_of(at, tile, loops, over, step_p, step_q)
        for _ in range(low, high):
            come, p_rest = offset_at(tile, ROWS, p_low)
            to, q_first = offset_at(tile, COLUMNS, q_low)
            come += source + s + q_low * size
            to += target + t
            place, columns = to + p_low * size, table + 8 * q_first
            if stage != 0:
                place, columns = stage, table + 8 * tile[STAGED, START]
            p_count, q_count = p_high - p_low, q_high - q_low
            own, first = p_own, p_low
            s, t = step(loops, at, s, t)
            p_own, p_low, p_high, q_low, q_high = block_of(at, tile, loops, over, step_p, step_q)
            for i in range(0, p_count, step_p):
                p = min(i, p_count - step_p)
                rows_at = table + 8 * (p_rest + p)
                # Ask for the source of the next block of rows, which may be the next tile's.
                ahead, rows_ahead = come, p_rest + p + step_p
                if i + step_p >= p_count:
                    ahead, rows_ahead = offset_at(tile, ROWS, p_low)
                    ahead += source + s + q_low * size
                if bounce != 0:
                    # Deal the rows to vectors, 16 bytes at a time; each line of them is met once.
                    for r in range(step_p):
                        if r + NEAR < step_p:
                            near = come + offsets[p_rest + p + r + NEAR]
                        else:
                            near = ahead + offsets[rows_ahead + r + NEAR - step_p]
                        row = come + offsets[p_rest + p + r]
                        into = bounce + (r % step_q * (step_p // step_q) + r // step_q) * PIECE
                        for j in range(0, q_count, step_q):
                            q = min(j, q_count - step_q)
                            if j * size & (LINE - 1) == 0:
                                prefetch(near + j * size)
                            move_piece(into + j * (step_p * size), row + q * size)
                    for j in range(0, q_count, step_q):
                        q = min(j, q_count - step_q)
                        dealt = bounce + j * (step_p * size)
                        transpose_dealt(dealt, place + p * size, columns + 8 * q, width, pieces)
                else:
                    for j in range(0, q_count, step_q):
                        q = min(j, q_count - step_q)
                        quarter = (j // step_q) & 3
                        line = ahead + (j - quarter * step_q) * size
                        for k in range(step_p // 4):
                            prefetch(line + offsets[rows_ahead + quarter * (step_p // 4) + k])
                        transpose_block(
                            come + q * size,
                            rows_at,
                            place + p * size,
                            columns + 8 * q,
                            width,
                            pieces,
                        )
            if stage != 0:
                limit = tile[ROWS, COUNT] * size
                end = min((own + tile[ROWS, BLOCK]) * size, limit)
                if tile[STAGED, DENSE] == 1:
                    # The columns' rows follow one another in the target, as on the stage.
                    stream(to + offsets[q_first], stage, q_count * limit)
                    q_count = 0
                for q in range(q_count):
                    staged = stage - first * size + q * tile[STAGED, PITCH]
                    drain(
                        to + offsets[q_first + q],
                        staged,
                        own * size,
                        end,
                        limit,
                    )


@kernel
def run_tiles(
    places: Table,
    work: Numbers,
    span: Numbers,
    stage: int,
    loops: Table,
    tile: Table,
    offsets: Table,
    nbytes: int,
    reach: int,
    width: Any,
) -> None:
    """`tiles` of runs of `nbytes`, which keep their order: `width` is the largest that fits.

    Columns lie evenly spaced in the source, tile[COLUMNS, STEP] apart, of which `reach`
    bytes may be read.
    """
    over = 0 if stage == 0 else (LINE + nbytes - 1) // nbytes
    at = span[SPAN:]
    while take(work, span):
        source, target = places[0, span[TENSOR]], places[1, span[TENSOR]]
        low, high = span[LOW], span[HIGH]
        gap, last = tile[COLUMNS, STEP], source + reach
        s, t = seek(loops, at, low)
        for _ in range(low, high):
            p_own, p_low, p_high, q_low, q_high = block_of(at, tile, loops, over, 1, 1)
            come, rows_at = offset_at(tile, ROWS, p_low)
            to, columns = offset_at(tile, COLUMNS, q_low)
            come += source + s + q_low * gap
            to += target + t
            short = stage != 0 and tile[STAGED, DENSE] == 0 and nbytes < PIECE
            for p in range(p_high - p_low):
                row = come + offsets[rows_at + p]
                ahead = come + offsets[rows_at + p + 1]
                if short and 0 < gap <= LINE and row + (q_high - q_low) * gap + PIECE <= last:
                    # Whole pieces: what is too much of one run lies where the next row's will be.
                    for line in range(0, (q_high - q_low) * gap, LINE):
                        prefetch(ahead + line)
                    for q in range(q_high - q_low):
                        move_piece(stage + q * tile[STAGED, PITCH] + p * nbytes, row + q * gap)
                    continue
                for q in range(q_high - q_low):
                    # Several short runs share a line: it is asked for once.
                    if q * gap & (LINE - 1) < gap:
                        for line in range(0, nbytes, LINE):
                            prefetch(ahead + q * gap + line)
                    if stage == 0:
                        place = to + offsets[columns + q] + (p_low + p) * nbytes
                    else:
                        place = stage + q * tile[STAGED, PITCH] + p * nbytes
                    small_row(place, row + q * gap, nbytes, width)
            if stage != 0:
                limit = tile[ROWS, COUNT] * nbytes
                end = min((p_own + tile[ROWS, BLOCK]) * nbytes, limit)
                if tile[STAGED, DENSE] == 1:
                    stream(to + offsets[columns], stage, (q_high - q_low) * limit)
                    q_high = q_low
                for q in range(q_high - q_low):
                    staged = stage - p_low * nbytes + q * tile[STAGED, PITCH]
                    drain(to + offsets[columns + q], staged, p_own * nbytes, end, limit)
            s, t = step(loops, at, s, t)
