"""File systems: local files, and remote ones named by a URL, behind one interface.

What is on this machine is read and written as it always was, by its path; only names with
`://` go through fsspec, which `files.remote` knows and nobody else. Names of `files.in_memory`
bring their own file system.
"""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, suppress
from importlib import import_module
from typing import Any

from ..errors import FileFormatError
from . import paths, temporary
from .open_files import File, OpenFile
from .paths import Path, file_name
from .pieces import PIECE_BYTES
from .temporary import Check
from .urls import is_url
from .writing import write_all

__all__ = ["FileSystem", "opened", "places", "put", "replacing", "send"]


class FileSystem:
    """What is asked of files and of folders by their names: here of those on this machine."""

    in_order = False  # files are written from begin to end

    def open(self, name: str) -> File:
        """A file, to be read."""
        return OpenFile(name)

    def replacing(
        self, name: str, size: int | None = None, check: Check | None = None
    ) -> AbstractContextManager[Any]:
        """What a new file is written to, which has this name at the end (see `temporary`)."""
        return temporary.replacing(name, size, check)

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""
        with suppress(FileNotFoundError):
            os.unlink(name)

    def fresh(self, name: str) -> None:
        """From now on the files are as others have written them until now: here always."""

    def is_folder(self, name: str) -> bool:
        """Whether there is a folder of this name."""
        return os.path.isdir(name)

    def exists(self, name: str) -> bool:
        """Whether there is a file, a folder or a link of this name."""
        return os.path.lexists(name)

    def names(self, folder: str) -> list[str]:
        """The files and folders in a folder; none where nobody tells."""
        return self.listed(folder)

    def listed(self, folder: str) -> list[str]:
        """The files and folders in a folder, if it exists; OSError where nobody tells."""
        return os.listdir(folder)

    def files(self, folder: str) -> dict[str, str]:
        """The files in a folder and its folders, by their names in it, but those of hidden ones.

        FileFormatError for what is no regular file, or not in the folder, a link's file too.
        """
        made = {name: paths.inside(folder, name, None) for name in paths.files_in(folder, False)}
        for name, path in made.items():
            if not os.path.isfile(path):
                raise FileFormatError(os.path.join(folder, name), None, "it is not a regular file")
        return made

    def join(self, folder: str, name: str) -> str:
        """The name of a file in a folder."""
        return os.path.join(folder, name)

    def parent(self, name: str) -> str:
        """The folder of a file; empty for the current one."""
        return os.path.dirname(name)

    def base(self, name: str) -> str:
        """The last component of a name."""
        return os.path.basename(name)

    def inside(self, folder: str, location: str, tensor: str | None) -> str:
        """The file at `location`, relative to a folder; FileFormatError if it is not in it."""
        return paths.inside(folder, location, tensor)

    def real(self, name: str) -> str:
        """The one name of those that a folder may have."""
        return os.path.realpath(name)

    def relative(self, name: str, folder: str) -> str:
        """The name of a file as seen from a folder."""
        return os.path.relpath(name, folder)


_HERE = FileSystem()


def places(name: Path) -> FileSystem:
    """The file system that a name is of.

    Raises ImportError for URLs without fsspec.

    >>> places("folder").join("folder", "a.npz"), places("s3://b").join("s3://b", "a.npz")
    ('folder/a.npz', 's3://b/a.npz')
    """
    in_memory: FileSystem | None = getattr(name, "file_system", None)
    if in_memory is not None:
        return in_memory
    if not is_url(file_name(name)):
        return _HERE
    made: FileSystem = import_module(".elsewhere", __package__).ELSEWHERE
    return made


def opened(name: str) -> File:
    """A file, to be read."""
    return places(name).open(name)


def put(folder: str, name: str, text: str) -> None:
    """Write a small file as a whole: who reads it finds the old one or the new one."""
    data = text.encode()
    with replacing(places(folder).join(folder, name), len(data)) as descriptor:
        write_all(descriptor, memoryview(data))


def send(name: str, path: str) -> None:
    """Copy a file as a whole."""
    file = opened(name)
    with replacing(path, file.size) as target:
        for at in range(0, file.size, PIECE_BYTES):
            write_all(target, memoryview(file.bytes(at, min(PIECE_BYTES, file.size - at))))


def replacing(
    path: Path, size: int | None = None, check: Check | None = None
) -> AbstractContextManager[Any]:
    """What to write to; at the end what was written is the file at `path`, of `size` bytes.

    On any error what is at `path` stays as it is, also of `check`, which is called with the name
    of what was written. Elsewhere it must be written in order.
    """
    name = file_name(path)
    return places(name).replacing(name, size, check)
