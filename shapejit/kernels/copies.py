"""Runs and rows, and what every kernel walks and streams with.

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
from .memory import LINE, copy, fence, move, move_line, size_of, stream_line

Table = NDArray[np.int64]  # of two dims
Numbers = NDArray[np.int64]  # of one

PAGE = 4096
STAGE = 4 * PAGE  # bytes that gather before they are streamed; half an L1 cache
STAGE_BYTES = 2 * STAGE  # with the largest block that may still be added


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
def part(done: int, high: int, count: int) -> tuple[int, int, int]:
    """Of units [done, high), `count` a tensor: the tensor of the first, and its units."""
    tensor = done // count
    before = tensor * count
    return tensor, done - before, min(high - before, count)


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
    sources: Numbers,
    targets: Numbers,
    loops: Table,
    at: Table,
    count: int,
    nbytes: int,
    stage: int,
    stage_step: int,
) -> None:
    """`run` of every tensor, one share of all pages a row of `at`."""
    shares, total = at.shape[0], count * len(sources)
    for share in prange(shares):
        done, high = total * share // shares, total * (share + 1) // shares
        while done < high:
            k, first, last = part(done, high, count)
            run(sources[k], targets[k], loops, at[share], first, last, nbytes, stage)
            done += last - first


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
    if stage == 0 or nbytes > PAGE:
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
    sources: Numbers,
    targets: Numbers,
    loops: Table,
    at: Table,
    count: int,
    nbytes: int,
    stage: int,
    stage_step: int,
    width: Any,
) -> None:
    """`rows` of every tensor, one share of all iterations a row of `at`."""
    shares, total = at.shape[0], count * len(sources)
    for share in prange(shares):
        done, high = total * share // shares, total * (share + 1) // shares
        own = stage + share * stage_step
        while done < high:
            k, first, last = part(done, high, count)
            rows(sources[k], targets[k], loops, at[share], first, last, nbytes, own, width)
            done += last - first
