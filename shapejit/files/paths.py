"""Paths: checked names of files, links that stay in a folder, and files opened for reading."""

from __future__ import annotations

import os
import re
import stat
from contextlib import suppress

from ..errors import FileFormatError, quoted
from ..runtime.system import open_file
from .urls import is_url

Path = str | os.PathLike[str]

# A snapshot in Hugging Face's hub cache, or a folder in it; groups: the cache, the repository.
_SNAPSHOT = re.compile(r"(/.*?)/([a-z]+--[^/]+)/snapshots/[^/]+(?:/.*)?", re.DOTALL)


def file_name(path: Path) -> str:
    """The path as text. Raises FileFormatError for text that cannot name a file.

    >>> file_name("a.safetensors")
    'a.safetensors'
    """
    name = os.fspath(path)
    try:
        possible = bool(name) and b"\0" not in os.fsencode(name)
    except UnicodeEncodeError:
        possible = False
    if not possible:
        raise FileFormatError(name, None, "no file can have this name")
    return name


def absolute(path: Path) -> str:
    """The absolute path, for processes with other working folders; URLs are returned unchanged.

    >>> absolute("/a/../b"), absolute("s3://bucket/a")
    ('/b', 's3://bucket/a')
    """
    name = file_name(path)
    return name if is_url(name) else os.path.abspath(name)


def open_regular(path: str, *, follow: bool = True) -> int:
    """A descriptor of the regular file at `path`, open for reading.

    Raises OSError if it cannot be opened (also for links unless `follow`), FileFormatError if it is
    no regular file.
    """
    with suppress(BlockingIOError):  # a named pipe
        descriptor = open_file(path, os.O_RDONLY, follow=follow)
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            return descriptor
        os.close(descriptor)
    raise FileFormatError(path, None, "it is not a regular file")


def inside(folder: str, location: str, tensor: str | None) -> str:
    """The file that `location` names, relative to the model's folder, all links followed.

    Without links it is named as the folder is given, for errors.
    `tensor` is used in errors. Raises FileFormatError if the file is outside the folder: an
    absolute path, `..`, or a symbolic link. Snapshots in Hugging Face's hub cache are accepted:
    they consist of links to `blobs` of their repository, or of all repositories.
    """
    path = os.path.join(folder, location)
    if not location or "\0" in location:
        raise FileFormatError(path, tensor, f"no file can have the name {quoted(location)}")
    if os.path.isabs(location):
        raise FileFormatError(path, tensor, "its location must be relative to the model's folder")
    home = os.path.realpath(folder or os.curdir)
    found = os.path.realpath(os.path.join(home, location))
    leaves = os.path.normpath(location).split(os.sep)[0] == os.pardir
    if leaves or not any(found.startswith(os.path.join(each, "")) for each in _homes(home)):
        raise FileFormatError(path, tensor, "its location leads out of the model's folder")
    given = os.path.join(folder, os.path.normpath(location))
    return given if os.path.abspath(given) == found else found


def _homes(folder: str) -> list[str]:
    """The folders that may hold the files of a model's folder."""
    found = _SNAPSHOT.fullmatch(folder)
    if found is None:
        return [folder]
    cache, repository = found.groups()
    return [folder, os.path.join(cache, repository, "blobs"), os.path.join(cache, "blobs")]


def files_in(folder: str, hidden: bool = True) -> dict[str, str]:
    """The files and links in a folder and its subfolders by name; `hidden` includes hidden ones."""
    made = {}
    for place, folders, files in os.walk(folder):
        if not hidden:
            folders[:] = [name for name in folders if not name.startswith(".")]
        linked = [name for name in folders if os.path.islink(os.path.join(place, name))]
        for file in (*files, *linked):
            path = os.path.join(place, file)
            made[os.path.relpath(path, folder)] = path
    return made
