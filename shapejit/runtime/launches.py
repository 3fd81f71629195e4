"""Kernels with all that they take, run by as many threads as are free."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from . import workers
from .compilation import load
from .cpu_caches import PAGE
from .jobs import OWNER, SHARES, SIGNAL, SPAN, STREAMED, TOTAL, UNITS, WORK, Called

_stages = threading.local()

Addresses = NDArray[np.int64]

SHARE = 64 * 1024  # bytes that a thread takes at a time; of 64 to 512 KiB the fastest
PER_THREAD = 16  # shares of a thread, at most: more would cost more than they even out

_ran: set[object] = set()  # keys of launches whose kernels are compiled


def address_of(x: NDArray[Any]) -> int:
    """The address of the first element (bytes)."""
    return int(x.__array_interface__["data"][0])


class Launch(NamedTuple):
    """A kernel, and what it takes behind `places`, `work`, `span` and `stage`.

    A stage has `stage` bytes; unless `staged`, there is one only to stream. `bits`:
    places are bit addresses. `key` stands for the kernel and the types that it is
    compiled for.
    """

    kernel: Callable[..., None]
    arguments: tuple[Any, ...]
    stage: int
    staged: bool
    bits: bool
    key: tuple[object, ...]


def launch_of(
    kernel: str, arguments: tuple[Any, ...], stage: int, staged: bool = False, bits: bool = False
) -> Launch:
    """The launch of the kernel "module.function"; see `Launch`."""
    function = _named(kernel)
    arguments = tuple(_called(a) if isinstance(a, Called) else a for a in arguments)
    types = (len(a) if isinstance(a, tuple) else type(a) for a in arguments)
    return Launch(function, arguments, stage, staged, bits, (function, *types))


def _named(kernel: str) -> Callable[..., Any]:
    """The kernel "module.function"."""
    module, _, name = kernel.partition(".")
    function: Callable[..., Any] = getattr(load(module), name)
    return function


def _called(argument: Called) -> int:
    """What stands for a kernel that others call."""
    entry: int = load("calls").entry(_named(argument.kernel), argument.ints, *argument.tags)
    return entry


def run_launch(
    launch: Launch,
    streamed: bool,
    places: Addresses,
    count: int,
    units: int,
    shares: int,
    depth: int,
) -> None:
    """Run a kernel, `count` units of work per tensor in so many shares, `depth` loops deep."""
    work = np.zeros(WORK, np.int64)
    work[UNITS], work[TOTAL], work[STREAMED] = count, units, streamed
    stage_bytes = launch.stage if streamed or launch.staged else 0

    def run_shares(owner: bool) -> None:
        span = np.zeros(SPAN + depth, np.int64)
        span[OWNER] = owner
        if not stage_bytes:
            launch.kernel(places, work, span, 0, *launch.arguments)
            return
        stage, begin = stage_memory(stage_bytes)
        launch.kernel(places, work, span, begin, *launch.arguments)
        _stages.free = stage

    # Compiled by one thread, which owns the job, before others may join in.
    threads = workers.threads() if shares > 1 and launch.key in _ran else 1
    work[SHARES] = max(1, min(units, shares, PER_THREAD * threads)) if threads > 1 else 1
    if threads > 1:
        own = workers.workers()
        work[SIGNAL] = own.signal
        own.run(run_shares, min(threads, shares))
    else:
        run_shares(True)
        _ran.add(launch.key)


def stage_memory(nbytes: int) -> tuple[NDArray[np.uint8], int]:
    """Memory with a stage of so many bytes, and the address where that begins.

    The page before it is free: short blocks reach back. The memory is this thread's own
    until it is given back. A nested call, as of a signal's handler, takes memory of its own.
    """
    stage: NDArray[np.uint8] | None = _stages.__dict__.pop("free", None)
    if stage is None or stage.size < nbytes + 2 * PAGE:
        stage = np.empty(nbytes + 2 * PAGE, np.uint8)
    return stage, -(-address_of(stage) // PAGE) * PAGE + PAGE
