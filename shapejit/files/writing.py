"""Tensors that are to be written, and their bytes on the way to a file."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from math import prod
from typing import NamedTuple

from ..dtypes import DType
from ..errors import FileFormatError
from ..tensor import Bytes, Tensor
from .pieces import Scratch, pieces
from .stored import Extent

__all__ = ["New", "Progress", "announced", "reserve", "write_all"]

Progress = Callable[[int], object]


class New(NamedTuple):
    """A tensor to be written: what the file says of it, and where its data come from.

    `data` is called once, when the tensor's turn comes. It yields the packed
    elements in row-major order, piece by piece. `extent` says where a file has the same
    bytes already, if one has them.
    """

    name: str
    dtype: DType
    shape: tuple[int, ...]
    data: Callable[[], Iterable[Bytes]]
    extent: Extent | None = None

    @staticmethod
    def of(name: str, tensor: Tensor) -> New:
        """A Tensor in memory, contiguous or not."""
        return New(name, tensor.dtype, tensor.shape, lambda: pieces(tensor, Scratch()))

    @property
    def nbytes(self) -> int:
        """Bytes of the packed elements."""
        return self.dtype.nbytes(prod(self.shape))


def announced(path: str, tensor: New) -> Iterator[Bytes]:
    """The pieces of its data; FileFormatError at the end if they have another size than said."""
    written = 0
    for piece in tensor.data():
        written += piece.size
        yield piece
    if written != tensor.nbytes:
        reason = f"announced as {tensor.nbytes} bytes, its data have {written}"
        raise FileFormatError(path, tensor.name, reason)


def reserve(descriptor: int, size: int) -> None:
    """Take the disk space at once: a full disk shows before the work, not after it."""
    if size and hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, 0, size)


def write_all(descriptor: int, data: memoryview) -> None:
    """Write all of it, in as many calls as that takes."""
    while data:
        data = data[os.write(descriptor, data) :]
