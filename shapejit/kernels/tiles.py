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
    LINED,
    LOW,
    PIECE,
    PITCH,
    ROWS,
    SPAN,
    STAGED,
    START,
    STEP,
    STREAMED,
    TENSOR,
    UNIT,
)
from .conversions import convert
from .copies import small_row, stream
from .jit import Numbers, Table, kernel
from .memory import copy, move_piece, prefetch, size_of, stream_line
from .odometer import offset_at, seek, step
from .shares import take
from .vectors import transpose_block, transpose_interleaved, transpose_streamed

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
def lines_of(own: int, lead: int, tile: Table, per_line: int) -> tuple[int, int]:
    """The rows [low, high) whose lines begin in a tile's own rows, which begin at `own`.

    The first line begins at row `lead`; the rows before it are the first tile's, and those
    behind the last one are the last tile's.
    """
    count = tile[ROWS, COUNT]
    low, high = own, min(own + tile[ROWS, BLOCK], count)
    if own > 0:
        low += (lead - own) % per_line
    if high < count:
        high = min(high + (lead - high) % per_line, count)
    return min(low, count - per_line), high


@kernel
def drain(dst: int, stage: int, start: int, end: int, limit: int) -> None:
    """Stream the lines that start in [start, end) of a row, which ends at `limit`.

    The first tile of a row also owns the bytes before the first line.
    """
    done = start + (-(dst + start) & (LINE - 1))
    if start == 0 and done > 0:
        copy(dst, stage, min(done, limit))
    while done < end:
        if done + LINE <= limit:
            stream_line(dst + done, stage + done)
        else:
            copy(dst + done, stage + done, limit - done)
        done += LINE


@kernel
def drain_tile(
    dst: int,
    stage: int,
    tile: Table,
    offsets: Numbers,
    columns: int,
    count: int,
    own: int,
    low: int,
    size: int,
) -> None:
    """Stream `count` columns of a tile, whose offsets stand at `columns`.

    Rows from `low` on are on the stage, `size` bytes each; those from `own` on are the
    tile's own.
    """
    limit = tile[ROWS, COUNT] * size
    end = min((own + tile[ROWS, BLOCK]) * size, limit)
    if tile[STAGED, DENSE] == 1:
        # The columns' rows follow one another in the target, as on the stage.
        stream(dst + offsets[columns], stage, count * limit)
        return
    for q in range(count):
        staged = stage - low * size + q * tile[STAGED, PITCH]
        drain(dst + offsets[columns + q], staged, own * size, end, limit)


@kernel
def convert_tile(
    dst: int,
    stage: int,
    tile: Table,
    offsets: Numbers,
    columns: int,
    count: int,
    own: int,
    low: int,
    some: int,
    size: int,
    entry: int,
    streamed: bool,
) -> None:
    """`drain_tile` of `some` rows from `low` on, which are converted."""
    unit, limit = tile[ROWS, UNIT], tile[ROWS, COUNT]
    if tile[STAGED, DENSE] == 1:
        convert(entry, stage, dst + offsets[columns], count * limit, 1, 0, 0, 0, 0, 0)
        return
    for q in range(count):
        staged, into = stage + q * tile[STAGED, PITCH], dst + offsets[columns + q]
        first, end = low, low + some
        if streamed:
            # The lines that start in the tile's own rows, and what is before the first one.
            end = min(own + tile[ROWS, BLOCK], limit)
            end = min(end + (-(into + end * unit) & (LINE - 1)) // unit, limit)
            first = own
            if own > 0:
                first += (-(into + own * unit) & (LINE - 1)) // unit
        staged += (first - low) * size
        convert(entry, staged, into + first * unit, end - first, 1, 0, 0, 0, 0, 0)


@kernel
def transpose_rows(
    src: int,
    first: int,
    dst: int,
    columns: int,
    count: int,
    ahead: int,
    offsets: Numbers,
    first_ahead: int,
    width: Any,
    pieces: Any,
) -> None:
    """Transpose a block of rows by `count` columns; ask for the rows at `ahead` meanwhile."""
    size, rows = size_of(width), offsets.ctypes.data + 8 * first
    step_p, step_q = PIECE // size * size_of(pieces), PIECE // size
    for j in range(0, count, step_q):
        q = min(j, count - step_q)
        quarter = (j // step_q) & 3
        line = ahead + (j - quarter * step_q) * size
        for k in range(step_p // 4):
            prefetch(line + offsets[first_ahead + quarter * (step_p // 4) + k])
        transpose_block(src + q * size, rows, dst, columns + 8 * q, width, pieces)


@kernel
def transpose_lines(
    src: int,
    first: int,
    dst: int,
    columns: int,
    count: int,
    ahead: int,
    offsets: Numbers,
    first_ahead: int,
    width: Any,
    pieces: Any,
) -> None:
    """`transpose_rows` of as many rows as fill a line of each column, which is streamed."""
    size, rows = size_of(width), offsets.ctypes.data + 8 * first
    step_p, step_q = PIECE // size * size_of(pieces), PIECE // size
    quarter_line = LINE // size // 4
    for j in range(0, count, step_q):
        q = min(j, count - step_q)
        quarter = (j // step_q) & 3
        line = ahead + (j - quarter * step_q) * size
        for k in range(quarter_line):
            prefetch(line + offsets[first_ahead + quarter * quarter_line + k])
        for h in range(0, LINE // size, step_p):
            into = dst + h * size
            transpose_streamed(src + q * size, rows + 8 * h, into, columns + 8 * q, width, pieces)


@kernel
def fill_lines(
    src: int,
    rows: int,
    dst: int,
    columns: int,
    count: int,
    low: int,
    high: int,
    lead: int,
    next_src: int,
    next_rows: int,
    offsets: Numbers,
    width: Any,
    pieces: Any,
) -> None:
    """Rows [low, high) by `count` columns, straight to the target: whole lines are streamed.

    The first one begins at row `lead`; what is before it, and behind the last one, is stored
    with the rows of a line beside it.
    """
    size = size_of(width)
    step_p, per_line = PIECE // size * size_of(pieces), LINE // size
    p, edge = low, -1
    if low < lead:
        p, edge = lead, low
    elif (low - lead) % per_line != 0:  # no line is whole
        p, edge = high, low
    while p < high or edge >= 0:
        ahead, then = next_src, next_rows
        if p + 2 * per_line <= high:
            ahead, then = src, rows + p + per_line - low
        if edge < 0 and p + per_line > high:
            edge = high - per_line
            p = high
        if edge >= 0:
            for h in range(0, per_line, step_p):
                first, to = rows + edge + h - low, dst + (edge + h) * size
                transpose_rows(src, first, to, columns, count, ahead, offsets, then, width, pieces)
            edge = -1
        else:
            first, to = rows + p - low, dst + p * size
            transpose_lines(src, first, to, columns, count, ahead, offsets, then, width, pieces)
            p += per_line


@kernel
def transpose_buffered(
    src: int,
    first: int,
    dst: int,
    columns: int,
    count: int,
    ahead: int,
    offsets: Numbers,
    first_ahead: int,
    buffer: int,
    width: Any,
    pieces: Any,
) -> None:
    """The same by way of a buffer of interleaved rows: each line of them is met once."""
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


@kernel
def tiles(
    places: Table,
    work: Numbers,
    span: Numbers,
    stage: int,
    loops: Table,
    tile: Table,
    offsets: Numbers,
    entry: int,
    width: Any,
    pieces: Any,
) -> None:
    """Transpose tiles of elements in registers, and convert them unless `entry` is 0."""
    size, streamed = size_of(width), work[STREAMED] != 0
    step_p, step_q = PIECE // size * size_of(pieces), PIECE // size
    over = LINE // tile[ROWS, UNIT] if streamed else 0
    table = offsets.ctypes.data
    buffered = streamed and tile[STAGED, BOUNCED] == 1
    lined = streamed and tile[STAGED, LINED] == 1 and entry == 0
    buffer = stage + tile[STAGED, BUFFER_AT]
    at = span[SPAN:]
    while take(work, span):
        source, target = places[0, span[TENSOR]], places[1, span[TENSOR]]
        s, t = seek(loops, at, span[LOW])
        p_own, p_low, p_high, q_low, q_high = block_of(at, tile, loops, over, step_p, step_q)
        lead = -(target + t) & (LINE - 1)
        direct = lined and lead % size == 0
        if direct:
            p_low, p_high = lines_of(p_own, lead // size, tile, LINE // size)
        src, rows = offset_at(tile, ROWS, p_low)
        src += source + s + q_low * size
        for _ in range(span[LOW], span[HIGH]):
            own, low, count, some = p_own, p_low, p_high - p_low, q_high - q_low
            dst, columns = offset_at(tile, COLUMNS, q_low)
            dst += target + t
            place, where = dst + low * size, table + 8 * columns
            this_lead, by_lines = lead // size, direct
            if stage != 0:
                place, where = stage, table + 8 * tile[STAGED, START]
            s, t = step(loops, at, s, t)
            p_own, p_low, p_high, q_low, q_high = block_of(at, tile, loops, over, step_p, step_q)
            lead = -(target + t) & (LINE - 1)
            direct = lined and lead % size == 0
            if direct:
                p_low, p_high = lines_of(p_own, lead // size, tile, LINE // size)
            next_src, next_rows = offset_at(tile, ROWS, p_low)
            next_src += source + s + q_low * size
            if by_lines:
                fill_lines(
                    src,
                    rows,
                    dst,
                    table + 8 * columns,
                    some,
                    low,
                    low + count,
                    this_lead,
                    next_src,
                    next_rows,
                    offsets,
                    width,
                    pieces,
                )
                src, rows = next_src, next_rows
                continue
            for i in range(0, count, step_p):
                p = min(i, count - step_p)
                to, first = place + p * size, rows + p
                # The source of the next block of rows, which may be the next tile's.
                ahead, then = next_src, next_rows
                if i + step_p < count:
                    ahead, then = src, first + step_p
                if buffered:
                    transpose_buffered(
                        src, first, to, where, some, ahead, offsets, then, buffer, width, pieces
                    )
                else:
                    transpose_rows(src, first, to, where, some, ahead, offsets, then, width, pieces)
            if entry != 0:
                convert_tile(
                    dst, stage, tile, offsets, columns, some, own, low, count, size, entry, streamed
                )
            elif stage != 0:
                drain_tile(dst, stage, tile, offsets, columns, some, own, low, size)
            src, rows = next_src, next_rows


@kernel
def run_tiles(
    places: Table,
    work: Numbers,
    span: Numbers,
    stage: int,
    loops: Table,
    tile: Table,
    offsets: Numbers,
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
            src, rows_at = offset_at(tile, ROWS, p_low)
            dst, columns = offset_at(tile, COLUMNS, q_low)
            src += source + s + q_low * gap
            dst += target + t
            short = stage != 0 and tile[STAGED, DENSE] == 0 and nbytes < PIECE
            for p in range(p_high - p_low):
                row = src + offsets[rows_at + p]
                ahead = src + offsets[rows_at + p + 1]
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
                        place = dst + offsets[columns + q] + (p_low + p) * nbytes
                    else:
                        place = stage + q * tile[STAGED, PITCH] + p * nbytes
                    small_row(place, row + q * gap, nbytes, width)
            if stage != 0:
                count = q_high - q_low
                drain_tile(dst, stage, tile, offsets, columns, count, p_own, p_low, nbytes)
            s, t = step(loops, at, s, t)
