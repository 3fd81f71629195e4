"""Tensors to a file, which is written as a whole or not at all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from ..paths import Path, file_name
from ..temporary import replacing
from ..writing import New, Progress, Writer, announced, check_room, copied
from . import header

__all__ = ["write"]


def write(
    path: Path,
    tensors: Iterable[New],
    metadata: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> int:
    """Write a safetensors file in one step, seen from outside; return its size in bytes.

    Everything is checked first, also that the disk has room. On any error `path` stays
    as it was (see `files.temporary.replacing`). `progress` is called with the number of
    bytes after each piece.

    Raises FileFormatError (with the tensor) for what the format cannot hold,
    OSError (with `path`) where the disk refuses.
    """
    name, given = file_name(path), list(tensors)
    ordered = _aligned(given)
    first = header.encode(name, (t[:3] for t in ordered), metadata)
    starts, total = {}, len(first)
    for tensor in ordered:
        starts[tensor.name] = total
        total += tensor.nbytes
    with replacing(name) as descriptor:
        check_room(descriptor, total)
        with Writer(descriptor, total) as writer:
            writer.put(0, np.frombuffer(first, np.uint8))
            # In the order given: what shares a source is computed once.
            for tensor in given:
                for count in _written(name, tensor, descriptor, writer, starts[tensor.name]):
                    if progress is not None:
                        progress(count)
    return total


def _written(path: str, tensor: New, descriptor: int, writer: Writer, at: int) -> Iterator[int]:
    """Write a tensor from byte `at` on; yields numbers of bytes."""
    done = 0
    for count in (
        () if tensor.extent is None else copied(tensor.extent, tensor.name, descriptor, at)
    ):
        done += count
        yield count
    if done or not tensor.nbytes:
        return
    for piece in announced(path, tensor):
        writer.put(at + done, piece)
        done += piece.size
        yield piece.size


def _aligned(tensors: Iterable[New]) -> list[New]:
    """Widest elements first, otherwise in the order given.

    With data that start at a multiple of eight bytes this puts every tensor at
    a multiple of its element, as the reference's order (by dtype, then name)
    does. It leaves the order of a file of the reference as it is, so that
    converting one without a rule gives the same bytes.
    """
    return sorted(tensors, key=lambda t: -max(t.dtype.bits // 8, 1))
