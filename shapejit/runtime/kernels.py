"""Which kernels are ready, and how one that is ready is called.

A kernel is built by a builder (`building`), or read from disk (`object_files`), and loaded
(`loading`); only `wait` waits for that. Calling a kernel that is not ready raises: check with
`ready` or `find` first. With the JIT off kernels are plain Python, and always ready.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from time import sleep
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from . import building, loading, object_files, processor
from .compilation import apart, begin, under_way
from .kernel_names import STARTS, Call, Code, Entry, Function, Name
from .numba_settings import number
from .system import register_at_fork

LOGGER = logging.getLogger("shapejit")

Run = Callable[[Any, Any, Any, int], object]  # places, work, span, stage

# Fills the first words of a table, and runs the Entry at an address with it.
RUN = Call("entries.run", ("i", "a", *STARTS), "i", held=False)
WORDS = 8  # of `STARTS`, in the table of an Entry
_PAUSE = 0.005  # seconds after which who waits for kernels looks whether they are there

_addresses: dict[Name, int] = {}  # of kernels that are ready
_missing: set[Name] = set()  # not on disk when this process looked
_coming: set[Name] = set()  # that are being looked for
_asked: set[Name] = set()
_failed: dict[Name, str] = {}
_files: dict[Name, str] = {}  # that kernels were loaded from
_told = False  # that kernels cannot be kept
_recorded: dict[Name, None] | None = None


@cache
def compiled() -> bool:
    """Whether kernels are compiled; with the JIT off they are plain Python."""
    return not number("NUMBA_DISABLE_JIT", 0)


@cache
def vector() -> int:
    """The bytes of the widest vector that kernels use."""
    return apart(processor.vector)


def kind(argument: Any) -> str:
    """The kind of an argument, as an Entry has it; a tag is its own."""
    if isinstance(argument, str):
        return argument
    return "at"[argument.ndim - 1] if isinstance(argument, np.ndarray) else "i"


# Which are ready


def ready(names: Iterable[Name]) -> bool:
    """Whether all of these may be called."""
    return not compiled() or all(name in _addresses for name in names)


def loaded() -> int:
    """How many kernels are ready: as long as that is the same, so are all answers of `find`."""
    return len(_addresses)


def find(names: Iterable[Name]) -> bool:
    """Load those of them that are on disk; whether all are ready now."""
    if not _are_unknown(names):
        return ready(names)
    wanted = [name for name in names if name not in _missing or name in _coming]
    if wanted:
        _coming.update(wanted)
        apart(_load, wanted)
    return ready(names)


def look_for(names: Iterable[Name]) -> bool:
    """Let those of them that are on disk be loaded, and wait for nothing; as `find`."""
    if not _are_unknown(names):
        return ready(names)
    wanted = [name for name in names if not {name} & (_missing | _coming)]
    if wanted:
        _coming.update(wanted)
        begin(_load, wanted)
    return False


def _are_unknown(names: Iterable[Name]) -> bool:
    """Whether the disk may have some that are not ready; not while they are recorded."""
    if ready(names):
        return False
    if _recorded is not None:
        _recorded.update(dict.fromkeys(names))
    return _recorded is None


def ask(names: Iterable[Name], urgent: bool = False) -> None:
    """Let a builder make those of them that are not ready, each once, and wait for nothing."""
    wanted = [name for name in names if name not in _addresses and name not in _asked]
    if wanted and _recorded is None:
        apart(_ask, wanted, urgent)


def _ask(names: Sequence[Name], urgent: bool) -> None:
    """Ask for those of them that no other thread has asked for meanwhile."""
    wanted = tuple(name for name in names if name not in _asked)
    _asked.update(wanted)
    if wanted:
        building.builders().ask(wanted, _arrived, urgent)


def wait(names: Sequence[Name]) -> bool:
    """The same, and wait until all of them are ready or have failed; whether they are ready."""
    if find(names):
        return True
    # At the end of the interpreter what would be waited for waits for this.
    if _recorded is not None or under_way():
        return False
    # Without a lock: a signal's handler may fork here, and the child has to ask anew.
    while not all(name in _addresses or name in _failed for name in names):
        ask(names, urgent=True)
        sleep(_PAUSE)
    return ready(names)


@contextmanager
def recorded() -> Iterator[dict[Name, None]]:
    """The names of all kernels that are looked for meanwhile; none of them is ready."""
    global _recorded
    _recorded = made = dict[Name, None]()
    try:
        yield made
    finally:
        _recorded = None


class KernelState(NamedTuple):
    """The state of a kernel: "missing", "asked for", "ready" or "failed".

    `reason` says why it failed, `file` where it was loaded from: "" if it came from the builder.
    """

    state: str
    reason: str = ""
    file: str = ""


def kernel_status() -> dict[str, KernelState]:
    """The state of each kernel that this process has asked for, by the name of its object file.

    A kernel that is "missing" is not on disk, and its work is not worth a compilation yet: NumPy
    does that. The files are in the folder that `NUMBA_CACHE_DIR` names or beside the package, or
    in this user's own cache.

    >>> {kernel.state for kernel in kernel_status().values()} <= {"ready", "missing", "asked for"}
    True
    """
    missing = [name for name in list(_missing) if name not in _coming]
    found: dict[Name, KernelState] = dict.fromkeys(missing, KernelState("missing"))
    found |= dict.fromkeys(list(_asked), KernelState("asked for"))
    found |= {name: KernelState("ready", file=_files.get(name, "")) for name in list(_addresses)}
    found |= {name: KernelState("failed", why) for name, why in list(_failed.items())}
    return {object_files.symbol(name): state for name, state in found.items()}


def _load(names: Sequence[Name]) -> None:
    """Load those of them that are on disk, each once."""
    for name in names:
        if name not in _addresses and name not in _missing:
            _missing.add(name)  # unless what follows finds it
            if not _read(name):
                _missing.discard(name)
    _coming.difference_update(names)


def _read(name: Name) -> str:
    """Load a kernel from disk; what is wrong with it, if anything."""
    found = object_files.read(name)
    if found is None:
        return "what its builder wrote is not there, or damaged"
    _files[name] = str(found.path)
    return _link(name, found.label, found.code)


def _take(name: Name, code: bytes) -> str:
    """Load what could not be kept."""
    global _told
    if not _told:
        _told = True
        LOGGER.warning(
            "kernels cannot be kept on disk, and each process builds its own: NUMBA_CACHE_DIR "
            "names a folder for them, which nobody else may write"
        )
    return _link(name, object_files.symbol(name), code)


def _link(name: Name, label: str, code: bytes) -> str:
    try:
        _addresses[name] = loading.linked(name, label, code)
    except Exception as fault:  # LLVM refuses it
        return f"{type(fault).__name__}: {fault}"
    return ""


def _arrived(name: Name, code: bytes | None, error: str) -> None:
    """Load what a builder made."""
    if not error:
        try:
            error = apart(_read, name) if code is None else apart(_take, name, code)
        except Exception as fault:  # there is no memory for a thread
            error = f"{type(fault).__name__}: {fault}"
    if error:
        if error not in _failed.values():
            label = object_files.symbol(name)
            LOGGER.warning("no kernel %s, NumPy does its work: %s", label, error)
        _failed[name] = error


def _after_fork() -> None:
    """What the parent asked for is the parent's."""
    _asked.intersection_update(_addresses)
    _coming.clear()


register_at_fork(after_in_child=_after_fork)


# How they are called


def bound(entry: Entry, arguments: Sequence[Any]) -> Run:
    """A kernel with all that stands behind its first four arguments, in the order of `kinds`."""
    if not compiled():
        return _interpreter().bound(entry, arguments)  # type: ignore[no-any-return]  # loaded by name
    begin, run, table = _addresses[entry], called(RUN), table_of(arguments)

    def run_with(places: Any, work: Any, span: Any, stage: int) -> None:
        assert arguments is not None  # whose arrays the table has the addresses of
        run(begin, table.copy(), places, work, span, stage)

    return run_with


def table_of(arguments: Sequence[Any]) -> NDArray[np.int64]:
    """The table of an Entry for these arguments, which have to live; its first words are 0."""
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
    """Where the machine code of a function is, for kernels to call; 0 if it is not ready."""
    if not compiled():
        return _interpreter().address(function)  # type: ignore[no-any-return]  # loaded by name
    return _addresses.get(function, 0)


@cache
def called(call: Call) -> Callable[..., Any]:
    """A kernel that takes and returns what the Call says."""
    if not compiled():
        return _interpreter().called(call)  # type: ignore[no-any-return]  # loaded by name
    return loading.builtin(call, _addresses[call])


def _interpreter() -> Any:
    return import_module("..kernels.interpreter", __package__)
