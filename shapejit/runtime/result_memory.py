"""A cache of the memory of freed results, which new results reuse.

The page faults of the first write to new memory take longer than the copy itself. A block is free
when only this module refers to it: every view of an ndarray refers to the array that it views.
Blocks are removed from their queue while they are examined, so no two threads find the same one,
and there are no locks that a fork or a signal handler could find held. A forked child has its own
copies.
"""

from __future__ import annotations

import os
from collections import deque
from contextlib import suppress
from functools import cache, lru_cache
from mmap import mmap
from operator import mul
from sys import getrefcount
from time import monotonic
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..errors import DTypeError, FormatError
from . import system
from .control_group import limits
from .workers import WORKER_IDLE, when_idle

CACHE_VARIABLE = "SHAPEJIT_RESULT_CACHE"
DEFAULT_PART = 32  # by default, 1 / DEFAULT_PART of the memory that the process may use is kept
# Bytes of a huge page, whose fault takes as long as those of five pages of 4 KiB.
HUGE = 2 * 1024 * 1024
# Block sizes per power of two; and the number of larger sizes that may be reused.
SIZES_PER_DOUBLING = 4
QUEUE_LOOKS = 16  # for a free block at the end of a queue
SECONDS = WORKER_IDLE  # that a block is kept for after its last use

Bytes = NDArray[np.uint8]


class Block(NamedTuple):
    """Memory that was allocated for a result, and the time (seconds)."""

    memory: Bytes
    since: float


class ResultMemory:
    """Blocks that were allocated for results, of at most `most` bytes in total.

    >>> memory = ResultMemory(1 << 24)
    >>> first, fresh = memory.take(1 << 20)
    >>> first[:] = 7
    >>> fresh, memory.nbytes >= 1 << 20
    (True, True)
    >>> memory.take(1 << 20)[1]  # the first one is still alive
    True
    >>> del first
    >>> memory.take(1 << 20)[1]
    False
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._blocks: dict[int, deque[Block]] = {}
        self._looked = monotonic()

    @property
    def nbytes(self) -> int:
        """The bytes of all blocks, summed each time: a running total would need a lock."""
        blocks = self._blocks.copy()
        return sum(map(mul, blocks, map(len, blocks.values())))

    def take(self, nbytes: int) -> tuple[Bytes, bool] | None:
        """Memory of at least `nbytes` bytes, and whether it is fresh; None for more than are kept.

        It belongs to the caller as long as it, or any view of it, is alive. Small blocks are better
        left to malloc, which keeps them itself: this takes 3 us.
        """
        if nbytes > self.most:
            return None
        now = monotonic()
        if now > self._looked + SECONDS:
            self.forget_old()
        sizes = _sizes(nbytes)
        queues = filter(None, map(self._blocks.get, sizes))
        found = next(filter(None, map(_unused, queues)), None)
        memory = found.memory if found else _mapped(sizes[0], nbytes)
        if memory is None:  # out of memory
            self.forget(0)
            return None
        self._blocks.setdefault(memory.size, deque()).append(Block(memory, now))
        blocks = self._blocks.copy()  # now: another thread may not have seen what we looked at
        if sum(map(mul, blocks, map(len, blocks.values()))) > self.most:  # `nbytes`, inlined
            self.forget(self.most)
        return memory, found is None

    def forget(self, most: int) -> None:
        """Forget the oldest blocks until at most `most` bytes are left.

        The memory of live results is returned to the system when these are dropped.
        """
        while self.nbytes > most:
            with suppress(IndexError, ValueError):  # other threads may empty queues
                first = (blocks for blocks in list(self._blocks.values()) if blocks)
                min(first, key=lambda blocks: blocks[0].since).popleft()

    def forget_old(self) -> bool:
        """Forget blocks last used more than `SECONDS` ago; return whether others are left."""
        self._looked = now = monotonic()
        for blocks in list(self._blocks.values()):
            for _ in range(len(blocks)):
                with suppress(IndexError):
                    block = blocks.popleft()
                    if block.since > now - SECONDS:
                        blocks.append(block)
        return any(self._blocks.values())


def _unused(blocks: deque[Block]) -> Block | None:
    """Remove and return a free block of a queue, the last one first: it may still be in a cache.

    None if none of the last ones is free: they become the first ones, so that others are next.
    """
    with suppress(IndexError):  # the queue is empty, or another thread has emptied it
        for _ in range(min(len(blocks), QUEUE_LOOKS)):
            block = blocks.pop()
            memory = block.memory
            if (getrefcount(memory), getrefcount(memory.base)) == _FREE:
                return block
            blocks.appendleft(block)
    return None


@lru_cache(maxsize=64)
def _sizes(nbytes: int) -> range:
    """The sizes of blocks that may hold `nbytes` bytes, smallest first."""
    step = 1 << max((nbytes - 1).bit_length() - SIZES_PER_DOUBLING.bit_length(), 0)
    if nbytes >= HUGE:
        step = max(step, HUGE)  # the system aligns such memory to huge pages
    size = -(-nbytes // step) * step
    return range(size, size + SIZES_PER_DOUBLING * step, step)


def _mapped(size: int, nbytes: int) -> Bytes | None:
    """New memory, in huge pages if it fills at least two of them.

    Otherwise its pages are created at once: creating them one by one on first write made a first
    result of 1 MiB take 1.3 times as long.
    """
    huge = nbytes >= 2 * HUGE
    try:
        pages = system.new_pages(size, now=not huge)
    except (OSError, MemoryError):
        return None
    if huge:
        system.use_huge_pages(pages, nbytes // HUGE * HUGE)
    return np.ndarray(size, np.uint8, pages)


def _default() -> int:
    """The bytes in the environment variable `CACHE_VARIABLE`, or a part of the available memory."""
    given = os.environ.get(CACHE_VARIABLE)
    if given is not None:
        if not given.strip().isdecimal():
            raise FormatError(f"{CACHE_VARIABLE} is a number of bytes, not {given!r}")
        return int(given)
    available = system.memory_size(), *(int(words[0]) for words in limits("memory.max"))
    return min(available) // DEFAULT_PART


def _free() -> tuple[int, int]:
    """The number of references to a block's memory, and to its base, if no result is left."""
    block = Block(np.ndarray(1, np.uint8, mmap(-1, 1)), 0.0)
    memory = block.memory
    return getrefcount(memory), getrefcount(memory.base)


_FREE = _free()


@cache
def kept() -> ResultMemory:
    """The ResultMemory of this process."""
    return ResultMemory(_default())


when_idle.append(lambda: kept().forget_old())


def set_result_cache(nbytes: int, /) -> int:
    """Set the maximum bytes of freed results kept for new ones; return the old maximum.

    The memory of a result of 2 MiB or more is reused after the result was freed, which saves page
    faults. Memory that is not reused within about ten seconds is returned to the system, at the
    next call at the latest. 0 turns the cache off, and frees unused memory at once. The default is
    1/32 of the memory that the process may use, or the environment variable
    `SHAPEJIT_RESULT_CACHE`, in bytes.

    Raises DTypeError, FormatError.

    >>> before = set_result_cache(1 << 28)
    >>> set_result_cache(before) == 1 << 28
    True
    """
    if isinstance(nbytes, bool) or not isinstance(nbytes, int | np.integer):
        raise DTypeError(f"set_result_cache takes a number of bytes, not {nbytes!r}")
    if nbytes < 0:
        raise FormatError(f"the result cache cannot have {nbytes} bytes")
    memory = kept()
    before, memory.most = memory.most, int(nbytes)
    memory.forget(memory.most)
    return before
