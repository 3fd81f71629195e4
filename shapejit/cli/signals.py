"""Ctrl-C and SIGTERM become exceptions while a command runs, so that it can clean up."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

TERMINATED = 143  # 128 + the signal's number, as shells have it


class Terminated(BaseException):
    """SIGTERM came; like KeyboardInterrupt, no handler of errors catches it."""


_EXCEPTIONS = {signal.SIGINT: KeyboardInterrupt, signal.SIGTERM: Terminated}


@contextmanager
def raised() -> Iterator[None]:
    """SIGINT and SIGTERM raise; once one has come, both are ignored until the end.

    Where they are ignored already, or in a thread other than the main one,
    nothing changes.
    """
    before: dict[signal.Signals, Any] = {}

    def stop(number: int, _: object) -> NoReturn:
        # timeout(1) sends two: the second would hit the cleaning up.
        for each in before:
            signal.signal(each, signal.SIG_IGN)
        raise _EXCEPTIONS[signal.Signals(number)]

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
