"""Write tensors to a file, which appears as a whole or not at all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

from .. import places
from ..paths import Path, file_name
from ..temporary import Check
from ..writing import New, Progress
from . import header


class Placed(NamedTuple):
    """A file to write: its header, the start of each tensor, and its size in bytes."""

    header: bytes
    starts: dict[str, int]
    size: int


def write(
    path: Path,
    tensors: Iterable[New],
    metadata: Mapping[str, str] | None = None,
    progress: Progress | None = None,
    check: Check | None = None,
) -> int:
    """Write a safetensors file atomically; return its size in bytes.

    Everything is checked first, including the free space of the disk. On any error `path` is
    unchanged (see `files.places.replacing`, also for `check`). `progress` is called with the number
    of bytes after each piece.

    Raises FileFormatError (with the tensor) for tensors that the format cannot hold, OSError (with
    `path`) for errors of the disk.
    """
    name, given = file_name(path), list(tensors)
    where = placed(name, given, metadata)
    with writing(name, where, given, progress, check):
        pass
    return where.size


def writing(
    path: str,
    where: Placed,
    tensors: Iterable[New],
    progress: Progress | None = None,
    check: Check | None = None,
) -> AbstractContextManager[None]:
    """As `write`, for a file whose header is known already (see `files.places.writing`)."""
    given = [(tensor, where.starts[tensor.name]) for tensor in tensors]
    # Otherwise in the given order: tensors that share a source are computed once.
    if places.places(path).in_order:
        given.sort(key=lambda each: each[1])
    return places.writing(path, where.size, where.header, given, progress, check)


def placed(path: str, tensors: Sequence[Any], metadata: Mapping[str, str] | None) -> Placed:
    """The places of tensors, each with a name, dtype, shape and size, in a file.

    Raises FileFormatError (with the tensor) for tensors that the format cannot hold.
    """
    ordered = _aligned(tensors)
    first = header.encode(path, ((t.name, t.dtype, t.shape) for t in ordered), metadata)
    starts, total = {}, len(first)
    for tensor in ordered:
        starts[tensor.name] = total
        total += tensor.nbytes
    return Placed(first, starts, total)


def _aligned(tensors: Iterable[Any]) -> list[Any]:
    """The tensors with the widest elements first, otherwise in the given order.

    Data start at a multiple of eight bytes, so this aligns every tensor to its elements, as the
    reference's order (by dtype, then name) does. Files of the reference keep their order, so that a
    conversion without rules produces the same bytes.
    """
    return sorted(tensors, key=lambda t: -max(t.dtype.bits // 8, 1))
