"""Ctrl-C, SIGTERM and SIGHUP become exceptions while a command runs, so that it can clean up."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NoReturn


class Terminated(BaseException):
    """SIGTERM came, or the terminal is gone; like KeyboardInterrupt, no handler catches it.

    Its argument is the exit code: 128 + the signal's number, as shells have it.
    """


_EXCEPTIONS: dict[signal.Signals, Callable[[], BaseException]] = {
    signal.SIGINT: KeyboardInterrupt,
    signal.SIGTERM: partial(Terminated, 143),
    signal.SIGHUP: partial(Terminated, 129),
}


@contextmanager
def raised() -> Iterator[None]:
    """The signals raise; once one has come, all are ignored until the end.

    Where they are ignored already, or in a thread other than the main one,
    nothing changes.
    """
    before: dict[signal.Signals, Any] = {}

    def stop(number: int, _: object) -> NoReturn:
        # timeout(1) sends two: the second would hit the cleaning up.
        for each in before:
            signal.signal(each, signal.SIG_IGN)
        raise _EXCEPTIONS[signal.Signals(number)]()

    if threading.current_thread() is threading.main_thread():
        handlers = {number: signal.getsignal(number) for number in _EXCEPTIONS}
        before = {n: h for n, h in handlers.items() if h not in (signal.SIG_IGN, None)}
    try:
        for number in before:
            signal.signal(number, stop)
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
