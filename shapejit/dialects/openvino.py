"""OpenVINO's layout operations (docs.openvino.ai, operation sets), such as Reshape."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from ..arrays.foreign import accepts_any_array, joins_any_arrays, splits_any_array
from ..arrays.tensor import Array
from ..dtypes.table import STRING
from ..errors import DTypeError, ReshapeError, about
from ..operations import joining, manipulation, views
from ..operations.views import checked, reshape_as
from ..shapes import layout as shapes
from ..shapes.layout import normal_axes, normal_axis
from ..shapes.request import Request, integer
from .arguments import (
    check_alike,
    dtype_in,
    ints,
    permuted,
    special_zero_request,
    view_or_copy,
)

__all__ = [
    "broadcast",
    "concat",
    "request",
    "reshape",
    "split",
    "squeeze",
    "transpose",
    "unsqueeze",
]

_RESHAPE = "openvino.Reshape-1"


def request(shape: Any, *, special_zero: bool) -> Request:
    """The Request of OpenVINO Reshape-1 for `shape` (sizes in elements).

    With `special_zero` a 0 copies the source dim of the same index, and copied
    dims cancel on both sides before -1 is computed; without it 0 is a size.
    `shape` is a sequence of ints or a 1-D array of any integer type. Raises
    ReshapeError, DTypeError.

    >>> request([0, -1], special_zero=True).dims
    (-2, -1)
    """
    return special_zero_request(shape, special_zero, _RESHAPE, cancel=True)


@accepts_any_array
def reshape(
    data: Array,
    shape: Any,
    *,
    special_zero: bool,
    copy: bool | None = None,
    out: Array | None = None,
) -> Array:
    """OpenVINO Reshape-1 of an ndarray or Tensor of any numeric OpenVINO element type.

    `shape` and `special_zero` as in `request`; `copy` and `out` as in
    `shapejit.reshape`. Raises DTypeError, ReshapeError.

    >>> import numpy as np
    >>> reshape(np.zeros((4, 0, 2), np.float32), [-1, 0], special_zero=True).shape
    (8, 0)
    """
    asked = request(shape, special_zero=special_zero)
    return reshape_as(_checked(data, _RESHAPE), asked, copy, out)


def _checked(data: Array, who: str) -> Array:
    """An array of one of OpenVINO's numeric types."""
    kind = dtype_in(data, who)
    if kind.openvino is None or kind is STRING:
        raise DTypeError(f"{who} supports OpenVINO's numeric types, not {kind}")
    return checked(data)


@accepts_any_array
def transpose(
    data: Array, input_order: Any, *, copy: bool | None = None, out: Array | None = None
) -> Array:
    """OpenVINO Transpose-1: dim i of the result is dim `input_order[i]` of `data`.

    An empty `input_order` reverses the dims. A view; `copy` and `out` as in
    `shapejit.reshape`. Raises DTypeError, ReshapeError.

    >>> import numpy as np
    >>> transpose(np.zeros((2, 3, 4), np.float32), []).shape
    (4, 3, 2)
    """
    who = "openvino.Transpose-1"
    x, order = _checked(data, who), ints(input_order, "input_order", who)
    order = order or tuple(range(x.ndim)[::-1])
    return view_or_copy(permuted(x, order, "input_order", who), copy, out)


@accepts_any_array
def squeeze(
    data: Array, axes: Any = None, *, copy: bool | None = None, out: Array | None = None
) -> Array:
    """OpenVINO Squeeze-15: `data` without the dims `axes`; those that are not of size 1 stay.

    `axes` is an int, a sequence of them or an array, negative ones count from the back;
    if it is empty or left out, all dims of size 1 are dropped. A view; `copy` and `out` as
    in `shapejit.reshape`. Raises DTypeError, ReshapeError.

    >>> import numpy as np
    >>> squeeze(np.zeros((1, 3, 1), np.float32), [0, 1]).shape
    (3, 1)
    """
    who = "openvino.Squeeze-15"
    x = _checked(data, who)
    given = () if axes is None else ints(axes, "axes", who)
    chosen = {normal_axis(axis, x.ndim, who) for axis in given} or set(range(x.ndim))
    drop = tuple(i for i in sorted(chosen) if x.shape[i] == 1)
    return view_or_copy(views.squeeze(x, drop), copy, out)


@accepts_any_array
def unsqueeze(
    data: Array, axes: Any, *, copy: bool | None = None, out: Array | None = None
) -> Array:
    """OpenVINO Unsqueeze-1: new dims of size 1 at the positions `axes` of the result.

    `axes` is an int, a sequence of different ones or an array, negative ones count from
    the back. A view; `copy` and `out` as in `shapejit.reshape`. Raises DTypeError,
    ReshapeError.

    >>> import numpy as np
    >>> unsqueeze(np.zeros((2, 3), np.float32), [0, -1]).shape
    (1, 2, 3, 1)
    """
    who = "openvino.Unsqueeze-1"
    x, given = _checked(data, who), ints(axes, "axes", who)
    if not given:
        raise ReshapeError("axes must not be empty", asked_by=who)
    at = normal_axes(given, x.ndim + len(given), who)
    return view_or_copy(views.expand_dims(x, at), copy, out)


@accepts_any_array
def broadcast(
    data: Array,
    target_shape: Any,
    axes_mapping: Any = None,
    *,
    mode: str = "numpy",
    copy: bool | None = None,
    out: Array | None = None,
) -> Array:
    """OpenVINO Broadcast-3: `data` repeated to `target_shape` (elements).

    In `mode` "numpy" dims of size 1 and missing leading ones repeat; "bidirectional"
    repeats dims of size 1 of the target shape, too; with "explicit", dim i of `data`
    becomes dim `axes_mapping[i]` (in ascending order) and all others repeat. A read-only
    view; `copy` and `out` as in `shapejit.reshape`. Raises DTypeError, ReshapeError.

    >>> import numpy as np
    >>> broadcast(np.zeros(16, np.float32), [1, 16, 50, 50], [1], mode="explicit").shape
    (1, 16, 50, 50)
    """
    who = "openvino.Broadcast-3"
    x, shape = _checked(data, who), ints(target_shape, "target_shape", who)
    if mode not in ("numpy", "explicit", "bidirectional"):
        raise ReshapeError(f"mode is numpy, explicit or bidirectional, not {mode!r}", asked_by=who)
    if (mode == "explicit") != (axes_mapping is not None):
        raise ReshapeError(
            f"axes_mapping is for mode explicit, and needed there, not for {mode}", asked_by=who
        )
    whole = shapes.broadcast(x.shape, shape, asked_by=who) if mode == "bidirectional" else shape
    if mode == "explicit":
        at = ints(axes_mapping, "axes_mapping", who)
        fits = len(at) == x.ndim and all(0 <= axis < len(shape) for axis in at)
        if not fits or any(a >= b for a, b in pairwise(at)):
            raise ReshapeError(
                f"axes_mapping {list(at)} must be {x.ndim} ascending dims of {list(shape)}",
                asked_by=who,
            )
        sizes = dict(zip(at, x.shape, strict=True))
        x = views.reshape(x, tuple(sizes.get(i, 1) for i in range(len(shape))), copy=False)
    with about(who):
        seen = views.broadcast_to(x, whole)
    return view_or_copy(seen, copy, out)


@joins_any_arrays
def concat(nodes: Sequence[Array], axis: int, *, out: Array | None = None) -> Array:
    """OpenVINO Concat-1: the arrays one after the other along `axis`, in a new array.

    `out` as in `shapejit.reshape`. Raises DTypeError, ReshapeError.

    >>> import numpy as np
    >>> concat([np.zeros((2, 3), np.float32)] * 2, -1).shape
    (2, 6)
    """
    who = "openvino.Concat-1"
    parts = [_checked(x, who) for x in nodes]
    check_alike([dtype_in(x, who) for x in parts], who)
    at = integer(axis, "axis", who)
    with about(who):
        return joining.concat(parts, axis=at, out=out)


@splits_any_array
def split(
    data: Array, axis: Any, num_splits: int, *, copy: bool | None = None
) -> tuple[Array, ...]:
    """OpenVINO Split-1: `num_splits` equal parts along `axis`, as views.

    `copy` as in `shapejit.reshape`. Raises DTypeError, ReshapeError.

    >>> import numpy as np
    >>> [part.shape for part in split(np.zeros((6, 4), np.float32), 0, 3)]
    [(2, 4), (2, 4), (2, 4)]
    """
    who = "openvino.Split-1"
    x, given = _checked(data, who), ints(axis, "axis", who)
    if len(given) != 1:
        raise ReshapeError(f"axis must be one number, not {len(given)}", asked_by=who)
    at, count = normal_axis(given[0], x.ndim, who), integer(num_splits, "num_splits", who)
    if count < 1 or x.shape[at] % count:
        fault = f"dim {at} of size {x.shape[at]} cannot be {count} equal parts"
        raise ReshapeError(fault, asked_by=who)
    each = x.shape[at] // count
    parts = manipulation.parts(x, at, [i * each for i in range(count + 1)])
    return tuple(view_or_copy(part, copy, None) for part in parts)
