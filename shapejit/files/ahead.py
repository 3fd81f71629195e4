"""Read-ahead of remote files: several reads at a time, cancelled when they are no longer needed."""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager
from threading import Thread, local
from typing import Any

_PART = 1 << 20  # bytes of a read, at least
_CHUNK = 1 << 22  # and at most
_AT_ONCE = 8  # reads that are under way for one caller

Fetch = Callable[[int, int], bytes]  # the bytes from one byte to another


def _begun(call: Callable[..., Any], *arguments: Any) -> Future[Any]:
    """The future of a call on a daemon thread, so that a silent server blocks no exit."""
    future = Future[Any]()

    def work() -> None:
        try:
            future.set_result(call(*arguments))
        except BaseException as fault:
            future.set_exception(fault)

    Thread(target=work, name="shapejit-read", daemon=True).start()
    return future


class _Wanted(local):
    """The reads of a thread are wanted until this future is done."""

    until: Future[None] | None = None


_wanted = _Wanted()


@contextmanager
def read_until(stop: Future[None]) -> Iterator[None]:
    """A context in which reads of this thread raise InterruptedError when `stop` is done."""
    before, _wanted.until = _wanted.until, stop
    try:
        yield
    finally:
        _wanted.until = before


def awaited(call: Callable[..., Any], *arguments: Any) -> Any:
    """The result of a call that reads, as long as this thread wants it."""
    return _result(_begun(call, *arguments))


def read_parts(fetch: Fetch, memory: memoryview, begin: int) -> None:
    """Fill `memory` from byte `begin`, by parallel reads."""
    step = min(max(len(memory) // _AT_ONCE, _PART), _CHUNK)
    left = iter(range(0, len(memory), step))  # what no thread has begun

    def fill() -> None:
        try:
            for at in left:
                to = memory[at : at + step]
                to[:] = fetch(begin + at, begin + at + len(to))
        finally:  # after an error nothing more is begun
            deque(left, maxlen=0)

    reads = [_begun(fill) for _ in range(min(_AT_ONCE, -(-len(memory) // step)))]
    try:
        for each in reads:
            _result(each)
    finally:
        deque(left, maxlen=0)


def _result(read: Future[Any]) -> Any:
    stop = _wanted.until
    if stop is not None:
        wait((read, stop), return_when=FIRST_COMPLETED)
        if stop.done():
            raise InterruptedError(errno.EINTR, "the read was cancelled")
    return read.result()
