"""A small dictionary that forgets what was put first: caches of bounded size."""

from __future__ import annotations

from contextlib import suppress
from typing import Generic, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


class Recent(Generic[Key, Value]):
    """The last `size` entries; threads may use it at once.

    >>> recent = Recent(2)
    >>> for n in range(3):
    ...     recent.put(n, str(n))
    >>> 0 in recent, recent.get(2)
    (False, '2')
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._entries: dict[Key, Value] = {}
        self.get = self._entries.get

    def __contains__(self, key: Key) -> bool:
        return key in self._entries

    def put(self, key: Key, value: Value) -> None:
        """Remember an entry, and forget the oldest one if there are too many."""
        self._entries[key] = value
        while len(self._entries) > self.size:
            # Another thread may change the dictionary, or forget the same one.
            with suppress(KeyError, RuntimeError, StopIteration):
                del self._entries[next(iter(self._entries))]

    def clear(self) -> None:
        """Forget everything."""
        self._entries.clear()
