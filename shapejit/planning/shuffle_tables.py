"""The tables of a plan for the kernels of networks: see `shuffles`."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..runtime.cpu_caches import LINE
from ..runtime.kernel_names import Code
from .loops import Loop
from .plans import Plan
from .shuffles import MOST_BLOCKS

PREFETCHED_BLOCKS = 16  # distance of prefetching in blocks, unless it is that of the next call


def shuffle_loops(plan: Plan) -> list[tuple[int, ...]]:
    """The outer loops, and the loop over calls of the network's function."""
    size, source, target = plan.loops[-1]
    calls = -(-size // MOST_BLOCKS), MOST_BLOCKS * source, MOST_BLOCKS * target
    return [*plan.loops[:-1], calls]


def shuffle_table(plan: Plan, vector: int) -> tuple[tuple[Any, ...], int]:
    """The loops, and the offsets of a block's parts; a stage where blocks follow one another."""
    shuffle, step = plan.shuffle, plan.loops[-1].target
    follows = step == shuffle.network.block and len(shuffle.targets) == 1
    offsets = np.array(shuffle.sources + shuffle.targets, np.int64)
    return (plan.table, offsets), follows * (MOST_BLOCKS * step + LINE)


def shuffled(plan: Plan, vector: int) -> tuple[Any, ...]:
    """The two innermost loops, the network's function, and the blocks of a call."""
    size, source, target = plan.loops[-1]
    ahead = Loop(1, PREFETCHED_BLOCKS * source, PREFETCHED_BLOCKS * target)
    around = plan.loops[-2] if len(plan.loops) > 1 else ahead
    if size <= MOST_BLOCKS and abs(around.source) > abs(source):
        ahead = around  # else the next call reads lines that this one has read
    steps = np.array([plan.loops[-1], ahead], np.int64)
    return steps, Code("network_generator", plan.shuffle.network), MOST_BLOCKS
