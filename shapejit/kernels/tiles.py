"""Tiles: rows, contiguous in the target, by columns, contiguous in the source.

The arguments are those of `copies`; `constants` names the words of the table `tile`. `offsets`
holds the source offsets of the rows, the target offsets of the columns, and their offsets on the
stage. The last two `loops` walk the blocks of rows and of columns.
"""

from __future__ import annotations

from ..runtime.cpu_caches import LINE
from ..runtime.jobs import HIGH, LOW, SPAN, STREAMED
from .calls import call
from .constants import (
    ANY_VECTORS,
    BLOCK,
    BUFFER_AT,
    COLUMNS,
    COUNT,
    DENSE,
    LINE_ALIGNED,
    MADE_BYTES,
    ONE_VECTOR,
    PIECE,
    PITCH,
    ROWS,
    STAGED,
    START,
    STEP,
)
from .copies import lines_of, move_run, stream
from .jit import Address, Numbers, Table, kernel
from .memory import address_of, load_word, move_line, move_piece, pointer, prefetch
from .odometer import offset_at, seek, step
from .shares import ends, take


@kernel
def tile_at(
    at: Numbers,
    tile: Table,
    loops: Table,
    over: int,
    steps: tuple[int, int],
    spacing: int,
    line: int,
    merged: int = 1,
) -> tuple[int, int, int, int, int, int, int, int]:
    """The tile at `at`.

    Returns its first own row; the first row to fill, and the number of rows; the number of columns;
    the offset of its source and the index of its rows' offsets; the same of its target and columns.
    `spacing` is that of columns in the source.

    Tiles at an edge reach back, so that every block of `steps`, rows and columns, is whole; there
    are a multiple of `merged` rows. They extend by `over`, for the lines that end after the tile.
    Unless `line` is negative, they are those whose lines begin in the tile's own rows: the first
    line begins at row `line`. The parts before it, and after the last line, are included at the
    ends.
    """
    count, step_p = tile[ROWS, COUNT], steps[0]
    own = at[loops.shape[0] - 2] * tile[ROWS, BLOCK]
    end = min(own + tile[ROWS, BLOCK], count)
    q_low = at[loops.shape[0] - 1] * tile[COLUMNS, BLOCK]
    q_high = min(q_low + tile[COLUMNS, BLOCK], tile[COLUMNS, COUNT])
    q_low = min(q_low, q_high - steps[1])
    if line < 0:
        high = min(own + tile[ROWS, BLOCK] + over, count)
        low = max(min(own, high - step_p), 0)
    else:
        high = min(end + ((line - end) % over if end < count else 0), count)
        low = max(min(own + ((line - own) % over if own > 0 else 0), high - max(over, step_p)), 0)
    if merged > 1:
        more = (low - high) % merged
        if more > low:
            high += more
        else:
            low -= more
    begin, rows = offset_at(tile, ROWS, low)
    into, columns = offset_at(tile, COLUMNS, q_low)
    return own, low, high - low, q_high - q_low, begin + q_low * spacing, rows, into, columns


@kernel
def first_line(place: Address, size: int, alike: bool) -> int:
    """The row at which a line of all columns begins; -1 if there is none."""
    line_offset = -place & (LINE - 1)
    return line_offset // size if alike and line_offset % size == 0 else -1


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
    some: int,
    size: int,
    entry: int,
    streamed: bool,
) -> None:
    """Stream `count` columns of a tile, with offsets at `columns`, or convert them.

    On the stage are `some` rows from `low` on, `size` bytes each; the tile's own rows begin at
    `own`.
    """
    unit, limit = tile[ROWS, MADE_BYTES], tile[ROWS, COUNT]
    # The rows of columns may be adjacent in the target, as on the stage.
    dense = tile[STAGED, DENSE] == 1
    for q in range(1 if dense else count):
        staged, into = stage + q * tile[STAGED, PITCH], dst + offsets[columns + q]
        first, end = low * unit, (low + some) * unit
        if dense:
            first, end = 0, count * limit * unit
        elif streamed:
            end = min(own + tile[ROWS, BLOCK], limit)
            first, end = lines_of(into, own * unit, end * unit, limit * unit, LINE)
        if entry == 0:
            stream(into + first, staged + (first - low * unit), end - first)
            continue
        # Lines may begin within an element, at addresses that are no multiples of its width.
        row, behind = first // unit, end // unit
        begin, whole = staged + (row - low) * size, into + row * unit
        call(entry, (begin, whole, behind - row, 1, stage, 0, stage, 0))


@kernel
def move_runs(
    src: Address,
    rows: Address,
    dst: Address,
    columns: Address,
    count: int,
    high: int,
    nbytes: int,
    gap: int,
    end: Address,
) -> None:
    """Move rows [0, high) of a tile of runs of `nbytes`, which keep their order.

    The columns are `gap` bytes apart in the source. Runs may be read up to `end` by whole pieces or
    lines: stores run over the end of a run, and the next row overwrites that.
    """
    most = PIECE if nbytes < PIECE else LINE
    close = gap < LINE // 2  # several runs of a line: it is prefetched once
    for p in range(high):
        row, ahead = src + load_word(rows + 8 * p), src + load_word(rows + 8 * (p + 1))
        whole = nbytes < LINE and row + ((count - 1) * gap + most) <= end
        for line in range(0, count * gap if close else 0, LINE):
            prefetch(ahead + line)
        for q in range(count):
            place = dst + load_word(columns + 8 * q) + p * nbytes
            for line in range(0, 0 if close else nbytes, LINE):
                prefetch(ahead + q * gap + line)
            if not whole:
                move_run(place, row + q * gap, nbytes)
            elif most == PIECE:
                move_piece(place, row + q * gap)
            else:
                move_line(place, row + q * gap)


@kernel
def tiles(
    addresses: Table,
    work: Numbers,
    span: Numbers,
    stage: Address,
    loops: Table,
    tile: Table,
    offsets: Numbers,
    entry: int,
    transposes: int,
    size: int,
    vector: int,
    reach: int,
) -> None:
    """Transpose tiles of elements in registers, and convert them unless `entry` is 0.

    The function at `transposes` transposes elements of `size` bytes by vectors of so many: see
    `transpositions`. With a buffer they are converted first, and become narrower: those of as many
    rows as fill an element of the source are merged to one, and these elements are transposed.
    If there are fewer rows than in a block, a stage with adjacent whole columns is needed: stores
    run over the end of each column, and the next one overwrites that. If `transposes` is 0, runs of
    `size` bytes keep their order; `reach` bytes of the source may be read.
    """
    streamed = work[STREAMED] != 0
    unit, alike = tile[ROWS, MADE_BYTES], streamed and tile[STAGED, LINE_ALIGNED] > 0
    over = -(-LINE // unit) if streamed else 0
    before, after, merged = 0, entry, 1
    spacing, buffer = tile[COLUMNS, STEP], stage + tile[STAGED, BUFFER_AT]
    if tile[STAGED, BUFFER_AT] > 0:
        before, after, merged = entry, 0, size // unit
        if not streamed:
            stage = pointer(0)
    table, steps = address_of(offsets), (1, 1)
    if transposes != 0:
        steps = vector // size * merged, PIECE // size
    vectors = ONE_VECTOR if vector == LINE else ANY_VECTORS
    straight = alike and tile[STAGED, LINE_ALIGNED] >= vectors and after == 0
    made_rows = table + 8 * (tile[STAGED, START] + tile[COLUMNS, BLOCK])
    at = span[SPAN:]
    while take(work, span):
        source, target = ends(addresses, span)
        s, t = seek(loops, at, span[LOW])
        line = first_line(target + t, unit, alike)
        then = tile_at(at, tile, loops, over, steps, spacing, line, merged)
        ahead, rows_ahead = source + (s + then[4]), table + 8 * then[5]
        for _ in range(span[LOW], span[HIGH]):
            own, low, count, some, _, _, into, columns = then
            src, rows, dst = ahead, rows_ahead, target + (t + into)
            place, where, line_at = dst + low * unit, table + 8 * columns, -1
            if straight and line >= 0 and (line - low) % merged == 0:
                line_at = (line - low) // merged % (LINE // size)
            s, t = step(loops, at, s, t)
            line = first_line(target + t, unit, alike)
            then = tile_at(at, tile, loops, over, steps, spacing, line, merged)
            ahead, rows_ahead = source + (s + then[4]), table + 8 * then[5]
            filled = count
            if before != 0:
                filled = count // merged
                for p in range(filled):
                    made = buffer + load_word(made_rows + 8 * p)
                    call(before, (src, made, some, 0, rows + 8 * p * merged, 0, src, 0))
                src, rows = buffer, made_rows
            drained = line_at < 0 and stage != 0
            if drained:
                place, where = stage, table + 8 * tile[STAGED, START]
            if transposes != 0:
                near = ahead, rows_ahead
                call(transposes, (src, rows, place, where, some, *near, filled, line_at))
            else:
                end = source + reach if drained and tile[STAGED, DENSE] == 0 else pointer(0)
                move_runs(src, rows, place, where, some, count, size, spacing, end)
            if drained:
                drain_tile(
                    dst, stage, tile, offsets, columns, some, own, low, count, size, after, streamed
                )
