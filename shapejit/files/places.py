"""File systems: local files, and remote ones named by a URL, behind one interface.

Local files are read and written by their paths. Only names with `://` go through fsspec, which
`files.remote` alone imports. Names of `files.in_memory` have their own file system.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
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


@dataclass(frozen=True)
class FileSystem:
    """Functions on files and folders by name: a row for this machine, for URLs, and for memory.

    `open` opens a file for reading; with `follow=False` it raises OSError for a link. `replacing`
    is a context with the target for a new file, which gets this name at the end. `remove` removes a
    file, if it is there, `fresh` forgets cached listings, so that files of other processes are
    seen. `is_folder` and `exists` tell whether there is a folder, or anything, of a name. `listed`
    are the files and folders in a folder; it raises OSError if that cannot be listed. `files` are
    those in a folder and its subfolders by relative name, without hidden folders; it raises
    FileFormatError for what is no regular file, or leads out of the folder.

    `join` names a file in a folder, `inside` the one at a location in it for a tensor, and raises
    FileFormatError if that is outside. `parent` is the folder of a file (empty for the current
    one), `base` the last component of a name, `real` the canonical name of a folder, `relative` the
    name of a file relative to a folder. `in_order`: files must be written in order.
    """

    open: Callable[..., File]
    replacing: Callable[[str, int | None, Check | None], AbstractContextManager[Any]]
    remove: Callable[[str], None]
    is_folder: Callable[[str], bool]
    exists: Callable[[str], bool]
    listed: Callable[[str], list[str]]
    files: Callable[[str], dict[str, str]]
    join: Callable[[str, str], str]
    parent: Callable[[str], str]
    base: Callable[[str], str]
    inside: Callable[[str, str, str | None], str]
    real: Callable[[str], str]
    relative: Callable[[str, str], str]
    fresh: Callable[[str], None] = lambda _: None
    in_order: bool = False


def _remove(name: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(name)


def _files(folder: str) -> dict[str, str]:
    made = {name: paths.inside(folder, name, None) for name in paths.files_in(folder, False)}
    for name, path in made.items():
        if not os.path.isfile(path):
            raise FileFormatError(os.path.join(folder, name), None, "it is not a regular file")
    return made


HERE = FileSystem(
    open=OpenFile,
    replacing=temporary.replacing,
    remove=_remove,
    is_folder=os.path.isdir,
    exists=os.path.lexists,
    listed=os.listdir,
    files=_files,
    join=os.path.join,
    parent=os.path.dirname,
    base=os.path.basename,
    inside=paths.inside,
    real=os.path.realpath,
    relative=os.path.relpath,
)


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
        return HERE
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
