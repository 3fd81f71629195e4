"""Tiles: rows, contiguous in the target, by columns, contiguous in the source.

The arguments are those of `copies`; `constants` names the words of the table `tile`. `offsets`
holds the source offsets of the rows, the target offsets of the columns, and their offsets on the
stage. The last two `loops` walk the blocks of rows and of columns.
"""

from __future__ import annotations

from typing import Any

from ..runtime.cpu_caches import LINE
from ..runtime.jobs import HIGH, LOW, SPAN, STREAMED, TENSOR
from .constants import (
    BLOCK,
    BOUNCED,
    BUFFER_AT,
    COLUMNS,
    COUNT,
    DENSE,
    LINED,
    PIECE,
    PITCH,
    ROWS,
    STAGED,
    START,
    STEP,
    UNIT,
)
from .conversions import convert
from .copies import lines_of, small_row, stream
from .jit import Address, Numbers, Table, kernel
from .memory import address_of, move_piece, pointer, prefetch, size_of
from .odometer import offset_at, seek, step
from .shares import take
from .transpositions import VECTOR, transpose_buffered, transpose_lines, transpose_rows


@kernel
def block_of(
    at: Table, tile: Table, loops: Table, over: int, step_p: int, step_q: int, lead: int = -1
) -> Any:
    """The tile at `at`: its first own row, the rows [low, high) to fill, the columns [low, high).

    Tiles at an edge reach back, so that every block of steps is whole; rows run `over` further, for
    the lines that end after the tile. Unless `lead` is negative, rows are those whose lines begin
    in the tile's own rows: the first line begins at row `lead`; the parts before it, and after the
    last line, are included at the ends.
    """
    count = tile[ROWS, COUNT]
    p_own = at[loops.shape[0] - 2] * tile[ROWS, BLOCK]
    q_low = at[loops.shape[0] - 1] * tile[COLUMNS, BLOCK]
    q_high = min(q_low + tile[COLUMNS, BLOCK], tile[COLUMNS, COUNT])
    q_low = min(q_low, q_high - step_q)
    if lead < 0:
        p_high = min(p_own + tile[ROWS, BLOCK] + over, count)
        return p_own, max(min(p_own, p_high - step_p), 0), p_high, q_low, q_high
    p_low, p_high = p_own, min(p_own + tile[ROWS, BLOCK], count)
    if p_low > 0:
        p_low += (lead - p_low) % over
    if p_high < count:
        p_high = min(p_high + (lead - p_high) % over, count)
    return p_own, min(p_low, count - over), p_high, q_low, q_high


@kernel
def lead_of(place: Address, size: int, lined: bool) -> int:
    """The row of a tile at which a line of the target begins; -1 if lines are staged."""
    lead = -place & (LINE - 1)
    return lead // size if lined and lead % size == 0 else -1


@kernel
def drain_tile(
    dst: Address,
    stage: Address,
    tile: Table,
    offsets: Numbers,
    columns: int,
    count: int,
    own: int,
    low: int,
    size: int,
) -> None:
    """Stream `count` columns of a tile, with offsets at `columns`.

    Rows from `low` on are on the stage, `size` bytes each; the tile's own rows begin at `own`.
    """
    limit = tile[ROWS, COUNT] * size
    end = min((own + tile[ROWS, BLOCK]) * size, limit)
    if tile[STAGED, DENSE] == 1:
        # The rows of columns are adjacent in the target, as on the stage.
        stream(dst + offsets[columns], stage, count * limit)
        return
    for q in range(count):
        staged, into = stage - low * size + q * tile[STAGED, PITCH], dst + offsets[columns + q]
        first, behind = lines_of(into, own * size, end, limit, LINE)
        stream(into + first, staged + first, behind - first)


@kernel
def convert_tile(
    dst: Address,
    stage: Address,
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
    """`drain_tile` of `some` rows from `low` on, which it converts."""
    unit, limit = tile[ROWS, UNIT], tile[ROWS, COUNT]
    if tile[STAGED, DENSE] == 1:
        convert(entry, stage, dst + offsets[columns], count * limit, 1, stage, 0, stage, 0, 0)
        return
    for q in range(count):
        staged, into = stage + q * tile[STAGED, PITCH], dst + offsets[columns + q]
        first, end = low, low + some
        if streamed:
            end = min(own + tile[ROWS, BLOCK], limit)
            first, end = lines_of(into, own * unit, end * unit, limit * unit, LINE)
            first, end = first // unit, end // unit
        staged += (first - low) * size
        convert(entry, staged, into + first * unit, end - first, 1, stage, 0, stage, 0, 0)


@kernel
def tiles(
    places: Table,
    work: Numbers,
    span: Numbers,
    stage: Address,
    loops: Table,
    tile: Table,
    offsets: Numbers,
    entry: int,
    width: Any,
    pieces: Any,
) -> None:
    """Transpose tiles of elements in registers, and convert them unless `entry` is 0.

    Fewer rows than a block has need a stage with adjacent whole columns: stores run over the end of
    each column, and the next one overwrites that.
    """
    size, streamed = size_of(width), work[STREAMED] != 0
    step_p, step_q = PIECE // size * size_of(pieces), PIECE // size
    over = LINE // tile[ROWS, UNIT] if streamed else 0
    table = address_of(offsets)
    buffered = streamed and tile[STAGED, BOUNCED] == 1
    lined = streamed and tile[STAGED, LINED] == 1 and entry == 0
    buffer = stage + tile[STAGED, BUFFER_AT]
    at = span[SPAN:]
    while take(work, span):
        source, target = pointer(places[0, span[TENSOR]]), pointer(places[1, span[TENSOR]])
        s, t = seek(loops, at, span[LOW])
        lead = lead_of(target + t, size, lined)
        p_own, p_low, p_high, q_low, q_high = block_of(at, tile, loops, over, step_p, step_q, lead)
        begin, rows = offset_at(tile, ROWS, p_low)
        src = source + (begin + s + q_low * size)
        for _ in range(span[LOW], span[HIGH]):
            own, low, count, some = p_own, p_low, p_high - p_low, q_high - q_low
            begin, columns = offset_at(tile, COLUMNS, q_low)
            dst = target + (begin + t)
            place, where, line = dst + low * size, table + 8 * columns, lead
            s, t = step(loops, at, s, t)
            lead = lead_of(target + t, size, lined)
            p_own, p_low, p_high, q_low, q_high = block_of(
                at, tile, loops, over, step_p, step_q, lead
            )
            begin, next_rows = offset_at(tile, ROWS, p_low)
            next_src = source + (begin + s + q_low * size)
            if line >= 0:
                transpose_lines(
                    src,
                    rows,
                    dst,
                    where,
                    some,
                    next_src,
                    offsets,
                    next_rows,
                    (low, low + count, line),
                    width,
                    pieces,
                )
                src, rows = next_src, next_rows
                continue
            if stage != 0:
                place, where = stage, table + 8 * tile[STAGED, START]
            for i in range(0, count, step_p):
                p = max(min(i, count - step_p), 0)
                to, first = place + p * size, rows + p
                # The source of the next block of rows, which may belong to the next tile.
                ahead, then = next_src, next_rows
                if i + step_p < count:
                    ahead, then = src, first + step_p
                if buffered:
                    transpose_buffered(
                        src, first, to, where, some, ahead, offsets, then, buffer, width, pieces
                    )
                else:
                    transpose_rows(
                        src,
                        first,
                        to,
                        where,
                        some,
                        ahead,
                        offsets,
                        then,
                        VECTOR,
                        width,
                        pieces,
                    )
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
    stage: Address,
    loops: Table,
    tile: Table,
    offsets: Numbers,
    nbytes: int,
    reach: int,
    width: Any,
) -> None:
    """`tiles` of runs of `nbytes`, which keep their order: `width` is the largest that fits.

    Columns are evenly spaced in the source, tile[COLUMNS, STEP] apart; `reach` bytes of it may be
    read.
    """
    over = 0 if stage == 0 else (LINE + nbytes - 1) // nbytes
    at, gap = span[SPAN:], tile[COLUMNS, STEP]
    while take(work, span):
        source, target = pointer(places[0, span[TENSOR]]), pointer(places[1, span[TENSOR]])
        s, t = seek(loops, at, span[LOW])
        for _ in range(span[LOW], span[HIGH]):
            p_own, p_low, p_high, q_low, q_high = block_of(at, tile, loops, over, 1, 1)
            begin, rows_at = offset_at(tile, ROWS, p_low)
            src = source + (begin + s + q_low * gap)
            begin, columns = offset_at(tile, COLUMNS, q_low)
            dst = target + (begin + t)
            short = stage != 0 and tile[STAGED, DENSE] == 0 and nbytes < PIECE
            for p in range(p_high - p_low):
                row = src + offsets[rows_at + p]
                ahead = src + offsets[rows_at + p + 1]
                if (
                    short
                    and 0 < gap <= LINE
                    and row + (q_high - q_low) * gap + PIECE <= source + reach
                ):
                    # Whole pieces: stores run over the end of a run; the next row overwrites that.
                    for line in range(0, (q_high - q_low) * gap, LINE):
                        prefetch(ahead + line)
                    for q in range(q_high - q_low):
                        move_piece(stage + q * tile[STAGED, PITCH] + p * nbytes, row + q * gap)
                    continue
                for q in range(q_high - q_low):
                    # Several short runs share a line, which is prefetched once.
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
