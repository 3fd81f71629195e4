"""Tensors stored in a file: views of them, read a bounded number of bytes at a time or mapped."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import reduce
from typing import NamedTuple

import numpy as np

from ..arrays.tensor import Bytes, Tensor
from ..dtypes.table import DType
from ..shapes.layout import Layout
from .open_files import File, OpenFile
from .pieces import MOST, filled, new_memory, parts, pieces
from .planned import Extent, Planned

__all__ = ["CONTIGUOUS", "FileType", "Stored"]

# Bytes of a file in memory at a time: casts of 1 MiB took 1.6 times as long as of 8 MiB, where
# other programs have the cores. A view that picks its elements from all over needs more.
CONTIGUOUS = 8 * 1024 * 1024
_APART = 4  # times its own bytes may lie between the first and the last one of a view in few bands

_LINE = 512  # bits of a cache line


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

    @property
    def shape(self) -> tuple[int, ...]:
        """That of the view."""
        return self.layout.shape

    @property
    def unit(self) -> int:
        """1: each row can be read by itself."""
        return 1

    @property
    def reads(self) -> tuple[Stored]:
        """Itself."""
        return (self,)

    def with_layout(self, layout: Layout) -> Stored:
        """Another view of the same bytes of the file."""
        return replace(self, layout=layout)

    def rows(self, begin: int, end: int) -> Tensor:
        """Some rows, read from the file."""
        if not self.layout.ndim:
            return self.tensor()
        return self.with_layout(self.layout.narrow(0, begin, end - begin, 1)).tensor()

    def pieces(self, most: int = MOST) -> Iterator[Bytes]:
        """The packed elements in row-major order.

        Raises FileFormatError where the file has become too short. At most `most` bytes of the
        file are in memory at a time: views that pick their elements from all over a larger tensor
        are read band by band. What is compressed is decompressed as a whole for them.
        """
        if self.layout.contiguous_bytes:
            for at in range(0, self.nbytes, CONTIGUOUS):
                yield self._read(at, min(CONTIGUOUS, self.nbytes - at))
            return
        if self.file.sequential:
            yield from pieces(self.mapped())
            return
        first = next(parts(self.layout, CONTIGUOUS))
        low, high = first.span
        near = high - low <= _APART * first.size * first.bits
        for band in parts(self.layout, CONTIGUOUS if near else most):
            yield from pieces(self._loaded(band))

    def _read(self, at: int, nbytes: int) -> Bytes:
        """Bytes of contiguous elements, from byte `at` of them on."""
        memory = new_memory(nbytes)
        self.file.read(memory.data, self.begin + self.layout.offset // 8 + at, self.name)
        return memory

    def held(self, most: int) -> int:
        """Bytes that are in memory at a time, beside pieces of them, if that may be `most`."""
        return self.file.size if self.file.sequential and not self.layout.contiguous_bytes else 0

    def mapped(self) -> Tensor:
        """A read-only view of the file's memory map.

        Of a copy where it is compressed, or elsewhere: then only its own bytes are read.
        """
        low, high = self.layout.span
        begin, end = self.begin + low // 8, self.begin + (high + 7) // 8
        memory = self.file.part(begin, end, self.name)
        return Tensor(memory, self.dtype, self.layout.at(self.layout.offset - low // 8 * 8))

    @property
    def here(self) -> bool:
        """Whether it lies in a file of this machine, so that `mapped` takes no memory."""
        return isinstance(self.file, OpenFile)

    @property
    def extent(self) -> Extent | None:
        """Where its elements lie side by side in a file, if they do."""
        if not self.layout.contiguous_bytes or not isinstance(self.file, OpenFile):
            return None
        return Extent(self.file, self.begin + self.layout.offset // 8, self.nbytes)

    def tensor(self) -> Tensor:
        """A copy in memory, in row-major order."""
        if not self.layout.contiguous_bytes:
            return filled(self.pieces(), self.dtype, self.shape)
        return Tensor.frombuffer(self._read(0, self.nbytes), self.dtype, self.shape)

    def _loaded(self, band: Layout) -> Tensor:
        """A view of the same elements in memory."""
        reads = _reads(band, self.file.call)
        layout, places = reads.gathered()
        memory = new_memory((layout.span[1] + 7) // 8).data
        for at, to in places:
            end = (to + reads.extent + 7) // 8
            self.file.read(memory[to // 8 : end], self.begin + at // 8, self.name)
        return Tensor(np.frombuffer(memory, np.uint8), self.dtype, layout)


class _Reads(NamedTuple):
    """How the elements of a view are read: `extent` bits for each index of the dims `outer`.

    `cost` is the time per element, that of one read of everything being 1.
    """

    view: Layout
    outer: tuple[int, ...]
    extent: int
    cost: float

    def gathered(self) -> tuple[Layout, list[tuple[int, int]]]:
        """The view as it lies in memory, and the bit of the file and of memory of each read.

        Both bits lie equally within their bytes, and two reads share no byte.
        """
        first = self.view.span[0]
        if not self.outer:
            offset = self.view.offset - first // 8 * 8
            layout = Layout(self.view.shape, self.view.strides, offset, self.view.bits)
            return layout, [(first, first % 8)]
        strides, extent = list(self.view.strides), self.extent
        for i in reversed(self.outer):
            step = abs(self.view.strides[i])
            apart = extent + 16 + (step - extent - 16) % _LINE
            strides[i] = apart if self.view.strides[i] > 0 else -apart
            extent += (self.view.shape[i] - 1) * apart
        places = []
        for steps, start in ((self.view.strides, first), (strides, first % 8)):
            sums = [np.arange(self.view.shape[i]) * abs(steps[i]) for i in self.outer]
            places.append(reduce(np.add.outer, sums, np.array(start)).ravel().tolist())
        back = sum((n - 1) * -s for n, s in zip(self.view.shape, strides, strict=True) if s < 0)
        layout = Layout.of(self.view.shape, strides, first % 8 + back, self.view.bits)
        return layout, list(zip(*places, strict=True))


def _reads(view: Layout, call: int) -> _Reads:
    """The cheapest way to read a view into memory of bounded size, if a call costs `call` bytes."""
    low, high = view.span
    extent, count, found = high - low, 1, []
    if extent <= view.size * view.bits:
        return _Reads(view, (), extent, 1 + 8 * call / extent)
    dims = [i for i in range(view.ndim) if view.shape[i] > 1 and view.strides[i]]
    dims.sort(key=lambda i: -abs(view.strides[i]))
    for k in range(len(dims) + 1):
        if count * extent <= 8 * MOST or k == len(dims):
            cost = count * (extent + 8 * call) / (view.size * view.bits)
            found.append(_Reads(view, tuple(dims[:k]), extent, cost))
        if k < len(dims):
            count *= view.shape[dims[k]]
            extent -= (view.shape[dims[k]] - 1) * abs(view.strides[dims[k]])
    return min(found, key=lambda reads: reads.cost)
