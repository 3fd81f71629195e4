"""Tensors to a file, which is written as a whole or not at all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..paths import Path, file_name
from ..temporary import replacing
from ..writing import New, Progress, announced, reserve, write_all
from . import header


def write(
    path: Path,
    tensors: Iterable[New],
    metadata: Mapping[str, str] | None = None,
    progress: Progress | None = None,
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
    total = len(first) + sum(t.nbytes for t in ordered)
    with replacing(name) as descriptor:
        reserve(descriptor, total)
        write_all(descriptor, memoryview(first))
        for tensor in ordered:
            for piece in announced(name, tensor):
                write_all(descriptor, piece.data)
                if progress is not None:
                    progress(piece.size)
    return total


def _aligned(tensors: Iterable[New]) -> list[New]:
    """Widest elements first, otherwise in the order given.

    With data that start at a multiple of eight bytes this puts every tensor at
    a multiple of its element, as the reference's order (by dtype, then name)
    does. It leaves the order of a file of the reference as it is, so that
    converting one without a rule gives the same bytes.
    """
    return sorted(tensors, key=lambda t: -max(t.dtype.bits // 8, 1))
