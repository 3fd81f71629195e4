"""Which kernels are ready, and how one that is ready is called.

A kernel is compiled by a builder (`building`) or read from disk (`object_files`), and loaded
(`loading`); only `wait` blocks until that is done. Calling a kernel that is not ready raises: check
with `ready` or `find` first. With NUMBA_DISABLE_JIT=1 no kernel ever is, and NumPy does it all.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from time import sleep
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from . import loading, processor
from .kernel_names import STARTS, Call, Code, Entry, Function, Functions, Name
from .numba_settings import number
from .system import register_at_fork
from .uninterrupted import in_safe_thread, module, start_in_safe_thread, under_way

LOGGER = logging.getLogger("shapejit")

# Fills the first words of a table, and runs the Entry at an address with it.
RUN = Call("entries.run", ("i", "a", *STARTS), "i", held=False)
WORDS = 8  # of `STARTS`, in the table of an Entry
_READY_CHECK_SECONDS = 0.005  # seconds between two checks of a thread that waits for kernels

_addresses: dict[Name, int] = {}  # of kernels that are ready
_missing: set[Name] = set()  # not on disk when this process looked
_coming: set[Name] = set()  # that another thread is loading from disk
_asked: set[Name] = set()
_failed: dict[Name, str] = {}
_listeners: list[Callable[[], object]] = []  # what is called when one is ready
_files: dict[Name, str] = {}  # that kernels were loaded from
_warned = False  # whether the warning that kernels cannot be kept was issued
_recorded: dict[Name, None] | None = None


@cache
def compiled() -> bool:
    """Whether there are kernels: NUMBA_DISABLE_JIT=1 leaves all work to NumPy."""
    return not number("NUMBA_DISABLE_JIT", 0)


@cache
def vector() -> int:
    """The bytes of the widest vector that kernels use."""
    return in_safe_thread(processor.vector)


def kind(argument: Any) -> str:
    """The kind of an argument of an Entry; that of a tag is the tag itself."""
    if isinstance(argument, str):
        return argument
    if isinstance(argument, Functions):
        return "a"
    return "at"[argument.ndim - 1] if isinstance(argument, np.ndarray) else "i"


# Which are ready


def ready(names: Iterable[Name]) -> bool:
    """Whether all of these kernels may be called."""
    return all(name in _addresses for name in names)


def loaded() -> int:
    """The number of kernels that are ready."""
    return len(_addresses)


def when_loaded(call: Callable[[], object]) -> None:
    """Call `call` whenever another kernel is ready; until then results of `find` stay valid."""
    _listeners.append(call)


def find(names: Iterable[Name], waits: bool = True) -> bool:
    """Load kernels that are on disk; return whether all are ready now.

    Unless it `waits`, another thread loads them.
    """
    if not _are_unknown(names):
        return ready(names)
    looked_for = _missing | _coming
    wanted = [n for n in names if n not in looked_for or (waits and n in _coming)]
    if wanted:
        _coming.update(wanted)
        (in_safe_thread if waits else start_in_safe_thread)(_load, wanted)
    return ready(names)


def find_kept(names: Iterable[Name]) -> bool:
    """As `find`, if all kernels are on disk; otherwise none of them counts as missing."""
    if ready(names) or not compiled():
        return ready(names)
    read = module("runtime.object_files").read
    return all(name in _addresses or read(name) for name in names) and find(names)


def _are_unknown(names: Iterable[Name]) -> bool:
    """Whether kernels that are not ready may be on disk; False within `recorded`."""
    if ready(names) or not compiled():
        return False
    if _recorded is not None:
        _recorded.update(dict.fromkeys(names))
    return _recorded is None


def ask(names: Iterable[Name], urgent: bool = False) -> None:
    """Request builders for kernels that are not ready, once each, without waiting."""
    wanted = [name for name in names if name not in _addresses and name not in _asked]
    if wanted and _recorded is None and compiled():
        in_safe_thread(_ask, wanted, urgent)


def _ask(names: Sequence[Name], urgent: bool) -> None:
    """Request the kernels that no other thread has requested meanwhile."""
    wanted = tuple(name for name in names if name not in _asked)
    _asked.update(wanted)
    if wanted:
        module("runtime.building").builders().ask(wanted, _arrived, urgent)


def wait(names: Sequence[Name]) -> bool:
    """As `ask`, then wait until all are ready or have failed; return whether they are ready."""
    if find(names):
        return True
    # At the end of the interpreter what would be waited for waits for this.
    if _recorded is not None or not compiled() or under_way():
        return False
    # Without a lock: a signal handler may fork here, and the child has to ask again.
    while not all(name in _addresses or name in _failed for name in names):
        ask(names, urgent=True)
        sleep(_READY_CHECK_SECONDS)
    return ready(names)


@contextmanager
def recorded() -> Iterator[dict[Name, None]]:
    """A context that records the names of all kernels looked for; none of them is ready in it."""
    global _recorded
    _recorded = made = dict[Name, None]()
    try:
        yield made
    finally:
        _recorded = None


class KernelState(NamedTuple):
    """The state of a kernel: "missing", "asked for", "ready" or "failed".

    `reason` is why it failed; `file` is where it was loaded from, or "" if a builder sent it.
    """

    state: str
    reason: str = ""
    file: str = ""


def kernel_status() -> dict[str, KernelState]:
    """The state of each kernel that this process has requested, by the name of its object file.

    A "missing" kernel is not on disk, and NumPy has not spent enough time on its work yet to have
    it compiled. Files are in `NUMBA_CACHE_DIR`, or next to the package, or in the user's cache.

    >>> {kernel.state for kernel in kernel_status().values()} <= {"ready", "missing", "asked for"}
    True
    """
    missing = [name for name in list(_missing) if name not in _coming]
    found: dict[Name, KernelState] = dict.fromkeys(missing, KernelState("missing"))
    found |= dict.fromkeys(list(_asked), KernelState("asked for"))
    found |= {name: KernelState("ready", file=_files.get(name, "")) for name in list(_addresses)}
    found |= {name: KernelState("failed", why) for name, why in list(_failed.items())}
    return {_symbol(name): state for name, state in found.items()}


def _symbol(name: Name) -> str:
    """The name of a kernel's object file.

    `object_files` is imported only when kernels are looked for.
    """
    return str(module("runtime.object_files").symbol(name))


def _load(names: Sequence[Name]) -> None:
    """Load kernels that are on disk, once each."""
    for name in names:
        if name not in _addresses and name not in _missing:
            _missing.add(name)  # unless what follows finds it
            if not _read(name):
                _missing.discard(name)
    _coming.difference_update(names)


def _read(name: Name) -> str:
    """Load a kernel from disk; return the reason if that fails."""
    found = module("runtime.object_files").read(name)
    if found is None:
        return "the file that its builder wrote is missing or damaged"
    _files[name] = str(found.path)
    return _link(name, found.label, found.code)


def _take(name: Name, code: bytes) -> str:
    """Load code that a builder sent because it could not be stored on disk."""
    global _warned
    if not _warned:
        _warned = True
        LOGGER.warning(
            "kernels cannot be stored on disk, so each process builds its own: set NUMBA_CACHE_DIR "
            "to a folder that only you may write to"
        )
    return _link(name, _symbol(name), code)


def _link(name: Name, label: str, code: bytes) -> str:
    try:
        _addresses[name] = loading.linked(name, label, code)
    except Exception as fault:  # LLVM refuses it
        return f"{type(fault).__name__}: {fault}"
    for call in _listeners:
        call()
    return ""


def _arrived(name: Name, code: bytes | None, error: str) -> None:
    """Load the result of a builder."""
    if not error:
        try:
            error = (
                in_safe_thread(_read, name) if code is None else in_safe_thread(_take, name, code)
            )
        except Exception as fault:  # no memory for a thread
            error = f"{type(fault).__name__}: {fault}"
    if error:
        if error not in _failed.values():
            label = _symbol(name)
            LOGGER.warning("kernel %s failed, NumPy does its work: %s", label, error)
        _failed[name] = error


def _after_fork() -> None:
    """Forget the requests of the parent."""
    _asked.intersection_update(_addresses)
    _coming.clear()


register_at_fork(after_in_child=_after_fork)


# How they are called


def table_of(arguments: Sequence[Any]) -> NDArray[np.int64]:
    """The table of an Entry for these arguments (keep them alive); its first words are 0."""
    words = [0] * WORDS
    for argument in arguments:
        if isinstance(argument, np.ndarray):
            words += [argument.__array_interface__["data"][0], *argument.shape]
        elif isinstance(argument, Function | Code):
            words.append(_addresses[argument])
        elif not isinstance(argument, str):  # a tag
            words.append(int(argument))
    return np.array(words, np.int64)


def address(function: Function | Code | Entry) -> int:
    """The address of a function's machine code, for kernels to call; 0 if it is not ready."""
    return _addresses.get(function, 0)


@cache
def called(call: Call) -> Callable[..., Any]:
    """The Python function that calls the kernel of a Call."""
    return loading.builtin(call, _addresses[call])
