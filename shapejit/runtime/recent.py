"""A cache of bounded size: a dictionary that drops its oldest entries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


class Recent(Generic[Key, Value]):
    """The most recent entries, of a total weight of at most `size`. It is thread-safe.

    `weigh` returns the weight of a value.

    >>> recent = Recent(7, weigh=len)
    >>> for text in ("ab", "cde", "fghi"):
    ...     recent.put(text, text)
    >>> "ab" in recent, recent.get("cde")
    (False, 'cde')
    """

    def __init__(self, size: int, weigh: Callable[[Value], int]) -> None:
        self.size = size
        self.weigh = weigh
        self._entries: dict[Key, Value] = {}
        self._put = 0  # the weight after the last `_forget`, plus what was put since
        self.get = self._entries.get

    def __contains__(self, key: Key) -> bool:
        return key in self._entries

    def put(self, key: Key, value: Value) -> None:
        """Add an entry; drop the oldest ones if there are too many."""
        self._entries[key] = value
        self._put += self.weigh(value)
        if self._put > self.size:
            self._forget()

    def _forget(self) -> None:
        """If there are too many entries, drop the oldest eighth: one by one would take too long.

        All entries are weighed again: an exact running total would need a lock, which a fork could
        find held.
        """
        left = self.weight()
        if left > self.size:
            for key, value in list(self._entries.items()):
                left -= self.weigh(value)
                self._entries.pop(key, None)  # another thread may have dropped it
                if left <= self.size - self.size // 8:
                    break
        self._put = left

    def weight(self) -> int:
        """The sum of the weights of all entries."""
        return sum(map(self.weigh, list(self._entries.values())))

    def clear(self) -> None:
        """Drop all entries."""
        self._entries.clear()
