"""`--proof`: compares a sample of each kind of work with NumPy's result before writing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import nullcontext

from ..engine import patience
from ..errors import FormatError, quoted
from ..files.open_files import release
from ..files.planned import Planned
from .actions import Joined
from .changes import Change
from .weights import LAST_RESULT

SAMPLE = 1 << 20  # bytes that are computed twice: the first rows, or a part of the first one
PROOF_MAX_BYTES = 1 << 28  # bytes of a tensor that may be in memory for that

SampleKind = tuple[object, ...]


def prove(changes: Iterable[Change]) -> int:
    """Compute the first rows of a tensor of each kind twice; return the number of kinds.

    Kinds differ in dtypes, schemes, formats and operations. NumPy must compute the same bits as the
    kernels. Work that NumPy does anyway (long rows), and that of the kernel for small arrays, has
    no second implementation. Writes nothing. Raises FormatError if bits differ.
    """
    samples = dict[SampleKind, list[Change]]()
    for change in _leaves(changes):
        parts = isinstance(change.source, Joined) and change.source.one_by_one and not change.ops
        if change.stored is None and not parts:  # these are samples of their own
            samples.setdefault(_kind(change), []).append(change)
    for alike in samples.values():
        change, large = min(alike, key=lambda c: c.nbytes), sum(c.nbytes for c in alike) > SAMPLE
        for axis, size in enumerate(change.shape):
            if change.nbytes > SAMPLE:
                change = change.cut(0, max(1, SAMPLE * size // change.nbytes), axis)
        if max(change.peak_bytes, change.nbytes) > PROOF_MAX_BYTES:
            continue
        with patience.force_kernels() if large else nullcontext():
            made = _bytes(change)
        with patience.force_numpy():
            wanted = _bytes(change)
        if made != wanted:
            raise FormatError(
                f"tensor {quoted(change.name)}: the proof failed: kernels and NumPy computed "
                f"different bits. This is a bug of shapejit, or a fault of this machine; nothing "
                f"was written"
            )
    return len(samples)


def _leaves(changes: Iterable[Planned]) -> Iterator[Change]:
    """The tensors, and all that they are computed from."""
    for change in changes:
        assert isinstance(change, Change)
        yield change
        if change.ops:
            yield Change.of(change.name, change.source)
        yield from _leaves(change.source.made_of)


def _kind(change: Change) -> SampleKind:
    source, done = change.source, [name for name, _ in change.ops]
    return type(source), source.dtype, change.dtype, *done, *source.kind


def _bytes(change: Change) -> bytes:
    made = b"".join(map(bytes, change.pieces()))
    LAST_RESULT.clear()
    release()
    return made
