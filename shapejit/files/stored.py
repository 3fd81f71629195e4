"""Tensors stored in a file: views of them, read a bounded number of bytes at a time or mapped."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from ..arrays.tensor import Bytes, Tensor
from ..dtypes.table import DType
from ..shapes.layout import Layout
from ..shapes.request import Ints
from .open_files import File, OpenFile
from .pieces import filled, new_memory, parts, pieces
from .planned import Planned

# Bytes of a file in memory at a time: casts of 1 MiB took 1.6 times as long as of 8 MiB, where
# other programs have the cores. A view that picks its elements from all over needs more.
READ_BYTES = 8 * 1024 * 1024


class FileType(NamedTuple):
    """A file's own name of an element type."""

    name: str


@dataclass(frozen=True, slots=True, eq=False)
class Stored(Planned):
    """A view of a tensor in a file; its layout counts bits from byte `begin` of the file.

    It has the attributes that `schemes.detect` reads.
    """

    file: File
    name: str
    begin: int
    dtype: DType
    layout: Layout
    tensor_type: FileType | None = None

    @staticmethod
    def row_major(file: File, name: str, begin: int, kind: DType, shape: Ints) -> Stored:
        """A whole tensor, from byte `begin` of a file."""
        return Stored(file, name, begin, kind, Layout.row_major(shape, kind.bits))

    @property
    def shape(self) -> Ints:
        """The shape of the view."""
        return self.layout.shape

    @property
    def reads(self) -> tuple[Stored]:
        """The tensor itself."""
        return (self,)

    def with_layout(self, layout: Layout) -> Stored:
        """Another view of the same bytes of the file."""
        return replace(self, layout=layout)

    def rows(self, begin: int, end: int) -> Tensor:
        """Some rows, read from the file."""
        if not self.layout.ndim:
            return self.tensor()
        return self.with_layout(self.layout.narrow(0, begin, end - begin, 1)).tensor()

    def pieces(self) -> Iterator[Bytes]:
        """The packed elements in row-major order.

        Raises FileFormatError if the file has become too short. A view that gathers elements from
        the whole tensor is read as a whole, and so are compressed data.
        """
        if self.file.compressed:
            yield from pieces(self.mapped())
        elif self.layout.contiguous_bytes:
            for at in range(0, self.nbytes, READ_BYTES):
                yield self._read(at, min(READ_BYTES, self.nbytes - at))
        else:
            for band in parts(self.layout, READ_BYTES, near=True):
                yield from pieces(self._loaded(band))

    def _read(self, at: int, nbytes: int) -> Bytes:
        """Bytes of contiguous elements, from byte `at` of them on."""
        memory = new_memory(nbytes)
        self.file.read(memory.data, self.first + at, self.name)
        return memory

    @property
    def peak_bytes(self) -> int:
        """Bytes that are in memory at a time, beside pieces of them."""
        if self.layout.contiguous_bytes and not self.file.compressed:
            return 0
        low, high = next(parts(self.layout, READ_BYTES, near=True)).span
        return self.file.size if self.file.compressed else (high - low) // 8

    def mapped(self) -> Tensor:
        """A read-only view of the file's memory map.

        If the file is compressed or remote, a view of a copy, for which only its own bytes are
        read.
        """
        low, high = self.layout.span
        begin, end = self.begin + low // 8, self.begin + (high + 7) // 8
        memory = self.file.part(begin, end, self.name)
        return Tensor(memory, self.dtype, self.layout.at(self.layout.offset - low // 8 * 8))

    @property
    def here(self) -> bool:
        """Whether it is in a local file, so that `mapped` takes no memory."""
        return isinstance(self.file, OpenFile)

    @property
    def extent(self) -> Stored | None:
        """The tensor itself, if its elements are contiguous in a local file."""
        return self if self.here and self.layout.contiguous_bytes else None

    @property
    def first(self) -> int:
        """The byte of the file where contiguous elements begin."""
        return self.begin + self.layout.offset // 8

    def tensor(self) -> Tensor:
        """A copy in memory, in row-major order."""
        if not self.layout.contiguous_bytes:
            return filled(self.pieces(), self.dtype, self.shape)
        return Tensor.frombuffer(self._read(0, self.nbytes), self.dtype, self.shape)

    def _loaded(self, band: Layout) -> Tensor:
        """A view of the same elements in memory, with all bytes between them."""
        low, high = band.span
        memory = new_memory((high + 7) // 8 - low // 8)
        self.file.read(memory.data, self.begin + low // 8, self.name)
        return Tensor(memory, self.dtype, band.at(band.offset - low // 8 * 8))
