"""Basic slicing: an index of ints, slices, None and one Ellipsis, applied to a Layout."""

from __future__ import annotations

import operator
from types import EllipsisType
from typing import Any

import numpy as np

from .errors import OutOfBoundsError
from .layout import Layout

Index = int | slice | EllipsisType | None


def sliced(layout: Layout, index: Index | tuple[Index, ...]) -> Layout:
    """The view that `index` selects, as NumPy's basic slicing says.

    Raises OutOfBoundsError (an IndexError) for an index beyond a dim or of
    another kind, Python's own ValueError for a step of zero.

    >>> sliced(Layout.row_major((4, 6), 4), (slice(None, None, -1), 2)).strides
    (-24,)
    """
    items: tuple[Any, ...] = index if isinstance(index, tuple) else (index,)
    given = sum(i is not None and i is not Ellipsis for i in items)
    rest = layout.ndim - given
    gaps = sum(i is Ellipsis for i in items)
    if rest < 0:
        raise OutOfBoundsError(f"{given} indices for {layout.ndim} dims")
    if gaps > 1:
        raise OutOfBoundsError("an index may hold one Ellipsis")
    if gaps == 0:
        items = (*items, Ellipsis)
    axis = 0
    for i in items:
        if i is Ellipsis:
            axis += rest
        elif i is None:
            layout = layout.insert(axis)
            axis += 1
        elif isinstance(i, slice):
            start, stop, step = i.indices(layout.shape[axis])
            layout = layout.narrow(axis, start, len(range(start, stop, step)), step)
            axis += 1
        else:
            layout = layout.select(axis, _position(i, layout.shape[axis], axis))
    return layout


def _position(index: Any, size: int, axis: int) -> int:
    """An integer index counted from the front."""
    if isinstance(index, bool | np.bool_):
        raise OutOfBoundsError("only basic slicing: ints, slices, None and Ellipsis")
    try:
        at = operator.index(index)
    except TypeError:
        raise OutOfBoundsError("only basic slicing: ints, slices, None and Ellipsis") from None
    if not -size <= at < size:
        raise OutOfBoundsError(f"index {at} is out of bounds for dim {axis} of size {size}")
    return at % size
