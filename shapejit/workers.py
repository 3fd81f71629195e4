"""Threads that join in a job: they take shares of it, see `kernels.shares`.

The thread that has a job runs it at once and by itself; workers that are awake or wake
up in time take shares from it. Nobody waits for a worker that has not begun one, so
that a busy machine makes a job no slower than one thread alone. Workers look for the
next job for a moment before they sleep: jobs often come in a row.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from math import ceil
from queue import Empty, SimpleQueue
from typing import NamedTuple

import numpy as np

from .compilation import load
from .control_group import limits
from .kernels.constants import LINE

IDLE = 10.0  # seconds without a job, after each of which a worker looks what is left to do
LOOKS = 1000  # at the count of jobs, before a worker sleeps; about 50 us


# Called by workers that have no job; each returns whether it wants to be called again.
when_idle: list[Callable[[], bool]] = []


class Job(NamedTuple):
    """A kernel to be run by several threads: `run` is called by each, with whether it owns it."""

    run: Callable[[bool], None]
    wanted: list[None]  # one entry per worker that is still to be woken


class Workers:
    """The worker threads of a process.

    `signal` is the address of the count of jobs opened, which kernels increment.
    """

    def __init__(self) -> None:
        self._memory = np.zeros(16, np.int64)
        # A cache line of its own: stores to its neighbours would slow those who look.
        self.signal = -(-int(self._memory.ctypes.data) // LINE) * LINE
        self._jobs: SimpleQueue[Job] = SimpleQueue()
        self._asleep: set[int] = set()
        self._count = 0
        self._latest: Job | None = None

    def run(self, run: Callable[[bool], None], threads: int) -> None:
        """Call `run(True)`, which opens a job, and let `threads` - 1 workers join in."""
        self._start(threads - 1)
        job = self._latest = Job(run, [None] * (threads - 1))
        self._wake(job)
        run(True)

    def _start(self, count: int) -> None:
        while self._count < count:
            self._count += 1
            thread = threading.Thread(target=self._work, name="shapejit", daemon=True)
            with suppress(RuntimeError):  # no more threads may be started
                thread.start()

    def _wake(self, job: Job) -> None:
        """Wake two workers at most; each of them wakes two more."""
        for _ in range(2):
            if self._asleep and job.wanted:
                with suppress(IndexError):  # another thread may have woken the last one
                    job.wanted.pop()
                    self._jobs.put(job)

    def _work(self) -> None:
        job_after = load("shares").job_after
        me, seen = threading.get_ident(), 0
        while True:
            now = job_after(self.signal, seen, LOOKS)
            job = self._latest
            if now == seen or job is None:
                self._asleep.add(me)
                job = self._next_job()
                self._asleep.discard(me)
                self._wake(job)
                now = job_after(self.signal, seen, 1)
            seen = now
            job.run(False)

    def _next_job(self) -> Job:
        """The next job that wants a worker; what is `when_idle` is called while there is none."""
        while True:
            with suppress(Empty):
                return self._jobs.get(timeout=IDLE if sum(call() for call in when_idle) else None)


_most = sys.maxsize


def limit(count: int) -> None:
    """Let no job of this process have more threads: others have the other cores."""
    global _most
    _most = count


def threads() -> int:
    """How many threads a job may have: what numba was told, and what this process may use.

    `NUMBA_NUM_THREADS` and `numba.set_num_threads` are respected, as are the cores that
    the process is bound to and a CPU quota of its control group.
    """
    import numba

    parallel = sys.modules.get("numba.np.ufunc.parallel")
    # numba.get_num_threads() starts its threading layer, which nothing here needs.
    told = parallel is not None and getattr(parallel, "_is_initialized", True)
    count = numba.get_num_threads() if told else numba.config.NUMBA_NUM_THREADS
    count = min(count, _most)
    if hasattr(os, "sched_getaffinity"):
        count = min(count, len(os.sched_getaffinity(0)))
    return max(1, min(int(count), quota()))


@cache
def quota() -> int:
    """The whole number of cores that the CPU quota of this control group comes to (cgroup v2)."""
    with suppress(ValueError):
        least = min((float(most) / float(period) for most, period in limits("cpu.max")), default=0)
        return ceil(least) or sys.maxsize
    return sys.maxsize


_workers = Workers()


def workers() -> Workers:
    """The workers of this process; a forked child has its own."""
    return _workers


def _after_fork() -> None:
    global _workers
    _workers = Workers()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
