"""Where files are: on this machine, or elsewhere, named by a URL. The one seam between both.

What is on this machine is read as it always was, by its path; only names with `://`
go through fsspec, which `files.remote` knows and nobody else.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import Protocol

from . import paths
from .paths import Path, file_name
from .stored import File, OpenFile
from .urls import is_url

__all__ = ["Places", "opened", "places"]


class Places(Protocol):
    """What readers ask of files and of folders by their names."""

    def open(self, name: str) -> File:
        """A file, to be read."""

    def is_folder(self, name: str) -> bool:
        """Whether there is a folder of this name."""

    def exists(self, name: str) -> bool:
        """Whether there is a file or a folder of this name."""

    def is_named(self, name: str) -> bool:
        """Whether it exists, or is a link to what does not."""

    def names(self, folder: str) -> list[str]:
        """The files and folders in a folder; none where nobody tells."""

    def join(self, folder: str, name: str) -> str:
        """The name of a file in a folder."""

    def parent(self, name: str) -> str:
        """The folder of a file."""

    def base(self, name: str) -> str:
        """The last component of a name."""

    def inside(self, folder: str, location: str, tensor: str | None) -> str:
        """The file at `location`, relative to a folder; FileFormatError if it is not in it."""


class _Here:
    """This machine."""

    open = OpenFile
    is_folder = staticmethod(os.path.isdir)
    exists = staticmethod(os.path.exists)
    is_named = staticmethod(os.path.lexists)
    names = staticmethod(os.listdir)
    join = staticmethod(os.path.join)
    inside = staticmethod(paths.inside)

    def parent(self, name: str) -> str:
        """The folder of a file; empty for the current one."""
        return os.path.dirname(name)

    def base(self, name: str) -> str:
        """The last component of a path."""
        return os.path.basename(name)


_HERE = _Here()


def places(name: Path) -> Places:
    """The place that a name is of.

    Raises ImportError for URLs without fsspec.

    >>> places("folder").join("folder", "a.npz"), places("s3://b").join("s3://b", "a.npz")
    ('folder/a.npz', 's3://b/a.npz')
    """
    if not is_url(file_name(name)):
        return _HERE
    made: Places = import_module(".remote", __package__).ELSEWHERE
    return made


def opened(name: str) -> File:
    """A file, to be read."""
    return places(name).open(name)
