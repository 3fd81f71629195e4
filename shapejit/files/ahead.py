"""Reads of a file that is far away: several at a time, and ahead of those who read in order."""

from __future__ import annotations

import errno
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import cache
from itertools import count
from queue import SimpleQueue
from threading import Lock, Thread, local
from typing import Any
from weakref import WeakSet

from ..runtime.system import register_at_fork

__all__ = ["Ahead", "Raw", "Threads", "read_until"]

_FIRST = 1 << 16  # bytes of the first read at a place: most headers
_CHUNK = 1 << 22  # bytes of a read
_AT_ONCE = 8  # reads that are under way
_MOST = _CHUNK * _AT_ONCE  # bytes ahead of who reads in order
_HELD = 2 * _MOST  # bytes of all files that are held for later

Raw = bytes
Fetch = Callable[[int, int], Raw]  # the bytes from one byte to another


@dataclass(eq=False)
class _Chunk:
    """Bytes of a file, which are there or under way; the least `used` go first.

    `run` are the bytes before it that were read in order.
    """

    begin: int
    end: int
    run: int
    data: Future[Raw]
    used: int = 0


_files = WeakSet["Ahead"]()
_lock = Lock()
_times = count(1)


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


def read_until(stop: Future[None]) -> None:
    """From now on reads of this thread end by InterruptedError when `stop` is done."""
    _wanted.until = stop


class Threads(ThreadPoolExecutor):
    """Threads whose reads end by InterruptedError when they are stopped, or on an exception."""

    def __init__(self, count: int) -> None:
        self._stop = Future[None]()
        super().__init__(count, initializer=read_until, initargs=(self._stop,))

    def stop(self) -> None:
        """Nobody wants any more what the threads do."""
        if not self._stop.done():
            self._stop.set_result(None)

    def __exit__(self, kind: Any, fault: Any, trace: Any) -> None:
        if kind is not None:
            self.stop()
        super().__exit__(kind, fault, trace)


def _awaited(read: Future[Any]) -> Any:
    """What a read returns, as long as this thread wants it."""
    stop = _wanted.until
    if stop is not None:
        wait((read, stop), return_when=FIRST_COMPLETED)
        if stop.done():
            raise InterruptedError(errno.EINTR, "nobody wants what is read any more")
    return read.result()


def _forget() -> None:
    """Threads, and what they read, do not outlive a fork."""
    global _lock
    _lock = Lock()
    _pool.cache_clear()
    for file in [*_files]:
        file.held.clear()


register_at_fork(after_in_child=_forget)


class Ahead:
    """A file of `size` bytes, and those of them that are `held` for who reads on.

    Who reads on where a read ended finds as much of what follows as was read in order,
    32 MiB at most, read already or under way. All files together hold 64 MiB.
    """

    def __init__(self, size: int) -> None:
        self._size, self.held = size, list[_Chunk]()
        with _lock:  # who makes room goes through them
            _files.add(self)

    def read(self, fetch: Fetch, memory: memoryview, at: int) -> None:
        """Fill `memory` from byte `at`; what follows may be read, too."""
        end = at + len(memory)
        if len(memory) > _MOST:
            self.exactly(fetch, memory, at)
            return
        with _lock:
            chunks = self._chunks(fetch, at, end)
        for chunk in chunks:
            first, last = max(chunk.begin, at), min(chunk.end, end)
            try:
                data = memoryview(_awaited(chunk.data))
            except Exception:
                with _lock:
                    self.held = [each for each in self.held if each is not chunk]
                raise
            memory[first - at : last - at] = data[first - chunk.begin : last - chunk.begin]

    def exactly(self, fetch: Fetch, memory: memoryview, begin: int) -> None:
        """Fill `memory` from byte `begin`, and read nothing else."""

        def fill(at: int) -> None:
            to = memory[at : at + _CHUNK]
            to[:] = fetch(begin + at, begin + at + len(to))

        found = [_pool().submit(fill, at) for at in range(0, len(memory), _CHUNK)]
        try:
            for each in found:
                _awaited(each)
        finally:
            for each in found:
                each.cancel()

    def _chunks(self, fetch: Fetch, at: int, end: int) -> list[_Chunk]:
        """The chunks from byte `at` to `end`; those that are missing, there or ahead, begin."""
        found, ahead = list[_Chunk](), 0
        while at < min(end + ahead, self._size):
            covering = (chunk for chunk in self.held if chunk.begin <= at < chunk.end)
            chunk = next(covering, None) or self._begin(fetch, at, end)
            if at < end:
                found.append(chunk)
                chunk.used, ahead = next(_times) if chunk.end > end else 0, min(chunk.run, _MOST)
            at = chunk.end
        _make_room()
        return found

    def _begin(self, fetch: Fetch, at: int, end: int) -> _Chunk:
        """A chunk from byte `at` on: the larger, the more was read in order before it."""
        near = (c.run + c.end - c.begin for c in self.held if c.begin < at < c.end + _FIRST)
        run = max(near, default=0)
        size = max(_FIRST, min(max(run, end - at), _CHUNK))
        stop = min([at + size, self._size, *(c.begin for c in self.held if c.begin > at)])
        chunk = _Chunk(at, stop, run, _pool().submit(fetch, at, stop), next(_times))
        self.held.append(chunk)
        return chunk


def _make_room() -> None:
    """Let go of what was read to its end, or is not used for the longest time."""
    held = sorted(((c, file) for file in [*_files] for c in file.held), key=lambda h: h[0].used)
    size = sum(chunk.end - chunk.begin for chunk, _ in held)
    for chunk, file in held:
        if size <= _HELD:
            return
        file.held.remove(chunk)
        size -= chunk.end - chunk.begin
