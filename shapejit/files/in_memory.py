"""In-memory files: bytes that are read as a file, and Python file objects that are written."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from ..arrays.buffers import bytes_of
from ..arrays.tensor import Bytes, is_array
from ..errors import FileFormatError
from ..runtime.ndarrays import is_a
from .open_files import File
from .places import HERE, FileSystem
from .writing import InOrder


class SupportsWrite(Protocol):
    """A binary file object."""

    def write(self, data: Any, /) -> Any:
        """Write bytes; return how many, or None for all of them."""


class InMemory(str):
    """A name for errors of a file in memory, with its bytes or file object."""

    __slots__ = ("content",)
    content: Any

    @property
    def file_system(self) -> FileSystem:
        """The file system of such names."""
        return _IN_MEMORY


class MemoryFile(File):
    """Bytes in memory as a file; its Tensors are read-only."""

    def __init__(self, path: str, memory: Bytes) -> None:
        self.path, self.size = path, memory.size
        self._memory = memory.view()
        self._memory.flags.writeable = False

    def part(self, begin: int, end: int, tensor: str | None) -> Bytes:
        """A view of the bytes [begin, end)."""
        return self._memory[begin:end]


def _opened(name: str, *, follow: bool = True) -> File:
    """The bytes, to be read."""
    content = _content(name)
    if not is_a(content, np.ndarray):
        raise FileFormatError(name, None, "it is open for writing only")
    return MemoryFile(name, content)


def _not_inside(folder: str, location: str, tensor: str | None) -> str:
    """Raise FileFormatError: bytes are in no folder."""
    reason = "its data are in another file, which bytes in memory cannot name"
    raise FileFormatError(folder, tensor, reason)


# That of names in memory, which knows only their own content: joined ones name nothing.
_IN_MEMORY = replace(
    HERE,
    open=_opened,
    replacing=lambda name, *_: nullcontext(InOrder(_content(name).write)),
    join=lambda folder, name: InMemory(name),
    is_folder=lambda _: False,
    exists=lambda _: False,
    inside=_not_inside,
    in_order=True,
)


def _content(name: str) -> Any:
    content = getattr(name, "content", None)
    if content is None:
        reason = "its data would be in another file, which only a file with a path can have"
        raise FileFormatError(name, None, reason)
    return content


def of_bytes(content: Any, suffix: str) -> InMemory:
    """The name of bytes that are read as a file of this suffix, if given; nothing is copied.

    Raises FormatError for a buffer that is not contiguous, TypeError for objects without one.
    """
    try:
        memory = bytes_of(content if is_array(content) else memoryview(content))
    except TypeError:
        what = type(content).__name__
        raise TypeError(f"a file is a path or an object with a buffer, not {what}") from None
    return _named(content, memory, suffix)


def of_file_object(file: Any, suffix: str) -> InMemory:
    """The name of a file object written as a file of this suffix. Raises TypeError for others."""
    if not callable(getattr(file, "write", None)):
        what = type(file).__name__
        raise TypeError(f"a file is written to a path or a binary file object, not {what}")
    return _named(file, file, suffix)


def _named(given: object, content: Any, suffix: str) -> InMemory:
    made = InMemory(f"<{type(given).__name__}>{suffix}")
    made.content = content
    return made
