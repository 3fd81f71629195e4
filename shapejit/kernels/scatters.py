"""Runs copied in the source's order to several places, such as heads split from positions.

The arguments are those of `tiles`, whose tiles of runs read a few runs of each row; here the
source is read sequentially, and only the target is written in several places.
"""

from __future__ import annotations

from ..runtime.cpu_caches import LINE
from ..runtime.jobs import HIGH, LOW, SPAN
from .constants import BLOCK, COLUMNS, COUNT, ROWS, START, STEP
from .copies import move_run, stream_whole
from .jit import Address, Numbers, Table, kernel
from .memory import copy, prefetch, stream_joined
from .odometer import offset_at, seek, step
from .shares import ends, take


@kernel
def scatter_run(
    target: Address, source: Address, nbytes: int, previous: Address, begins: bool, ends: bool
) -> None:
    """Stream a run after the previous one of its target, which ends at `previous` in the source.

    Both have a line or more, and so much may be read before the run and after the previous one.
    The line of both is joined in a register. The first and the last run that are adjacent write
    their ends by plain stores.
    """
    done, line_offset = -target & (LINE - 1), target & (LINE - 1)
    if begins:
        copy(target, source, done)
    elif done > 0:
        lines = previous - line_offset, source - line_offset
        stream_joined(target - line_offset, *lines, line_offset)
    done = stream_whole(target, source, done, nbytes)
    if ends:
        copy(target + done, source + done, nbytes - done)


@kernel
def scatter(
    addresses: Table,
    work: Numbers,
    span: Numbers,
    stage: Address,
    loops: Table,
    tile: Table,
    offsets: Numbers,
    nbytes: int,
) -> None:
    """Copy blocks of rows of runs of `nbytes` (at least a line), all columns of each row.

    Rows ascend in the source, by a line or more. With a stage whole lines are streamed.
    """
    gap, columns = tile[COLUMNS, STEP], tile[COLUMNS, START]
    at = span[SPAN:]
    while take(work, span):
        source, target = ends(addresses, span)
        s, t = seek(loops, at, span[LOW])
        for _ in range(span[LOW], span[HIGH]):
            p_low = at[loops.shape[0] - 2] * tile[ROWS, BLOCK]
            p_high = min(p_low + tile[ROWS, BLOCK], tile[ROWS, COUNT])
            src, first = offset_at(tile, ROWS, p_low)
            row = source
            for p in range(p_low, p_high):
                previous, row = row, source + (s + src + offsets[first + p - p_low])
                place = target + (t + p * nbytes)
                # The hardware prefetcher finds the next row too late: 1.4 -> 1.0 x memcpy.
                ahead = source + (s + src + offsets[first + p - p_low + 1])
                is_first, is_last = p == p_low, p == p_high - 1
                for q in range(tile[COLUMNS, COUNT]):
                    dst, run = place + offsets[columns + q], row + q * gap
                    for at_line in range(0, nbytes, LINE):
                        prefetch(ahead + q * gap + at_line)
                    if stage == 0:
                        move_run(dst, run, nbytes)
                    else:
                        last = previous + (q * gap + nbytes)
                        scatter_run(dst, run, nbytes, last, is_first, is_last)
            s, t = step(loops, at, s, t)
