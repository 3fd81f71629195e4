"""A file as tensors: over its memory map, or to be read from the file."""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from ...errors import FileFormatError
from ...layout import Layout
from ...tensor import Bytes, Tensor
from ..paths import Path, file_name
from ..stored import OpenFile, Stored
from . import header, members
from .entry import Entry


class _Mapped(Mapping[str, Tensor]):
    """The tensors of the entries, each made when it is asked for: a file may have a million."""

    def __init__(self, memory: Bytes, entries: Mapping[str, Entry]) -> None:
        self._memory = memory
        self._entries = entries

    def __getitem__(self, name: str) -> Tensor:
        kind, shape, begin, end = self._entries[name]
        return Tensor.frombuffer(self._memory[begin:end], kind, shape)

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


@dataclass(frozen=True, slots=True, eq=False)
class Checkpoint:
    """What a file holds, in the order of its header.

    `tensors` are read-only views of its memory map, which they keep alive;
    `entries` say of each its dtype, its shape and its bytes [begin, end) counted
    from the end of the header; `metadata` is None where the file has none.
    """

    path: str
    tensors: Mapping[str, Tensor]
    metadata: dict[str, str] | None
    entries: Mapping[str, Entry]
    file: OpenFile
    start: int

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors together."""
        return self.file.size - self.start

    def stored(self, name: str) -> Stored:
        """A tensor to be read from the file, which raises an error if it has been truncated."""
        entry = self.entries[name]
        layout = Layout.row_major(entry.shape, entry.dtype.bits)
        return Stored(self.file, name, self.start + entry.begin, entry.dtype, layout)


def read(path: Path) -> Checkpoint:
    """The tensors and the metadata of a safetensors file, without copying the data.

    Raises OSError where the file cannot be opened, FileFormatError (with the
    file and the tensor) where it is not exactly what the format says. The file
    must not be overwritten or truncated in place while its mapped tensors are in
    use; `write` renames, so that it may replace a file that is being read.
    """
    name = file_name(path)
    file = OpenFile(name)
    if file.size < header.LENGTH:
        reason = f"it ends after {file.size} bytes, within the header's length"
        raise FileFormatError(name, None, reason)
    start = header.data_start(name, _bytes(file, 0, header.LENGTH), file.size)
    raw = _bytes(file, header.LENGTH, start - header.LENGTH)
    metadata, entries = members.decode(name, raw)
    header.check_cover(name, entries, file.size - start)
    try:
        memory = mmap.mmap(file.descriptor, file.size, access=mmap.ACCESS_READ)
    except ValueError:
        raise FileFormatError(name, None, "it was truncated while it was read") from None
    tensors = _Mapped(np.frombuffer(memory, np.uint8)[start:], entries)
    return Checkpoint(name, tensors, metadata, entries, file, start)


def _bytes(file: OpenFile, at: int, count: int) -> bytearray:
    memory = bytearray(count)
    file.read(memoryview(memory), at, None)
    return memory
