"""What operators of all specifications end in: views as results, and the shapes of some."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Any

from ..arrays.tensor import Array
from ..dtypes.table import DType
from ..errors import DTypeError, ReshapeError
from ..operations.views import reshape
from ..shapes.layout import broadcast


def placed(x: Array, copy: bool | None, out: Array | None) -> Array:
    """A view as the result: itself, or its elements copied as `copy` and `out` ask."""
    return x if copy is None and out is None else reshape(x, x.shape, copy=copy, out=out)


def part_of(x: Array, *index: builtins.slice) -> Array:
    """The view by slices of the first dims; an array without dims stays one.

    >>> import numpy as np
    >>> part_of(np.arange(3), builtins.slice(1, None))
    array([1, 2])
    """
    part: Any = x
    made: Array = part[(*index, ...)]
    return made


def bidirectional_shape(
    source: Sequence[int], shape: Sequence[int], asked_by: str
) -> tuple[int, ...]:
    """The shape that two shapes are broadcast to; ReshapeError if there is none.

    >>> bidirectional_shape((3, 1), (2, 1, 4), "doctest")
    (2, 3, 4)
    """
    made = broadcast(source, shape)
    if made is None:
        raise ReshapeError("cannot broadcast", source, shape, asked_by=asked_by)
    return made


def check_alike(kinds: Sequence[DType], asked_by: str) -> None:
    """Refuse inputs of different dtypes: specifications promote none.

    >>> from shapejit import dtype
    >>> check_alike([dtype("int8"), dtype("int8")], "doctest")
    """
    for i, kind in enumerate(kinds):
        if kind is not kinds[0]:
            raise DTypeError(f"input {i} of {asked_by} is {kind}, input 0 {kinds[0]}")
