"""The Array API's other manipulation functions, made of views and at most one copy."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise, product
from math import prod
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from ..arrays.foreign import (
    Other,
    Scalar,
    accepts_any_array,
    sees_native_arrays,
    splits_any_array,
)
from ..arrays.tensor import Array
from ..engine import copying, outputs
from ..errors import ReshapeError, shape_text, shortened
from ..runtime.ndarrays import MOST_DIMS
from ..shapes.layout import broadcast, normal_axis
from ..shapes.request import Ints, are_several, one_or_several, plain_shape, request
from .gathering import take
from .regions import fill_region
from .views import (
    axes_of,
    axis_of,
    broadcast_to,
    checked,
    expand_dims,
    permute_dims,
    reshape,
    reshape_as,
)


@accepts_any_array
def transpose(x: Array, axes: Sequence[int] | None = None) -> Array:
    """As `permute_dims`, but without axes it reverses the dims, as in NumPy.

    Raises ReshapeError, DTypeError.

    >>> import numpy as np
    >>> transpose(np.zeros((2, 3, 4))).shape
    (4, 3, 2)
    """
    x = checked(x)
    return permute_dims(x, tuple(range(x.ndim))[::-1] if axes is None else axes)


@accepts_any_array
def moveaxis(x: Array, source: int | Sequence[int], destination: int | Sequence[int], /) -> Array:
    """The view with the dims `source` moved to `destination`; the others keep their order.

    Array API v2024.12, moveaxis. Raises ReshapeError, DTypeError.

    >>> import numpy as np
    >>> moveaxis(np.zeros((2, 3, 4)), 0, -1).shape
    (3, 4, 2)
    """
    x = checked(x)
    begin = axes_of(source, x.ndim, "moveaxis", "source")
    end = axes_of(destination, x.ndim, "moveaxis", "destination")
    if len(begin) != len(end):
        raise ReshapeError(
            "source and destination must have the same number of axes, "
            f"not {len(begin)} and {len(end)}",
            asked_by="moveaxis",
        )
    order = [axis for axis in range(x.ndim) if axis not in begin]
    for at, axis in sorted(zip(end, begin, strict=True)):
        order.insert(at, axis)
    return permute_dims(x, order)


def broadcast_shapes(*shapes: Sequence[int] | int) -> tuple[int, ...]:
    """The broadcast shape of these shapes (Array API v2025.12).

    Raises ReshapeError if there is none, DTypeError for what is not a shape.

    >>> broadcast_shapes((2, 1), (3,), ())
    (2, 3)
    """
    given = [plain_shape(shape, "a shape", "broadcast_shapes") for shape in shapes]
    return broadcast(*given, asked_by="broadcast")


@splits_any_array
def broadcast_arrays(*arrays: Array) -> tuple[Array, ...]:
    """The arrays as read-only views of one shape (Array API); see `broadcast_to`.

    Raises ReshapeError if they have no common shape, DTypeError.

    >>> import numpy as np
    >>> [x.shape for x in broadcast_arrays(np.zeros((2, 1)), np.zeros(3))]
    [(2, 3), (2, 3)]
    """
    given = [checked(x) for x in arrays]
    shape = broadcast_shapes(*(x.shape for x in given))
    return tuple(broadcast_to(x, shape) for x in given)


@splits_any_array
def unstack(x: Array, /, axis: int = 0) -> tuple[Array, ...]:
    """The views at each index of `axis`, without that dim (Array API).

    Raises AxisError, DTypeError.

    >>> import numpy as np
    >>> unstack(np.array([[1, 2], [3, 4]]), axis=1)
    (array([1, 3]), array([2, 4]))
    """
    given: Any = checked(x)
    at: int = axis_of(axis, given.ndim, "unstack")
    leading: tuple[slice, ...] = (slice(None),) * at
    return tuple(given[(*leading, i, ...)] for i in range(given.shape[at]))


@overload
def split(
    x: NDArray[Scalar], indices_or_sections: int | Sequence[int], axis: int = 0
) -> list[NDArray[Scalar]]: ...
@overload
def split(x: Other, indices_or_sections: int | Sequence[int], axis: int = 0) -> list[Other]: ...


@sees_native_arrays
def split(x: Any, indices_or_sections: int | Sequence[int], axis: int = 0) -> list[Any]:
    """Split `x` along `axis` into views, as numpy.split does.

    An int is the number of equal parts; several ints are the indices at which parts begin.
    (torch.tensor_split takes the same arguments, torch.split takes lengths instead.)
    Raises ReshapeError, DTypeError.

    >>> import numpy as np
    >>> [part.tolist() for part in split(np.arange(6), 3)]
    [[0, 1], [2, 3], [4, 5]]
    >>> [part.tolist() for part in split(np.arange(6), [1, 4])]
    [[0], [1, 2, 3], [4, 5]]
    """
    whole: Any = checked(x)
    at: int = axis_of(axis, whole.ndim, "split")
    size = whole.shape[at]
    given: Ints = one_or_several(indices_or_sections, "indices_or_sections", "split")
    if not are_several(indices_or_sections):
        count = given[0]
        if count < 1 or size % count:
            raise ReshapeError(
                f"dim {at} of {shape_text(whole.shape)} cannot be split into {count} equal parts",
                asked_by="split",
            )
        given = tuple(range(size // count, size, size // count)) if size else (0,) * (count - 1)
    return parts(whole, at, (0, *given, size))


def parts(x: Any, axis: int, bounds: Sequence[int]) -> list[Any]:
    """The views between neighbouring `bounds`, which are indices of a dim.

    >>> [part.tolist() for part in parts(np.arange(5), 0, (0, 2, 5))]
    [[0, 1], [2, 3, 4]]
    """
    leading = (slice(None),) * axis
    return [x[(*leading, slice(i, j), ...)] for i, j in pairwise(bounds)]


@accepts_any_array
def roll(
    x: Array,
    /,
    shift: int | Sequence[int],
    axis: int | Sequence[int] | None = None,
    *,
    out: Array | None = None,
) -> Array:
    """The elements shifted by `shift` along `axis`; elements beyond the end reappear at the start.

    With `axis=None` the flattened elements are shifted. Several shifts apply to one axis each; an
    axis given twice is shifted by the sum. Makes one copy, or two if flattening copies; `out` as in
    `reshape`. Array API v2024.12, roll. Raises AxisError, ReshapeError, DTypeError.

    >>> import numpy as np
    >>> roll(np.arange(5), 2)
    array([3, 4, 0, 1, 2])
    """
    given: Any = checked(x)
    shifts = one_or_several(shift, "shift", "roll")
    made: Array
    if axis is not None:
        made = _rolled_along(given, shifts, one_or_several(axis, "axis", "roll"), out)
        return made
    if out is not None:
        outputs.check_apart(given, outputs.checked(out, given.dtype, given.shape))
    flat = None if out is None else reshape(out, -1)
    made = _rolled_along(reshape(given, -1), (sum(shifts),), (0,), flat)
    return reshape(made, given.shape) if out is None else out


def _rolled_along(x: Any, shifts: Ints, axes: Ints, out: Any) -> Any:
    """`x` rolled along axes: a part of it, for each axis whole or cut in two, at a time."""
    axes = tuple(normal_axis(axis, x.ndim, "roll") for axis in axes)  # shifts or not
    if len(shifts) != len(axes):
        if 1 not in (len(shifts), len(axes)):
            note = f"{len(shifts)} shifts for {len(axes)} axes"
            raise ReshapeError(f"roll takes a shift for each axis, not {note}")
        shifts, axes = shifts * len(axes), axes * len(shifts)
    total = [0] * x.ndim
    for at, steps in zip(axes, shifts, strict=True):
        total[at] += steps
    sides = [_rolled(size, steps) for size, steps in zip(x.shape, total, strict=True)]
    moves = [tuple(zip(*move, strict=True)) or ((), ()) for move in product(*sides)]
    target, fresh = outputs.target(out, x.dtype, x.shape, (x,))
    for begin, end in moves:
        fill_region(x[(*begin, ...)], target[(*end, ...)], fresh)
    return target if out is None else out


def _rolled(size: int, steps: int) -> list[tuple[slice, slice]]:
    """The parts of a dim, and their new positions."""
    last = steps % max(size, 1)
    first = size - last
    whole = [(slice(first), slice(last, size))]
    return [*whole, (slice(first, size), slice(last))] if last else whole


@accepts_any_array
def tile(
    x: Array,
    repetitions: int | Sequence[int],
    /,
    *,
    copy: bool | None = None,
    out: Array | None = None,
) -> Array:
    """`x` repeated as a whole, `repetitions[i]` times along dim i (Array API, v2024.12: tile).

    Where `repetitions` and the shape of `x` differ in length, the shorter one begins
    with ones. A view wherever one exists (read-only if elements repeat), else one
    copy; `copy` and `out` as in `reshape`. Raises ReshapeError, DTypeError.

    >>> import numpy as np
    >>> tile(np.array([[1, 2], [3, 4]]), (1, 2))
    array([[1, 2, 1, 2],
           [3, 4, 3, 4]])
    """
    x = checked(x)
    counts = _counts(repetitions, "repetitions", "tile")
    own_dims, wide, tiled = _tiling(x.shape, counts)
    made: Array
    fits = len(wide) <= MOST_DIMS and wide != tiled and (copy is None or copy is True)
    if (
        type(x) is np.ndarray and fits and copying.numpy_tiles(x, prod(tiled) * x.itemsize)
    ):  # NumPy repeats small arrays as it fills the result
        target, fresh = outputs.target(out, x.dtype, tiled, (x,))
        fill_region(x.reshape(own_dims), target.reshape(wide), fresh)
        made = target if out is None else out
    else:
        made = _repeated(reshape(x, own_dims), wide, tiled, "tile", copy, out)
    return made


@lru_cache(maxsize=256)
def _tiling(shape: Ints, counts: Ints) -> tuple[Ints, Ints, Ints]:
    """The shape to which an array is repeated by `tile`, as three: see `_repeated`.

    First that of the array, where dims that repeat are two; then that to which it is broadcast.
    """
    rank = max(len(shape), len(counts))
    counts = (1,) * (rank - len(counts)) + counts
    sizes = (1,) * (rank - len(shape)) + shape
    own_dims, wide = Ints(), Ints()  # repetitions are dims of their own
    for count, size in zip(counts, sizes, strict=True):
        own_dim = count != 1 and size > 1
        own_dims += (1, size) if own_dim else (size,)
        wide += (count, size) if own_dim else (count * size,)
    return own_dims, wide, tuple(n * size for n, size in zip(counts, sizes, strict=True))


@accepts_any_array
def repeat(
    x: Array,
    repeats: int | Sequence[int],
    /,
    axis: int | None = None,
    *,
    copy: bool | None = None,
    out: Array | None = None,
) -> Array:
    """Each element along `axis` repeated; `repeats` is one count for all, or one count for each.

    With `axis=None` `x` is flattened. With one count, a view wherever one exists (read-only if
    elements repeat), else one copy; with several counts a copy. `copy` and `out` as in `reshape`.
    Array API v2024.12, repeat. Raises ReshapeError, DTypeError.

    >>> import numpy as np
    >>> repeat(np.array([[1, 2], [3, 4]]), 2, axis=1)
    array([[1, 1, 2, 2],
           [3, 3, 4, 4]])
    >>> repeat(np.arange(3), [2, 0, 1])
    array([0, 0, 2])
    """
    x = checked(x)
    counts = _counts(repeats, "repeats", "repeat")
    at: int = x.ndim - 1
    if axis is not None:
        at = axis_of(axis, x.ndim, "repeat")
    made: Array
    if len(counts) != 1:
        if copy is False:
            raise ReshapeError("several counts need a copy, which copy=False forbids")
        flat = reshape(x, -1) if axis is None else x
        made = _repeated_each(flat, counts, 0 if axis is None else at, out)
        return made
    wide: Ints = (*x.shape[: at + 1], counts[0], *x.shape[at + 1 :])
    tiled = (
        (prod(wide),) if axis is None else (*wide[:at], prod(wide[at : at + 2]), *wide[at + 2 :])
    )
    made = _repeated(expand_dims(x, at + 1), wide, tiled, "repeat", copy, out)
    return made


def _repeated(seen: Any, wide: Ints, shape: Ints, asked_by: str, copy: Any, out: Any) -> Any:
    """A view, broadcast to `wide` and then reshaped."""
    if seen.shape != wide:
        seen = broadcast_to(seen, wide)
    if copy is None or copy is True:  # nothing to refuse: the way with a Route
        return reshape(seen, shape, copy=copy, out=out)
    return reshape_as(seen, request(shape, asked_by=asked_by), copy, out)


def _repeated_each(x: Any, counts: Sequence[int], at: int, out: Any) -> Any:
    """Each index along an axis repeated by its own count."""
    if len(counts) != x.shape[at]:
        raise ReshapeError(
            f"{len(counts)} repeats for dim {at} of {shape_text(x.shape)}", asked_by="repeat"
        )
    return take(x, np.repeat(np.arange(len(counts)), counts), axis=at, out=out)


def _counts(values: Any, what: str, asked_by: str) -> Ints:
    """One count or several; none is negative."""
    counts = one_or_several(values, what, asked_by)
    if any(count < 0 for count in counts):
        shown = shortened(str(counts), 60)
        raise ReshapeError(f"{what} {shown} must not be negative", asked_by=asked_by)
    return counts
