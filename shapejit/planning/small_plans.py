"""Small plans of Layouts: see `kernels.small_plans`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ..kernels.constants import PIECE
from ..kernels.small_plans import (
    BLOCKS,
    COLUMN_GAP,
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
    words = write_plan(sizes, strides, gaps, kept, itemsize, table)
    return np.array(table[:words], np.int64)


def slower_whole(plan: Plan) -> bool:
    """Whether the Plan is faster than a small plan, which moves narrow elements one by one.

    Tensors of 1 to 512 KiB, alone and in batches, take 1.1 to 1.4 times as long if none is, at most
    50 times.
    """
    assert plan.seen is not None
    table = small_plan(plan.seen)
    fields = WIDTH, ROWS, ROW_STEP, COLUMNS, COLUMN_STEP, COLUMN_GAP, BLOCKS
    width, rows, step, columns, column_step, gap, blocks = (int(table[k]) for k in fields)
    short = rows * columns < thresholds.SHORT
    # Three channels, picked or interleaved.
    channels = step == 3 * width or (rows == 3 and column_step == width and gap == 3 * width)
    channels = channels and width in (1, 2, 4) and max(rows, columns) >= thresholds.SHORT
    if blocks or channels or width >= PIECE:  # a small plan moves vectors, too
        return short and plan.strategy is Strategy.SHUFFLE
    boxes = plan.strategy is Strategy.BOXES and plan.step > 0 and width < 3
    return short or boxes or plan.strategy in (Strategy.TILES, Strategy.SHUFFLE)
