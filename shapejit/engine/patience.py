"""NumPy or kernels: NumPy does each kind of work until its kernels are ready.

A *kind* of work is known before its kernels are looked for. What happens depends on the time that
NumPy has spent on this kind in total:

- less than `LOOKED_FOR`: nothing, unless other kernels are loaded, so that the next take little;
- from then on: kernels on disk are loaded by another thread, and used when they are ready;
- from `patience()` on: the call waits for loading, and a builder process is asked for kernels that
  are missing; the first call after these are ready uses them.

While a network is compiled, which only copies of some Layouts need, kernels of another plan do its
work if they are on disk (`routes`). No call waits for a compiler, and results are the same. (By
size, `copying.choose` decides.)
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from math import inf
from threading import Lock
from time import perf_counter

import numpy as np

from ..errors import FormatError
from ..runtime import kernels
from ..runtime.kernel_names import Name
from ..runtime.system import register_at_fork
from ..runtime.uninterrupted import start_in_safe_thread

PATIENCE_VARIABLE = "SHAPEJIT_PATIENCE"
PATIENCE = 0.02  # seconds of NumPy's work of one kind, after which a builder is asked
LOOKED_FOR = 0.002  # the same for looking on disk: 50 ms for the first kernel, then one

Needs = Callable[[], tuple[Name, ...]]

_forced = 0
_numpy_forced = 0  # how many `force_numpy` are active
SWITCH = np.zeros(1, np.int64)  # the same, for compiled code
_lock = Lock()


class Kind:
    """A kind of work: whether kernels do it, and how long NumPy has done it until then.

    Kernels do it if they are `ready`: `found`, and not within `force_numpy`. They are looked for
    once NumPy has taken `next_look` seconds, or at once if any kernel is loaded.
    """

    ready = found = False
    taken = next_look = 0.0  # seconds of NumPy's work
    names: tuple[Name, ...] = ()  # its kernels, once they were looked for

    def kernels_ready(self, needs: Needs) -> bool:
        """Whether kernels do work of this kind; `needs` returns the names of those that it takes.

        If not, NumPy does it, within `by_numpy` of the same kind.
        """
        if self.ready or _numpy_forced:
            return self.ready
        if self.taken < self.next_look:
            return False
        forced = _forced > 0 or not patience()
        late = self.taken >= patience()  # NumPy took longer than loading takes
        if not forced:
            early = self.taken < LOOKED_FOR and not kernels.loaded()
            self.next_look = LOOKED_FOR if early else inf if late else patience()
            if early:
                return False
            if not self.names and not late:
                start_in_safe_thread(self._look_for, needs)
                return False
        self.names = self.names or needs()
        if not (_awaited(self.names) if forced else kernels.find(self.names, waits=late)):
            if late:
                kernels.ask(self.names)
            return False
        self.ready = self.found = True
        return True

    def on_disk(self, needs: Needs) -> bool:
        """Whether kernels that are ready, or on disk, do work of this kind; none is asked for."""
        if not self.ready and not _numpy_forced:
            self.names = self.names or needs()
            self.ready = self.found = kernels.find_kept(self.names)
        return self.ready

    def _look_for(self, needs: Needs) -> None:
        """Load kernels that are on disk.

        `needs` takes 25 ms on its first call, to import LLVM.
        """
        self.names = needs()
        kernels.find(self.names)
        self.next_look = 0.0


NEVER = Kind()  # work that NumPy does even if kernels are ready
NEVER.next_look = inf


class Unplanned(Kind):
    """Work on small arrays that has no Plan yet: making one takes as long as many calls.

    It is `ready` to be planned once NumPy has taken `LOOKED_FOR` seconds.
    """

    next_look = LOOKED_FOR  # of all; 0 while kernels are forced

    def kernels_ready(self, needs: Needs) -> bool:
        """Whether a Plan is worth its time."""
        return self.taken >= self.next_look and not _numpy_forced


_kinds: dict[tuple[object, ...], Kind] = {}


def kind_named(*key: object) -> Kind:
    """The kind of work with this name; always the same object."""
    return _kinds.get(key) or _kinds.setdefault(key, Kind())


def unready(kind: Kind, needs: Needs) -> tuple[Kind, ...]:
    """A tuple of the kind if its kernels do not do the work; else ()."""
    return () if kind.kernels_ready(needs) else (kind,)


def _look_again() -> None:
    """Look again: kernels may be ready now, or this process is a forked child."""
    for kind in list(_kinds.values()):
        kind.next_look = 0.0


kernels.when_loaded(_look_again)
register_at_fork(after_in_child=_look_again)


def _awaited(names: tuple[Name, ...]) -> bool:
    if kernels.find(names):
        return True
    _announce()
    return kernels.wait(names)


@cache
def _announce() -> None:
    """On a terminal, print once that kernels are being compiled."""
    if "ipykernel" in sys.modules or (sys.stderr is not None and sys.stderr.isatty()):
        from tqdm import tqdm  # which prints above progress bars

        tqdm.write("shapejit compiles kernels ...", file=sys.stderr)


class by_numpy:  # noqa: N801  # a context manager, which reads as one
    """A context in which NumPy does work because these kinds are not ready: its time is counted."""

    def __init__(self, *kinds: Kind) -> None:
        self.kinds = kinds

    def __enter__(self) -> None:
        self.start = perf_counter()

    def __exit__(self, *fault: object) -> None:
        seconds = perf_counter() - self.start
        for kind in self.kinds:
            kind.taken += seconds


@contextmanager
def force_kernels() -> Iterator[None]:
    """A context in which kernels do all work; calls wait for them."""
    global _forced
    _forced += 1
    Unplanned.next_look = 0.0
    _look_again()
    try:
        yield
    finally:
        _forced -= 1
        Unplanned.next_look = 0.0 if _forced else LOOKED_FOR


@contextmanager
def force_numpy() -> Iterator[None]:
    """A context in which NumPy does all work, even if kernels are ready: to compare results."""
    _switch(1)
    try:
        yield
    finally:
        _switch(-1)


def _switch(by: int) -> None:
    """Count a `force_numpy` that begins (1) or ends (-1)."""
    global _numpy_forced
    with _lock:
        _numpy_forced += by
        SWITCH[0] = _numpy_forced
        for kind in list(_kinds.values()):
            kind.ready = kind.found and not _numpy_forced


def forced() -> bool:
    """Whether `force_kernels` is active."""
    return _forced > 0


@cache
def patience() -> float:
    """The seconds in the environment variable `PATIENCE_VARIABLE`, or `PATIENCE`."""
    given = os.environ.get(PATIENCE_VARIABLE, str(PATIENCE))
    with suppress(ValueError):
        seconds = float(given)
        if seconds >= 0:
            return seconds
    raise FormatError(
        f"{PATIENCE_VARIABLE} is a number of seconds, at least 0 or inf, not {given!r}"
    )
