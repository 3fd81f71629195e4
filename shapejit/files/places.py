"""Where files are: on this machine, or elsewhere, named by a URL. The one seam between both.

What is on this machine is read and written as it always was, by its path; only names with
`://` go through fsspec, which `files.remote` knows and nobody else.
"""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, suppress
from importlib import import_module
from typing import Protocol

from ..errors import FileFormatError
from . import paths, temporary
from .paths import Path, file_name
from .pieces import PIECE
from .stored import File, OpenFile
from .urls import is_url
from .writing import write_all

__all__ = ["Places", "opened", "places", "replacing", "send"]


class Places(Protocol):
    """What is asked of files and of folders by their names."""

    in_order: bool  # files are written from begin to end

    def open(self, name: str, /) -> File:
        """A file, to be read."""

    def replacing(self, name: str, /, size: int | None = None) -> AbstractContextManager[int]:
        """A descriptor to write to; at the end what was written is the file of this name."""

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""

    def fresh(self, name: str) -> None:
        """From now on the files are as others have written them until now."""

    def is_folder(self, name: str) -> bool:
        """Whether there is a folder of this name."""

    def exists(self, name: str) -> bool:
        """Whether there is a file or a folder of this name."""

    def is_named(self, name: str) -> bool:
        """Whether it exists, or is a link to what does not."""

    def size(self, name: str) -> int:
        """The bytes of a file."""

    def names(self, folder: str) -> list[str]:
        """The files and folders in a folder; none where nobody tells."""

    def listed(self, folder: str) -> list[str]:
        """The files and folders in a folder, if it exists; OSError where nobody tells."""

    def files(self, folder: str) -> dict[str, str]:
        """The files in a folder and its folders, by their names in it, but those of hidden ones.

        FileFormatError for what is no regular file, or not in the folder.
        """

    def join(self, folder: str, name: str, /) -> str:
        """The name of a file in a folder."""

    def parent(self, name: str) -> str:
        """The folder of a file."""

    def base(self, name: str) -> str:
        """The last component of a name."""

    def inside(self, folder: str, location: str, tensor: str | None) -> str:
        """The file at `location`, relative to a folder; FileFormatError if it is not in it."""

    def real(self, name: str) -> str:
        """The one name of those that a folder may have."""

    def relative(self, name: str, folder: str) -> str:
        """The name of a file as seen from a folder."""


class _Here:
    """This machine."""

    in_order = False
    open = OpenFile
    is_folder = staticmethod(os.path.isdir)
    exists = staticmethod(os.path.exists)
    is_named = staticmethod(os.path.lexists)
    names = listed = staticmethod(os.listdir)
    inside = staticmethod(paths.inside)

    def replacing(self, name: str, /, size: int | None = None) -> AbstractContextManager[int]:
        """A descriptor of a new file beside it (see `files.temporary`)."""
        return temporary.replacing(name)

    def fresh(self, name: str) -> None:
        """They always are."""

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""
        with suppress(FileNotFoundError):
            os.unlink(name)

    def size(self, name: str) -> int:
        """The bytes of a file."""
        return os.path.getsize(name)

    def files(self, folder: str) -> dict[str, str]:
        """The files in a folder; a link must not lead out of it."""
        made = {name: paths.inside(folder, name, None) for name in paths.files_in(folder, False)}
        for name, path in made.items():
            if not os.path.isfile(path):
                raise FileFormatError(os.path.join(folder, name), None, "it is not a regular file")
        return made

    def join(self, folder: str, name: str, /) -> str:
        """The path of a file in a folder."""
        return os.path.join(folder, name)

    def parent(self, name: str) -> str:
        """The folder of a file; empty for the current one."""
        return os.path.dirname(name)

    def base(self, name: str) -> str:
        """The last component of a path."""
        return os.path.basename(name)

    def real(self, name: str) -> str:
        """The path without links."""
        return os.path.realpath(name)

    def relative(self, name: str, folder: str) -> str:
        """The path from a folder to a file."""
        return os.path.relpath(name, folder)


_HERE = _Here()


def places(name: Path) -> Places:
    """The place that a name is of.

    Raises ImportError for URLs without fsspec.

    >>> places("folder").join("folder", "a.npz"), places("s3://b").join("s3://b", "a.npz")
    ('folder/a.npz', 's3://b/a.npz')
    """
    if not is_url(file_name(name)):
        return _HERE
    made: Places = import_module(".elsewhere", __package__).ELSEWHERE
    return made


def opened(name: str) -> File:
    """A file, to be read."""
    return places(name).open(name)


def send(name: str, descriptor: int) -> None:
    """Write the bytes of a file to a descriptor."""
    file = opened(name)
    for at in range(0, file.size, PIECE):
        write_all(descriptor, memoryview(file.bytes(at, min(PIECE, file.size - at))))


def replacing(path: Path, size: int | None = None) -> AbstractContextManager[int]:
    """A descriptor to write to; at the end what was written is the file at `path`, of `size` bytes.

    On any error what is at `path` stays as it is. Elsewhere the descriptor is a pipe.
    """
    name = file_name(path)
    return places(name).replacing(name, size)
