"""Results computed twice: samples by NumPy before writing (`--proof`), all after (`--verify`).

Two tensors are compared a few rows at a time: neither is in memory as a whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from math import lcm

from ..arrays.tensor import Tensor
from ..engine import patience
from ..errors import FileFormatError, FormatError, quoted
from ..files.checkpoint import Checkpoint
from ..files.open_files import release
from ..files.pieces import MOST
from ..files.places import places
from ..files.planned import Planned, bands_of
from ..operations import equality
from .actions import Joined
from .changes import Change
from .weights import LATEST

SAMPLE = 1 << 20  # bytes that are computed twice: the first rows, or a part of the first one
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
        parts = isinstance(change.source, Joined) and change.source.one_by_one and not change.ops
        if change.stored is None and not parts:  # these are samples of their own
            kind = _kind(change)
            sizes[kind] += change.nbytes
            smallest[kind] = min(change, smallest.get(kind, change), key=lambda c: c.nbytes)
    for kind, change in smallest.items():
        for axis, size in enumerate(change.shape):
            if change.nbytes > SAMPLE:
                change = change.cut(0, max(1, SAMPLE * size // change.nbytes), axis)
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


def _leaves(changes: Iterable[Planned]) -> Iterator[Change]:
    """The tensors, and those that they are computed from."""
    for change in changes:
        assert isinstance(change, Change)
        yield change
        if change.ops:
            yield Change.of(change.name, change.source)
        yield from _leaves(change.made_of)


def _kind(change: Change) -> SampleKind:
    source, done = change.source, [name for name, _ in change.ops]
    return type(source), source.dtype, change.dtype, *done, *source.kind


def _bytes(change: Change, most: int) -> bytes:
    made = b"".join(map(bytes, change.pieces(most)))
    LATEST.clear()
    release()
    return made


def both(x: Planned, y: Planned) -> Iterator[tuple[int, Tensor, Tensor]]:
    """The rows of two tensors of one shape, a few at a time, with the number of the first one."""
    bits, unit = max(x.dtype.bits, y.dtype.bits), lcm(max(1, x.unit), max(1, y.unit))
    p, q = (t if t.by_rows else t.tensor() for t in (x, y))
    for begin, end in bands_of(x.shape, bits, unit):
        p_rows, q_rows = (
            t.rows(begin, end) if isinstance(t, Planned) else t[begin:end] for t in (p, q)
        )
        yield begin, p_rows, q_rows


def first_difference(
    x: Planned, y: Planned,
    find: Callable[[Tensor, Tensor], tuple[int, ...] | None] = equality.first_difference,
) -> tuple[tuple[int, ...], Tensor, Tensor] | None:  # fmt: skip
    """The index of the first element that differs in two tensors of one shape, and both elements.

    `find` returns its index in some rows of both; by default, all bits count.
    """
    for begin, p, q in both(x, y):
        at = find(p, q)
        if at is not None:
            return (at[0] + begin, *at[1:]) if at else at, p[at], q[at]
    return None


def check_written(changes: Iterable[Change], found: Checkpoint, path: str) -> None:
    """Compute all bytes again; raise FileFormatError if a file has other ones.

    `path` is the destination's name in errors.
    """
    for change in changes:
        name = change.name if change.name in found.members else next(iter(found.members))
        stored = found.members[name]
        alike = (stored.dtype, stored.shape) == (change.dtype, change.shape)
        if not alike or first_difference(change, stored) is not None:
            where = places(path).base(found.path)
            reason = f"its bytes in {where} differ from those computed again"
            raise FileFormatError(path, change.name, f"{reason}: nothing was published")
