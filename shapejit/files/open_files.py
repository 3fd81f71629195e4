"""Open files: read by position, or memory-mapped.

Where another program truncates a mapped file, the next access to the map ends
the process with SIGBUS. A read that finds the file too short raises an error.
"""

from __future__ import annotations

import mmap
import os
from weakref import WeakValueDictionary, finalize

import numpy as np

from ..arrays.tensor import Bytes
from ..errors import FileFormatError
from ..runtime.system import drop_pages, read_at
from .paths import open_regular

__all__ = ["CHANGED", "File", "OpenFile", "Window", "release"]

CHANGED = "it was changed while it was read"

# One map per file, however many open it: each holds a descriptor. The key distinguishes a file
# that was changed from the one that was mapped.
_maps = WeakValueDictionary[tuple[int, int, int, int], mmap.mmap]()
_WINDOW = 1 << 16  # bytes of headers and the like that are read at a time


class File:
    """Where the bytes of tensors are: a file, here or elsewhere, or what is compressed in one.

    Reading at another place than the last one is slow if it is `sequential`. `call` are the
    bytes that are read in the time that a call to `read` costs.
    """

    path: str
    size: int
    sequential = False
    call = 4096

    @property
    def version(self) -> str:
        """Changes with the bytes, on all hosts alike; empty where that is not known."""
        return ""

    def read(self, memory: memoryview, at: int, tensor: str | None) -> None:
        """Fill `memory` from byte `at`.

        FileFormatError (with `tensor`) if the file ends before, or was changed meanwhile.
        """
        raise NotImplementedError

    def part(self, begin: int, end: int, tensor: str | None) -> Bytes:
        """The bytes [begin, end), read-only: of the file's memory map, or in memory of their own.

        What is compressed is decompressed.
        """
        raise NotImplementedError

    def bytes(self, at: int, count: int, tensor: str | None = None) -> bytearray:
        """`count` bytes from byte `at`."""
        memory = bytearray(count)
        self.read(memoryview(memory), at, tensor)
        return memory


class Window:
    """The bytes of a file, which are asked for nearly in order: 64 KiB are read at a time."""

    def __init__(self, file: File) -> None:
        self._file, self._raw, self._start = file, bytearray(), 0

    def take(self, at: int, count: int) -> bytearray:
        """`count` bytes from byte `at`."""
        if not self._start <= at <= at + count <= self._start + len(self._raw):
            size = min(max(count, _WINDOW), self._file.size - at)
            self._raw, self._start = self._file.bytes(at, size), at
        return self._raw[at - self._start : at - self._start + count]


class OpenFile(File):
    """A regular file, open as long as this object lives; `size` is its size when opened.

    `name` and `tensor` are what errors call it, if that is not its path.
    """

    def __init__(
        self, path: str, name: str | None = None, tensor: str | None = None, *, follow: bool = True
    ) -> None:
        self.path = name or path
        self.descriptor = open_regular(path, self.path, tensor, follow=follow)
        finalize(self, os.close, self.descriptor)
        self._state = self._state_now()
        self.size = self._state[2]
        self._memory: Bytes | None = None

    @property
    def version(self) -> str:
        """The size and the time of the last change; file servers keep fewer digits of it."""
        *_, size, time = self._state_now()
        return f"{size} bytes of {time // 10**6} ms"

    def _state_now(self) -> tuple[int, int, int, int]:
        status = os.fstat(self.descriptor)
        return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns

    def check(self, tensor: str | None) -> None:
        """FileFormatError where the file is no longer as it was when it was opened."""
        state = self._state_now()
        if state != self._state:
            shorter = f"the file was truncated to {state[2]} bytes while it was read"
            raise FileFormatError(self.path, tensor, shorter if state[2] < self.size else CHANGED)

    def read(self, memory: memoryview, at: int, tensor: str | None) -> None:
        """Fill `memory` from byte `at`."""
        while memory:
            try:
                count = read_at(self.descriptor, memory, at)
            except OSError as fault:
                raise OSError(fault.errno, fault.strerror, self.path) from None
            if count == 0:
                break
            memory, at = memory[count:], at + count
        self.check(tensor)
        if memory:
            raise FileFormatError(self.path, tensor, f"it ends after {self.size} bytes")

    def part(self, begin: int, end: int, tensor: str | None) -> Bytes:
        """Bytes of the file's memory map, which is made at the first call."""
        if self._memory is None and self.size == 0:
            self._memory = np.frombuffer(b"", np.uint8)
        if self._memory is None:
            memory = _maps.get(self._state)
            if memory is None:
                try:
                    memory = mmap.mmap(self.descriptor, self.size, access=mmap.ACCESS_READ)
                except ValueError:
                    reason = "it was truncated while it was read"
                    raise FileFormatError(self.path, None, reason) from None
                _maps[self._state] = memory
            self._memory = np.frombuffer(memory, np.uint8)
        return self._memory[begin:end]


def release() -> None:
    """Give back the memory of all maps of files: what is used again is read again."""
    for memory in [*_maps.values()]:
        drop_pages(memory)
