"""Launches: a kernel with all its arguments, run on as many threads as are free."""

from __future__ import annotations

import sys
import threading
from ctypes import c_size_t
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import workers
from .cpu_caches import PAGE
from .jobs import OWNER, SHARES, SIGNAL, SPAN, STREAMED, TOTAL, UNITS, WORK
from .kernel_names import Code, Entry, Function, Functions, Name
from .kernels import RUN, address, called, kind, table_of

_stages = threading.local()

Addresses = NDArray[np.int64]

SHARE = 64 * 1024  # bytes that a thread takes at a time: the fastest of 64 to 512 KiB
PER_THREAD = 16  # shares per thread, at most: more cost more than they balance


def address_of(x: NDArray[Any]) -> int:
    """The address of the first element (bytes)."""
    if _IN_STRUCT:  # a seventh of the time
        return _word(id(x) + _DATA_OFFSET).value
    return int(x.__array_interface__["data"][0])


def _reads_structs() -> bool:
    """Whether ndarrays have their address at the offset in NumPy's documentation."""
    samples = np.zeros(2), np.zeros((2, 3))[1:], np.zeros(3, np.uint8)[::-1]
    addresses = [x.__array_interface__["data"][0] for x in samples]
    known = sys.implementation.name == "cpython" and np.ndarray.__basicsize__ >= _DATA_OFFSET + 8
    return known and [_word(id(x) + _DATA_OFFSET).value for x in samples] == addresses


_DATA_OFFSET = 16  # bytes from the start of the struct to the address
_word = c_size_t.from_address
_IN_STRUCT = _reads_structs()


@dataclass(frozen=True, eq=False)
class Launch:
    """A kernel, and its arguments after `addresses`, `work`, `span` and `stage`.

    A stage has `stage` bytes; unless `staged`, it exists only for streaming. `bits`: addresses are
    those of bits.
    """

    entry: Entry
    arguments: tuple[Any, ...]
    stage: int
    staged: bool
    bits: bool
    others: tuple[Name, ...]  # kernels whose addresses are in tables

    @cached_property
    def begin(self) -> tuple[int, Addresses, tuple[Any, ...]]:
        """The kernel's address, and its table of these arguments, once all `names` are ready."""
        given = tuple(
            np.array([(f and address(f)) or 0 for f in argument.each])
            if isinstance(argument, Functions)
            else argument
            for argument in self.arguments
        )
        return address(self.entry), table_of(given), given

    @property
    def names(self) -> tuple[Name, ...]:
        """The names of all kernels that it needs."""
        given = self.arguments
        arrays = (a.each for a in given if isinstance(a, Functions))
        others = (a for a in (*given, *chain(*arrays)) if isinstance(a, Function | Code))
        return (self.entry, *others, *self.others, RUN, workers.JOB_AFTER)

    def given(self, *arguments: Any) -> Launch:
        """The launch with other arguments of the same kinds."""
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
    addresses: Addresses,
    count: int,
    units: int,
    shares: int,
    depth: int,
) -> None:
    """Run a kernel: `count` units of work per tensor, divided into shares, with `depth` loops."""
    work = np.zeros(WORK, np.int64)
    work[UNITS], work[TOTAL], work[STREAMED] = count, units, streamed
    stage_bytes = launch.stage if streamed or launch.staged else 0
    run = called(RUN)

    def run_shares(owner: bool) -> None:
        begin, table, _ = (
            launch.begin
        )  # a late thread keeps the launch, whose arguments kernels read
        span = np.zeros(SPAN + depth, np.int64)
        span[OWNER] = owner
        stage, at = stage_memory(stage_bytes) if stage_bytes else (None, 0)
        run(begin, table.copy(), addresses, work, span, at)
        if stage is not None:
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
    """Memory for a stage of `nbytes` bytes, and the address where the stage begins.

    The memory belongs to this thread until it is returned; a nested call, as in a signal handler,
    has its own.
    """
    stage: NDArray[np.uint8] | None = _stages.__dict__.pop("free", None)
    if stage is None or stage.size < nbytes + PAGE:
        stage = np.empty(nbytes + PAGE, np.uint8)
    begin: int = stage.__array_interface__["data"][0]
    return stage, -(-begin // PAGE) * PAGE
