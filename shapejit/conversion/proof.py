"""A sample of each kind of tensor, converted and compared with NumPy before any is written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays.tensor import Tensor
from ..dtypes.table import dtype
from ..errors import FormatError, quoted
from ..files.pieces import MOST, Scratch
from ..files.stored import Stored, release
from ..operations.casts import cast
from ..operations.codes import memory
from ..operations.equality import array_equal
from ..packings.repacking import codes_of
from ..packings.rows import formats
from ..programs.ops import Op, numpy_call
from ..quantization.bands import bands, cut
from ..quantization.carrying import UNIT
from ..quantization.content import Content, content_of
from ..quantization.settings import group_of
from ..quantization.table import schemes
from ..shapes.layout import Layout
from .changes import Change
from .repacks import Repacked
from .rounding import rounds
from .sources import Joined, Source
from .weight_sources import Decoded, PartOf

__all__ = ["prove", "same_numbers"]

SAMPLE = 1 << 22  # bytes of a sample: of larger tensors the first rows
WHOLE = 1 << 28  # bytes of a tensor that may be in memory for its sample
_BAND = 1 << 18  # elements of a decoded sample
_FLOAT32 = dtype("float32")
_ONCE = ("permute", "flip", "cast")  # operations whose arguments make another kind

Array = NDArray[Any]


def prove(changes: Iterable[Change], most: int = MOST) -> int:
    """Check a small sample of each kind of tensor; return how many kinds there are.

    Moved, cut and joined elements must be those of NumPy, cast ones the nearest numbers,
    repacked codes the same codes, a weight in another scheme the same numbers, a decoded one
    those that its codes and scales make in NumPy. Reads the samples, `most` bytes of a
    tensor at a time, writes nothing. Raises FormatError where bits differ.
    """
    samples: dict[object, Change] = {}
    for change in _leaves(changes):
        if isinstance(change.source, Stored) and not change.ops:
            continue
        best = samples.setdefault(_kind(change), change)
        if change.nbytes < best.nbytes:
            samples[_kind(change)] = change
    for change in samples.values():
        right = _right(change, most)
        release()
        if not right:
            raise FormatError(
                f"tensor {quoted(change.name)}: the proof failed: what a sample of it is "
                f"converted to is wrong. This is a fault of shapejit or of this machine; "
                f"nothing was written"
            )
    return len(samples)


def _leaves(changes: Iterable[Change]) -> Iterator[Change]:
    """The tensors, and those of which they are made."""
    for change in changes:
        yield change
        if isinstance(change.source, Joined):
            yield from _leaves(part for part in change.source.parts if isinstance(part, Change))
        if isinstance(change.source, Repacked):
            yield from _leaves([change.source.base])


def _kind(change: Change) -> tuple[object, ...]:
    """What is done to which elements."""
    source = change.source
    ops = tuple((name, given if name in _ONCE else ()) for name, given in change.ops)
    made: tuple[object, ...] = (type(source), source.dtype, ops)
    if isinstance(source, Decoded):
        return (*made, source.weight.scheme, id(source.weight.group.form))
    if isinstance(source, PartOf):
        return (*made, source.whole.weight.scheme, source.whole.scheme, source.key)
    if isinstance(source, Repacked):
        return (*made, source.formats, source.codes)
    return (*made, source.axis) if isinstance(source, Joined) else made


def _right(change: Change, most: int) -> bool:
    """Whether a sample is right, and what it is made of."""
    source, whole = change.source, min(WHOLE, most)
    if type(source) in _RIGHT:
        right: bool = _RIGHT[type(source)](source)
        if not right or not change.ops:
            return right
    if isinstance(source, Joined) and source.dtype.nbytes(prod(source.shape)) > whole:
        change = _fewer(change, source)
    elif change.shape and change.nbytes > SAMPLE:
        row = max(1, change.nbytes // change.shape[0])
        change = change.rows(0, max(1, SAMPLE // row))
    if change.held(most) > whole or change.nbytes > whole:
        return True  # what it is made of was right
    wanted = _moved(change, whole)
    return wanted is None or _same(_bytes(change, whole), change, wanted)


def _fewer(change: Change, source: Joined) -> Change:
    """The first rows of a few parts joined in the same way."""
    parts = [part for part in source.parts[:4] if isinstance(part, Change)]
    row = max(part.nbytes // max(1, part.shape[0]) for part in parts)
    rows = max(1, SAMPLE // 4 // max(1, row))
    parts = [part.rows(0, rows) for part in parts]
    shape = list(parts[0].shape)
    shape[source.axis] = sum(part.shape[source.axis] for part in parts)
    joined = Joined(source.dtype, tuple(shape), parts, source.axis)
    return Change.of(change.name, joined, change.saturate)


def _bytes(change: Change, most: int) -> Tensor:
    """What would be written."""
    raw, at = Scratch().take(change.nbytes), 0
    for piece in change.pieces(Scratch(most), Scratch(most)):
        raw[at : at + piece.size] = piece
        at += piece.size
    return Tensor.frombuffer(raw, change.dtype, change.shape)


def _same(made: Tensor, change: Change, wanted: Array) -> bool:
    """Whether what was made are those elements, cast one after the other."""
    kind, casts = change.source.dtype, change.casts
    if not casts:
        return _array(made).tobytes() == np.ascontiguousarray(wanted).tobytes()
    if any(each.numpy is None for each in (kind, *casts)):
        return True
    before = np.ascontiguousarray(wanted).reshape(-1)[:_BAND].view(kind.codes)
    last = (made.unpack() if made.dtype.packed else made.numpy()).reshape(-1)[:_BAND]
    for each in casts[:-1]:
        after = cast(before, each, saturate=change.saturate)
        if not rounds(before, after, each):
            return False
        before = after
    return rounds(before, last, casts[-1])


def _moved(change: Change, most: int) -> Array | None:
    """The elements (codes of a byte each, if they are packed) as NumPy moves them, not cast.

    None where that takes all elements of a tensor that has more than `most` bytes.
    """
    found = _elements(change.source, most)
    for op in change.ops:
        if found is not None and op[0] != "cast":
            found = _applied(op, found, most)
    return found


def _applied(op: Op, x: Array, most: int) -> Array | None:
    if op[0] == "reshape" and x.nbytes > most:
        layout = Layout.of(x.shape, [8 * by for by in x.strides], 0, 8 * x.itemsize)
        if layout.reshape(op[1][0]) is None:
            return None
    made: Array = numpy_call(op)(x)
    return made


def _elements(source: Source, most: int) -> Array | None:
    """The elements that a source has; None where they are too many to have them all."""
    if isinstance(source, Joined):
        parts = [_sample_of(part, most) for part in source.parts if isinstance(part, Change)]
        whole = [part for part in parts if part is not None]
        return np.concatenate(whole, source.axis) if len(whole) == len(parts) else None
    nbytes = source.dtype.nbytes(source.layout.size)
    if isinstance(source, Stored) and source.here and not source.dtype.packed:
        return _array(source.mapped())
    return None if nbytes > most else _array(source.tensor())


def _sample_of(part: Change, most: int) -> Array | None:
    """The elements of what is joined, which was proved by itself if it is cast."""
    return _array(part.tensor()) if part.casts else _moved(part, most)


def _array(t: Tensor) -> Array:
    """The elements, as unsigned integers or bytes."""
    if t.dtype.packed:
        return t.unpack().view(np.uint8)
    nbytes = t.dtype.bits // 8
    kind = f"u{nbytes}" if nbytes <= 8 else f"V{nbytes}"
    strides = [by // 8 for by in t.strides]
    return np.ndarray(t.shape, kind, np.asarray(t.buffer).data, t.offset // 8, strides)


def _decoded_right(source: Decoded) -> bool:
    """Whether a band is that of float32, rounded, and that what its codes and scales make."""
    weight, made = source.weight, []
    found = bands(weight.group, _BAND)
    if not found or prod(found[0].shape) > WHOLE // 16:
        return True
    band = found[0]
    tensors = weight.read(band.slices, Scratch())
    for kind in (source.dtype, _FLOAT32):
        raw = Scratch().take(kind.nbytes(prod(band.shape)))
        out = Tensor.frombuffer(raw, kind, band.shape)
        made.append(band.decode(tensors, kind, out))
    if not array_equal(made[0], cast(made[1], source.dtype)):
        return False
    with suppress(FormatError):  # codes that have no other form: grids, act-order
        content = content_of(replace(band.group, tensors=tensors))
        return _about(made[1].numpy(), content, band.group.form.result)
    return True


def _about(made: Array, content: Content, result: str) -> bool:
    """Whether the first rows are (codes - zeros) * scales + offsets, but for the last bits."""
    batch, block = len(content.batch), content.blocks[0]
    made = (made.swapaxes(-1, -2) if result == "K N" else made).reshape(content.shape)
    size = content.shape[batch]
    rows = min(size, max(1, _BAND * size // made.size // block) * block)
    some, of = ((*(slice(None),) * batch, slice(-(-rows // by))) for by in (1, block))
    made, codes = made[some], content.codes[some]

    def spread(x: Any) -> Any:
        if x is None or np.ndim(x) == 0:
            return 0 if x is None else x
        x = np.asarray(x)[of].astype(np.float64)
        for axis, by in enumerate(content.blocks, batch):
            x = np.repeat(x, by, axis).take(range(codes.shape[axis]), axis)
        return x

    with np.errstate(all="ignore"):
        scale: Any = spread(content.scale)
        factor: Any = 1.0
        if content.factor is not None:
            shape = (-1, *(1,) * len(content.blocks)) if content.factor.size > 1 else ()
            factor = content.factor.astype(np.float64).reshape(shape)
        scale = scale / factor if content.step == "/" else scale * factor
        product = (_values(codes, content.values) - spread(content.zeros)) * scale
        offset = spread(content.offset)
        wanted, room = product + offset, 1e-5 * (np.abs(product) + np.abs(offset)) + 1e-37
        finite = np.isfinite(wanted) & (np.abs(wanted) < 1e38)
        return bool((np.abs(made - wanted)[finite] <= room[finite]).all())


def _values(codes: Array, values: Any) -> Any:
    """What codes mean, before zero points and scales."""
    if isinstance(values, tuple):
        return np.array(values)[codes]
    if values == "integer":
        return codes.astype(np.float64)
    return codes.view(dtype(values).codes).astype(np.float64)


def _converted_right(source: PartOf) -> bool:
    """Whether both schemes decode some rows to the same numbers; zeros may differ in sign."""
    weight, row = source.whole.weight, schemes[source.whole.scheme].row
    other = group_of(row.name, row.forms, source.whole.parts(), {})
    some = [bands(group, SAMPLE, axis="N", unit=UNIT)[0] for group in (weight.group, other)]
    if max(prod(band.shape) for band in some) > WHOLE // 8:
        return True
    found = list[Tensor]()
    for band, tensors in zip(
        some, (weight.read(some[0].slices, Scratch()), cut(other, some[1].slices)), strict=True
    ):
        made = band.decode(tensors, _FLOAT32, None)
        found.append(made.mT if band.group.form.result == "K N" else made)
    rows = min(t.shape[-2] for t in found) if found[0].ndim > 1 else None
    return same_numbers(*(t if rows is None else t[..., :rows, :] for t in found))


def same_numbers(x: Tensor, y: Tensor) -> bool:
    """Whether shapes and numbers are the same; NaNs are equal to one another, and 0.0 to -0.0."""
    return np.array_equal(x.numpy(), y.numpy(), equal_nan=True)


def _repacked_right(source: Repacked) -> bool:
    """Whether the codes of some rows are the same in both formats."""
    row = max(1, source.dtype.nbytes(prod(source.shape[1:])))
    end = min(max(1, SAMPLE // row // source.unit) * source.unit, source.shape[0])
    base, elements = source.based(0, end)
    if base.nbytes > WHOLE or base.held(MOST) > WHOLE:
        return True
    given, wanted = map(formats.__getitem__, source.formats)
    rows, found = given.rows_of(elements), list[Array]()
    for form, t in ((given, base.tensor()), (wanted, source.rows(0, end))):
        stored = form.stored_rows(rows, source.codes, None)
        codes = codes_of(memory(t), stored, rows)
        found.append((codes - np.uint8(stored.bias)) & np.uint8((1 << stored.bits) - 1))
    return np.array_equal(found[0], found[1])


_RIGHT: dict[type, Callable[[Any], bool]] = {
    Decoded: _decoded_right,
    PartOf: _converted_right,
    Repacked: _repacked_right,
}
