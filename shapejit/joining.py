"""Several arrays as one: each is copied straight to its place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from . import engine, outputs
from .copying import is_numpys
from .errors import DTypeError, ReshapeError
from .foreign import joins
from .kernels.constants import MAX_RANK
from .layout import Layout, normal_axes
from .operations import checked, expand_dims
from .places import place_of
from .planning import planner
from .request import integers
from .tensor import Array, Tensor


@joins
def concat(tensors: Sequence[Array], *, axis: int = 0, out: Array | None = None) -> Array:
    """The arrays one after the other along `axis`, in one new array or in `out` (Array API).

    All are ndarrays or all are Tensors, of one dtype and of one shape but for
    `axis`; each is copied straight to its place. `out` as in `reshape`. Raises
    ReshapeError, DTypeError.

    >>> import numpy as np
    >>> concat([np.zeros((2, 3)), np.ones((1, 3))]).shape
    (3, 3)
    """
    parts = [checked(x) for x in tensors]
    shape, at = _joined_shape(parts, axis, "concat")
    target, fresh = outputs.target(out, parts[0].dtype, shape, parts)
    _copy_parts(parts, target, at, fresh)
    return target if out is None else out


@joins
def stack(tensors: Sequence[Array], *, axis: int = 0, out: Array | None = None) -> Array:
    """The arrays, all of one shape, side by side along a new dim `axis` (Array API).

    >>> import numpy as np
    >>> stack([np.zeros((2, 3)), np.ones((2, 3))], axis=-1).shape
    (2, 3, 2)
    """
    parts = [checked(x) for x in tensors]
    if len({x.shape for x in parts}) > 1:
        raise ReshapeError(f"shapes {[x.shape for x in parts]} differ", asked_by="stack")
    ndim = parts[0].ndim + 1 if parts else 1
    at = normal_axes(integers((axis,), "axis", "stack"), ndim, "stack")
    return concat([expand_dims(x, at) for x in parts], axis=at[0], out=out)


def _joined_shape(parts: list[Any], axis: int, asked_by: str) -> tuple[tuple[int, ...], int]:
    """The shape of the whole, and the axis counted from the front."""
    if not parts:
        raise ReshapeError("there is nothing to join", asked_by=asked_by)
    first = parts[0]
    (at,) = normal_axes(integers((axis,), "axis", asked_by), first.ndim, asked_by)
    for i, x in enumerate(parts):
        if isinstance(x, Tensor) != isinstance(first, Tensor):
            raise DTypeError(f"array {i} is no {type(first).__name__} like array 0 ({asked_by})")
        if x.dtype != first.dtype:
            raise DTypeError(f"array {i} has dtype {x.dtype}, array 0 {first.dtype} ({asked_by})")
        if (x.shape[:at], x.shape[at + 1 :]) != (first.shape[:at], first.shape[at + 1 :]):
            note = f"array {i} has shape {x.shape}, array 0 {first.shape}"
            raise ReshapeError(f"only dim {at} may differ: {note}", asked_by=asked_by)
    size = sum(x.shape[at] for x in parts)
    return (*first.shape[:at], size, *first.shape[at + 1 :]), at


def _copy_parts(parts: Sequence[Any], target: Any, axis: int, fresh: bool) -> None:
    """Copy arrays one after the other along `axis` into a row-major array.

    Parts that lie alike, and go to places that do, are one launch.
    """
    if isinstance(target, np.ndarray) and is_numpys(target.dtype):
        np.concatenate(parts, axis=axis, out=target)
        return
    begin, whole = place_of(target)
    edges = np.cumsum([0, *(x.shape[axis] for x in parts)]).tolist()
    launches: dict[tuple[Layout, Layout], list[tuple[int, int, int]]] = {}
    for i, x in enumerate(parts):
        place, layout = place_of(x)
        into = whole.narrow(axis, edges[i], x.shape[axis], 1)
        at = begin + into.offset
        key = layout.at(place & 7), into.at(at & 7)
        launches.setdefault(key, []).append((place & ~7, at & ~7, i))
    for (layout, into), moves in launches.items():
        one = planner.plan(layout, into=into)
        if one.by_numpy and len(into.shape) <= MAX_RANK:
            array = target.numpy() if isinstance(target, Tensor) else target
            for _, _, i in moves:
                part = array[(slice(None),) * axis + (slice(edges[i], edges[i + 1]),)]
                part[...] = parts[i].numpy() if isinstance(parts[i], Tensor) else parts[i]
            continue
        made = planner.compiled(layout, into=into, count=len(moves))
        sources, targets = ([move[side] for move in moves] for side in (0, 1))
        engine.run(made, sources, targets, fresh)
