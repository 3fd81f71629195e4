"""Actions that signals and forks cannot interrupt: kernels are asked for and loaded by them.

An exception raised by a signal handler (KeyboardInterrupt) in the middle of an import or of
LLVM can end the process or break it for good. Python runs signal handlers on the
main thread only, so each of these actions gets a thread of its own, and the caller
waits for it. An interrupt ends the wait; the action goes on, and the next call finds
what it made.

One action runs at a time, under a lock that a fork takes first: a child would wait
for ever for the locks of LLVM, of imports and of logging, if they were held by a
thread that it did not inherit.
"""

from __future__ import annotations

import atexit
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

_PAUSE = 0.2  # seconds after which who waits looks whether the thread is still there

_lock: Any = threading.RLock()  # Any: its _is_owned is known to threading.Condition only
_waiting: WeakSet[SimpleQueue[Any]] = WeakSet()


def apart(action: Callable[..., Result], *arguments: Any) -> Result:
    """Return or raise what a call of `action` does, made on another thread under the lock.

    An exception of a signal handler ends the wait, but not the action.
    """
    if _lock._is_owned():  # one action calls for another
        return action(*arguments)
    outcomes: SimpleQueue[Outcome | None] = SimpleQueue()
    _waiting.add(outcomes)
    outcome = None
    while outcome is None:  # None: this is a forked child, and the thread its parent's
        outcome = _awaited(outcomes, _started(outcomes, action, arguments))
    result, fault = outcome
    if fault is None:
        return result  # type: ignore[no-any-return]  # of a queue of anything
    try:
        raise fault
    finally:
        del fault, outcome  # the traceback holds this frame


def begin(action: Callable[..., object], *arguments: Any) -> None:
    """The same without waiting for it; nobody hears of what it raises."""
    _started(SimpleQueue(), action, arguments)


def _started(
    outcomes: SimpleQueue[Outcome | None], action: Callable[..., Any], arguments: tuple[Any, ...]
) -> ref[Work]:
    """Let a thread work; the reference is dead when the thread has ended, whatever of."""

    def act(work: Work) -> None:
        with _lock:  # whoever gets the lock for a fork finds the outcome delivered
            outcomes.put(work())

    # Nobody but the thread holds it. CPython 3.11 leaks `act` where there is no memory for it.
    work = partial(_outcome, action, arguments)
    try:
        start_new_thread(act, (work,))
    except RuntimeError:  # the system has no more threads, or the interpreter ends
        act(work)
    return ref(work)


def _awaited(outcomes: SimpleQueue[Outcome | None], work: ref[Work]) -> Outcome | None:
    """What the thread delivers; without memory it may end before it calls anything."""
    while True:
        ended = work() is None
        with suppress(Empty):
            return outcomes.get(timeout=0 if ended else _PAUSE)
        if ended:
            return None, MemoryError("a thread ended before it could begin its work")


def _outcome(action: Callable[..., Any], arguments: tuple[Any, ...]) -> Outcome:
    try:
        return action(*arguments), None
    except BaseException as fault:
        return None, fault


def module(name: str) -> ModuleType:
    """The module `shapejit.<name>`, for names that are imported when they are first asked for.

    >>> module("errors").__name__
    'shapejit.errors'
    """
    found = sys.modules.get(f"{_PACKAGE}.{name}")
    if found is not None and not getattr(found.__spec__, "_initializing", False):
        return found
    return apart(import_module, f"{_PACKAGE}.{name}")


def under_way() -> bool:
    """Whether this thread takes an action, or holds up those of others."""
    return bool(_lock._is_owned())


def hold_at_exit() -> None:
    """Let the end of the interpreter wait for what is under way, before whatever ends then.

    Exit handlers run in reverse: this is called when a library is imported that has some.
    """
    atexit.unregister(_hold)
    atexit.register(_hold)


def _hold() -> None:
    """Take the lock, whatever signal handlers raise meanwhile.

    A fork waits thus for the thread, and so does the end of the interpreter, which
    must not take LLVM's memory away beneath it.
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
        raise interrupt  # Python reports it: neither forks nor exits can be refused


def _after_fork() -> None:
    _lock.release()
    for outcomes in list(_waiting):
        outcomes.put(None)


atexit.register(_hold)
# A builtin to release it: a pending signal would be raised at the start of a function.
register_at_fork(before=_hold, after_in_parent=_lock.release, after_in_child=_after_fork)
