"""When kernels do a piece of work, and when NumPy does it because they would have to be compiled.

The kernels that a piece of work takes have a *kind*, which is known before any is loaded.
Work of a kind that no process has compiled yet is NumPy's, until NumPy would have taken as
long for such work as a compilation takes: whoever makes a few copies never waits for the
compiler, and whoever makes many or large ones waits once. Results are the same.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from threading import Lock

from .errors import FormatError
from .runtime import kernels

VARIABLE = "SHAPEJIT_PATIENCE"
PATIENCE = 0.5  # seconds of NumPy's for work of one kind: a compilation takes 0.5 to 5

Kind = tuple[object, ...]  # its repr is the same in every process

_ready: set[Kind] = set()
_kept = _ready  # meanwhile
_missing: set[Kind] = set()  # not on disk, when this process looked
_taken: dict[Kind, float] = {}  # seconds of NumPy's
_impatient = 0
_numpys = 0  # of those who ask that NumPy does all work
_lock = Lock()


def by_kernels(kind: Kind, seconds: float) -> bool:
    """Whether kernels are to do a piece of work that takes NumPy about so many seconds.

    >>> by_kernels(("a kind of work", "too large for NumPy"), 1.0)
    True
    """
    if kind in _ready:
        return True
    if _numpys:
        return False
    if not _impatient and not _on_disk(kind):
        taken = _taken[kind] = _taken.get(kind, 0.0) + seconds
        if taken < patience():
            return False
    _ready.add(kind)
    marks = kernels.marks()
    if marks is not None and not marks.load(repr(kind)):
        # They are not compiled yet: should that fail, another process waits once.
        marks.save(repr(kind), True)
    return True


def _on_disk(kind: Kind) -> bool:
    """Whether a process has compiled kernels of this kind, and numba is here to load them."""
    if kind in _missing or "numba" not in sys.modules:
        return False
    marks = kernels.marks()
    if marks is not None and marks.load(repr(kind)):
        return True
    _missing.add(kind)
    return False


@contextmanager
def none() -> Iterator[None]:
    """Kernels do all work meanwhile."""
    global _impatient
    _impatient += 1
    try:
        yield
    finally:
        _impatient -= 1


@contextmanager
def by_numpy() -> Iterator[None]:
    """NumPy does all work meanwhile, also where kernels are compiled: to compare results."""
    global _ready, _numpys, _kept
    with _lock:
        if not _numpys:
            _ready, _kept = set(), _ready
        _numpys += 1
    try:
        yield
    finally:
        with _lock:
            _numpys -= 1
            if not _numpys:
                _ready = _kept


def forced() -> bool:
    """Whether kernels do all work now, as `none` asks for."""
    return _impatient > 0


@cache
def patience() -> float:
    """The seconds that `VARIABLE` says, or `PATIENCE`."""
    given = os.environ.get(VARIABLE, str(PATIENCE))
    try:
        return float(given)
    except ValueError:
        raise FormatError(f"{VARIABLE} is a number of seconds, not {given!r}") from None
