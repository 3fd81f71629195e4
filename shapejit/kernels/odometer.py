"""Positions of nested loops, advanced like an odometer.

`loops` holds one row (size, source stride, target stride) per loop, outermost first;
`at` the index of each loop.
"""

from __future__ import annotations

from ..runtime.jobs import HIGH, LEFT, LOW, SOURCE, SPAN, TARGET, TENSOR
from .constants import INNER, START, STRIDE
from .jit import Address, Numbers, Table, inlined, kernel
from .memory import pointer
from .shares import take


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

    `loops` has a row per loop over boxes: its steps; by how much one moves the box along its dim,
    and how far that is at most, since the last box reaches back; the dim's strides on each side.
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

    The sum of the base and that entry is the offset; those of the next rows follow in the table.
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


@kernel
def advance(work: Numbers, span: Numbers, loops: Table) -> bool:
    """Go to the next iteration of the loops; False when the job is done.

    Sets in `span` its start in the tensor, `SOURCE` and `TARGET`, and the number of iterations
    `LEFT` in the share, including it; positions of loops are in `span[SPAN:]`.
    """
    at = span[SPAN:]
    if span[LEFT] > 1:
        span[LEFT] -= 1
        span[SOURCE], span[TARGET] = step(loops, at, span[SOURCE], span[TARGET])
        return True
    span[LEFT] = 0
    if not take(work, span):
        return False
    span[SOURCE], span[TARGET] = seek(loops, at, span[LOW])
    span[LEFT] = span[HIGH] - span[LOW]
    return True


@inlined
def begins(places: Table, span: Numbers) -> tuple[Address, Address]:
    """The start addresses of an iteration in source and target."""
    source, target = pointer(places[0, span[TENSOR]]), pointer(places[1, span[TENSOR]])
    return source + span[SOURCE], target + span[TARGET]
