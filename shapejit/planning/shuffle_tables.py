"""The tables that the kernels of networks take of a plan: see `shuffles`."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..runtime.kernel_names import Code, widest
from .loops import Loop
from .plans import Plan
from .shuffles import MOST_BLOCKS, Shuffle


def _shuffle_of(plan: Plan) -> Shuffle:
    assert plan.shuffle is not None
    return plan.shuffle


def shuffle_loops(plan: Plan) -> list[tuple[int, ...]]:
    """The outer loops, and the loop over calls of the network's function."""
    if _shuffle_of(plan).boxes:
        return [*plan.loops[:-2]]
    size, source, target = plan.loops[-1]
    calls = -(-size // MOST_BLOCKS), MOST_BLOCKS * source, MOST_BLOCKS * target
    return [*plan.loops[:-1], calls]


def shuffle_table(plan: Plan, vector: int) -> tuple[tuple[Any, ...], int]:
    """The loops, the offsets of a block's parts (source, stage, target), the bytes of a stage."""
    made = _shuffle_of(plan)
    offsets, stage = made.sources + made.targets, 0
    if made.boxes:
        rows = tuple(made.pitch * k for k in range(len(made.targets)))
        offsets, stage = made.sources + rows + made.targets, made.stage
    return (plan.table, np.array(offsets, np.int64)), stage


def shuffled(plan: Plan, vector: int) -> tuple[Any, ...]:
    """The two innermost loops, the network's function, and the blocks of a call."""
    around = plan.loops[-2] if len(plan.loops) > 1 else Loop(1, 0, 0)
    steps = np.array([plan.loops[-1], around], np.int64)
    return steps, Code("network_code", _shuffle_of(plan).network), MOST_BLOCKS


def box_shuffled(plan: Plan, vector: int) -> tuple[Any, ...]:
    """The loops that fill a box, those that write it out row by row, and the network's function."""
    made = _shuffle_of(plan)
    entry, written = Code("network_code", made.network), made.network.written
    step, along = plan.loops[-2:]
    rows = len(made.targets), made.pitch, len(made.sources) + len(made.targets)
    if made.whole:
        group, drained = step.size * written, ((1, 0, 0), rows, (1, made.row, made.row))
    else:
        group = rows[0] * made.pitch
        drained = (along.size, group, along.target), rows, (step.size, written, step.target)
    filled = (along.size, along.source, group), (step.size, step.source, written)
    return np.array([*filled, *drained], np.int64), entry, widest(written)
