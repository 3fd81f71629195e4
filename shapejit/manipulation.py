"""The Array API's manipulation functions that are made of views and at most one copy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .arrays import is_a, is_sequence
from .errors import ReshapeError
from .operations import broadcast_to, checked, reshape, reshape_as
from .request import integers, request
from .tensor import Array, Tensor


def tile(
    x: Array,
    repetitions: Sequence[int] | int,
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
    rank = max(x.ndim, len(counts))
    counts = (1,) * (rank - len(counts)) + counts
    sizes = (1,) * (rank - x.ndim) + x.shape
    apart, wide = list[int](), list[int]()  # repetitions are dims of their own
    for count, size in zip(counts, sizes, strict=True):
        apart += [size] if count == 1 or size < 2 else [1, size]
        wide += [count * size] if count == 1 or size < 2 else [count, size]
    seen = reshape(x, apart)
    if wide != apart:
        seen = broadcast_to(seen, wide)
    tiled = [count * size for count, size in zip(counts, sizes, strict=True)]
    return reshape_as(seen, request(tiled, asked_by="tile"), copy, out)


def _counts(values: Any, what: str, asked_by: str) -> tuple[int, ...]:
    """One number of repetitions or several, none below zero."""
    several = is_sequence(values) or (is_a(values, np.ndarray) and values.ndim)
    counts = integers(values if several else (values,), what, asked_by)
    if any(count < 0 for count in counts):
        raise ReshapeError(f"{what} {counts} must not be negative", asked_by=asked_by)
    return counts


for _operation in (tile,):
    setattr(Tensor, _operation.__name__, _operation)
