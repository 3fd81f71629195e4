"""NumPy or kernels: NumPy does each kind of work until its kernels are ready.

A *kind* of work is known before its kernels are looked for. What happens depends on the time that
NumPy has spent on this kind in total:

- less than `LOOKED_FOR`: nothing;
- from then on: kernels on disk are loaded by another thread, and used when they are ready;
- `patience()` and more: loading is waited for, and kernels that are missing are asked of a builder;
  the first call after they are ready uses them.

No call waits for a compiler, and results are the same. (By size, `copying.choose` decides.)
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from threading import Lock
from time import perf_counter
from typing import Any, TypeVar

import numpy as np

from ..errors import FormatError
from ..runtime import kernels
from ..runtime.kernel_names import Name
from ..runtime.system import register_at_fork

VARIABLE = "SHAPEJIT_PATIENCE"
PATIENCE = 0.02  # seconds of NumPy's for work of one kind, before a builder is asked
LOOKED_FOR = 0.002  # the same, before the disk is looked at: that takes 50 ms in a new process

Kind = tuple[object, ...]
Kinds = tuple[Kind, ...]
Needs = Callable[[], tuple[Name, ...]]
Result = TypeVar("Result")

READY: set[Kind] = set()  # kinds whose kernels do the work: none while NumPy does all work
_kept: set[Kind] = set()  # those that were ready before
_taken: dict[Kind, float] = {}  # seconds of NumPy's
_needed: dict[Kind, tuple[Name, ...]] = {}  # of kinds that were looked for
# What there was to see when a kind was looked for: kernels, and whether it had taken long.
_seen: dict[Kind, tuple[int, bool]] = {}
_forced = 0
_numpys = 0  # of those who ask that NumPy does all work
SWITCH = np.zeros(1, np.int64)  # the same, where compiled code sees it
_lock = Lock()

register_at_fork(after_in_child=_seen.clear)  # what the parent asked for is the parent's


def kernels_ready(kind: Kind, needs: Needs) -> bool:
    """Whether kernels are to do a piece of work, `needs` being all that it takes.

    If not, NumPy does it, `by_numpy` of the same kind.
    """
    if kind in READY:
        return True
    if _numpys:
        return False
    forced, taken = _forced > 0 or not patience(), _taken.get(kind, 0.0)
    if not forced:
        if taken < LOOKED_FOR:
            return False
        seen = kernels.loaded(), taken >= patience()
        if _seen.get(kind) == seen:
            return False
        _seen[kind] = seen
    names = _needed.get(kind)
    if names is None:
        names = _needed[kind] = needs()
    late = (
        taken >= patience()
    )  # it is NumPy's time that was waited for, and more than loading takes
    found = _awaited if forced else kernels.find if late else kernels.look_for
    if not found(names):
        if late:
            kernels.ask(names)
        return False
    READY.add(kind)
    return True


def unready(kind: Kind, needs: Needs) -> Kinds:
    """This kind, if kernels are not to do the work; () if they are."""
    return () if kernels_ready(kind, needs) else (kind,)


def _awaited(names: tuple[Name, ...]) -> bool:
    if kernels.find(names):
        return True
    _announce()
    return kernels.wait(names)


@cache
def _announce() -> None:
    """Say once why nothing seems to happen, where somebody looks on."""
    if "ipykernel" in sys.modules or (sys.stderr is not None and sys.stderr.isatty()):
        from tqdm import tqdm  # which knows of bars that are there

        tqdm.write("shapejit compiles kernels ...", file=sys.stderr)


def numpys(kind: Kind, call: Callable[..., Result], *args: Any) -> Result:
    """What a call of NumPy's makes for want of this kind: `by_numpy` of one call, in less time."""
    start = perf_counter()
    made = call(*args)
    _taken[kind] = _taken.get(kind, 0.0) + perf_counter() - start
    return made


class by_numpy:  # noqa: N801  # a context manager, which reads as one
    """NumPy does a piece of work meanwhile, for want of these kinds: how long that takes counts."""

    def __init__(self, *kinds: Kind) -> None:
        self.kinds = kinds

    def __enter__(self) -> None:
        self.start = perf_counter()

    def __exit__(self, *fault: object) -> None:
        seconds = perf_counter() - self.start
        for kind in self.kinds:
            _taken[kind] = _taken.get(kind, 0.0) + seconds


@contextmanager
def force_kernels() -> Iterator[None]:
    """Kernels do all work meanwhile, and are waited for."""
    global _forced
    _forced += 1
    try:
        yield
    finally:
        _forced -= 1


@contextmanager
def force_numpy() -> Iterator[None]:
    """NumPy does all work meanwhile, also where kernels are compiled: to compare results."""
    global _numpys
    with _lock:
        if not _numpys:
            _kept.update(READY)
            READY.clear()
        _numpys += 1
        SWITCH[0] = _numpys
    try:
        yield
    finally:
        with _lock:
            _numpys -= 1
            SWITCH[0] = _numpys
            if not _numpys:
                READY.update(_kept)


def forced() -> bool:
    """Whether kernels do all work now, as `force_kernels` asks for."""
    return _forced > 0


@cache
def patience() -> float:
    """The seconds that `VARIABLE` says, or `PATIENCE`."""
    given = os.environ.get(VARIABLE, str(PATIENCE))
    with suppress(ValueError):
        seconds = float(given)
        if seconds >= 0:
            return seconds
    raise FormatError(f"{VARIABLE} is a number of seconds, at least 0 or inf, not {given!r}")
