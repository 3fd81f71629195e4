"""Reads of a file that is far away: several at a time, and ahead of those who read in order."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from itertools import count
from threading import Lock
from weakref import WeakSet

__all__ = ["Ahead", "Raw"]

_FIRST = 1 << 16  # bytes of the first read at a place: most headers
_CHUNK = 1 << 22  # bytes of a read
_AT_ONCE = 8  # reads that are under way
_MOST = _CHUNK * _AT_ONCE  # bytes ahead of who reads in order
_HELD = 2 * _MOST  # bytes of all files that are held for later
_ORDERS = 16  # places of a file where somebody may read on

Raw = bytes
Fetch = Callable[[int, int], Raw]  # the bytes from one byte to another


@dataclass(eq=False)
class _Chunk:
    """Bytes of a file, which are there or under way; the least `used` go first."""

    begin: int
    end: int
    data: Future[Raw]
    used: int = 0


_files = WeakSet["Ahead"]()
_lock = Lock()
_times = count(1)


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_AT_ONCE, "shapejit-read")


def _forget() -> None:
    """Threads, and what they read, do not outlive a fork."""
    global _lock
    _lock = Lock()
    _pool.cache_clear()
    for file in [*_files]:
        file.held.clear()


os.register_at_fork(after_in_child=_forget)


class Ahead:
    """A file of `size` bytes, and those of them that are `held` for who reads on.

    Who reads on where a read ended finds as much of what follows as was read in order,
    32 MiB at most, read already or under way. All files together hold 64 MiB.
    """

    def __init__(self, size: int) -> None:
        self._size, self.held = size, list[_Chunk]()
        # By the end of a read: where it began, and the bytes read in order until there.
        self._orders: OrderedDict[int, tuple[int, int]] = OrderedDict()
        with _lock:  # who makes room goes through them
            _files.add(self)

    def read(self, fetch: Fetch, memory: memoryview, at: int) -> None:
        """Fill `memory` from byte `at`; what follows may be read, too."""
        end = at + len(memory)
        if len(memory) > _MOST:
            self.exactly(fetch, memory, at)
            return
        with _lock:
            chunks = self._chunks(fetch, at, end, self._ahead(at, end))
        for chunk in chunks:
            first, last = max(chunk.begin, at), min(chunk.end, end)
            try:
                data = memoryview(chunk.data.result())
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
                each.result()
        finally:
            for each in found:
                each.cancel()

    def _ahead(self, at: int, end: int) -> int:
        """How many bytes behind `end` should be on their way."""
        near = [k for k, (begin, _) in self._orders.items() if begin < at < k + _FIRST]
        known = max((self._orders.pop(each)[1] for each in near), default=0)
        self._orders[end] = at, known + end - at
        if len(self._orders) > _ORDERS:
            self._orders.popitem(last=False)
        return min(known + end - at, _MOST) if near else 0

    def _chunks(self, fetch: Fetch, at: int, end: int, ahead: int) -> list[_Chunk]:
        """The chunks from byte `at` to `end`; those that are missing, there or ahead, start."""
        found, until = list[_Chunk](), min(max(end + ahead, at + _FIRST), self._size)
        while at < until:
            chunk = next((c for c in self.held if c.begin <= at < c.end), None)
            if chunk is None:
                worth = max(_FIRST, min(ahead // 2, _CHUNK))
                if at >= end and until - at < worth and until < self._size:
                    break  # it can wait until it is worth a read
                stop = min([at + _CHUNK, until, *(c.begin for c in self.held if c.begin > at)])
                chunk = _Chunk(at, stop, _pool().submit(fetch, at, stop), next(_times))
                self.held.append(chunk)
            if at < end:
                found.append(chunk)
                chunk.used = next(_times) if chunk.end > end else 0
            at = chunk.end
        _make_room()
        return found


def _make_room() -> None:
    """Let go of what was read to its end, or is not used for the longest time."""
    held = sorted(((c, file) for file in [*_files] for c in file.held), key=lambda h: h[0].used)
    size = sum(chunk.end - chunk.begin for chunk, _ in held)
    for chunk, file in held:
        if size <= _HELD:
            return
        file.held.remove(chunk)
        size -= chunk.end - chunk.begin
