"""The tables of a plan for the kernels of networks: see `shuffles`."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..kernels.constants import MOST_BLOCKS, STAGE_BYTES
from ..runtime.cpu_caches import LINE
from ..runtime.kernel_names import Code
from .loops import Loop
from .plans import Plan

PREFETCHED_BLOCKS = 16  # distance of prefetching in blocks, unless it is that of the next call


def shuffle_loops(plan: Plan) -> list[tuple[int, ...]]:
    """The outer loops, and the loop over calls of the network's function."""
    size, source, target = plan.loops[-1]
    calls = -(-size // MOST_BLOCKS), MOST_BLOCKS * source, MOST_BLOCKS * target
    return [*plan.loops[:-1], calls]


def shuffle_table(plan: Plan, vector: int) -> tuple[tuple[Any, ...], int]:
    """The loops, and the offsets of a block's pieces: in source and target, and on the stage.

    There is a stage if each piece follows that of the previous block; it fits in an L1 cache. But
    not if other calls overlap: stores to lines that were streamed wait for these.
    """
    shuffle, (size, _, step) = plan.shuffle, plan.loops[-1]
    targets, run = shuffle.targets, min(size, MOST_BLOCKS) * step  # bytes
    pitch = (run // LINE + 2 | 1) * LINE  # an odd number of lines, to use all sets of a cache
    staged = range(0, pitch * len(targets), pitch)
    alike = pitch * len(targets) <= STAGE_BYTES and not any(at % LINE for at in targets)
    follows = step == shuffle.network.written and (alike or len(targets) == 1)
    follows = follows and all(abs(loop.target) >= run for loop in plan.loops[:-1])
    offsets = np.array([(*shuffle.sources, *places) for places in (targets, staged)], np.int64)
    return (plan.table, offsets), follows * staged.stop


def shuffled(plan: Plan, vector: int) -> tuple[Any, ...]:
    """The two innermost loops, and the network's function.

    Prefetched are the lines of a later call that begins on other lines, if calls have few blocks.
    """
    inner = ahead = plan.loops[-1]
    # The hardware finds one long sequence itself: float32[:, ::2] of 256 MiB 0.82 of the time.
    times = 0 if plan.streaming and plan.shuffle.in_sequence else PREFETCHED_BLOCKS
    if inner.size <= MOST_BLOCKS and len(plan.loops) > 1:
        ahead = plan.loops[-2]
        times = -(-LINE // max(1, abs(ahead.source)))
    runs = Loop(len(plan.shuffle.targets), times * ahead.source, times * ahead.target)
    steps = np.array([inner, runs], np.int64)
    return steps, Code("network_generator", plan.shuffle.network)
