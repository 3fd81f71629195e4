"""ONNX Reshape and Shape (onnx.ai/onnx/operators), every version of both.

A version is a row: its opset, the types it adds to T, its attributes. An opset
between two versions uses the older one.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .. import request as requests
from ..arrays import is_a, plain
from ..dtypes import DType
from ..errors import DTypeError, ReshapeError, negative_source
from ..operations import dtype_of, reshape_as
from ..request import MAX_SIZE, Request, integers
from ..tensor import Array, Tensor, is_array

_ALL_UP_TO_OPSET_5 = (
    "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 string complex64 complex128"
)
_FLOAT8 = "float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz"

# (since opset, types added to T, attributes)
_RESHAPE = (
    (1, "float16 float32 float64", "shape"),
    (5, _ALL_UP_TO_OPSET_5, ""),
    (13, "bfloat16", ""),
    (14, "", "allowzero"),
    (19, _FLOAT8, "allowzero"),
    (21, "int4 uint4", "allowzero"),
    (23, "float4_e2m1fn", "allowzero"),
    (24, "float8_e8m0fnu", "allowzero"),
    (25, "int2 uint2", "allowzero"),
)
_SHAPE = (
    (1, "float16 float32 float64 " + _ALL_UP_TO_OPSET_5, ""),
    (13, "bfloat16", ""),
    (15, "", "start end"),
    (19, _FLOAT8, "start end"),
    (21, "int4 uint4", "start end"),
    (23, "float4_e2m1fn", "start end"),
    (24, "float8_e8m0fnu", "start end"),
    (25, "int2 uint2", "start end"),
)


class Version(NamedTuple):
    """One version of an operator: its first opset, its T (canonical names), its attributes."""

    operator: str
    since: int
    types: frozenset[str]
    attributes: frozenset[str]

    def __str__(self) -> str:
        return f"onnx.{self.operator}-{self.since}"

    def check(self, data: NDArray[Any] | Tensor) -> None:
        """Raise DTypeError for data whose dtype is not in T."""
        if not is_array(data):
            raise DTypeError(f"{self} expects an ndarray or a Tensor, not {type(data).__name__}")
        kind = dtype_of(data)
        if kind.name not in self.types:
            raise DTypeError(f"{self} does not list {kind} in its T{_later(self, kind)}")


def _versions(operator: str, rows: Sequence[tuple[int, str, str]]) -> tuple[Version, ...]:
    """The versions; each row adds its types to those before."""
    versions = []
    types: frozenset[str] = frozenset()
    for since, more_types, attributes in rows:
        types |= set(more_types.split())
        versions.append(Version(operator, since, types, frozenset(attributes.split())))
    return tuple(versions)


RESHAPE = _versions("Reshape", _RESHAPE)
SHAPE = _versions("Shape", _SHAPE)


@lru_cache(maxsize=256, typed=True)  # True and 1.0 equal 1, but are refused
def version(operator: str, opset: int) -> Version:
    """The version of `"Reshape"` or `"Shape"` in force at an opset (1 or later).

    >>> str(version("Reshape", 17))
    'onnx.Reshape-14'
    """
    if isinstance(opset, bool) or not isinstance(opset, int | np.integer):
        raise DTypeError(f"opset must be an int, not {opset!r}")
    if opset < 1:
        raise ReshapeError(f"opset must be at least 1, not {opset}", asked_by="onnx")
    rows = {"Reshape": RESHAPE, "Shape": SHAPE}[operator]
    return next(row for row in reversed(rows) if row.since <= opset)


def _later(old: Version, kind: DType) -> str:
    """A hint at the later version that lists the dtype, if any."""
    rows = RESHAPE if old.operator == "Reshape" else SHAPE
    newer = [row for row in rows if kind.name in row.types and row.since > old.since]
    return f" (opset {newer[0].since} does)" if newer else ""


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
        raise ReshapeError(f"allowzero must be 0 or 1, not {allowzero!r}", asked_by=str(row))
    if allowzero and "allowzero" not in row.attributes:
        raise ReshapeError(f"{row} has no attribute allowzero (new in opset 14)")
    who = f"{row} (allowzero={int(allowzero)})" if "allowzero" in row.attributes else str(row)
    return requests.request(_int64(shape, who), copy_zeros=not allowzero, asked_by=who)


def _int64(shape: Any, who: str) -> Any:
    """The shape, which must be int64 in every version if it is a tensor."""
    if is_a(shape, Tensor):
        shape = np.asarray(shape)
    if not is_a(shape, np.ndarray):
        return shape
    shape = plain(shape)
    if shape.dtype != np.int64:
        raise DTypeError(f"the shape tensor of {who} must be int64, not {shape.dtype}")
    return shape


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
    asked = request(shape, allowzero=allowzero, opset=opset)
    version("Reshape", opset).check(data)
    return reshape_as(data, asked, copy, out)


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
    version("Shape", opset).check(data)
    return shape_of(
        data.shape if is_a(data, Tensor) else plain(data).shape,
        start=start,
        end=end,
        opset=opset,
    )


def shape_of(
    source_shape: Sequence[int],
    *,
    start: int | None = 0,
    end: int | None = None,
    opset: int = 25,
) -> NDArray[np.int64]:
    """`shape` for a shape without data.

    >>> shape_of((2, 3, 4), end=-1)
    array([2, 3])
    """
    row = version("Shape", opset)
    sizes = integers(source_shape, "the source shape", str(row))
    for i, size in enumerate(sizes):
        if not 0 <= size <= MAX_SIZE:
            raise ReshapeError(
                "invalid source shape", sizes, None, (negative_source(i, size),), str(row)
            )
    for name, value in (("start", start), ("end", end)):
        if value is not None and (
            isinstance(value, bool) or not isinstance(value, int | np.integer)
        ):
            raise DTypeError(f"{name} of {row} must be an int, not {value!r}")
    if (start or end is not None) and "start" not in row.attributes:
        raise ReshapeError(f"{row} has no attributes start and end (new in opset 15)")
    rank = len(sizes)
    first = 0 if start is None else _clamped(start, rank)
    last = rank if end is None else _clamped(end, rank)
    return np.array(sizes[first:last] if first < last else (), np.int64)


def _clamped(index: int, rank: int) -> int:
    """An index from either end, clamped to [0, rank] (ONNX's text says rank-1, and means rank)."""
    return min(max(index + rank if index < 0 else index, 0), rank)
