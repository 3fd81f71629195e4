"""Read-ahead of remote files: several reads at a time, cancelled when nobody needs them."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager
from functools import cache
from itertools import count
from queue import SimpleQueue
from threading import Thread, local
from typing import Any

from ..runtime.system import register_at_fork

_PART = 1 << 20  # bytes of a read, at least
_CHUNK = 1 << 22  # and at most
_AT_ONCE = 8  # reads that are under way

Fetch = Callable[[int, int], bytes]  # the bytes from one byte to another


class _Readers:
    """Daemon threads: the interpreter ends without waiting for a server that sends nothing."""

    def __init__(self) -> None:
        self._calls = SimpleQueue[tuple[Future[Any], Callable[..., Any], tuple[Any, ...]]]()
        self._started = count()

    def submit(self, call: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """Have a call made by a thread."""
        future = Future[Any]()
        self._calls.put((future, call, arguments))
        if next(self._started) < _AT_ONCE:
            Thread(target=self._work, name="shapejit-read", daemon=True).start()
        return future

    def _work(self) -> None:
        while True:
            self._make(*self._calls.get())

    def _make(
        self, future: Future[Any], call: Callable[..., Any], arguments: tuple[Any, ...]
    ) -> None:
        if future.set_running_or_notify_cancel():
            try:
                future.set_result(call(*arguments))
            except BaseException as fault:
                future.set_exception(fault)


@cache
def _pool() -> _Readers:
    return _Readers()


class _Wanted(local):
    """What a thread reads is wanted until this future is done."""

    until: Future[None] | None = None


_wanted = _Wanted()


@contextmanager
def read_until(stop: Future[None]) -> Iterator[None]:
    """Meanwhile reads of this thread end by InterruptedError when `stop` is done."""
    before, _wanted.until = _wanted.until, stop
    try:
        yield
    finally:
        _wanted.until = before


def awaited(call: Callable[..., Any], *arguments: Any) -> Any:
    """What a call returns that reads, as long as this thread wants it."""
    return _result(_pool().submit(call, *arguments))


def read_parts(fetch: Fetch, memory: memoryview, begin: int) -> None:
    """Fill `memory` from byte `begin`, by several reads at a time."""
    step = min(max(len(memory) // _AT_ONCE, _PART), _CHUNK)

    def fill(at: int) -> None:
        to = memory[at : at + step]
        to[:] = fetch(begin + at, begin + at + len(to))

    reads = [_pool().submit(fill, at) for at in range(0, len(memory), step)]
    try:
        for each in reads:
            _result(each)
    finally:
        for each in reads:
            each.cancel()


def _result(read: Future[Any]) -> Any:
    stop = _wanted.until
    if stop is not None:
        wait((read, stop), return_when=FIRST_COMPLETED)
        if stop.done():
            raise InterruptedError(errno.EINTR, "the read was cancelled")
    return read.result()


register_at_fork(after_in_child=_pool.cache_clear)  # threads do not outlive a fork
