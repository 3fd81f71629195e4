"""ONNX operators whose results are views, such as Transpose and Slice; Size.

All of them take an ndarray or a Tensor of a dtype that the version lists, and return the
same kind. `copy` and `out` are those of `shapejit.reshape`: without them the result is a
view. Inputs like `axes` are sequences of ints (attributes in older versions) or arrays.
"""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from itertools import accumulate
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...arrays.foreign import accepts_any_array, converts_any_array, splits_any_array
from ...arrays.tensor import Array, Tensor, is_array
from ...errors import ReshapeError, shape_text
from ...operations import manipulation, views
from ...runtime.ndarrays import is_a, plain
from ...shapes.layout import broadcast, squeezed
from ...shapes.request import integer
from ..arguments import permuted, view_or_copy
from .arguments import axes_of, axis_of, check_sign, entered, ints
from .versions import Version, version


@accepts_any_array
def transpose(
    data: Array,
    *,
    perm: Sequence[int] | None = None,
    opset: int = 25,
    copy: bool | None = None,
    out: Array | None = None,
) -> Array:
    """ONNX Transpose (1, 13, 21, 23, 24, 25): dim i of the result is dim `perm[i]` of `data`.

    Without `perm` the dims are in reverse order. Raises DTypeError, ReshapeError.

    >>> import numpy as np
    >>> transpose(np.zeros((2, 3, 4), np.float32), perm=[1, 0, 2]).shape
    (3, 2, 4)
    """
    row, x = entered("Transpose", opset, data)
    axes = range(x.ndim)[::-1] if perm is None else ints(perm, "perm", row)
    return view_or_copy(permuted(x, axes, "perm", row), copy, out)


@accepts_any_array
def squeeze(
    data: Array,
    axes: Any = None,
    *,
    opset: int = 25,
    copy: bool | None = None,
    out: Array | None = None,
) -> Array:
    """ONNX Squeeze (1, 11, 13, 21, 23, 24, 25): `data` without the dims `axes`, of size 1 each.

    Without `axes`, which may be negative from opset 11 on, all dims of size 1 are
    dropped. Raises DTypeError, ReshapeError.

    >>> import numpy as np
    >>> squeeze(np.zeros((1, 3, 1), np.float32), [-1]).shape
    (1, 3)
    """
    row, x = entered("Squeeze", opset, data)
    if axes is None:
        drop = {i for i, size in enumerate(x.shape) if size == 1}
    else:
        given = ints(axes, "axes", row, scalar=True)
        check_sign(row, given)
        drop = set(squeezed(x.shape, given, row))
    kept = tuple([size for i, size in enumerate(x.shape) if i not in drop])
    return view_or_copy(views.with_dims(x, kept), copy, out)


@accepts_any_array
def unsqueeze(
    data: Array,
    axes: Any,
    *,
    opset: int = 25,
    copy: bool | None = None,
    out: Array | None = None,
) -> Array:
    """ONNX Unsqueeze (1, 11, 13, 21, 23, 24, 25): new dims of size 1 at `axes` of the result.

    Raises DTypeError, ReshapeError.

    >>> import numpy as np
    >>> unsqueeze(np.zeros((3, 4), np.float32), [0, -1]).shape
    (1, 3, 4, 1)
    """
    row, x = entered("Unsqueeze", opset, data)
    given = ints(axes, "axes", row, scalar=True)
    at = axes_of(row, given, x.ndim + len(given))
    return view_or_copy(views.expanded(x, at) if given else x, copy, out)


@accepts_any_array
def flatten(
    data: Array,
    *,
    axis: int = 1,
    opset: int = 25,
    copy: bool | None = None,
    out: Array | None = None,
) -> Array:
    """ONNX Flatten (1, 9, 11, 13, 21, 23, 24, 25): a matrix of the dims before `axis` and the rest.

    `axis` is in [0, rank], from opset 11 on in [-rank, rank]. Copies only where there is
    no view. Raises DTypeError, ReshapeError.

    >>> import numpy as np
    >>> flatten(np.zeros((2, 3, 4), np.float32), axis=2).shape
    (6, 4)
    """
    row, x = entered("Flatten", opset, data)
    at = integer(axis, "axis", row)
    check_sign(row, (at,))
    if not -x.ndim <= at <= x.ndim:
        raise ReshapeError(f"axis {at} is not in [{-x.ndim}, {x.ndim}]", asked_by=row)
    at = at + x.ndim if at < 0 else at
    return views.reshape(x, (prod(x.shape[:at]), prod(x.shape[at:])), copy=copy, out=out)


@accepts_any_array
def expand(
    data: Array,
    shape: Any,
    *,
    opset: int = 25,
    copy: bool | None = None,
    out: Array | None = None,
) -> Array:
    """ONNX Expand (8, 13): `data` and `shape` broadcast, dims of size 1 and missing ones repeat.

    The view is read-only. Raises DTypeError, ReshapeError.

    >>> import numpy as np
    >>> expand(np.zeros((3, 1), np.float32), [2, 1, 4]).shape
    (2, 3, 4)
    """
    row, x = entered("Expand", opset, data)
    target = broadcast(x.shape, ints(shape, "the shape", row), asked_by=row)
    return view_or_copy(views.broadcast_to(x, target), copy, out)


@accepts_any_array
def slice(  # noqa: A001  # the operator's name
    data: Array,
    starts: Any,
    ends: Any,
    axes: Any = None,
    steps: Any = None,
    *,
    opset: int = 25,
    copy: bool | None = None,
    out: Array | None = None,
) -> Array:
    """ONNX Slice (1, 10, 11, 13): `starts` to `ends` (exclusive) of `axes`, in `steps`.

    Negative starts and ends count from the back; both are then clamped to the dim.
    `axes` are the first ones if left out, `steps` (from opset 10) 1. Arrays are int32 or
    int64. Raises DTypeError, ReshapeError.

    >>> import numpy as np
    >>> slice(np.arange(6, dtype=np.float32), [-1], [-100], [0], [-2])
    array([5., 3., 1.], dtype=float32)
    """
    row, x = entered("Slice", opset, data, "data")
    if steps is not None and row.since < 10:
        raise ReshapeError(f"{row} has no input steps (opset 10 does)")
    types = row.operands["starts"]
    begins, stops = ints(starts, "starts", row, types=types), ints(ends, "ends", row, types=types)
    count = len(begins)
    along = range(count) if axes is None else ints(axes, "axes", row, types=types)
    by = (1,) * count if steps is None else ints(steps, "steps", row, types=types)
    if not len(stops) == len(along) == len(by) == count:
        lengths = f"{count} starts, {len(stops)} ends, {len(along)} axes and {len(by)} steps"
        raise ReshapeError(f"{lengths} must be equal", asked_by=row)
    index: list[Any] = [builtins.slice(None)] * x.ndim
    for i, *given in zip(axes_of(row, along, x.ndim), begins, stops, by, strict=True):
        index[i] = _slice(row, x.shape[i], *given)
    whole: Any = x
    seen: Array = whole[(*index, ...)]
    return view_or_copy(seen, copy, out)


def _slice(row: Version, size: int, start: int, end: int, step: int) -> builtins.slice:
    """The slice of a dim in Python's terms, which would clamp a start below the dim otherwise."""
    if step == 0:
        raise ReshapeError("steps must not be 0", asked_by=row)
    if step < 0 and start < -size:
        start = 0 if size else start
    first, stop, _ = builtins.slice(start, end, step).indices(size)
    return builtins.slice(first, stop if stop >= 0 else None, step)  # -1 has another meaning there


@splits_any_array
def split(
    data: Array,
    split: Any = None,
    *,
    axis: int = 0,
    num_outputs: int | None = None,
    opset: int = 25,
    copy: bool | None = None,
) -> tuple[Array, ...]:
    """ONNX Split (1, 2, 11, 13, 18): views of `split` sizes (elements) one after the other.

    Without `split`, `num_outputs` equal parts, from opset 18 on the last one may be
    smaller. Before opset 18 `num_outputs` is no attribute, but the number of the node's
    outputs. Raises DTypeError, ReshapeError.

    >>> import numpy as np
    >>> [part.shape for part in split(np.zeros((7, 2), np.float32), num_outputs=3)]
    [(3, 2), (3, 2), (1, 2)]
    """
    row, x = entered("Split", opset, data)
    at = axis_of(row, integer(axis, "axis", row), x.ndim)
    size = x.shape[at]
    if split is not None:
        if row.since == 1 and is_array(split):
            split = whole_numbers(row, split, "split")
        sizes: tuple[int, ...] = ints(split, "split", row)
        if num_outputs is not None and (row.since >= 18 or num_outputs != len(sizes)):
            raise ReshapeError(
                f"{len(sizes)} sizes in split exclude num_outputs={num_outputs}", asked_by=row
            )
    else:
        sizes = _equal(row, size, num_outputs)
    if min(sizes, default=0) < 0 or sum(sizes) != size:
        raise ReshapeError(
            f"split {list(sizes)} does not divide dim {at} of {shape_text(x.shape)}",
            asked_by=row,
        )
    bounds: list[int] = [0, *accumulate(sizes)]
    return tuple(view_or_copy(part, copy, None) for part in manipulation.parts(x, at, bounds))


def whole_numbers(row: Version, values: Any, name: str) -> list[int]:
    """The ints in a tensor of floats, as used by versions of opset 1."""
    array = np.asarray(values)
    if row.check(array) and not (array.astype(np.int64) == array).all():
        raise ReshapeError(f"{name} must hold whole numbers", asked_by=row)
    return [int(value) for value in array.reshape(-1)]


def _equal(row: Version, size: int, parts: int | None) -> tuple[int, ...]:
    """The sizes of `parts` equal parts."""
    if parts is None:
        raise ReshapeError("split or num_outputs must be given", asked_by=row)
    count = integer(parts, "num_outputs", row)
    if count < 1:
        raise ReshapeError(f"num_outputs must be at least 1, not {count}", asked_by=row)
    each = -(-size // count)
    last = size - each * (count - 1)
    if last < 0 or (last != each and row.since < 18):
        raise ReshapeError(f"{size} elements cannot be {count} equal parts", asked_by=row)
    return (*(each,) * (count - 1), last)


@accepts_any_array
def identity(
    data: Array, *, opset: int = 25, copy: bool | None = None, out: Array | None = None
) -> Array:
    """ONNX Identity (1, 13, 14, 16, 19, 21, 23, 24, 25) of a tensor: the array itself, or a copy.

    `copy` and `out` as in `shapejit.reshape`. Raises DTypeError, ReshapeError.

    >>> import numpy as np
    >>> identity(np.zeros((2, 3), np.float32)).shape
    (2, 3)
    """
    return view_or_copy(entered("Identity", opset, data)[1], copy, out)


@converts_any_array
def size(data: NDArray[Any] | Tensor, *, opset: int = 25) -> NDArray[np.int64]:
    """ONNX Size (1, 13, 19, 21, 23, 24, 25): the number of elements, as an int64 scalar.

    Raises DTypeError, ReshapeError.

    >>> import numpy as np
    >>> size(np.zeros((2, 3), np.float32))
    array(6)
    """
    version("Size", opset).check(data)
    return np.array(data.size if is_a(data, Tensor) else plain(data).size, np.int64)
