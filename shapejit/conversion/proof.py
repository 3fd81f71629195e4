"""A sample of each kind of tensor, converted, converted back and compared before any is written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import prod

import numpy as np

from ..casts import cast
from ..dtypes import dtype
from ..equality import array_equal
from ..errors import FormatError, quoted
from ..files.pieces import Scratch
from ..files.stored import Stored
from ..programs.ops import Op, checked_ops
from ..quantization.bands import bands
from ..quantization.table import schemes
from ..tensor import Tensor
from .changes import Change
from .sources import BAND, Decoded, Joined, PartOf

__all__ = ["prove", "same_numbers"]

_MOST = 1 << 28  # bytes of a sample; larger tensors are of no other kinds
_FLOAT32 = dtype("float32")


def prove(changes: Iterable[Change]) -> int:
    """Check a small tensor of each kind; return how many kinds were checked.

    Moved elements are moved back and compared with those of the file; a weight in another
    scheme is decoded from both; a decoded one is also decoded to float32, and rounded
    after that. Reads the samples, writes nothing. Raises FormatError where bits differ.
    """
    samples: dict[object, Change] = {}
    for change in _leaves(changes):
        key = _kind(change)
        if key is not None and change.nbytes <= _MOST:
            best = samples.setdefault(key, change)
            if change.nbytes < best.nbytes:
                samples[key] = change
    for change in samples.values():
        if not _right(change):
            raise FormatError(
                f"tensor {quoted(change.name)}: the proof failed: converted back, its bits "
                f"differ. This is a fault of shapejit or of this machine; nothing was written"
            )
    return len(samples)


def _leaves(changes: Iterable[Change]) -> Iterator[Change]:
    """The tensors, and the parts of those that are joined."""
    for change in changes:
        yield change
        if isinstance(change.source, Joined):
            yield from _leaves(part for part in change.source.parts if isinstance(part, Change))


def _kind(change: Change) -> object:
    """What is done to which elements; None where nothing can be compared."""
    source = change.source
    if isinstance(source, Decoded):
        return "decoded", source.weight.scheme, id(source.weight.group.form), source.dtype
    if isinstance(source, PartOf):
        return "converted", source.whole.weight.scheme, source.whole.scheme
    if not isinstance(source, Stored) or not change.ops:
        return None
    return ("moved", source.dtype, change.ops) if _back(change) is not None else None


def _right(change: Change) -> bool:
    source = change.source
    if isinstance(source, Decoded):
        return _decoded_right(source)
    if isinstance(source, PartOf):
        return _converted_right(source)
    back, raw = _back(change), Scratch().take(change.nbytes)
    at = 0
    for piece in change.pieces(Scratch(), Scratch()):
        raw[at : at + piece.size] = piece
        at += piece.size
    moved = Tensor.frombuffer(raw, change.dtype, change.shape)
    for name, given in back or ():
        moved = moved.permute_dims(*given) if name == "permute" else moved.reshape(*given)
    return array_equal(moved, source.tensor())


def _converted_right(source: PartOf) -> bool:
    """Whether both schemes decode to the same numbers; zeros may differ in their signs."""
    weight, scheme = source.whole.weight, schemes[source.whole.scheme]
    mine = schemes[weight.scheme].decode(weight.parts(), dtype="float32")
    other = scheme.decode(source.whole.parts(), dtype="float32")
    turned = weight.group.form.result != scheme.row.forms[0].result
    return same_numbers(mine, other.mT if turned else other)


def same_numbers(x: Tensor, y: Tensor) -> bool:
    """Whether shapes and numbers are the same; NaNs are equal to one another, and 0.0 to -0.0."""
    return np.array_equal(x.numpy(), y.numpy(), equal_nan=True)


def _decoded_right(source: Decoded) -> bool:
    """Whether the first band is that of float32, rounded."""
    band, *_ = bands(source.weight.group, BAND)
    made = []
    for kind in (source.dtype, _FLOAT32):
        tensors = source.weight.read(band.slices, Scratch())
        raw = Scratch().take(kind.nbytes(prod(band.shape)))
        out = Tensor.frombuffer(raw, kind, band.shape)
        made.append(band.decode(tensors, kind, out))
    return array_equal(made[0], cast(made[1], source.dtype))


def _back(change: Change) -> list[Op] | None:
    """What undoes the operations on a stored tensor; None where elements are lost or cast."""
    made: list[Op] = []
    shape, kind = change.source.layout.shape, change.source.dtype
    for op in change.ops:
        name, given = op
        if name == "permute":
            axes = given[0]
            made.insert(0, (name, (tuple(axes.index(k) for k in range(len(axes))),)))
        elif name == "reshape":
            made.insert(0, (name, (shape,)))
        else:
            return None
        shape, kind = checked_ops((op,), shape, kind)
    return made
