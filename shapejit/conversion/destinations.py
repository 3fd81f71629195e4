"""Where a conversion of a folder writes to: one row per kind of place."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager
from typing import Protocol

from ..arrays.tensor import Bytes
from ..files.paths import Path, file_name
from ..files.urls import is_url
from .remote_folder import RemoteFolder
from .replacing import LocalFolder

__all__ = ["Destination", "destination"]


class Destination(Protocol):
    """A folder that is written by any number of processes, and seen by nobody until it is whole.

    Every process has an object of its own for the same place. Files have known sizes; they,
    small texts and receipts are kept where `publish` finds them. Names are relative to the
    folder, and may lead into folders of it. Errors carry `path`, what the user calls it.
    """

    path: str
    hidden: str  # what holds it until it is published, for errors
    whole: bool  # a file is written by one process as a whole: an item is a file

    def taken(
        self, alone: bool, keep: bool, needed: int, others: Collection[str] = ()
    ) -> AbstractContextManager[None]:
        """Begin to write, or go on: what other processes have written so far is there.

        Others may take part at the same time unless this process is `alone`; FileFormatError
        where that cannot be. `needed` bytes must be free, `others` are the names of files that
        other processes write for this one. Without a call of `publish` the old
        folder stays as it is; what has been written is removed at the end unless it is to
        be kept.
        """

    def open(self, name: str, size: int) -> AbstractContextManager[int]:
        """A descriptor of a file of `size` bytes; any range may be written, and read again.

        Others may write other ranges at the same time, or the same bytes to the same range.
        Works without `taken`, too: workers write for the process that has taken it.
        """

    def read(self, name: str, begin: int, end: int) -> Iterator[Bytes]:
        """Bytes that were written, piece by piece; fewer where the file is shorter or missing."""

    def names(self) -> list[str]:
        """The files in it so far, those in its folders left out."""

    def text(self, name: str) -> str | None:
        """A small file, if it is there."""

    def put(self, name: str, text: str) -> None:
        """Write a small file as a whole: who reads it finds the old one or the new one."""

    def remove(self, name: str) -> None:
        """Remove a file or a folder, if it is there."""

    def copy(self, found: str, name: str) -> None:
        """Copy a file of the source."""

    def sync(self, name: str) -> None:
        """Make what was written to a file last."""

    def publish(self, index: str, gone: Collection[str], receipts: Collection[str]) -> None:
        """Let what has been written take the place of the old folder, all but the `receipts`.

        What that has beside it stays, but the shards that its `index` names, and `gone`.
        Where it fails the receipts are still there.
        """


def destination(path: Path) -> Destination:
    """The folder at a path, or at a URL."""
    name = file_name(path)
    return RemoteFolder(name) if is_url(name) else LocalFolder(name)
