"""Small plans of Layouts: see `kernels.small_plans`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ..kernels.small_plans import (
    BLOCKS,
    COLUMN_STEP,
    COLUMNS,
    COUNT,
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
    words = write_plan(sizes, strides, gaps, kept, itemsize, table)
    return np.array(table[:words], np.int64)


def slower_whole(plan: Plan) -> bool:
    """Whether the Plan is faster than a small plan, which moves elements one by one.

    Tensors of 16 to 512 KiB take 1.6 times as long if none is, at most 41 times.
    """
    assert plan.seen is not None
    table = small_plan(plan.seen)
    fields = WIDTH, ROWS, ROW_STEP, COLUMNS, COLUMN_STEP, COUNT, BLOCKS
    width, rows, step, columns, column_step, count, blocks = (int(table[at]) for at in fields)
    # Planes of three channels are moved by vectors, too.
    three = step == 3 * width or (rows == 3 and column_step == width)
    if blocks or (three and width in (1, 2, 4) and max(rows, columns) >= thresholds.SHORT):
        return False
    # One plane of 1 or 2 bytes is as fast in either way: 8738 x 15 bytes .7 of a Plan's time.
    boxes = plan.strategy is Strategy.BOXES and plan.step > 0
    boxes = boxes and (width == 3 or (width < 3 and count > 1))
    vectors = boxes or plan.strategy in (Strategy.TILES, Strategy.SHUFFLE)
    return vectors or rows * columns < thresholds.SHORT
