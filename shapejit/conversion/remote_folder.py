"""A folder at a URL as the destination: objects that appear one by one, the index last."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress

import numpy as np

from ..arrays.tensor import Bytes
from ..errors import FileFormatError, redacted_url
from ..files.pieces import PIECE
from ..files.places import places, send
from ..files.sharded import SINGLE, SUFFIX
from ..files.stored import File
from ..files.writing import write_all

__all__ = ["RemoteFolder"]

_OWN = ".shapejit-"  # what the names of receipts begin with


class RemoteFolder:
    """A folder at a URL (a `Destination`).

    Nothing can be renamed there, so each file appears in its place when all of it has been
    sent, and who reads the folder finds no checkpoint before its index; one of a single file
    has no index, and is found when that file has been sent. A checkpoint that is there is not
    replaced, nor is anything written where a listing fails. Nobody locks it: two conversions
    must not write to it at a time.
    """

    whole = True

    def __init__(self, path: str) -> None:
        self.path, self._place = path, places(path)
        self.hidden = f"{_OWN}* of {redacted_url(path)}"
        self._made, self._files, self._published = set[str](), dict[str, File](), False

    @contextmanager
    def taken(
        self, alone: bool, keep: bool, needed: int, others: Collection[str] = ()
    ) -> Iterator[None]:
        """Begin to write, or go on; FileFormatError where a checkpoint is there."""
        self._place.fresh(self.path)
        before = self._place.listed(self.path)
        whole = SINGLE in before and not any(name.startswith(_OWN) for name in before)
        if whole or any(name.endswith(SUFFIX) for name in before):
            reason = "it holds a checkpoint, which cannot be replaced in one step by URL"
            raise FileFormatError(self.path, None, f"{reason}: remove it, or name another folder")
        try:
            yield
        finally:
            if not self._published and not keep:
                self._place.fresh(self.path)
                for name in self._made | {*others} - {*before}:
                    with suppress(OSError):
                        self.remove(name)

    @contextmanager
    def open(self, name: str, size: int) -> Iterator[int]:
        """A pipe, from which a file of `size` bytes is sent."""
        self._files.pop(name, None)
        with self._place.replacing(self._at(name), size) as descriptor:
            yield descriptor
        self._made.add(name)

    def read(self, name: str, begin: int, end: int) -> Iterator[Bytes]:
        """Bytes that were sent, piece by piece."""
        try:
            file = self._files.get(name) or self._place.open(self._at(name))
        except (OSError, FileFormatError):
            return
        self._files[name] = file
        for at in range(begin, min(end, file.size), PIECE):
            memory = np.empty(min(PIECE, min(end, file.size) - at), np.uint8)
            file.read(memory.data, at, None)
            yield memory

    def names(self) -> list[str]:
        """The receipts: other files may be anybody's."""
        return [name for name in self._place.listed(self.path) if name.startswith(_OWN)]

    def text(self, name: str) -> str | None:
        """A small file, if it is there."""
        with suppress(OSError):
            file = self._place.open(self._at(name))
            return file.bytes(0, file.size).decode(errors="replace")
        return None

    def put(self, name: str, text: str) -> None:
        """Send a small file."""
        data = text.encode()
        with self.open(name, len(data)) as descriptor:
            write_all(descriptor, memoryview(data))

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""
        self._files.pop(name, None)
        self._place.remove(self._at(name))

    def copy(self, found: str, name: str) -> None:
        """Send a file of the source."""
        with self.open(name, places(found).size(found)) as descriptor:
            send(found, descriptor)

    def sync(self, name: str) -> None:
        """What has been sent lasts."""

    def publish(self, index: str, gone: Collection[str], receipts: Collection[str]) -> None:
        """All is in its place: remove what the folder no longer has."""
        for name in (*(set(gone) - self._made), *receipts):
            self.remove(name)
        self._published = True

    def _at(self, name: str) -> str:
        return self._place.join(self.path, name)
