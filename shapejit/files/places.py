"""File systems: local files, and remote ones named by a URL, behind one interface.

Local files are read and written by their paths. Only names with `://` go through fsspec, which
`files.remote` alone imports. Names of `files.in_memory` have their own file system.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from importlib import import_module
from typing import Any

from ..errors import FileFormatError
from . import paths, temporary
from .open_files import File, OpenFile
from .paths import Path, file_name
from .pieces import PIECE_BYTES
from .temporary import Check
from .urls import is_url
from .writing import NewFile, Progress, write_all, written


class FileSystem:
    """Operations on files and folders by name: those of this machine. Subclasses are remote."""

    in_order = False  # whether files must be written in order

    def open(self, name: str, *, follow: bool = True) -> File:
        """Open a file for reading. Raises OSError for a link unless `follow`."""
        return OpenFile(name, follow=follow)

    def replacing(
        self, name: str, size: int | None = None, check: Check | None = None
    ) -> AbstractContextManager[Any]:
        """A context with the target for a new file, which gets this name at the end."""
        return temporary.replacing(name, size, check)

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""
        with suppress(FileNotFoundError):
            os.unlink(name)

    def fresh(self, name: str) -> None:
        """Forget cached listings, to see files of other processes; local ones are never cached."""

    def is_folder(self, name: str) -> bool:
        """Whether there is a folder of this name."""
        return os.path.isdir(name)

    def exists(self, name: str) -> bool:
        """Whether there is a file, a folder or a link of this name."""
        return os.path.lexists(name)

    def listed(self, folder: str) -> list[str]:
        """The files and folders in a folder. Raises OSError if it cannot be listed."""
        return os.listdir(folder)

    def files(self, folder: str) -> dict[str, str]:
        """The files in a folder and its subfolders by relative name, without hidden folders.

        Raises FileFormatError for entries that are no regular files, or links out of the folder.
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
        """The file at `location` in a folder. Raises FileFormatError if it is outside."""
        return paths.inside(folder, location, tensor)

    def real(self, name: str) -> str:
        """The canonical name of a folder."""
        return os.path.realpath(name)

    def relative(self, name: str, folder: str) -> str:
        """The name of a file relative to a folder."""
        return os.path.relpath(name, folder)


_HERE = FileSystem()


def file_system(name: Path) -> FileSystem:
    """The file system of a name.

    Raises ImportError for URLs without fsspec.

    >>> file_system("folder").join("folder", "a.npz"), file_system("s3://b").join("s3://b", "a.npz")
    ('folder/a.npz', 's3://b/a.npz')
    """
    in_memory: FileSystem | None = getattr(name, "file_system", None)
    if in_memory is not None:
        return in_memory
    if not is_url(file_name(name)):
        return _HERE
    made: FileSystem = import_module(".remote", __package__).ELSEWHERE
    return made


def opened(name: str) -> File:
    """Open a file for reading."""
    return file_system(name).open(name)


def small_file(name: str, most: int) -> bytes:
    """The bytes of a small file. Raises FileFormatError for more than `most` bytes."""
    file = opened(name)
    if file.size > most:
        raise FileFormatError(name, None, f"it has {file.size} bytes, more than {most}")
    return bytes(file.bytes(0, file.size))


@contextmanager
def writing(
    path: str, file: NewFile, progress: Progress | None = None, check: Check | None = None
) -> Iterator[None]:
    """A context that writes a file: its head, and each tensor from a byte on; zeros between them.

    When the body of `with` begins, all data have been computed. At its end, which may be on another
    thread, the last of them are written, and the file is synced and renamed.
    """
    if file_system(path).in_order:
        file = file._replace(tensors=sorted(file.tensors, key=lambda each: each[1]))
    with replacing(path, file.size, check) as target, written(target, path, file, progress):
        yield


def put(folder: str, name: str, text: str) -> None:
    """Write a small file atomically: readers find the old or the new one."""
    data = text.encode()
    with replacing(file_system(folder).join(folder, name), len(data)) as descriptor:
        write_all(descriptor, memoryview(data))


def send(name: str, path: str) -> None:
    """Copy a file; it appears as a whole."""
    file = opened(name)
    with replacing(path, file.size) as target:
        for at in range(0, file.size, PIECE_BYTES):
            write_all(target, memoryview(file.bytes(at, min(PIECE_BYTES, file.size - at))))


def replacing(
    path: Path, size: int | None = None, check: Check | None = None
) -> AbstractContextManager[Any]:
    """A context with the target to write to, which becomes the file at `path` of `size` bytes.

    On any error, also of `check`, which is called with the name of the written file, `path` is
    unchanged. Remote files must be written in order.
    """
    name = file_name(path)
    return file_system(name).replacing(name, size, check)
