"""Who does a piece of work: NumPy, until kernels are there that do it.

The kernels of a piece of work have a *kind*, which is known before any is looked for. NumPy does
the first work of a kind. When that has taken it a few milliseconds in all, kernels are loaded, if
they are on disk; when it has taken `patience()`, they are asked for, and the first call after they
are ready takes them. No call waits for a compiler, and results are the same.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from time import perf_counter

from .errors import FormatError
from .runtime import kernels
from .runtime.kernel_names import Name

VARIABLE = "SHAPEJIT_PATIENCE"
PATIENCE = 0.02  # seconds of NumPy's for work of one kind, before a builder is asked
LOOKED_FOR = 0.002  # the same, before the disk is looked at: that takes 50 ms in a new process

Kind = tuple[object, ...]
Needs = Callable[[], tuple[Name, ...]]

_ready: set[Kind] = set()
_taken: dict[Kind, float] = {}  # seconds of NumPy's
_needed: dict[Kind, tuple[Name, ...]] = {}  # of kinds that were looked for
_forced = 0


def kernels_ready(kind: Kind, needs: Needs, seconds: float = 0.0) -> bool:
    """Whether kernels are to do a piece of work, `needs` being all that it takes.

    If not, NumPy does it, `by_numpy` of the same kind; or it takes about so many `seconds`.
    """
    if kind in _ready:
        return True
    forced = _forced > 0 or not patience()
    taken = _taken[kind] = _taken.get(kind, 0.0) + seconds
    if not forced and (taken < LOOKED_FOR or taken == float("inf")):
        return False
    names = _needed.get(kind)
    if names is None:
        names = _needed[kind] = needs()
    if not (_awaited(names) if forced else kernels.find(names)):
        if taken >= patience():
            kernels.ask(names)
        return False
    _ready.add(kind)
    return True


def _awaited(names: tuple[Name, ...]) -> bool:
    if kernels.find(names):
        return True
    if sys.stderr.isatty():
        print("shapejit compiles kernels ...", file=sys.stderr, flush=True)
    return kernels.wait(names)


class by_numpy:  # noqa: N801  # a context manager, which reads as one
    """NumPy does a piece of work of some kind meanwhile: how long that takes counts."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind

    def __enter__(self) -> None:
        self.start = perf_counter()

    def __exit__(self, *fault: object) -> None:
        taken = _taken.get(self.kind, 0.0)
        _taken[self.kind] = taken + perf_counter() - self.start


@contextmanager
def force_kernels() -> Iterator[None]:
    """Kernels do all work meanwhile, and are waited for."""
    global _forced
    _forced += 1
    try:
        yield
    finally:
        _forced -= 1


def forced() -> bool:
    """Whether kernels do all work now, as `force_kernels` asks for."""
    return _forced > 0


@cache
def patience() -> float:
    """The seconds that `VARIABLE` says, or `PATIENCE`."""
    given = os.environ.get(VARIABLE, str(PATIENCE))
    try:
        return float(given)
    except ValueError:
        raise FormatError(f"{VARIABLE} is a number of seconds, not {given!r}") from None
