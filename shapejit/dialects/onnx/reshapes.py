"""ONNX Reshape, and what 0, -1 and allowzero mean in each version; ONNX Shape."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...arrays.foreign import accepts_any_array, converts_any_array
from ...arrays.tensor import Array, Tensor
from ...errors import ReshapeError, negative_source
from ...operations.views import reshape_as
from ...shapes import request as requests
from ...shapes.arithmetic import MAX_SIZE
from ...shapes.request import Ints, Request, integer, integers
from .arguments import entered, ints
from .versions import version

_INT, _INT_OR_NONE = {int}, {int, type(None)}


def request(shape: Any, *, allowzero: int = 0, opset: int = 25) -> Request:
    """The Request of ONNX Reshape, in the version of `opset`, for `shape` (sizes in elements).

    0 copies the source dim of the same index, or is a size with `allowzero=1`
    (from opset 14); one -1 is inferred. `shape` is a sequence of ints or a 1-D
    int64 array. Raises ReshapeError, DTypeError.

    >>> request([0, -1]).dims, request([0, 2], allowzero=1).dims
    ((-2, -1), (0, 2))
    """
    row = version("Reshape", opset)
    if allowzero not in (0, 1) or not isinstance(allowzero, int | np.integer):
        raise ReshapeError(f"allowzero must be 0 or 1, not {allowzero!r}", asked_by=row)
    row.check_attributes(allowzero=(allowzero, 0))
    who = f"{row} (allowzero={int(allowzero)})" if "allowzero" in row.attributes else str(row)
    sizes = ints(shape, "the shape tensor", who)  # of int64, in every version
    return requests.request(sizes, copy_zeros=not allowzero, asked_by=who)


@accepts_any_array
def reshape(
    data: Array,
    shape: Any,
    *,
    allowzero: int = 0,
    opset: int = 25,
    copy: bool | None = None,
    out: Array | None = None,
) -> Array:
    """ONNX Reshape (1, 5, 13, 14, 19, 21, 23, 24, 25) of an ndarray or Tensor.

    `shape` and `allowzero` as in `request`; `copy` and `out` as in
    `shapejit.reshape`. Raises DTypeError for a dtype that the version does not
    list, ReshapeError for a shape that it does not allow.

    >>> import numpy as np
    >>> reshape(np.zeros((2, 3, 4), np.float32), [0, -1]).shape
    (2, 12)
    """
    if type(shape) in (list, tuple) and {*map(type, (*shape, allowzero, opset))} == _INT:
        asked = _known_request(tuple(shape), allowzero, opset)
    else:
        asked = request(shape, allowzero=allowzero, opset=opset)
    version("Reshape", opset).check(data)
    return reshape_as(data, asked, copy, out)


@lru_cache(maxsize=1024)
def _known_request(shape: tuple[int, ...], allowzero: int, opset: int) -> Request:
    """`request` of plain ints, cached."""
    return request(shape, allowzero=allowzero, opset=opset)


@converts_any_array
def shape(
    data: NDArray[Any] | Tensor,
    *,
    start: int | None = 0,
    end: int | None = None,
    opset: int = 25,
) -> NDArray[np.int64]:
    """ONNX Shape (1, 13, 15, 19, 21, 23, 24, 25): the sizes of dims [start, end) as int64.

    Negative `start` and `end` (from opset 15) count from the end; both are then
    clamped to [0, rank]. None means that the attribute is absent. Raises DTypeError, ReshapeError.

    >>> import numpy as np
    >>> shape(np.zeros((2, 3, 4), np.float32), start=-2)
    array([3, 4])
    """
    given: Any = data
    _, x = entered("Shape", opset, given)
    known = {type(start), type(end), type(opset)} <= _INT_OR_NONE
    sizes = _known_sizes if known and type(x) is np.ndarray else _sizes
    return np.array(sizes(x.shape, start, end, opset), np.int64)


def shape_of(
    source_shape: Sequence[int],
    *,
    start: int | None = 0,
    end: int | None = None,
    opset: int = 25,
) -> NDArray[np.int64]:
    """`shape` for a shape without data. Raises ReshapeError, DTypeError.

    >>> shape_of((2, 3, 4), end=-1)
    array([2, 3])
    """
    return np.array(_sizes(source_shape, start, end, opset), np.int64)


def _sizes(source_shape: Sequence[int], start: int | None, end: int | None, opset: int) -> Ints:
    """`shape_of`, as ints."""
    row = version("Shape", opset)
    sizes = integers(source_shape, "the source shape", row)
    for i, size in enumerate(sizes):
        if not 0 <= size <= MAX_SIZE:
            raise ReshapeError(
                "invalid source shape", sizes, None, (negative_source(i, size),), row
            )
    for name, value in (("start", start), ("end", end)):
        if value is not None:
            integer(value, name, row)
    row.check_attributes(start=(start or 0, 0), end=(end, None))
    rank = len(sizes)
    first = 0 if start is None else _clamped(start, rank)
    last = rank if end is None else _clamped(end, rank)
    return sizes[first:last] if first < last else ()


_known_sizes = lru_cache(maxsize=1024)(_sizes)


def _clamped(index: int, rank: int) -> int:
    """An index from either end, clamped to [0, rank] (ONNX's text says rank-1, and means rank)."""
    return min(max(index + rank if index < 0 else index, 0), rank)
