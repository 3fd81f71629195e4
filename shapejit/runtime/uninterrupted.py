"""Actions that signals and forks cannot interrupt, such as imports and the loading of kernels.

An exception raised by a signal handler (KeyboardInterrupt) in the middle of an import or of LLVM
can end the process, or leave it broken. Python runs signal handlers on the main thread only, so
each of these actions gets a thread of its own, and the caller waits for it. An interrupt ends the
wait; the action continues, and the next call finds its result.

One action runs at a time, under a lock that a fork acquires first. Otherwise a child could wait
forever for locks of LLVM, imports or logging, held by a thread that it did not inherit.
"""

from __future__ import annotations

import atexit
import gc
import logging  # noqa: F401  # before our fork hook: hooks run in reverse, and numba logs
import sys
import threading
from _thread import start_new_thread
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from importlib import import_module
from queue import Empty, SimpleQueue
from types import ModuleType
from typing import Any, TypeVar
from weakref import WeakSet, ref

from .system import register_at_fork

Result = TypeVar("Result")

_PACKAGE = __name__.partition(".")[0]
Outcome = tuple[Any, BaseException | None]
Work = Callable[[], Outcome]

_ALIVE_CHECK_SECONDS = (
    0.2  # seconds between two checks of a waiting caller that the thread is alive
)

_lock: Any = threading.RLock()  # Any: its _is_owned is known to threading.Condition only
_waiting: WeakSet[SimpleQueue[Any]] = WeakSet()


def in_safe_thread(action: Callable[..., Result], *arguments: Any) -> Result:
    """Call `action` on another thread, under the lock; return or raise what it does.

    An exception of a signal handler ends the wait, but not the action.
    """
    if _lock._is_owned():  # an action within an action
        return action(*arguments)
    outcomes: SimpleQueue[Outcome | None] = SimpleQueue()
    _waiting.add(outcomes)
    outcome = None
    while outcome is None:  # None: this is a forked child, and the thread is its parent's
        outcome = _awaited(outcomes, _started(outcomes, action, arguments))
    result, fault = outcome
    if fault is None:
        return result  # type: ignore[no-any-return]  # of a queue of anything
    try:
        raise fault
    finally:
        del fault, outcome  # the traceback holds this frame


def start_in_safe_thread(action: Callable[..., object], *arguments: Any) -> None:
    """As `in_safe_thread`, without waiting; exceptions are lost."""
    _started(SimpleQueue(), action, arguments)


def _started(
    outcomes: SimpleQueue[Outcome | None], action: Callable[..., Any], arguments: tuple[Any, ...]
) -> ref[Work]:
    """Start a thread; the returned weak reference dies when it ends for any reason."""

    def act(work: Work) -> None:
        with _lock:  # once a fork has the lock, the outcome is delivered
            outcomes.put(work())

    # Only the thread refers to it. CPython 3.11 leaks `act` if there is no memory for it.
    work = partial(_outcome, action, arguments)
    try:
        start_new_thread(act, (work,))
    except RuntimeError:  # no more threads, or the interpreter is ending
        act(work)
    return ref(work)


def _awaited(outcomes: SimpleQueue[Outcome | None], work: ref[Work]) -> Outcome | None:
    """The outcome of the thread, which may end early if memory runs out."""
    while True:
        ended = work() is None
        with suppress(Empty):
            return outcomes.get(timeout=0 if ended else _ALIVE_CHECK_SECONDS)
        if ended:
            return None, MemoryError("a thread ended before it could begin its work")


def _outcome(action: Callable[..., Any], arguments: tuple[Any, ...]) -> Outcome:
    try:
        return action(*arguments), None
    except BaseException as fault:
        return None, fault


def module(name: str) -> ModuleType:
    """Import the module `shapejit.<name>`, for names that are imported on first access.

    >>> module("errors").__name__
    'shapejit.errors'
    """
    found = sys.modules.get(f"{_PACKAGE}.{name}")
    if found is not None and not getattr(found.__spec__, "_initializing", False):
        return found
    return in_safe_thread(_imported, f"{_PACKAGE}.{name}")


def _imported(name: str) -> ModuleType:
    """Import a module without garbage collection: imports make no garbage.

    A collection looks at all objects of the process: with torch that takes twice the time of our
    imports.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        return import_module(name)
    finally:
        if collects:
            gc.enable()


def under_way() -> bool:
    """Whether this thread runs an action, or holds the lock."""
    return bool(_lock._is_owned())


def hold_at_exit() -> None:
    """At exit, wait for the current action before later exit handlers run.

    Exit handlers run in reverse order: this is called after importing a library that has some.
    """
    atexit.unregister(_hold)
    atexit.register(_hold)


def _hold() -> None:
    """Acquire the lock, whatever signal handlers raise meanwhile.

    Forks wait for the thread in this way, and so does the exit of the interpreter, which must not
    free LLVM's memory while the thread uses it.
    """
    interrupt = None
    if _lock._is_owned():
        _lock.acquire()
    while not _lock._is_owned():
        try:
            _lock.acquire()
        except BaseException as fault:
            interrupt = fault
    if interrupt is not None:
        raise interrupt  # Python prints it: neither a fork nor an exit can be prevented


def _after_fork() -> None:
    _lock.release()
    for outcomes in list(_waiting):
        outcomes.put(None)


atexit.register(_hold)
# A builtin to release it: a pending signal would be raised at the start of a function.
register_at_fork(before=_hold, after_in_parent=_lock.release, after_in_child=_after_fork)
