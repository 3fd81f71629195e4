"""A file as tensors over its memory map."""

from __future__ import annotations

import mmap
import os
import stat
from dataclasses import dataclass

import numpy as np

from ...errors import FileFormatError
from ...tensor import Bytes, Tensor
from ..paths import Path, file_name
from . import header


@dataclass(frozen=True, slots=True, eq=False)
class Checkpoint:
    """What a file holds: tensors over its memory map, in the order of its header.

    `tensors` are read-only and keep the map alive; `offsets` are their bytes
    [begin, end) counted from the end of the header; `metadata` is None where
    the file has none.
    """

    path: str
    tensors: dict[str, Tensor]
    metadata: dict[str, str] | None
    offsets: dict[str, tuple[int, int]]

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors together."""
        return sum(tensor.nbytes for tensor in self.tensors.values())


def read(path: Path) -> Checkpoint:
    """The tensors and the metadata of a safetensors file, without copying the data.

    Raises OSError where the file cannot be opened, FileFormatError (with the
    file and the tensor) where it is not exactly what the format says. The file
    must not be overwritten in place while its tensors are in use; `write`
    renames, so that it may replace a file that is being read.
    """
    name = file_name(path)
    memory = _mapped(name)
    start = header.data_start(name, memory[: header.LENGTH].tobytes(), memory.size)
    metadata, entries = header.decode(name, memory[header.LENGTH : start].tobytes())
    header.check_cover(name, entries, memory.size - start)
    tensors = {
        key: Tensor.frombuffer(memory[start + e.begin : start + e.end], e.dtype, e.shape)
        for key, e in entries.items()
    }
    return Checkpoint(name, tensors, metadata, {k: (e.begin, e.end) for k, e in entries.items()})


def _mapped(path: str) -> Bytes:
    """The file as read-only bytes; the array keeps the map, the map keeps the file."""
    # Before it is opened: a named pipe would block there.
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise FileFormatError(path, None, "it is no regular file")
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size < header.LENGTH:
            raise FileFormatError(
                path, None, f"it ends after {size} bytes, within the header's length"
            )
        return np.frombuffer(mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ), np.uint8)
