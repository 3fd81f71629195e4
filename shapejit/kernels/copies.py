"""Strided copies: rows that are contiguous on both sides, and 2-D tiles of elements.

`loops` is the planner's table, one row (size, source stride, target stride) a
loop, outermost first; strides are bytes. Work is counted in iterations of all
loops together; [low, high) is one thread's share. `at` is scratch for the
loops' positions.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import prange
from numpy.typing import NDArray

from .jit import kernel, parallel_kernel
from .memory import copy, move

Table = NDArray[np.int64]


@kernel
def enter(loops: Table, at: NDArray[np.int64], index: int) -> tuple[int, int]:
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
def advance(loops: Table, at: NDArray[np.int64], source: int, target: int) -> tuple[int, int]:
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
def rows(
    source: int, target: int, loops: Table, at: NDArray[np.int64], low: int, high: int, nbytes: int
) -> None:
    """Copy rows of `nbytes`."""
    s, t = enter(loops, at, low)
    for _ in range(low, high):
        copy(target + t, source + s, nbytes)
        s, t = advance(loops, at, s, t)


@parallel_kernel
def rows_parallel(
    source: int, target: int, loops: Table, at: NDArray[np.int64], count: int, nbytes: int
) -> None:
    """`rows`, one share of the iterations a row of `at`."""
    shares = at.shape[0]
    for share in prange(shares):
        low, high = count * share // shares, count * (share + 1) // shares
        rows(source, target, loops, at[share], low, high, nbytes)


@kernel
def tiles(
    source: int,
    target: int,
    loops: Table,
    at: NDArray[np.int64],
    low: int,
    high: int,
    tile: Table,
    width: Any,
) -> None:
    """Copy blocks of elements.

    `tile` holds the two dims of a block, one row (size, source stride, target
    stride, block size) each: first the one that the source runs along, then the
    one that the target runs along. The last two `loops` walk their blocks.
    """
    first, second = loops.shape[0] - 2, loops.shape[0] - 1
    s, t = enter(loops, at, low)
    for _ in range(low, high):
        rows_here = min(tile[0, 3], tile[0, 0] - at[first] * tile[0, 3])
        columns_here = min(tile[1, 3], tile[1, 0] - at[second] * tile[1, 3])
        for i in range(rows_here):
            come = source + s + i * tile[0, 1]
            to = target + t + i * tile[0, 2]
            for j in range(columns_here):
                move(to + j * tile[1, 2], come + j * tile[1, 1], width)
        s, t = advance(loops, at, s, t)


@parallel_kernel
def tiles_parallel(
    source: int,
    target: int,
    loops: Table,
    at: NDArray[np.int64],
    count: int,
    tile: Table,
    width: Any,
) -> None:
    """`tiles`, one share of the blocks a row of `at`."""
    shares = at.shape[0]
    for share in prange(shares):
        low, high = count * share // shares, count * (share + 1) // shares
        tiles(source, target, loops, at[share], low, high, tile, width)


@kernel
def run(source: int, target: int, nbytes: int) -> None:
    """memcpy."""
    copy(target, source, nbytes)


@parallel_kernel
def run_parallel(source: int, target: int, nbytes: int, shares: int) -> None:
    """memcpy, split at 64-byte lines of the run."""
    lines = (nbytes + 63) // 64
    for share in prange(shares):
        low = 64 * (lines * share // shares)
        high = min(64 * (lines * (share + 1) // shares), nbytes)
        copy(target + low, source + low, high - low)
