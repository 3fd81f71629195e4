"""Basic slicing of a Layout: ints, slices, None and one Ellipsis."""

from __future__ import annotations

import operator
from types import EllipsisType
from typing import Any

from ..errors import OutOfBoundsError
from ..runtime.ndarrays import is_a
from .layout import Layout

Index = int | slice | EllipsisType | None


def sliced(layout: Layout, index: Index | tuple[Index, ...]) -> Layout:
    """The view that `index` selects, with the meaning of NumPy's basic slicing.

    Raises OutOfBoundsError (an IndexError) for an index that is out of bounds or of
    another type (lists, arrays and masks: there is no fancy indexing), ValueError for a
    step of zero.

    >>> sliced(Layout.row_major((4, 6), 4), (slice(None, None, -1), 2)).strides
    (-24,)
    """
    items: tuple[Any, ...] = index if is_a(index, tuple) else (index,)
    given = sum(i is not None and i is not Ellipsis for i in items)
    rest = layout.ndim - given
    gaps = sum(i is Ellipsis for i in items)
    if rest < 0:
        raise OutOfBoundsError(f"too many indices: {given} for {layout.ndim} dims")
    if gaps > 1:
        raise OutOfBoundsError("an index can have only one Ellipsis")
    if gaps == 0:
        items = (*items, Ellipsis)
    axis = 0
    for i in items:
        if i is Ellipsis:
            axis += rest
        elif i is None:
            layout = layout.insert(axis)
            axis += 1
        elif is_a(i, slice):
            start, stop, step = i.indices(layout.shape[axis])
            layout = layout.narrow(axis, start, len(range(start, stop, step)), step)
            axis += 1
        else:
            layout = layout.select(axis, _position(i, layout.shape[axis], axis))
    return layout


def _position(index: Any, size: int, axis: int) -> int:
    """An integer index in [0, size)."""
    try:
        at = None if isinstance(index, bool) else operator.index(index)
    except TypeError:
        at = None
    if at is None:
        raise OutOfBoundsError(
            "a Tensor is indexed by ints, slices, None and Ellipsis, not by "
            f"{type(index).__name__}: fancy indexing is not supported; "
            "shapejit.take(x, indices, axis=0) gathers"
        )
    if not -size <= at < size:
        raise OutOfBoundsError(f"index {at} is out of bounds for dim {axis} of size {size}")
    return at % size
