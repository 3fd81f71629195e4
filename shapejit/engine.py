"""Runs a Plan: serial or parallel, safe with threads and after a fork."""

from __future__ import annotations

import os
import threading
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .planner import Plan, Strategy

# One parallel region at a time: numba's workqueue layer aborts the process when
# two threads enter at once. Whoever finds it taken runs the serial kernel.
_region = threading.Lock()
_forked = False


def _after_fork() -> None:
    """OpenMP ends a forked child that enters a parallel region: children stay serial."""
    global _forked
    _forked = True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def run(plan: Plan, source: NDArray[Any], target: NDArray[Any]) -> None:
    """Fill `target`, contiguous memory of exactly the plan's bytes, from `source`.

    The plan's strides and offset count from the first element of `source`: the
    strided ndarray itself, or the bytes of a Tensor's buffer.
    """
    if plan.strategy is Strategy.NUMPY:
        np.copyto(target.reshape(source.shape), source)
    elif plan.strategy is not Strategy.NOTHING:
        _launch(plan, _address(source), _address(target))
        if plan.padding:
            target.reshape(-1).view(np.uint8)[-1] &= 0xFF >> plan.padding


def _address(x: NDArray[Any]) -> int:
    return int(x.__array_interface__["data"][0])


def _launch(plan: Plan, source: int, target: int) -> None:
    """Run the compiled loop, in parallel if the plan says so and the threads are free."""
    if plan.parallel and not _forked and _region.acquire(blocking=False):
        try:
            _parallel(plan, source, target, _threads())
        finally:
            _region.release()
    else:
        _serial(plan, source, target)


def _threads() -> int:
    import numba

    return int(numba.get_num_threads())


def _serial(plan: Plan, source: int, target: int) -> None:
    from .kernels import bits, copies, memory

    at = np.empty(len(plan.table), np.int64)
    source += plan.offset
    if plan.strategy is Strategy.ONE_RUN:
        copies.run(source, target, plan.nbytes)
    elif plan.strategy is Strategy.ROWS:
        copies.rows(source, target, plan.table, at, 0, plan.count, plan.width)
    elif plan.strategy is Strategy.TILES:
        width = memory.WIDTHS[plan.width]
        copies.tiles(source, target, plan.table, at, 0, plan.count, plan.tile, width)
    else:
        shape = (plan.count, plan.bit_offset, plan.width, plan.unit)
        bits.bits(source, target, plan.table, at, 0, (plan.count + 7) // 8, *shape)


def _parallel(plan: Plan, source: int, target: int, threads: int) -> None:
    from .kernels import bits, copies, memory

    # A row of scratch for each thread, a cache line apart.
    at = np.empty((threads, len(plan.table) + 8), np.int64)
    source += plan.offset
    if plan.strategy is Strategy.ONE_RUN:
        copies.run_parallel(source, target, plan.nbytes, threads)
    elif plan.strategy is Strategy.ROWS:
        copies.rows_parallel(source, target, plan.table, at, plan.count, plan.width)
    elif plan.strategy is Strategy.TILES:
        width = memory.WIDTHS[plan.width]
        copies.tiles_parallel(source, target, plan.table, at, plan.count, plan.tile, width)
    else:
        shape = (plan.count, plan.bit_offset, plan.width, plan.unit)
        bits.bits_parallel(source, target, plan.table, at, *shape)


def memcpy(source: NDArray[Any], target: NDArray[Any], threads: int) -> None:
    """Plain memcpy of contiguous memory on so many threads: the measure of every copy."""
    from .kernels import copies

    copies.run_parallel(_address(source), _address(target), source.nbytes, threads)
