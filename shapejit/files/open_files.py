"""Open files: read by position, or memory-mapped.

If another program truncates a mapped file, the next access to the map ends the process with SIGBUS.
A read of a file that is too short raises an error.
"""

from __future__ import annotations

import io
import mmap
import os
from functools import cached_property
from typing import Any
from weakref import WeakValueDictionary, finalize

import numpy as np

from ..arrays.tensor import Bytes
from ..errors import FileFormatError
from ..runtime.system import drop_pages, read_at
from .paths import open_regular

CHANGED = "it was changed while it was read"

# One map per file, however often it is opened: each map holds a descriptor. The key distinguishes a
# changed file from the one that was mapped.
_maps = WeakValueDictionary[tuple[int, int, int, int], mmap.mmap]()
_HEAD_BYTES = 512  # bytes by which a format is recognised


class File:
    """The source of the bytes of tensors: a local or remote file, or a compressed member of one.

    `compressed` data are only available as a whole.
    """

    path: str
    size: int
    compressed = False

    @property
    def version(self) -> str:
        """A text that changes with the content, the same on all hosts; empty if unknown."""
        return ""

    def read(self, memory: memoryview, at: int, tensor: str | None) -> None:
        """Fill `memory` from byte `at`.

        Raises FileFormatError (with `tensor`) if the file is too short, or has changed.
        """
        if at + len(memory) > self.size:
            raise FileFormatError(self.path, tensor, f"it ends after {self.size} bytes")
        memory[:] = self.part(at, at + len(memory), tensor).data

    def part(self, begin: int, end: int, tensor: str | None) -> Bytes:
        """The bytes [begin, end), read-only: of the file's memory map, or in memory of their own.

        Compressed bytes are decompressed.
        """
        raise NotImplementedError

    @property
    def head(self) -> bytearray:
        """The first bytes, by which formats are recognised."""
        return self.bytes(0, min(self.size, _HEAD_BYTES))

    def bytes(self, at: int, count: int) -> bytearray:
        """`count` bytes from byte `at`."""
        memory = bytearray(count)
        self.read(memoryview(memory), at, None)
        return memory


class _Raw(io.RawIOBase):
    """A File as a Python file."""

    def __init__(self, file: File) -> None:
        self._file, self._at = file, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        offset += {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._file.size}[whence]
        if offset < 0:
            # An OSError, which zipfile expects, and a ValueError, as other faults of a ZIP.
            raise io.UnsupportedOperation(f"byte {offset} is before the file")
        self._at = offset
        return offset

    def tell(self) -> int:
        return self._at

    def readinto(self, memory: Any) -> int:
        count = min(len(memory), max(self._file.size - self._at, 0))
        self._file.read(memoryview(memory)[:count], self._at, None)
        self._at += count
        return count


def stream(file: File, window: int = 1 << 16) -> io.BufferedReader:
    """A File as a Python file that reads `window` bytes at a time."""
    return io.BufferedReader(_Raw(file), window)


class OpenFile(File):
    """A regular file, open as long as this object lives; `size` is its size when opened."""

    def __init__(self, path: str, *, follow: bool = True) -> None:
        self.path = path
        self.descriptor = open_regular(path, follow=follow)
        finalize(self, os.close, self.descriptor)
        self._state = self._state_now()
        self.size = self._state[2]

    @property
    def version(self) -> str:
        """The size and the modification time, rounded because file servers store fewer digits."""
        *_, size, time = self._state_now()
        return f"{size} bytes of {time // 10**6} ms"

    def _state_now(self) -> tuple[int, int, int, int]:
        status = os.fstat(self.descriptor)
        return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns

    def check(self, tensor: str | None) -> None:
        """Raise FileFormatError if the file has changed since it was opened."""
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

    @cached_property
    def _memory(self) -> Bytes:
        """The file's memory map."""
        if self.size == 0:
            return np.frombuffer(b"", np.uint8)
        memory = _maps.get(self._state)
        if memory is None:
            try:
                memory = mmap.mmap(self.descriptor, self.size, access=mmap.ACCESS_READ)
            except ValueError:
                reason = "it was truncated while it was read"
                raise FileFormatError(self.path, None, reason) from None
            _maps[self._state] = memory
        return np.frombuffer(memory, np.uint8)

    def part(self, begin: int, end: int, tensor: str | None) -> Bytes:
        """Bytes of the file's memory map, which is created by the first call."""
        return self._memory[begin:end]


def release() -> None:
    """Release the memory of all maps of files; pages are read again on access."""
    for memory in [*_maps.values()]:
        drop_pages(memory)
