"""Small plans of Layouts, and the kernels that move their planes: see `kernels.small_plans`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..kernels.small_plans import (
    BLOCKS,
    COLUMN_STEP,
    COLUMNS,
    ELEMENTS,
    HEAD,
    MOVER,
    MOVERS,
    NEAR,
    ROW_STEP,
    ROWS,
    SHIFT,
    WIDTH,
    write_plan,
)
from ..runtime.kernel_names import Function
from ..runtime.kernels import address
from ..shapes.arithmetic import merge
from ..shapes.layout import Layout
from .plans import Plan

Words = NDArray[np.int64]

PLANE = 64  # elements of a plane; for fewer a small plan takes longer to walk than to copy

_movers = np.zeros(len(MOVERS), np.int64)  # the addresses of those that are ready
MOVERS_AT = int(_movers.ctypes.data)
"""The address of the table of movers, which kernels of small plans take."""


def missing_movers(plans: Words, starts: Any) -> tuple[Function, ...]:
    """The kernels that are to move planes of small plans, at these indices of `plans`, and are not
    ready; those that are may be called from now on."""
    if _movers.all():
        return ()
    wanted = plans[starts + MOVER]
    indices = np.flatnonzero(np.bincount(wanted)).tolist() if wanted.ndim else [int(wanted)]
    for index in indices:
        _movers[index] = _movers[index] or address(MOVERS[index])
    return tuple(MOVERS[index] for index in indices if not _movers[index])


def small_plan(layout: Layout) -> Words:
    """The words of a small plan of whole bytes, from the first element on."""
    dims = [(size, stride // 8) for size, stride in zip(layout.shape, layout.strides, strict=True)]
    return small_plan_of_dims(dims, layout.bits // 8)


def small_plan_of(plan: Plan) -> Words:
    """The words of a Plan's small plan, from where the Layout's offset counts."""
    assert plan.small is not None
    table = small_plan(plan.small)
    table[[SHIFT, NEAR]] += plan.offset // 8
    return table


def small_plan_of_dims(dims: Sequence[tuple[int, int]], itemsize: int) -> Words:
    """The words of a small plan for dims of (size, stride in bytes)."""
    sizes, strides = ([dim[side] for dim in dims] for side in (0, 1))
    table = [0] * (HEAD + 3 * len(dims))
    kept = merge(sizes, (strides,), len(dims))
    words = write_plan(sizes, strides, kept, itemsize, table, 0)
    return np.array(table[:words], np.int64)


def slower_whole(plan: Plan) -> bool:
    """Whether a small plan moves one by one elements that the Plan moves faster."""
    assert plan.seen is not None
    table = small_plan(plan.seen)
    vectors = plan.row.vectors or plan.shuffle is not None
    plane = int(table[ROWS] * table[COLUMNS])
    return _one_by_one(table) and (vectors or plane < PLANE)


def _one_by_one(table: Words) -> bool:
    """Whether a small plan moves no more than an element at a time: see `kernels.small`."""
    if not ELEMENTS <= table[MOVER] < BLOCKS:
        return False
    width, rows, columns = (int(table[at]) for at in (WIDTH, ROWS, COLUMNS))
    if width > 4:
        return True
    # Three channels go by vectors.
    if columns > rows:
        return rows != 3 or int(table[COLUMN_STEP]) != width
    return int(table[ROW_STEP]) != 3 * width
