"""A kernel with all its arguments, run by as many threads as are free."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import workers
from .cpu_caches import PAGE
from .jobs import OWNER, SHARES, SIGNAL, SPAN, STREAMED, TOTAL, UNITS, WORK
from .kernel_names import Code, Entry, Function, Name
from .kernels import RUN, Run, bound, kind

_stages = threading.local()

Addresses = NDArray[np.int64]

SHARE = 64 * 1024  # bytes that a thread takes at a time; of 64 to 512 KiB the fastest
PER_THREAD = 16  # shares of a thread, at most: more would cost more than they even out


def address_of(x: NDArray[Any]) -> int:
    """The address of the first element (bytes)."""
    return int(x.__array_interface__["data"][0])


@dataclass(frozen=True, eq=False)
class Launch:
    """A kernel, and what it takes behind `places`, `work`, `span` and `stage`.

    A stage has `stage` bytes; unless `staged`, there is one only to stream. `bits`:
    places are bit addresses.
    """

    entry: Entry
    arguments: tuple[Any, ...]
    stage: int
    staged: bool
    bits: bool
    others: tuple[Name, ...]  # kernels whose addresses stand in tables

    @cached_property
    def run(self) -> Run:
        """The kernel bound to its arguments, once all `names` are ready."""
        return bound(self.entry, self.arguments)

    @property
    def names(self) -> tuple[Name, ...]:
        """All kernels that it takes."""
        others = (a for a in self.arguments if isinstance(a, Function | Code))
        return (self.entry, *others, *self.others, RUN, workers.JOB_AFTER)

    def given(self, *arguments: Any) -> Launch:
        """The same with others of the same kinds."""
        return replace(self, arguments=arguments)


def launch_of(
    kernel: str,
    arguments: tuple[Any, ...],
    stage: int,
    staged: bool = False,
    bits: bool = False,
    others: tuple[Name, ...] = (),
) -> Launch:
    """The launch of the kernel "module.function"; see `Launch`."""
    entry = Entry(kernel, tuple(map(kind, arguments)))
    return Launch(entry, arguments, stage, staged, bits, others)


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
            launch.run(places, work, span, 0)
            return
        stage, begin = stage_memory(stage_bytes)
        launch.run(places, work, span, begin)
        _stages.free = stage

    threads = workers.threads() if shares > 1 else 1
    work[SHARES] = max(1, min(units, shares, PER_THREAD * threads)) if threads > 1 else 1
    if threads > 1:
        own = workers.own.value
        work[SIGNAL] = own.signal
        own.run(run_shares, min(threads, shares))
    else:
        run_shares(True)


def stage_memory(nbytes: int) -> tuple[NDArray[np.uint8], int]:
    """Memory with a stage of so many bytes, and the address where that begins.

    The page before it is free: short blocks reach back. The memory is this thread's own
    until it is given back. A nested call, as of a signal's handler, takes memory of its own.
    """
    stage: NDArray[np.uint8] | None = _stages.__dict__.pop("free", None)
    if stage is None or stage.size < nbytes + 2 * PAGE:
        stage = np.empty(nbytes + 2 * PAGE, np.uint8)
    begin: int = stage.__array_interface__["data"][0]
    return stage, -(-begin // PAGE) * PAGE + PAGE
