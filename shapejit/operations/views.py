"""The public shape operations, such as reshape and flip, and ascontiguous."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays.foreign import accepts_any_array, keeps_dtype, sees_native_arrays
from ..arrays.tensor import Array, Tensor, is_array
from ..dtypes.table import DType, dtype
from ..engine import copying, outputs, small_calls
from ..engine.addresses import layout_of
from ..engine.calls import follow, key_of
from ..engine.routes import FOUND
from ..engine.small_calls import COPIES, KNOWN, TABLE, Routes
from ..errors import DTypeError, ReshapeError, shape_text, type_name
from ..runtime.ndarrays import check_possible, is_a, is_mapping, plain, unwrapped
from ..shapes.layout import normal_axes, normal_axis, permutation, squeezed
from ..shapes.request import (
    MAX_INTS,
    Ints,
    Request,
    are_sizes,
    integer,
    integers,
    one_or_several,
    plain_shape,
    request,
)
from ..shapes.resolver import target_shape


@keeps_dtype
def reshape(
    x: Array, /, shape: Sequence[int] | int, *, copy: bool | None = None, out: Array | None = None
) -> Array:
    """The elements of `x`, in row-major order, in another shape (Array API v2024.12, reshape).

    In `shape` (sizes in elements) a 0 is a size, and one -1 is inferred. The result is a view
    if one exists, else a copy; `copy=True` always copies, `copy=False` raises if a copy is needed.
    `out` (the type and dtype of `x`, the result's shape, C-contiguous, not overlapping `x`) is
    filled and returned. Raises ReshapeError, DTypeError.

    >>> import numpy as np
    >>> reshape(np.arange(6), (2, -1))
    array([[0, 1, 2],
           [3, 4, 5]])
    """
    given: Any = (shape,) if type(shape) is int else shape
    views = copy is None and out is None
    if type(given) is tuple and (copy is None or copy is True):
        done: Any = small_calls.run(x, out, given, TABLE if views else COPIES.table, None)
        if done is not None:
            return done  # type: ignore[no-any-return]  # like x
    allowed = copy is None or copy is True
    if type(x) is not np.ndarray or not (allowed and are_sizes(given) and x.size):
        return reshape_as(x, array_request(given, "reshape"), copy, out)
    if views:
        # NumPy's reshape does the same; where there is no view, the error is raised below.
        try:  # three times as fast as `suppress`; copy=False would take 1 us
            return x.reshape(given) if x.flags.c_contiguous else x.reshape(given, copy=False)
        except ValueError:
            pass
    x = x[...]  # another thread may give `x` another shape
    key = key_of(x, ("reshape", given))
    done = follow(key, x, out)
    if done is None:
        shape = target_shape(x.shape, _array_request(given))
        done = copied(x, shape, out, key, given, KNOWN if views else COPIES)
    return done  # type: ignore[no-any-return]  # like x


@lru_cache(maxsize=1024)
def _array_request(tokens: Ints) -> Request:
    return request(tokens, asked_by="reshape (Array API)")


def array_request(shape: Any, asked_by: str) -> Request:
    """The Request for a shape as the Array API defines it; an int is a shape of one dim."""
    if type(shape) is tuple and [*map(type, shape)].count(int) == len(shape) <= MAX_INTS:
        return _array_request(shape)
    return _array_request(plain_shape(shape, "the target shape", asked_by))


def reshape_as(x: Array, request: Request, copy: bool | None, out: Array | None) -> Array:
    """Reshape `x` by a Request; the reshape of every dialect ends here."""
    if type(x) is not np.ndarray and type(x) is not Tensor:
        if is_a(x, Tensor):
            return x.reshaped(request, copy, out)  # type: ignore[attr-defined,no-any-return]  # traced
        return with_native(x, reshape_as, out, request, copy)  # type: ignore[no-any-return]  # like x
    shape = target_shape(x.shape, request)
    view: Any = None
    if out is None and copy is not True:
        if type(x) is Tensor:
            seen = x.layout.reshape(shape)
            view = seen and x.with_layout(seen)
        else:
            array: Any = x
            with suppress(ValueError):  # there is no view
                whole = array.flags.c_contiguous
                view = array.reshape(shape) if whole else array.reshape(shape, copy=False)
        if copy is None and view is not None:
            return view  # type: ignore[no-any-return]  # like x
    if not outputs.wants_copy(view, x, request, copy, out):
        return view  # type: ignore[no-any-return]  # like x
    key = key_of(x, ("reshape", shape)) if type(x) is Tensor else None
    done: Array | None = follow(key, x, out)
    return copied(x, shape, out, key) if done is None else done


@sees_native_arrays
def with_native(x: Any, function: Callable[..., Any], out: Any, *rest: Any, **named: Any) -> Any:
    """`function` of an argument that is neither an exact ndarray nor a Tensor."""
    return function(checked(x), *rest, out=out, **named)


def checked(x: Array) -> Array:
    """An exact ndarray, or a Tensor; other objects raise instead of being converted.

    NumPy scalars, which NumPy's functions return in place of 0-D arrays, become 0-D arrays.
    """
    if type(x) is np.ndarray:
        return x
    if not is_array(x) and not issubclass(type(x), np.generic):
        raise DTypeError(
            f"expected a numpy.ndarray, a shapejit.Tensor or an array of a DLPack library, "
            f"not {type_name(x)}; {_instead(x)}"
        )
    made: Array = unwrapped(x)
    return made


def _instead(x: object) -> str:
    """A hint for an argument that is not an array."""
    if is_mapping(x):
        return "call the function for each of its values"
    if type_name(x) == "dask.Array":
        return "shapejit.adapters.dask has functions for these"
    return "wrap it with numpy.asarray or shapejit.asarray"


def dtype_of(x: NDArray[Any] | Tensor) -> DType:
    """The dtype of an array; `string` for an object array that has only str and bytes."""
    if is_a(x, Tensor):
        return x.dtype
    array = plain(x)
    kind = dtype(array.dtype)
    if array.dtype == object:
        for value in array.flat:
            if not isinstance(value, str | bytes):
                raise DTypeError(f"an object array of strings cannot hold {type(value).__name__}")
    return kind


def copied(
    x: Array,
    shape: Ints,
    out: Array | None,
    key: object = None,
    asked: object = None,
    known: Routes = KNOWN,
) -> Array:
    """The elements of an array in row-major order, as `out` or as a new array of `shape`.

    `key` identifies the array's kind and the shape that was `asked` for; later calls with it use a
    Route, see `copying.copy`.
    """
    target, fresh = outputs.target(out, x.dtype, shape, (x,))
    copying.copy(x, target, fresh, key, asked, known)
    return target if out is None else out


@keeps_dtype
def ascontiguous(x: Array, *, out: Array | None = None) -> Array:
    """`x` in row-major order: `x` itself if it already is (and starts on a byte), else a copy.

    `out` is filled and returned, as in `reshape`. Raises ReshapeError, DTypeError.

    >>> import numpy as np
    >>> ascontiguous(np.arange(6).reshape(2, 3).T).strides
    (16, 8)
    """
    return small_calls.run(x, out, None, TABLE, _ascontiguous)  # type: ignore[no-any-return]  # like x


def _ascontiguous(x: Any, out: Any, _: None) -> Any:
    """`ascontiguous` without a Route that compiled code runs."""
    if type(x) is np.ndarray:
        if out is None and x.flags.c_contiguous:
            return x
        x = x[...]  # another thread may give `x` another shape
    elif type(x) is not Tensor:
        if is_a(x, Tensor):
            return x.materialized(out)  # type: ignore[attr-defined]  # traced
        return with_native(x, ascontiguous, out)
    key = key_of(x, "copy")
    call = FOUND.get(key)  # as `follow`: one call less
    done = None if call is None else call(x, out)
    if done is None:
        if isinstance(x, Tensor) and out is None and x.layout.contiguous_bytes:
            return x
        done = copied(x, x.shape, out, key)
    return done


@accepts_any_array
def permute_dims(x: Array, axes: Sequence[int]) -> Array:
    """The view whose dim i is dim `axes[i]` of `x` (Array API).

    Raises ReshapeError for axes that are no permutation of the dims, DTypeError.

    >>> import numpy as np
    >>> permute_dims(np.zeros((2, 3, 4)), (2, 0, 1)).shape
    (4, 2, 3)
    """
    x = checked(x)
    order = integers(axes, "axes", "permute_dims")
    if isinstance(x, Tensor):
        return x.with_layout(x.layout.permute(order))
    try:
        return x.transpose(order)
    except ValueError:
        permutation(order, x.shape)  # raises the error of Tensors
        raise


@accepts_any_array
def flip(x: Array, *, axis: int | Sequence[int] | None = None) -> Array:
    """The view with the order of the elements reversed along `axis` (None: along all).

    Raises AxisError, ReshapeError for an axis that is given twice, DTypeError.

    >>> import numpy as np
    >>> flip(np.arange(3))
    array([2, 1, 0])
    """
    x = checked(x)
    axes = None if axis is None else axes_of(axis, x.ndim, "flip")
    if isinstance(x, Tensor):
        return x.with_layout(x.layout.flip(tuple(range(x.ndim)) if axes is None else axes))
    return np.flip(x, axes) if x.ndim else x[...]  # np.flip copies an array without dims


@accepts_any_array
def broadcast_to(x: Array, shape: Sequence[int] | int) -> Array:
    """The read-only view of `shape` in which dims of size 1 repeat (stride 0).

    Raises ReshapeError for a shape that `x` cannot be broadcast to, DTypeError.

    >>> import numpy as np
    >>> broadcast_to(np.arange(3), (2, 3)).strides
    (0, 8)
    """
    sizes = plain_shape(shape, "the shape", "broadcast_to")
    x = checked(x)
    if isinstance(x, Tensor):
        return x.with_layout(x.layout.broadcast_to(sizes)).readonly()
    try:
        return np.broadcast_to(x, sizes)
    except ValueError:
        layout_of(x).broadcast_to(sizes)  # raises for what Layouts refuse
        check_possible(sizes, x.itemsize)
        raise


@accepts_any_array
def expand_dims(x: Array, /, axis: int | Sequence[int] = 0) -> Array:
    """The view with new dims of size 1, at the axes `axis` of the result.

    Raises AxisError, ReshapeError for an axis that is given twice, DTypeError.

    >>> import numpy as np
    >>> expand_dims(np.zeros((2, 3)), axis=1).shape
    (2, 1, 3)
    """
    x = checked(x)
    given = one_or_several(axis, "axis", "expand_dims")
    return expanded(x, normal_axes(given, x.ndim + len(given), "expand_dims"))


def expanded(x: Array, axes: Ints) -> Array:
    """`expand_dims` for axes that are counted from the front.

    >>> import numpy as np
    >>> expanded(np.zeros((2, 3)), (1,)).shape
    (2, 1, 3)
    """
    if isinstance(x, Tensor):
        return x.with_layout(x.layout.expand_dims(axes))
    rest = iter(x.shape)
    shape = [1 if i in axes else next(rest) for i in range(x.ndim + len(axes))]
    check_possible((1,) * len(shape), x.itemsize)
    return x.reshape(shape)  # half the time of np.expand_dims, which does the same


def with_dims(x: Array, shape: Ints) -> Array:
    """The view of a shape that has the dims of `x` but for some of size 1.

    >>> import numpy as np
    >>> with_dims(np.zeros((2, 1, 3)), (2, 3)).shape
    (2, 3)
    """
    if isinstance(x, Tensor):
        made: Array = reshape(x, shape)
        return made
    return x.reshape(shape)


@accepts_any_array
def squeeze(x: Array, /, axis: int | Sequence[int]) -> Array:
    """The view without the dims `axis`, which must be of size 1.

    Raises AxisError, ReshapeError for dims of other sizes, DTypeError.

    >>> import numpy as np
    >>> squeeze(np.zeros((2, 1, 3)), axis=1).shape
    (2, 3)
    """
    x = checked(x)
    axes = axes_of(axis, x.ndim, "squeeze")
    if isinstance(x, Tensor):
        return x.with_layout(x.layout.squeeze(axes))
    squeezed(x.shape, axes)
    return np.squeeze(x, axes)


@accepts_any_array
def matrix_transpose(x: Array, /) -> Array:
    """The view with the last two dims swapped. Raises ReshapeError for fewer dims, DTypeError.

    >>> import numpy as np
    >>> matrix_transpose(np.zeros((5, 2, 3))).shape
    (5, 3, 2)
    """
    x = checked(x)
    if x.ndim < 2:
        raise ReshapeError(f"matrix_transpose needs 2 dims, {shape_text(x.shape)} has {x.ndim}")
    return permute_dims(x, (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))


@accepts_any_array
def diagonal(x: Array, /, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Array:
    """The view of the elements at i of `axis1` and i + `offset` of `axis2`, along a new last dim.

    As numpy.diagonal and torch.diagonal, but as writable as `x`. Raises ReshapeError,
    DTypeError.

    >>> import numpy as np
    >>> diagonal(np.array([[1, 2, 3], [4, 5, 6]]), 1)
    array([2, 6])
    """
    x = checked(x)
    distance = integer(offset, "offset", "diagonal")
    first, second = axes_of((axis1, axis2), x.ndim, "diagonal")
    if isinstance(x, Tensor):
        return x.with_layout(x.layout.diagonal(first, second, distance))
    made = np.diagonal(x, distance, first, second)
    made.flags.writeable = x.flags.writeable
    return made


@accepts_any_array
def rot90(x: Array, /, k: int = 1, axes: Sequence[int] = (0, 1)) -> Array:
    """The view rotated by 90 degrees `k` times, from the first of two `axes` towards the second.

    As numpy.rot90 and torch.rot90. Raises ReshapeError, DTypeError.

    >>> import numpy as np
    >>> rot90(np.array([[1, 2], [3, 4]]))
    array([[2, 4],
           [1, 3]])
    """
    x = checked(x)
    turns = integer(k, "k", "rot90")
    plane = axes_of(axes, x.ndim, "rot90")
    if len(plane) != 2:
        raise ReshapeError(f"rot90 needs 2 axes, not {len(plane)}", asked_by="rot90")
    first, second = plane
    back = ((), (second,), plane, (first,))[turns % 4]
    order = list(range(x.ndim))
    if turns % 2:
        order[first], order[second] = second, first
    return permute_dims(flip(x, axis=back), order)


def axes_of(axis: int | Sequence[int], ndim: int, asked_by: str, name: str = "axis") -> Ints:
    """One axis or several, counted from the front."""
    return normal_axes(one_or_several(axis, name, asked_by), ndim, asked_by, name)


def axis_of(axis: Any, ndim: int, asked_by: object) -> int:
    """One axis, counted from the front."""
    return normal_axis(integer(axis, "axis", asked_by), ndim, asked_by)
