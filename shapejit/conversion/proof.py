"""The first rows of each kind of work, made by NumPy as well before anything is written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import nullcontext

from ..engine import patience
from ..errors import FormatError, quoted
from ..files.pieces import MOST, Scratch
from ..files.stored import release
from .changes import Change, Planned
from .weights import LATEST

__all__ = ["prove"]

SAMPLE = 1 << 20  # bytes that are made twice: of larger tensors the first rows
WHOLE = 1 << 28  # bytes of a tensor that may be in memory for them

Kind = tuple[object, ...]


def prove(changes: Iterable[Change], most: int = MOST) -> int:
    """Make the first rows of a tensor of each kind twice; return how many kinds there are.

    Kinds differ in dtypes, schemes, formats and what is done to the elements. NumPy has to
    make the same bits as the kernels; what NumPy does anyway (long rows), or the one kernel of
    small arrays, is not made in another way. Writes nothing; FormatError where bits differ.
    """
    smallest, sizes = dict[Kind, Change](), Counter[Kind]()
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
                f"tensor {quoted(change.name)}: the proof failed: kernels make other bits than "
                f"NumPy. This is a fault of shapejit or of this machine; nothing was written"
            )
    return len(smallest)


def _leaves(changes: Iterable[Change]) -> Iterator[Change]:
    """The tensors, and those of which they are made."""
    for change in changes:
        yield change
        if change.ops:
            yield Change.of(change.name, change.source, change.saturate)
        yield from _leaves(change.made_of)


def _kind(change: Change) -> Kind:
    source, done = change.source, [name for name, _ in change.ops]
    own = source.kind if isinstance(source, Planned) else ()
    return type(source), source.dtype, change.dtype, *done, *own


def _bytes(change: Change, most: int) -> bytes:
    made = b"".join(map(bytes, change.pieces(Scratch(most), Scratch(most))))
    LATEST.clear()
    release()
    return made
