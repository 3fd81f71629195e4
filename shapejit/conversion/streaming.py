"""Planned tensors compared with others, bit by bit, in pieces: neither is in memory as a whole."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import prod

import numpy as np

from ..arrays.tensor import Bytes, asarray
from ..errors import FileFormatError
from ..files.checkpoint import Checkpoint
from ..files.pieces import MOST, Scratch
from ..files.places import places
from ..operations import equality
from .changes import Change, Source

__all__ = ["check_written", "first_difference"]


def first_difference(x: Source, y: Source, most: int = MOST) -> tuple[int, ...] | None:
    """The index of the first element of two of one dtype and shape that has other bits.

    `most` are the bytes of each that should be in memory at a time.
    """
    shape, bits, at = x.layout.shape, x.dtype.bits, 0
    for p, q in _paired(*(t.pieces(Scratch(most), Scratch(most)) for t in (x, y))):
        found = equality.first_difference(asarray(p), asarray(q))
        if found is not None:
            other, first = int(p[found] ^ q[found]), 8 * (at + found[0])
            other &= (1 << prod(shape) * bits - first) - 1  # what is padded says nothing
            if other:
                element = (first + (other & -other).bit_length() - 1) // bits
                return tuple(map(int, np.unravel_index(element, shape)))
        at += p.size
    return None


def _paired(x: Iterator[Bytes], y: Iterator[Bytes]) -> Iterator[tuple[Bytes, Bytes]]:
    """The bytes of two, in pieces that are as long as each other."""
    empty = np.empty(0, np.uint8)
    p, q = next(x, empty), next(y, empty)
    while p.size and q.size:
        count = min(p.size, q.size)
        yield p[:count], q[:count]
        p, q = p[count:], q[count:]
        p, q = p if p.size else next(x, empty), q if q.size else next(y, empty)


def check_written(changes: Iterable[Change], found: Checkpoint, path: str, most: int) -> None:
    """FileFormatError where a file has other bytes than those that are planned, made once more.

    `path` is what errors call the destination.
    """
    for change in changes:
        name = change.name if change.name in found.members else next(iter(found.members))
        stored = found.members[name]
        alike = (stored.dtype, stored.layout.shape) == (change.dtype, change.shape)
        if not alike or first_difference(change, stored, most) is not None:
            where = places(path).base(found.path)
            reason = f"its bytes in {where} are not those that were planned"
            raise FileFormatError(path, change.name, f"{reason}: nothing was published")
