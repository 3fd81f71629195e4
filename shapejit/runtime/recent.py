"""A cache of bounded size: a dictionary that drops its oldest entries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


class Recent(Generic[Key, Value]):
    """The last entries, as many as weigh no more than `size`; threads may use it at once.

    `weigh` returns what a value weighs.

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
        self._put = 0  # what was put since `_forget` last looked weighs, and what it left
        self.get = self._entries.get

    def __contains__(self, key: Key) -> bool:
        return key in self._entries

    def put(self, key: Key, value: Value) -> None:
        """Remember an entry, and forget the oldest ones if there are too many."""
        self._entries[key] = value
        self._put += self.weigh(value)
        if self._put > self.size:
            self._forget()

    def _forget(self) -> None:
        """Forget the oldest entries if there are too many: an eighth, or each would take long.

        All are weighed anew: a total that is kept exact would need a lock, which a fork may find
        taken.
        """
        left = self.weight()
        if left > self.size:
            for key, value in list(self._entries.items()):
                left -= self.weigh(value)
                self._entries.pop(key, None)  # another thread may have forgotten it
                if left <= self.size - self.size // 8:
                    break
        self._put = left

    def weight(self) -> int:
        """The sum of what the entries weigh."""
        return sum(map(self.weigh, list(self._entries.values())))

    def clear(self) -> None:
        """Forget everything."""
        self._entries.clear()
