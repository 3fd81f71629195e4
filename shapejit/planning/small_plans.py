"""Small plans of Layouts: see `kernels.small_plans`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ..kernels.constants import WIDTHS
from ..kernels.small_plans import (
    BLOCKS,
    COLUMN_STEP,
    COLUMNS,
    HEAD,
    NEAR,
    ROW_STEP,
    ROWS,
    SHIFT,
    WIDTH,
    row_major,
    write_plan,
)
from ..shapes.arithmetic import merge
from ..shapes.layout import Layout
from . import thresholds
from .plans import Plan
from .strategies import Strategy

Words = NDArray[np.int64]


def small_plan(layout: Layout) -> Words:
    """The words of a small plan of whole bytes, from the first element on."""
    dims = [(size, stride // 8) for size, stride in zip(layout.shape, layout.strides, strict=True)]
    return small_plan_of_dims(dims, layout.bits // 8)


def small_plan_of(plan: Plan) -> Words:
    """The words of a Plan's small plan; offsets count from where the Layout's offset does."""
    assert plan.small is not None
    table = small_plan(plan.small)
    table[[SHIFT, NEAR]] += plan.offset // 8
    return table


def small_plan_of_dims(dims: Sequence[tuple[int, int]], itemsize: int) -> Words:
    """The words of a small plan for dims of (size, stride in bytes)."""
    sizes, strides = ([dim[side] for dim in dims] for side in (0, 1))
    table = [0] * (HEAD + 3 * len(dims))
    kept, gaps = merge(sizes, (strides,), len(dims)), strides.copy()
    row_major(sizes, kept, itemsize, gaps)
    words = write_plan(sizes, strides, gaps, kept, itemsize, table, 0)
    return np.array(table[:words], np.int64)


def slower_whole(plan: Plan) -> bool:
    """Whether the Plan is faster, since the small plan would move elements one by one."""
    assert plan.seen is not None
    table = small_plan(plan.seen)
    if table[WIDTH] not in WIDTHS:  # elements that are padded in blocks
        return not plan.by_numpy and plan.strategy is Strategy.BOXES and plan.step > 0
    vectors = not plan.by_numpy and plan.shuffle is not None
    plane = int(table[ROWS] * table[COLUMNS])
    return _one_by_one(table) and (vectors or plane < thresholds.SHORT)


def _one_by_one(table: Words) -> bool:
    """Whether a small plan moves one element at a time: see `kernels.small`."""
    if table[BLOCKS]:
        return False
    width, rows, columns = (int(table[at]) for at in (WIDTH, ROWS, COLUMNS))
    if width > 4:
        return True
    # Three channels are moved by vectors.
    if columns > rows:
        return rows != 3 or int(table[COLUMN_STEP]) != width
    return int(table[ROW_STEP]) != 3 * width
