"""Worker threads: how many there are, and the shares of a job that they take.

The calling thread starts a job at once; workers that are awake, or wake up in time, take shares of
it. The caller never waits for a worker that has not started a share, so on a busy machine a job is
no slower than on one thread. Workers look for the next job for a moment before they sleep, since
jobs often follow one another.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from math import ceil
from queue import Empty, SimpleQueue
from typing import NamedTuple

import numpy as np

from . import system
from .control_group import limits
from .cpu_caches import LINE
from .kernel_names import Call
from .kernels import called
from .numba_settings import NUMBA_CONFIG, number

WORKER_IDLE = 10.0  # seconds without a job after which a worker calls `when_idle`
LOOKING = (
    200e-6  # seconds that a worker spins before it sleeps: waking it takes 100 to 500 us in a VM
)

JOB_AFTER = Call("shares.job_after", ("i", "i", "i"), "i", held=False)


# Called by workers without a job; each returns whether to call it again.
when_idle: list[Callable[[], bool]] = []


class Job(NamedTuple):
    """A kernel that several threads run: each calls `run`, with whether it owns the job."""

    run: Callable[[bool], None]
    wanted: list[None]  # one entry per worker that has still to be woken
    occupied: set[int]  # the cores of the owner and of workers that wake others


class _Worker:
    """A worker thread, with the job that it is woken for and the cores that it may run on."""

    def __init__(self) -> None:
        self.jobs: SimpleQueue[Job] = SimpleQueue()
        self.cores: set[int] = set()
        self.thread = threading.get_native_id()

    def next_job(self) -> Job:
        """The next job to join; calls `when_idle` while there is none."""
        while True:
            with suppress(Empty):
                return self.jobs.get(
                    timeout=WORKER_IDLE if sum(call() for call in when_idle) else None
                )


class Workers:
    """The worker threads of a process.

    `signal` is the address of the count of jobs opened, which kernels increment.
    """

    def __init__(self) -> None:
        self._memory = np.zeros(16, np.int64)
        # A cache line of its own: stores to neighbours would slow down the threads that read it.
        self.signal = -(-int(self._memory.ctypes.data) // LINE) * LINE
        self._asleep: list[_Worker] = []
        self._count = 0
        self._latest: Job | None = None

    def run(self, run: Callable[[bool], None], threads: int) -> None:
        """Call `run(True)`, which opens a job, and let `threads` - 1 workers join it."""
        if self._count < threads - 1:
            self._start(threads - 1)
        job = self._latest = Job(run, [None] * (threads - 1), set())
        if self._asleep:
            self._wake(job)
        run(True)

    def _start(self, count: int) -> None:
        while self._count < count:
            self._count += 1
            thread = threading.Thread(target=self._work, name="shapejit", daemon=True)
            with suppress(RuntimeError):  # no more threads may be started
                thread.start()

    def _wake(self, job: Job) -> None:
        """Wake at most two workers, on cores that are not occupied; each of them wakes two more.

        Systems often place a thread on the core of the thread that woke it, especially in virtual
        machines, where an idle core seems to be in use.
        """
        getcpu, others = system.getcpu(), set[int]()
        core = -1 if getcpu is None else getcpu()
        if core >= 0:
            job.occupied.add(core)
            others = system.usable_cores() - job.occupied
        with suppress(IndexError):  # no worker is left, or another thread woke the last one
            for _ in range(2):
                job.wanted.pop()
                worker = self._asleep.pop()
                if others and others != worker.cores and system.bind(worker.thread, others):
                    worker.cores = others
                worker.jobs.put(job)

    def _stay_awake(self, worker: _Worker) -> bool:
        """Remove a worker from the sleeping ones; False if it has been woken."""
        with suppress(ValueError):
            self._asleep.remove(worker)
            return True
        return False

    def _work(self) -> None:
        job_after = called(JOB_AFTER)
        me, looks = _Worker(), looks_in(LOOKING)
        seen, known = 0, None
        while True:
            now = job_after(self.signal, seen, looks)
            job = self._latest
            if now == seen or job is None:
                self._asleep.append(me)
                if self._latest is not known and self._stay_awake(me):
                    known = self._latest  # assigned while this thread waited for the GIL
                    continue
                job = me.next_job()
                if self._asleep and job.wanted:
                    self._wake(job)
                now = job_after(self.signal, seen, 1)
            seen, known = now, job
            job.run(False)


@cache
def looks_in(seconds: float) -> int:
    """The number of times a spinning worker looks for a job in `seconds` seconds.

    The pause between two looks takes 15 to 50 ns, depending on the processor.
    """
    job_after, none, looks = called(JOB_AFTER), np.zeros(1, np.int64), 1000
    durations = []
    for _ in range(4):  # the first may compile
        start = time.perf_counter()
        job_after(none.ctypes.data, 0, looks)
        durations.append(time.perf_counter() - start)
    return max(1, int(looks * seconds / min(durations)))


_most = sys.maxsize


def limit(count: int) -> None:
    """Limit the threads of each job, since other processes use the other cores."""
    global _most
    _most = count


def threads() -> int:
    """The number of threads that a job may have.

    Respects `NUMBA_NUM_THREADS`, `numba.set_num_threads`, the cores that the process is bound to,
    and the CPU quota of its control group.
    """
    parallel = sys.modules.get("numba.np.ufunc.parallel")
    # numba.get_num_threads() would start a threading layer, which is not needed here.
    if parallel is not None and getattr(parallel, "_is_initialized", True):
        count = sys.modules["numba"].get_num_threads()
    else:
        count = (
            number("NUMBA_NUM_THREADS", sys.maxsize) if NUMBA_CONFIG in sys.modules else _wanted()
        )
    return max(1, min(int(count), _most, len(system.usable_cores()), quota()))


@cache
def _wanted() -> int:
    """The threads that the environment sets, if numba is not imported."""
    return number("NUMBA_NUM_THREADS", sys.maxsize)


@cache
def quota() -> int:
    """The CPU quota of this control group in whole cores (cgroup v2)."""
    with suppress(ValueError):
        least = min((float(most) / float(period) for most, period in limits("cpu.max")), default=0)
        return ceil(least) or sys.maxsize
    return sys.maxsize


own = system.PerProcess(Workers)
