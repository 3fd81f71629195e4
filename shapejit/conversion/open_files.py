"""The files of a destination that threads of one process write."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from threading import Lock

from ..files.writing import Writer
from .destinations import Destination

__all__ = ["OpenFiles"]


@dataclass
class _Opened:
    writer: Writer
    closing: ExitStack
    users: int = 0


class OpenFiles:
    """One writer per file of a destination, whichever threads write to it.

    Two writers of a file would wait for each other: systems let only one write to it at a
    time. With one, a thread converts the next item while those of others are being written.
    """

    def __init__(self, where: Destination) -> None:
        self.where = where
        self._lock, self._opened = Lock(), dict[str, _Opened]()

    @contextmanager
    def writer(self, name: str, size: int) -> Iterator[Writer]:
        """The writer of a file of `size` bytes; at the end all that was put is written.

        Whoever needs the file first opens it, and whoever needs it last closes it. Where that
        one has failed, what still waits is not written.
        """
        with ExitStack() as stack:
            with self._lock:
                opened = self._opened.get(name) or self._open(name, size)
                opened.users += 1
            stack.push(partial(self._leave, name, opened))
            yield opened.writer
            opened.writer.flush()

    def _open(self, name: str, size: int) -> _Opened:
        """The lock is held."""
        with ExitStack() as stack:
            writer = stack.enter_context(Writer(stack.enter_context(self.where.open(name, size))))
            self._opened[name] = _Opened(writer, stack.pop_all())
        return self._opened[name]

    def _leave(self, name: str, opened: _Opened, *raised: object) -> None:
        with self._lock:
            opened.users -= 1
            if opened.users:
                return
            del self._opened[name]
        opened.closing.__exit__(*raised)  # type: ignore[arg-type]  # as `with` has it
