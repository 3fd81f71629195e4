"""The tables that the kernels of networks take of a plan: see `shuffles`."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..runtime.kernel_names import Code
from .loops import Loop
from .plans import Plan
from .shuffles import MOST_BLOCKS

AHEAD = 16  # distance of prefetching in blocks, where a call does not end a loop


def shuffle_loops(plan: Plan) -> list[tuple[int, ...]]:
    """The outer loops, and the loop over calls of the network's function."""
    if plan.shuffle.boxes:
        return [*plan.loops[:-2]]
    size, source, target = plan.loops[-1]
    calls = -(-size // MOST_BLOCKS), MOST_BLOCKS * source, MOST_BLOCKS * target
    return [*plan.loops[:-1], calls]


def shuffle_table(plan: Plan, vector: int) -> tuple[tuple[Any, ...], int]:
    """The loops, the offsets of a block's parts (source, stage, target), the bytes of a stage."""
    made = plan.shuffle
    rows = tuple(made.pitch * k for k in range(len(made.targets) if made.boxes else 0))
    offsets = np.array(made.sources + rows + made.targets, np.int64)
    return (plan.table, offsets), made.stage if made.boxes else 0


def shuffled(plan: Plan, vector: int) -> tuple[Any, ...]:
    """The two innermost loops, the network's function, and the blocks of a call."""
    size, source, target = plan.loops[-1]
    ahead = Loop(1, AHEAD * source, AHEAD * target)
    if size <= MOST_BLOCKS and len(plan.loops) > 1:
        ahead = plan.loops[-2]
    steps = np.array([plan.loops[-1], ahead], np.int64)
    return steps, Code("network_generator", plan.shuffle.network), MOST_BLOCKS


def box_shuffled(plan: Plan, vector: int) -> tuple[Any, ...]:
    """The loops that fill a box, those that write it out by rows, the network's function, a row."""
    made, (step, along) = plan.shuffle, plan.loops[-2:]
    written = made.network.written
    rows = len(made.targets), made.pitch, len(made.sources) + len(made.targets)
    group = step.size * written if made.whole else rows[0] * made.pitch
    drained = (1, 0, 0) if made.whole else (along.size, group, along.target)
    filled = (step.size, step.source, written), (along.size, along.source, group)
    steps = np.array([*filled, drained, rows], np.int64)
    return steps, Code("network_generator", made.network), made.row
