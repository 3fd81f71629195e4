"""Positions of nested loops, advanced like an odometer.

`loops` holds one row (size, source stride, target stride) per loop, outermost first;
`at` the index of each loop.
"""

from __future__ import annotations

from .constants import INNER, START, STRIDE
from .jit import Numbers, Table, kernel


@kernel
def seek(loops: Table, at: Numbers, index: int) -> tuple[int, int]:
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
def box_at(loops: Table, index: int) -> tuple[int, int, int, int]:
    """The start of box `index` in source, target, scales and zero points.

    `loops` has a row per loop over boxes: its steps; the distance of a step along its dim, and the
    largest distance, since the last box reaches back; the dim's strides on each side.
    """
    source = target = scale = zero = 0
    for k in range(loops.shape[0] - 1, -1, -1):
        steps, part, most, source_step, target_step, scale_step, zero_step = loops[k]
        at = min(index % steps * part, most)
        index //= steps
        source += at * source_step
        target += at * target_step
        scale += at * scale_step
        zero += at * zero_step
    return source, target, scale, zero


@kernel
def offset_at(tile: Table, side: int, index: int) -> tuple[int, int]:
    """The offset of row or column `index` of a tile, as a base and an index into `offsets`.

    The offset is the sum of the base and that entry; those of the next rows follow in the table.
    """
    inner = tile[side, INNER]
    return index // inner * tile[side, STRIDE], tile[side, START] + index % inner


@kernel
def step(loops: Table, at: Numbers, source: int, target: int) -> tuple[int, int]:
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
