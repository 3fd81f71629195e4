"""Results computed twice: samples by NumPy before writing (`--proof`), all after (`--verify`).

Two tensors are compared in pieces: neither is in memory as a whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from math import prod

import numpy as np

from ..arrays.tensor import Bytes, asarray
from ..engine import patience
from ..errors import FileFormatError, FormatError, quoted
from ..files.checkpoint import Checkpoint
from ..files.open_files import release
from ..files.pieces import MOST, Scratch
from ..files.places import places
from ..operations import equality
from .changes import Change, Planned, Source
from .weights import LATEST

__all__ = ["check_written", "first_difference", "prove"]

SAMPLE = 1 << 20  # bytes that are computed twice: the first rows of larger tensors
WHOLE = 1 << 28  # bytes of a tensor that may be in memory for that

SampleKind = tuple[object, ...]


def prove(changes: Iterable[Change], most: int = MOST) -> int:
    """Compute the first rows of a tensor of each kind twice; return the number of kinds.

    Kinds differ in dtypes, schemes, formats and operations. NumPy has to compute the same bits as
    the kernels; work that NumPy does anyway (long rows), and that of the kernel of small arrays,
    has no second implementation. Writes nothing. Raises FormatError if bits differ.
    """
    smallest, sizes = dict[SampleKind, Change](), Counter[SampleKind]()
    for change in _leaves(changes):
        if change.stored is None:
            kind = _kind(change)
            sizes[kind] += change.nbytes
            smallest[kind] = min(change, smallest.get(kind, change), key=lambda c: c.nbytes)
    for kind, change in smallest.items():
        if change.shape and change.nbytes > SAMPLE:
            change = change.cut(0, max(1, SAMPLE * change.shape[0] // change.nbytes))
        if max(change.held(most), change.nbytes) > min(WHOLE, most):
            continue
        with patience.force_kernels() if sizes[kind] > SAMPLE else nullcontext():
            made = _bytes(change, most)
        with patience.force_numpy():
            wanted = _bytes(change, most)
        if made != wanted:
            raise FormatError(
                f"tensor {quoted(change.name)}: the proof failed: kernels and NumPy computed "
                f"different bits. This is a bug of shapejit, or a fault of this machine; nothing "
                f"was written"
            )
    return len(smallest)


def _leaves(changes: Iterable[Change]) -> Iterator[Change]:
    """The tensors, and those that they are computed from."""
    for change in changes:
        yield change
        if change.ops:
            yield Change.of(change.name, change.source, change.saturate)
        yield from _leaves(change.made_of)


def _kind(change: Change) -> SampleKind:
    source, done = change.source, [name for name, _ in change.ops]
    own = source.kind if isinstance(source, Planned) else ()
    return type(source), source.dtype, change.dtype, *done, *own


def _bytes(change: Change, most: int) -> bytes:
    made = b"".join(map(bytes, change.pieces(Scratch(most), Scratch(most))))
    LATEST.clear()
    release()
    return made


def first_difference(x: Source, y: Source, most: int = MOST) -> tuple[int, ...] | None:
    """The index of the first element with different bits in two tensors of one dtype and shape.

    At most about `most` bytes of each are in memory at a time.
    """
    shape, bits, at = x.layout.shape, x.dtype.bits, 0
    for p, q in _paired(*(t.pieces(Scratch(most), Scratch(most)) for t in (x, y))):
        found = equality.first_difference(asarray(p), asarray(q))
        if found is not None:
            other, first = int(p[found] ^ q[found]), 8 * (at + found[0])
            other &= (1 << prod(shape) * bits - first) - 1  # padding bits are ignored
            if other:
                element = (first + (other & -other).bit_length() - 1) // bits
                return tuple(map(int, np.unravel_index(element, shape)))
        at += p.size
    return None


def _paired(x: Iterator[Bytes], y: Iterator[Bytes]) -> Iterator[tuple[Bytes, Bytes]]:
    """The bytes of both, in pieces of equal lengths."""
    empty = np.empty(0, np.uint8)
    p, q = next(x, empty), next(y, empty)
    while p.size and q.size:
        count = min(p.size, q.size)
        yield p[:count], q[:count]
        p, q = p[count:], q[count:]
        p, q = p if p.size else next(x, empty), q if q.size else next(y, empty)


def check_written(changes: Iterable[Change], found: Checkpoint, path: str, most: int) -> None:
    """Compute all bytes again; raise FileFormatError if a file has other ones.

    `path` is the destination's name in errors.
    """
    for change in changes:
        name = change.name if change.name in found.members else next(iter(found.members))
        stored = found.members[name]
        alike = (stored.dtype, stored.layout.shape) == (change.dtype, change.shape)
        if not alike or first_difference(change, stored, most) is not None:
            where = places(path).base(found.path)
            reason = f"its bytes in {where} differ from those computed again"
            raise FileFormatError(path, change.name, f"{reason}: nothing was published")
