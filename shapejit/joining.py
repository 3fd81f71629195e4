"""Several arrays as one: each is copied straight to its place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from math import prod
from typing import Any

from . import engine, outputs
from .casts import cast
from .copying import is_numpys
from .dtypes import DType
from .errors import DTypeError, ReshapeError
from .foreign import joins
from .kernels.constants import MAX_RANK
from .layout import Layout, normal_axes
from .operations import checked, expand_dims
from .places import place_of
from .planning import planner
from .promotion import beyond_numpy, promoted
from .request import integers
from .tensor import Array, Tensor

Box = tuple[slice, ...]  # elements that an index selects, no dim fewer


@joins
def concat(tensors: Sequence[Array], axis: int | None = 0, *, out: Array | None = None) -> Array:
    """The arrays one after the other along `axis`, in one new array or in `out` (Array API).

    All are ndarrays or all are Tensors, of one shape but for `axis`; with `axis=None` of
    any shapes, and joined flattened. Dtypes that differ are promoted, see `promotion`.
    Each array is copied straight to its place. `out` as in `reshape`. Array API
    v2024.12, concat. Raises ReshapeError, DTypeError.

    >>> import numpy as np
    >>> concat([np.zeros((2, 3)), np.ones((1, 3))]).shape
    (3, 3)
    >>> concat([np.zeros((2, 3), np.int8), np.ones(2, np.int16)], axis=None)
    array([0, 0, 0, 0, 0, 0, 1, 1], dtype=int16)
    """
    parts: list[Any] = [checked(x) for x in tensors]
    kind = _joined_kind(parts, "concat")
    shape: tuple[int, ...]
    lead: tuple[slice, ...]
    if axis is None:
        lead, sizes = (), [x.size for x in parts]
        shape = (sum(sizes),)
    else:
        shape, at = _joined_shape(parts, axis, "concat")
        lead, sizes = (slice(None),) * at, [x.shape[at] for x in parts]
    boxes = [(*lead, slice(*ends)) for ends in pairwise(accumulate(sizes, initial=0))]
    made: Array = joined(parts, boxes, shape, kind, out)
    return made


@joins
def stack(tensors: Sequence[Array], axis: int = 0, *, out: Array | None = None) -> Array:
    """The arrays, all of one shape, side by side along a new dim `axis` (Array API).

    Dtypes and `out` as in `concat`. Raises ReshapeError, DTypeError.

    >>> import numpy as np
    >>> stack([np.zeros((2, 3)), np.ones((2, 3))], axis=-1).shape
    (2, 3, 2)
    """
    parts = [checked(x) for x in tensors]
    if len({x.shape for x in parts}) > 1:
        shapes = [x.shape for x in parts]
        raise ReshapeError(f"all arrays must have the same shape, not {shapes}", asked_by="stack")
    ndim = parts[0].ndim + 1 if parts else 1
    at = normal_axes(integers((axis,), "axis", "stack"), ndim, "stack")
    return concat([expand_dims(x, at) for x in parts], axis=at[0], out=out)


def joined(
    parts: Sequence[Any], boxes: Sequence[Box], shape: tuple[int, ...], kind: Any, out: Any
) -> Any:
    """An array of a shape and dtype, or `out`, whose `boxes` hold the elements of `parts`.

    The boxes lie apart and fill it. A part has the shape of its box, or another one with
    as many elements, whose box lies row-major. Parts that lie alike, and go to places that
    do, are one launch.
    """
    target, fresh = outputs.target(out, kind, shape, parts)
    begin, whole = place_of(target)
    only_numpy = is_numpys(kind.codes if isinstance(kind, DType) else kind)
    launches: dict[tuple[Layout, Layout], list[tuple[Any, ...]]] = {}
    for x, box in zip(parts, boxes, strict=True):
        if x.size == 0:
            continue
        converts = x.dtype is not kind and x.dtype != kind
        if only_numpy or (converts and not (beyond_numpy(x.dtype) or beyond_numpy(kind))):
            _assign(x, target, box)
            continue
        moved = cast(x, kind) if converts else x
        place, layout = place_of(moved)
        into = _narrowed(whole, box, x.shape)
        at = begin + into.offset
        key = layout.at(place & 7), into.at(at & 7)
        launches.setdefault(key, []).append((place & ~7, at & ~7, moved, box))
    for (layout, into), moves in launches.items():
        if planner.plan(layout, into=into).by_numpy and len(into.shape) <= MAX_RANK:
            for _, _, x, box in moves:
                _assign(x, target, box)
            continue
        made = planner.compiled(layout, into=into, count=len(moves))
        sources, targets = ([move[side] for move in moves] for side in (0, 1))
        engine.run(made, sources, targets, fresh)
    return target if out is None else out


def _narrowed(whole: Layout, box: Box, shape: tuple[int, ...]) -> Layout:
    """The Layout of a box of a row-major array, in the shape of what is copied there."""
    into = whole
    for axis, kept in enumerate(box):
        if kept.stop is not None:
            first = kept.start or 0
            into = into.narrow(axis, first, kept.stop - first, 1)
    seen = into if into.shape == shape else into.reshape(shape)
    assert seen is not None  # only boxes that lie row-major have another shape
    return seen


def flat_boxes(shape: Sequence[int], begin: int, end: int) -> Iterator[Box]:
    """The elements [begin, end) of an array in row-major order, as boxes, at most 2 per dim.

    >>> list(flat_boxes((2, 3), 1, 6))
    [(slice(0, 1, None), slice(1, 3, None)), (slice(1, 2, None), slice(0, 3, None))]
    """
    if begin >= end:
        return
    if not shape:
        yield ()
        return
    row = prod(shape[1:])
    first, last = -(-begin // row), end // row  # whole rows
    head = first - 1
    for box in flat_boxes(shape[1:], begin - head * row, min(end, first * row) - head * row):
        yield slice(head, first), *box
    if first < last:
        yield slice(first, last), *(slice(0, size) for size in shape[1:])
    for box in flat_boxes(shape[1:], 0, end - last * row) if first <= last else ():
        yield slice(last, last + 1), *box


def _joined_kind(parts: Sequence[Any], asked_by: str) -> Any:
    """The dtype of the whole."""
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
    """The shape of the whole, and the axis counted from the front."""
    first = parts[0]
    (at,) = normal_axes(integers((axis,), "axis", asked_by), first.ndim, asked_by)
    for i, x in enumerate(parts):
        if (x.shape[:at], x.shape[at + 1 :]) != (first.shape[:at], first.shape[at + 1 :]):
            note = f"array {i} has shape {x.shape}, array 0 {first.shape}"
            raise ReshapeError(f"only dim {at} may differ: {note}", asked_by=asked_by)
    size = sum(x.shape[at] for x in parts)
    return (*first.shape[:at], size, *first.shape[at + 1 :]), at


def _assign(x: Any, whole: Any, box: Box) -> None:
    """One copy by NumPy."""
    source, target = (a.numpy() if isinstance(a, Tensor) else a for a in (x, whole))
    target[box].reshape(source.shape, copy=False)[...] = source
