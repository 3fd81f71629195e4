"""Strided copies into contiguous memory.

`loops` is the planner's table of outer loops, one row (size, source stride,
target stride) a loop, outermost first; strides are bytes. Work is counted in
iterations of all loops together; [low, high) is one thread's share of them,
`at` its scratch for the loops' positions, `stage` its scratch memory (aligned
to a line) for what is then streamed past the caches; 0 means plain stores.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import prange
from numpy.typing import NDArray

from .jit import kernel, parallel_kernel
from .memory import (
    LINE,
    PIECE,
    copy,
    fence,
    interleave,
    move,
    move_line,
    pick,
    prefetch,
    size_of,
    stream_line,
    transpose_block,
)

Table = NDArray[np.int64]

NEAR = 4
PAGE = 4096
STAGE = 16 * 1024  # bytes that gather before they are streamed; half an L1 cache
STAGE_BYTES = 2 * STAGE  # with the largest block that may still be added

# Streamed blocks follow one another in the target: they gather on the stage until it is full.


@kernel
def enter(loops: Table, at: Table, index: int) -> tuple[int, int]:
    """Set `at` to iteration `index`; return the source and target offsets there."""
    source = target = 0
    for k in range(loops.shape[0] - 1, -1, -1):
        size = loops[k, 0]
        at[k] = index % size
        index //= size
        source += at[k] * loops[k, 1]
        target += at[k] * loops[k, 2]
    return source, target


@kernel
def advance(loops: Table, at: Table, source: int, target: int) -> tuple[int, int]:
    """The offsets of the iteration after the one in `at`."""
    k = loops.shape[0] - 1
    while k >= 0:
        at[k] += 1
        source += loops[k, 1]
        target += loops[k, 2]
        if at[k] < loops[k, 0]:
            return source, target
        source -= loops[k, 0] * loops[k, 1]
        target -= loops[k, 0] * loops[k, 2]
        at[k] = 0
        k -= 1
    return source, target


@kernel
def stream(target: int, source: int, nbytes: int) -> None:
    """memcpy whose whole target lines go past the caches."""
    head = min(-target & (LINE - 1), nbytes)
    if head > 0:
        copy(target, source, head)
    done = head
    while done + LINE <= nbytes:
        stream_line(target + done, source + done)
        done += LINE
    if done < nbytes:
        copy(target + done, source + done, nbytes - done)


@kernel
def run(
    source: int, target: int, loops: Table, at: Table, low: int, high: int, nbytes: int, stage: int
) -> None:
    """memcpy of pages [low, high) of `nbytes`; streamed if there is a stage."""
    first, end = low * PAGE, min(high * PAGE, nbytes)
    if stage == 0:
        copy(target + first, source + first, end - first)
    else:
        stream(target + first, source + first, end - first)
        fence()


@parallel_kernel
def run_parallel(
    source: int,
    target: int,
    loops: Table,
    at: Table,
    count: int,
    nbytes: int,
    stage: int,
    stage_step: int,
) -> None:
    """`run`, one share of the pages a row of `at`."""
    shares = at.shape[0]
    for share in prange(shares):
        low, high = count * share // shares, count * (share + 1) // shares
        run(source, target, loops, at[share], low, high, nbytes, stage)


@kernel
def small_row(target: int, source: int, nbytes: int, width: Any) -> None:
    """Copy a row of at least `width` bytes; the last move overlaps the one before."""
    if nbytes >= LINE:
        done = 0
        while done < nbytes - LINE:
            move_line(target + done, source + done)
            done += LINE
        move_line(target + nbytes - LINE, source + nbytes - LINE)
    else:
        size = size_of(width)
        done = 0
        while done < nbytes - size:
            move(target + done, source + done, width)
            done += size
        move(target + nbytes - size, source + nbytes - size, width)


@kernel
def flush(target: int, stage: int, lead: int, filled: int) -> tuple[int, int]:
    """Stream the whole lines staged in [lead, filled), whose first byte belongs at `target`.

    The stage stands to its lines as the target does. Returns where the next
    line belongs, and how much of it is staged already.
    """
    whole = filled & -LINE
    stream(target, stage + lead, whole - lead)
    move_line(stage, stage + whole)
    return target + whole - lead, filled - whole


@kernel
def rows(
    source: int,
    target: int,
    loops: Table,
    at: Table,
    low: int,
    high: int,
    nbytes: int,
    stage: int,
    width: Any,
) -> None:
    """Copy rows of `nbytes`.

    `width` is the largest that fits into a row. With a stage, rows shorter than
    it are gathered there, so that only whole lines are streamed; they must lie
    side by side in the target.
    """
    s, t = enter(loops, at, low)
    if stage == 0 or 4 * nbytes > STAGE:
        for _ in range(low, high):
            if stage == 0:
                small_row(target + t, source + s, nbytes, width)
            else:
                stream(target + t, source + s, nbytes)
            s, t = advance(loops, at, s, t)
    else:
        target += t
        lead = target & (LINE - 1)
        filled = lead
        for _ in range(low, high):
            small_row(stage + filled, source + s, nbytes, width)
            filled += nbytes
            if filled + nbytes > STAGE:
                target, filled = flush(target, stage, lead, filled)
                lead = 0
            s, _ = advance(loops, at, s, 0)
        stream(target, stage + lead, filled - lead)
    fence()


@parallel_kernel
def rows_parallel(
    source: int,
    target: int,
    loops: Table,
    at: Table,
    count: int,
    nbytes: int,
    stage: int,
    stage_step: int,
    width: Any,
) -> None:
    """`rows`, one share of the iterations a row of `at`."""
    shares = at.shape[0]
    for share in prange(shares):
        low, high = count * share // shares, count * (share + 1) // shares
        own = stage + share * stage_step
        rows(source, target, loops, at[share], low, high, nbytes, own, width)


@kernel
def block_of(at: Table, shape: Table, loops: Table, over: int, step_p: int, step_q: int) -> Any:
    """The tile at `at`: its rows' own start, the rows [low, high) to fill, the columns [low, high).

    Edge tiles reach back instead of being cut, so that every block of steps is
    whole; rows run `over` further, for the lines that end behind the tile.
    """
    p_own = at[loops.shape[0] - 2] * shape[0, 3]
    p_high = min(p_own + shape[0, 3] + over, shape[0, 0])
    p_low = max(min(p_own, p_high - step_p), 0)
    q_low = at[loops.shape[0] - 1] * shape[1, 3]
    q_high = min(q_low + shape[1, 3], shape[1, 0])
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
    source: int,
    target: int,
    loops: Table,
    at: Table,
    low: int,
    high: int,
    shape: Table,
    offsets: Table,
    stage: int,
    width: Any,
    pieces: Any,
) -> None:
    """Transpose tiles.

    A tile is a range of rows, which lie side by side in the target, by a range
    of columns, which lie side by side in the source; each may run over several
    dims. `shape` holds one row (count, count of one step of the outermost dim,
    stride of that step in the other buffer, block, where its offsets begin) for
    the rows, the columns and the stage. `offsets` holds the source offsets of
    the rows, the target offsets of the columns, the stage offsets of the columns.
    The last two `loops` walk the blocks of rows and of columns.
    """
    size = size_of(width)
    step_p, step_q = PIECE // size * size_of(pieces), PIECE // size
    over = 0 if stage == 0 else LINE // size
    table = offsets.ctypes.data
    bounce = 0
    if stage != 0 and shape[3, 0] == 1:
        bounce = stage + shape[3, 1]
    s, t = enter(loops, at, low)
    p_own, p_low, p_high, q_low, q_high = block_of(at, shape, loops, over, step_p, step_q)
    for _ in range(low, high):
        come = source + s + p_low // shape[0, 1] * shape[0, 2] + q_low * size
        to = target + t + q_low // shape[1, 1] * shape[1, 2]
        p_rest, q_rest = p_low % shape[0, 1], q_low % shape[1, 1]
        place, columns = to + p_low * size, table + 8 * (shape[1, 4] + q_rest)
        if stage != 0:
            place, columns = stage, table + 8 * shape[2, 4]
        p_count, q_count = p_high - p_low, q_high - q_low
        own, first = p_own, p_low
        s, t = advance(loops, at, s, t)
        p_own, p_low, p_high, q_low, q_high = block_of(at, shape, loops, over, step_p, step_q)
        for i in range(0, p_count, step_p):
            p = min(i, p_count - step_p)
            rows_at = table + 8 * (p_rest + p)
            # Ask for the source of the next block of rows, which may be the next tile's.
            ahead, rows_ahead = come, p_rest + p + step_p
            if i + step_p >= p_count:
                ahead = source + s + p_low // shape[0, 1] * shape[0, 2] + q_low * size
                rows_ahead = p_low % shape[0, 1]
            block = come
            if bounce != 0:
                for r in range(step_p):
                    if r + NEAR < step_p:
                        near = come + offsets[p_rest + p + r + NEAR]
                    else:
                        near = ahead + offsets[rows_ahead + r + NEAR - step_p]
                    for line in range(0, q_count * size, LINE):
                        prefetch(near + line)
                    row = bounce + r * shape[3, 2]
                    small_row(row, come + offsets[p_rest + p + r], q_count * size, width)
                block, rows_at = bounce, table + 8 * shape[3, 4]
            for j in range(0, q_count, step_q):
                q = min(j, q_count - step_q)
                if bounce == 0:
                    quarter = (j // step_q) & 3
                    line = ahead + (j - quarter * step_q) * size
                    for k in range(step_p // 4):
                        prefetch(line + offsets[rows_ahead + quarter * (step_p // 4) + k])
                transpose_block(
                    block + q * size, rows_at, place + p * size, columns + 8 * q, width, pieces
                )
        if stage != 0:
            end, limit = min(own + shape[0, 3], shape[0, 0]) * size, shape[0, 0] * size
            if shape[2, 0] == 1:
                # The columns' rows follow one another in the target, as on the stage.
                stream(to + offsets[shape[1, 4] + q_rest], stage, q_count * limit)
                q_count = 0
            for q in range(q_count):
                staged = stage - first * size + q * shape[2, 2]
                drain(to + offsets[shape[1, 4] + q_rest + q], staged, own * size, end, limit)
    fence()


@kernel
def run_tiles(
    source: int,
    target: int,
    loops: Table,
    at: Table,
    low: int,
    high: int,
    shape: Table,
    offsets: Table,
    stage: int,
    nbytes: int,
    width: Any,
) -> None:
    """`tiles` of runs of `nbytes`, which keep their order: `width` is the largest that fits.

    Columns lie evenly spaced in the source, shape[1, 5] apart.
    """
    over = 0 if stage == 0 else (LINE + nbytes - 1) // nbytes
    gap = shape[1, 5]
    s, t = enter(loops, at, low)
    for _ in range(low, high):
        p_own, p_low, p_high, q_low, q_high = block_of(at, shape, loops, over, 1, 1)
        rows_at, columns = p_low % shape[0, 1], shape[1, 4] + q_low % shape[1, 1]
        come = source + s + p_low // shape[0, 1] * shape[0, 2] + q_low * gap
        to = target + t + q_low // shape[1, 1] * shape[1, 2]
        for p in range(p_high - p_low):
            row = come + offsets[rows_at + p]
            ahead = come + offsets[rows_at + p + 1]
            for q in range(q_high - q_low):
                # Several short runs share a line: it is asked for once.
                if q * gap & (LINE - 1) < gap:
                    for line in range(0, nbytes, LINE):
                        prefetch(ahead + q * gap + line)
                if stage == 0:
                    place = to + offsets[columns + q] + (p_low + p) * nbytes
                else:
                    place = stage + q * shape[2, 2] + p * nbytes
                small_row(place, row + q * gap, nbytes, width)
        if stage != 0:
            end, limit = min(p_own + shape[0, 3], shape[0, 0]) * nbytes, shape[0, 0] * nbytes
            if shape[2, 0] == 1:
                stream(to + offsets[columns], stage, (q_high - q_low) * limit)
                q_high = q_low
            for q in range(q_high - q_low):
                staged = stage - p_low * nbytes + q * shape[2, 2]
                drain(to + offsets[columns + q], staged, p_own * nbytes, end, limit)
        s, t = advance(loops, at, s, t)
    fence()


@parallel_kernel
def run_tiles_parallel(
    source: int,
    target: int,
    loops: Table,
    at: Table,
    count: int,
    shape: Table,
    offsets: Table,
    stage: int,
    stage_step: int,
    nbytes: int,
    width: Any,
) -> None:
    """`run_tiles`, one share of the tiles a row of `at`."""
    shares = at.shape[0]
    for share in prange(shares):
        low, high = count * share // shares, count * (share + 1) // shares
        own = stage + share * stage_step
        run_tiles(source, target, loops, at[share], low, high, shape, offsets, own, nbytes, width)


@parallel_kernel
def tiles_parallel(
    source: int,
    target: int,
    loops: Table,
    at: Table,
    count: int,
    shape: Table,
    offsets: Table,
    stage: int,
    stage_step: int,
    width: Any,
    pieces: Any,
) -> None:
    """`tiles`, one share of the tiles a row of `at`."""
    shares = at.shape[0]
    for share in prange(shares):
        low, high = count * share // shares, count * (share + 1) // shares
        own = stage + share * stage_step
        tiles(source, target, loops, at[share], low, high, shape, offsets, own, width, pieces)


@kernel
def interleave_rows(
    source: int,
    target: int,
    loops: Table,
    at: Table,
    low: int,
    high: int,
    shape: Table,
    offsets: Table,
    stage: int,
    factor: Any,
    width: Any,
    pieces: Any,
) -> None:
    """`tiles` of a few rows, which take turns element by element in the target.

    The columns of a tile lie side by side in source and target.
    """
    size = size_of(width)
    step_q, rows = PIECE // size * size_of(pieces), len(factor)
    table = offsets.ctypes.data
    s, t = enter(loops, at, low)
    next_line = target + t + at[loops.shape[0] - 1] * shape[1, 3] * size * rows
    lead = filled = next_line & (LINE - 1)
    for _ in range(low, high):
        q_low = at[loops.shape[0] - 1] * shape[1, 3]
        count = min(shape[1, 3], shape[1, 0] - q_low)
        # A short last block reaches back; what it writes again is there already.
        back = max(step_q - count, 0)
        first = shape[1, 4] + (q_low - back) % shape[1, 1]
        come = source + s + (q_low - back) // shape[1, 1] * shape[1, 2]
        place = target + t + (q_low - back) * size * rows
        if stage != 0:
            place = stage + filled - back * size * rows
        for j in range(0, count + back, step_q):
            q = min(j, count + back - step_q)
            begin = come + offsets[first + q]
            interleave(begin, table, place + q * size * rows, factor, width, pieces)
        if stage != 0:
            filled += count * size * rows
            if filled > STAGE:
                next_line, filled = flush(next_line, stage, lead, filled)
                lead = 0
        s, t = advance(loops, at, s, t)
    if stage != 0:
        stream(next_line, stage + lead, filled - lead)
    fence()


@parallel_kernel
def interleave_rows_parallel(
    source: int,
    target: int,
    loops: Table,
    at: Table,
    count: int,
    shape: Table,
    offsets: Table,
    stage: int,
    stage_step: int,
    factor: Any,
    width: Any,
    pieces: Any,
) -> None:
    """`interleave_rows`, one share of the tiles a row of `at`."""
    shares = at.shape[0]
    for share in prange(shares):
        low, high = count * share // shares, count * (share + 1) // shares
        own = stage + share * stage_step
        interleave_rows(
            source, target, loops, at[share], low, high, shape, offsets, own, factor, width, pieces
        )


@kernel
def pick_rows(
    source: int,
    target: int,
    loops: Table,
    at: Table,
    low: int,
    high: int,
    shape: Table,
    offsets: Table,
    stage: int,
    step: Any,
    back_tag: Any,
    width: Any,
    pieces: Any,
) -> None:
    """Copy blocks of rows whose elements lie a few apart in the source, or backwards."""
    size = size_of(width)
    each = PIECE // size * size_of(pieces)
    s, t = enter(loops, at, low)
    next_line = target + t + at[loops.shape[0] - 1] * shape[0, 3] * size
    lead = filled = next_line & (LINE - 1)
    for _ in range(low, high):
        p_low = at[loops.shape[0] - 1] * shape[0, 3]
        count = min(shape[0, 3], shape[0, 0] - p_low)
        # A short last block reaches back; what it writes again is there already.
        back = max(each - count, 0)
        first = shape[0, 4] + (p_low - back) % shape[0, 1]
        come = source + s + (p_low - back) // shape[0, 1] * shape[0, 2]
        place = target + t + (p_low - back) * size
        if stage != 0:
            place = stage + filled - back * size
        for i in range(0, count + back, each):
            p = min(i, count + back - each)
            pick(come + offsets[first + p], place + p * size, step, back_tag, width, pieces)
        if stage != 0:
            filled += count * size
            if filled > STAGE:
                next_line, filled = flush(next_line, stage, lead, filled)
                lead = 0
        s, t = advance(loops, at, s, t)
    if stage != 0:
        stream(next_line, stage + lead, filled - lead)
    fence()


@parallel_kernel
def pick_rows_parallel(
    source: int,
    target: int,
    loops: Table,
    at: Table,
    count: int,
    shape: Table,
    offsets: Table,
    stage: int,
    stage_step: int,
    step: Any,
    back_tag: Any,
    width: Any,
    pieces: Any,
) -> None:
    """`pick_rows`, one share of the blocks a row of `at`."""
    shares = at.shape[0]
    for share in prange(shares):
        low, high = count * share // shares, count * (share + 1) // shares
        own = stage + share * stage_step
        pick_rows(
            source,
            target,
            loops,
            at[share],
            low,
            high,
            shape,
            offsets,
            own,
            step,
            back_tag,
            width,
            pieces,
        )


@kernel
def gather(
    source: int,
    target: int,
    loops: Table,
    at: Table,
    low: int,
    high: int,
    shape: Table,
    offsets: Table,
    stage: int,
    width: Any,
) -> None:
    """Copy blocks of rows that lie side by side in the target, one element at a time.

    `shape` and `offsets` are those of the rows of `tiles`; the last of `loops`
    walks the blocks.
    """
    size = size_of(width)
    s, t = enter(loops, at, low)
    next_line = target + t + at[loops.shape[0] - 1] * shape[0, 3] * size
    lead = filled = next_line & (LINE - 1)
    for _ in range(low, high):
        p_low = at[loops.shape[0] - 1] * shape[0, 3]
        count = min(shape[0, 3], shape[0, 0] - p_low)
        first = shape[0, 4] + p_low % shape[0, 1]
        come = source + s + p_low // shape[0, 1] * shape[0, 2]
        place = target + t + p_low * size
        if stage != 0:
            place = stage + filled
        for p in range(count):
            move(place + p * size, come + offsets[first + p], width)
        if stage != 0:
            filled += count * size
            if filled > STAGE:
                next_line, filled = flush(next_line, stage, lead, filled)
                lead = 0
        s, t = advance(loops, at, s, t)
    if stage != 0:
        stream(next_line, stage + lead, filled - lead)
    fence()


@parallel_kernel
def gather_parallel(
    source: int,
    target: int,
    loops: Table,
    at: Table,
    count: int,
    shape: Table,
    offsets: Table,
    stage: int,
    stage_step: int,
    width: Any,
) -> None:
    """`gather`, one share of the blocks a row of `at`."""
    shares = at.shape[0]
    for share in prange(shares):
        low, high = count * share // shares, count * (share + 1) // shares
        own = stage + share * stage_step
        gather(source, target, loops, at[share], low, high, shape, offsets, own, width)
