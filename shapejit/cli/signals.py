"""While a command runs, signals that end it raise exceptions, so that it can clean up."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from ..runtime.system import ENDING_SIGNALS


class Terminated(BaseException):
    """SIGTERM or SIGHUP. Like KeyboardInterrupt it is no Exception, so no handler catches it.

    Its argument is the exit code, 128 + the signal's number, as in shells.
    """


def _exception(number: int) -> BaseException:
    return KeyboardInterrupt() if number == signal.SIGINT else Terminated(128 + number)


@contextmanager
def raised() -> Iterator[None]:
    """A context in which the signals raise; after the first one all are ignored.

    Ignored signals stay ignored; in threads other than the main one nothing changes.
    """
    before: dict[signal.Signals, Any] = {}

    def stop(number: int, _: object) -> NoReturn:
        # timeout(1) sends two signals: the second one would interrupt the clean-up.
        for each in before:
            signal.signal(each, signal.SIG_IGN)
        raise _exception(number)

    if threading.current_thread() is threading.main_thread():
        handlers = {number: signal.getsignal(number) for number in ENDING_SIGNALS}
        before = {n: h for n, h in handlers.items() if h not in (signal.SIG_IGN, None)}
    try:
        for number in before:
            signal.signal(number, stop)
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
