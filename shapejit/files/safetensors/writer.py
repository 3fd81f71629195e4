"""Tensors to a file, which is written as a whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import NamedTuple

from ...dtypes import DType
from ...errors import FileFormatError
from ...tensor import Bytes, Tensor
from ..paths import Path, file_name
from ..pieces import Scratch, pieces
from ..temporary import replacing
from . import header
from .entry import nbytes


class New(NamedTuple):
    """A tensor to be written: what the header says of it, and where its data come from.

    `data` is called once, when the tensor's turn comes. It yields the packed
    elements in row-major order, piece by piece; a piece need not be valid any
    longer when the next one is asked for.
    """

    name: str
    dtype: DType
    shape: tuple[int, ...]
    data: Callable[[], Iterable[Bytes]]

    @staticmethod
    def of(name: str, tensor: Tensor) -> New:
        """A Tensor in memory, contiguous or not."""
        return New(name, tensor.dtype, tensor.shape, lambda: pieces(tensor, Scratch()))


def write(
    path: Path,
    tensors: Iterable[New],
    metadata: dict[str, str] | None = None,
    progress: Callable[[int], object] | None = None,
) -> int:
    """Write a safetensors file in one step, seen from outside; return its size in bytes.

    Everything is checked first; the disk space is reserved before the first
    byte is written. On any error `path` stays as it was (see
    `files.temporary.replacing`). `progress` is called with the number of bytes
    after each piece.

    Raises FileFormatError (with the tensor) for what the format cannot hold,
    OSError (with `path`) where the disk refuses.
    """
    name = file_name(path)
    ordered = _aligned(tensors)
    first = header.encode(name, (t[:3] for t in ordered), metadata)
    need = [nbytes(name, t.name, t.dtype, t.shape) for t in ordered]
    total = len(first) + sum(need)
    with replacing(name) as descriptor:
        _reserve(descriptor, total)
        _write_all(descriptor, memoryview(first))
        for tensor, size in zip(ordered, need, strict=True):
            written = 0
            for piece in tensor.data():
                _write_all(descriptor, piece.data)
                written += piece.size
                if progress is not None:
                    progress(piece.size)
            if written != size:
                reason = f"announced as {size} bytes, its data have {written}"
                raise FileFormatError(name, tensor.name, reason)
    return total


def _aligned(tensors: Iterable[New]) -> list[New]:
    """Widest elements first, otherwise in the order given.

    With data that start at a multiple of eight bytes this puts every tensor at
    a multiple of its element, as the reference's order (by dtype, then name)
    does. It leaves the order of a file of the reference as it is, so that
    converting one without a rule gives the same bytes.
    """
    return sorted(tensors, key=lambda t: -max(t.dtype.bits // 8, 1))


def _reserve(descriptor: int, size: int) -> None:
    """Take the disk space at once: a full disk shows before the work, not after it."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, 0, size)


def _write_all(descriptor: int, data: memoryview) -> None:
    while data:
        data = data[os.write(descriptor, data) :]
