"""concat and stack: several arrays joined, each copied straight to its place in the result."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from ..arrays.foreign import sees_native_arrays, typed_joining
from ..arrays.tensor import Array, Tensor
from ..dtypes.promotion import AnyDtype, beyond_numpy, promoted
from ..dtypes.table import DType
from ..engine import fast_joins, outputs, routes
from ..engine.addresses import Places, alike, byte_of, low_bits, place_of
from ..engine.copying import is_numpys
from ..errors import DTypeError, ReshapeError
from ..kernels.constants import MAX_RANK
from ..runtime.launches import Addresses
from ..shapes.layout import Layout, normal_axes
from ..shapes.request import integers
from .casts import cast
from .views import checked, expand_dims

Box = tuple[slice, ...]  # the elements of one slice per dim


@typed_joining
def concat(tensors: Sequence[Array], axis: int | None = 0, *, out: Array | None = None) -> Array:
    """Concatenate arrays along `axis`, into a new array or `out` (Array API v2024.12, concat).

    The arrays are all ndarrays or all Tensors, whose shapes differ only in the size of `axis`; with
    `axis=None` they may have any shapes, and are flattened. Different dtypes are promoted, see
    `dtypes.promotion`. `out` as in `reshape`. Raises ReshapeError, DTypeError.

    >>> import numpy as np
    >>> concat([np.zeros((2, 3)), np.ones((1, 3))]).shape
    (3, 3)
    >>> concat([np.zeros((2, 3), np.int8), np.ones(2, np.int16)], axis=None)
    array([0, 0, 0, 0, 0, 0, 1, 1], dtype=int16)
    """
    made: Array | None = fast_joins.join(tensors, axis, False, out)
    return _concat(tensors, axis, out) if made is None else made


@sees_native_arrays
def _concat(tensors: Any, axis: Any, out: Any) -> Any:
    """`concat` of any arrays."""
    parts = [x if type(x) is np.ndarray else checked(x) for x in tensors]
    made = None
    if axis is not None and len(parts) > 1:
        made = _planned(tuple(parts), axis, False, out, "concat")
    return _concatenated(parts, axis, out, "concat") if made is None else made


@typed_joining
def stack(tensors: Sequence[Array], axis: int = 0, *, out: Array | None = None) -> Array:
    """Stack arrays of one shape along a new dim `axis` (Array API v2024.12, stack).

    Dtypes and `out` as in `concat`. Raises ReshapeError, DTypeError.

    >>> import numpy as np
    >>> stack([np.zeros((2, 3)), np.ones((2, 3))], axis=-1).shape
    (2, 3, 2)
    """
    made: Array | None = fast_joins.join(tensors, axis, True, out)
    return _stack(tensors, axis, out) if made is None else made


@sees_native_arrays
def _stack(tensors: Any, axis: Any, out: Any) -> Any:
    """`stack` of any arrays."""
    parts = [x if type(x) is np.ndarray else checked(x) for x in tensors]
    made = _planned(tuple(parts), axis, True, out, "stack") if len(parts) > 1 else None
    if made is not None:
        return made
    if len({x.shape for x in parts}) > 1:
        shapes = [x.shape for x in parts]
        raise ReshapeError(f"all arrays must have the same shape, not {shapes}", asked_by="stack")
    ndim = parts[0].ndim + 1 if parts else 1
    at = normal_axes(integers((axis,), "axis", "stack"), ndim, "stack")
    return _concatenated([expand_dims(x, at) for x in parts], at[0], out, "stack")


def _concatenated(parts: list[Any], axis: int | None, out: Any, asked_by: str) -> Any:
    """`concat` of any arrays; errors name `asked_by`."""
    kind = _joined_kind(parts, asked_by)
    shape: tuple[int, ...]
    lead: tuple[slice, ...]
    if axis is None:
        lead, sizes = (), [x.size for x in parts]
        shape = (sum(sizes),)
    else:
        shape, at = _joined_shape(parts, axis, asked_by)
        lead, sizes = (slice(None),) * at, [x.shape[at] for x in parts]
    kinds = {x.dtype for x in parts}
    numpys = len(kinds) > 1 and all(_numpy_casts(x, kind) for x in kinds)
    if numpys and max(x.ndim for x in parts) <= MAX_RANK:
        target, _ = outputs.target(out, kind, shape, parts)
        *arrays, made = (x.numpy() if isinstance(x, Tensor) else x for x in (*parts, target))
        np.concatenate(arrays, None if axis is None else len(lead), made, casting="unsafe")
        return target if out is None else out
    boxes = [(*lead, slice(*ends)) for ends in pairwise(accumulate(sizes, initial=0))]
    return joined(parts, boxes, shape, kind, out)


def _numpy_casts(source: AnyDtype, target: AnyDtype) -> bool:
    """Whether NumPy's cast gives the bits of `cast`: it widens bfloat16 by a shift."""
    own = source == target or not (beyond_numpy(source) or beyond_numpy(target))
    return own or (source.name, target.name) == ("bfloat16", "float32")


def joined(
    parts: Sequence[Any], boxes: Sequence[Box], shape: tuple[int, ...], kind: Any, out: Any
) -> Any:
    """A new array, or `out`, whose `boxes` get the elements of `parts`.

    The boxes are disjoint and cover the array. A part has the shape of its box, or any shape of as
    many elements if the box is contiguous. Parts with equal Layouts are copied in one launch if
    their boxes have equal Layouts, too.
    """
    target, fresh = outputs.target(out, kind, shape, parts)
    begin, whole = place_of(target)
    only_numpy = is_numpys(kind.codes if isinstance(kind, DType) else kind)
    launches: dict[tuple[Layout, Layout], list[tuple[Any, ...]]] = {}
    for x, box in zip(parts, boxes, strict=True):
        if x.size == 0:
            continue
        if only_numpy:
            _assign(x, target, box)
            continue
        # By its name, a dtype is found with the Route of the cast.
        moved = x if x.dtype is kind or x.dtype == kind else cast(x, kind.name)
        source, layout = byte_of(moved)
        into = _narrowed(whole, box, x.shape)
        at = begin + into.offset
        key = layout, into.within_byte(at)
        launches.setdefault(key, []).append((source, at & ~7, moved, box))
    for (layout, into), moves in launches.items():
        sources, targets, arrays, places = zip(*moves, strict=True)
        how = layout, into, sources, targets, _apart(targets)
        _copy(*how, fresh, target, partial(_assign_all, arrays, target, places))
    return target if out is None else out


def _copy(
    layout: Layout,
    into: Layout,
    sources: Sequence[Any] | Addresses,
    targets: Sequence[Any] | Addresses,
    apart: int,
    fresh: bool,
    whole: Any,
    assign: Callable[[], object],
) -> None:
    """Copy parts with equal Layouts.

    The offsets of both Layouts count from `sources` and `targets`, which are bit addresses; if
    these are evenly spaced, `apart` is their distance. NumPy does it by `assign`.
    """
    made = routes.joins(layout, into, len(sources), apart)
    numpys = layout.bits % 8 == 0 and max(whole.ndim, layout.ndim) <= MAX_RANK
    if made.by_numpy and not numpys:
        made = routes.compiled(layout, into=into)
    routes.run(made, sources, targets, fresh, instead=assign if numpys else None)


def _apart(targets: Sequence[int]) -> int:
    """The distance of evenly spaced places; 0 for others."""
    apart = targets[1] - targets[0] if len(targets) > 1 else 0
    even = all(targets[0] + k * apart == at for k, at in enumerate(targets))
    return apart if even else 0


def _planned(parts: tuple[Any, ...], axis: Any, new: bool, out: Any, asked_by: str) -> Any:
    """Join arrays of one kind along `axis`, a `new` dim or one of theirs; None for other parts.

    Parts are checked together, not one by one.
    """
    first = parts[0]
    kinds = type(first) in (np.ndarray, Tensor) and first.dtype is parts[-1].dtype
    places = alike(parts) if kinds else None
    if places is None or (type(first) is np.ndarray and is_numpys(first.dtype)):
        return None
    layout, addresses, count = places.layouts[0], places.addresses, len(parts)
    if layout.bits % 8 or low_bits(addresses):
        return None
    (at,) = normal_axes(integers((axis,), "axis", asked_by), first.ndim + new, asked_by)
    shape = fast_joins.whole_shape(first.shape, count, at, new)
    target, fresh = outputs.target(out, first.dtype, shape, ())
    if first.size == 0:
        return target if out is None else out
    begin, whole = place_of(target)
    if out is not None:
        whole_place = Places.alike(np.array([begin]), whole)
        outputs.check_places_apart(places, whole_place, True, range(count))
    size = 1 if new else first.shape[at]
    into, apart = whole.narrow(at, 0, size, 1), whole.strides[at] * size
    into = into.squeeze(at) if new else into
    targets = np.arange(count)
    targets *= apart
    targets += begin
    assign: Callable[[], object]
    if type(first) is np.ndarray:
        assign = partial(np.stack if new else np.concatenate, parts, at, target)
    else:
        lead = (slice(None),) * at
        boxes = ((*lead, slice(k * size, k * size + size)) for k in range(count))
        assign = partial(_assign_all, parts, target, boxes)
    _copy(layout, into, addresses, targets, apart, fresh, target, assign)
    return target if out is None else out


def _narrowed(whole: Layout, box: Box, shape: tuple[int, ...]) -> Layout:
    """The Layout of a box of a row-major array, in the shape of the part that is copied there."""
    into = whole
    for axis, kept in enumerate(box):
        if kept.stop is not None:
            first = kept.start or 0
            into = into.narrow(axis, first, kept.stop - first, 1)
    seen = into if into.shape == shape else into.reshape(shape)
    assert seen is not None  # only contiguous boxes have another shape
    return seen


def _joined_kind(parts: Sequence[Any], asked_by: str) -> Any:
    """The dtype of the result."""
    if not parts:
        raise ReshapeError("need at least one array to join", asked_by=asked_by)
    first = parts[0]
    for i, x in enumerate(parts):
        if isinstance(x, Tensor) != isinstance(first, Tensor):
            raise DTypeError(f"array {i} is no {type(first).__name__} like array 0 ({asked_by})")
    kinds = tuple([x.dtype for x in parts])
    alike = all(kind is kinds[0] for kind in kinds)
    return kinds[0] if alike else promoted(kinds, asked_by)


def _joined_shape(parts: list[Any], axis: int, asked_by: str) -> tuple[tuple[int, ...], int]:
    """The shape of the result, and the axis counted from the front."""
    first = parts[0]
    (at,) = normal_axes(integers((axis,), "axis", asked_by), first.ndim, asked_by)
    for i, x in enumerate(parts):
        if (x.shape[:at], x.shape[at + 1 :]) != (first.shape[:at], first.shape[at + 1 :]):
            note = f"array {i} has shape {x.shape}, array 0 {first.shape}"
            raise ReshapeError(f"only dim {at} may differ: {note}", asked_by=asked_by)
    size = sum(x.shape[at] for x in parts)
    return (*first.shape[:at], size, *first.shape[at + 1 :]), at


def _assign_all(parts: Iterable[Any], whole: Any, boxes: Iterable[Box]) -> None:
    """Copies by NumPy, one by one."""
    for x, box in zip(parts, boxes, strict=True):
        _assign(x, whole, box)


def _assign(x: Any, whole: Any, box: Box) -> None:
    """One copy by NumPy."""
    source, target = (a.numpy() if isinstance(a, Tensor) else a for a in (x, whole))
    target[box].reshape(source.shape, copy=False)[...] = source
