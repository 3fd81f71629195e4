"""take and take_along_axis: elements along one dim by index, in one launch."""

from __future__ import annotations

from contextlib import suppress
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays.foreign import accepts_any_array, native
from ..arrays.tensor import Array, Tensor
from ..engine import outputs, routes
from ..engine.addresses import BitAddresses, bit_address_of
from ..engine.copying import numpy_gathers
from ..engine.patience import by_numpy
from ..errors import DTypeError, OutOfBoundsError, ReshapeError
from ..runtime.launches import Addresses
from ..runtime.ndarrays import MOST_DIMS, is_a, plain
from ..shapes.layout import broadcast
from ..shapes.request import Ints
from .codes import pack
from .views import axis_of, checked


@accepts_any_array
def take(x: Array, indices: Any, /, *, axis: int | None = None, out: Array | None = None) -> Array:
    """The elements of `x` at `indices` along `axis`, in a new array (Array API v2024.12, take).

    `indices` is an int, a list or tuple of ints, or an integer array or Tensor of any rank, whose
    dims replace `axis` in the result. Negative ones count from the end. `axis` may be omitted if
    `x` has one dim. `out` as in `reshape`; it must not overlap `indices` either. Raises
    OutOfBoundsError (an IndexError) for an index out of bounds, ReshapeError, DTypeError.

    >>> import numpy as np
    >>> take(np.array([[1, 2, 3], [4, 5, 6]]), [2, 0, -1], axis=1)
    array([[3, 1, 3],
           [6, 4, 6]])
    """
    return take_for(x, indices, axis, out, "take")


def take_for(
    x: Array, indices: Any, axis: int | None, out: Array | None, asked_by: object
) -> Array:
    """`take`; errors name `asked_by`.

    >>> take_for(np.arange(5), [3], 0, None, "doctest")
    array([3])
    """
    if out is None and type(x) is type(indices) is np.ndarray and type(axis) is int:
        # NumPy's take does the same, with three exceptions: it wraps uint64 around to negative
        # indices, accepts any index into an array without elements, and returns a scalar if
        # neither argument has more than one dim. What it refuses is refused below.
        fits = indices.dtype.kind == "i" or (indices.dtype.kind == "u" and indices.itemsize < 8)
        if x.size and fits and x.flags.c_contiguous:
            with suppress(IndexError, TypeError, ValueError, ZeroDivisionError):
                if numpy_gathers(x, axis, indices.size):
                    if x.ndim > 1 or indices.ndim:
                        return np.take(x, indices, axis)
                    return np.take(x, indices.reshape(1), axis).reshape(())
    x = checked(x)
    if axis is None and x.ndim != 1:
        raise ReshapeError(f"axis must be given for {x.ndim} dims", asked_by=asked_by)
    at: int = axis_of(0 if axis is None else axis, x.ndim, asked_by)
    array = positions(indices, asked_by)
    found: Addresses = _found(array, x.shape[at], at, asked_by)
    shape = x.shape[:at] + found.shape + x.shape[at + 1 :]
    target, fresh = outputs.target(out, x.dtype, shape, (x, array))
    if target.size:
        _gather(x, found.reshape(-1), at, target, fresh)
    return target if out is None else out


@accepts_any_array
def take_along_axis(
    x: Array, indices: Any, /, *, axis: int = -1, out: Array | None = None
) -> Array:
    """For each element of `indices`, the element of `x` at that index along `axis`, in a new array.

    `indices` is an integer array or Tensor with as many dims as `x`; all dims but `axis` are
    broadcast. Negative indices and `out` as in `take`. Array API v2024.12, take_along_axis.
    Raises OutOfBoundsError (an IndexError), ReshapeError, DTypeError.

    >>> import numpy as np
    >>> take_along_axis(np.array([[3, 1, 2], [5, 6, 4]]), np.array([[1, 2, 0], [2, 0, 1]]))
    array([[1, 2, 3],
           [4, 5, 6]])
    """
    who = "take_along_axis"
    x = checked(x)
    array = positions(indices, who)
    at: int = axis_of(axis, x.ndim, who)
    if array.ndim != x.ndim:
        raise ReshapeError(f"indices have {array.ndim} dims, x {x.ndim}", asked_by=who)
    found: Addresses = _found(array, x.shape[at], at, who)
    shape = _shape_along(x.shape, found.shape, at, who)
    target, _ = outputs.target(out, x.dtype, shape, (x, array))
    made = np.take_along_axis(x.numpy() if isinstance(x, Tensor) else x, found, at)
    if isinstance(x, Tensor):
        pack(made, x.dtype, out=target)
    else:
        target[...] = made
    return target if out is None else out


def _shape_along(shape: Ints, indices: Ints, axis: int, asked_by: object) -> Ints:
    """The broadcast shape of both, with the indices' size along the axis."""
    around = [(*sizes[:axis], 1, *sizes[axis + 1 :]) for sizes in (shape, indices)]
    try:
        made = broadcast(*around, asked_by=asked_by)
    except ReshapeError:
        fault = "cannot broadcast indices of"
        raise ReshapeError(fault, indices, shape, asked_by=asked_by) from None
    return (*made[:axis], indices[axis], *made[axis + 1 :])


def positions(indices: Any, asked_by: object) -> NDArray[Any]:
    """Indices of any accepted type as an integer array.

    >>> positions([2, -1], "doctest")
    array([ 2, -1])
    """
    if type(indices) is np.ndarray and indices.dtype.kind in "iu":
        return indices
    indices = native(indices)
    if is_a(indices, Tensor):
        indices = np.asarray(indices)
    elif is_a(indices, list) or is_a(indices, tuple):
        indices = np.array(indices) if len(indices) else np.zeros(0, np.int64)
    elif isinstance(indices, int) and not isinstance(indices, bool):
        indices = np.array(indices)
    array = plain(indices)
    if array.dtype.kind not in "iu":
        raise DTypeError(f"indices must be integers, not {array.dtype} ({asked_by})")
    return array


def _found(array: NDArray[Any], size: int, axis: int, asked_by: object) -> Addresses:
    """The indices counted from the front. Raises OutOfBoundsError."""
    if not array.size:
        return np.zeros(array.shape, np.int64)
    low, high = int(array.min()), int(array.max())
    if low < -size or high >= size:
        wrong = low if low < -size else high
        raise OutOfBoundsError(
            f"index {wrong} is out of bounds for dim {axis} of size {size}", asked_by=asked_by
        )
    found = array.astype(np.int64, copy=False)
    return np.where(found < 0, found + size, found) if low < 0 else found


def _gather(x: Any, found: Addresses, axis: int, target: Any, fresh: bool) -> None:
    """Copy the element at each index to its place in the row-major `target`."""
    if isinstance(x, Tensor) and max(x.ndim, target.ndim) > MOST_DIMS:
        outer, rest = prod(x.shape[:axis]), prod(x.shape[axis + 1 :])
        x, target = x.reshape((outer, x.shape[axis], rest)), target.reshape((outer, -1, rest))
        axis = 1
    if isinstance(x, Tensor) and not x.dtype.packed:
        x, target = x.numpy(), target.numpy()
    target = target.reshape((*x.shape[:axis], len(found), *x.shape[axis + 1 :]))
    if numpy_gathers(x, axis, len(found)):
        _take(x, found, axis, target)
        return
    place, layout = bit_address_of(x)
    at, into = bit_address_of(target)
    sources = BitAddresses.alike(place + found * layout.strides[axis], layout.select(axis, 0).at(0))
    targets = at + into.strides[axis] * np.arange(len(found), dtype=np.int64)
    for seen, bit, these in sources.groups(targets):
        together = None if axis == 0 and not bit else into.select(axis, 0).at(bit)
        route = routes.compiled(seen, 0, together, len(found))
        if not route.ready:
            with by_numpy(route.kind):
                _take(x, found, axis, target)
            return
        routes.run(route, sources.begins(these) & ~7, targets[these] & ~7, fresh)


def _take(x: Any, found: Addresses, axis: int, target: Any) -> None:
    """`_gather` by NumPy."""
    if isinstance(x, np.ndarray):
        if x.flags.c_contiguous or len(found) >= x.shape[axis]:
            np.take(x, found, axis, target, "clip")
        else:  # np.take would copy all of `x` before
            target[...] = x[(slice(None),) * axis + (found,)]
    else:
        pack(take_for(x.unpack(), found, axis, None, "take"), x.dtype, out=target)
