"""Whether numbers are those of another dtype that are nearest to given ones, asked of NumPy."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from ..dtypes.table import DType

__all__ = ["rounds"]

_EXACT = 2.0**53  # integers up to it are float64


def rounds(given: NDArray[Any], made: NDArray[Any], kind: DType) -> bool:
    """Whether each of `made`, of dtype `kind`, is the nearest number to that of `given`.

    Of two that are as near the one with the even code; beyond the range any is right, and
    integers are cut towards zero.

    >>> from shapejit.dtypes import dtype
    >>> x = np.array([1.0, 2.0**-9 + 1], np.float32)
    >>> rounds(x, x.astype(ml_dtypes.bfloat16), dtype("bfloat16"))
    True
    >>> rounds(x, np.array([1, 1.0078125], ml_dtypes.bfloat16), dtype("bfloat16"))
    False
    """
    with np.errstate(all="ignore"):
        x, y = given.astype(np.float64), made.astype(np.float64)
        if kind.kind != "float":
            return _cut(x, y, made, kind)
        if not kind.signed:  # powers of two alone
            return True
        known = np.isfinite(x) & (np.abs(x) <= _EXACT if given.dtype.kind in "iu" else True)
        finite, most = np.isfinite(y), _largest(made.dtype)
        wrong = known & ~finite & (np.abs(x) < most)
        known &= finite & (np.abs(x) <= 2 * most)
        for near, odd in _neighbours(made, kind):
            off, other = np.abs(x - y), np.abs(x - near)
            wrong |= known & ((off > other) | ((off == other) & odd))
        return not wrong.any()


def _largest(kind: np.dtype[Any]) -> float:
    limits: Any = ml_dtypes.finfo
    return float(limits(kind).max)


def _neighbours(made: NDArray[Any], kind: DType) -> list[tuple[NDArray[Any], NDArray[Any]]]:
    """The next number towards zero, and away from it, and which codes are odd."""
    codes = np.ascontiguousarray(made).view(f"u{made.dtype.itemsize}")
    sign = codes.dtype.type(1 << (kind.bits - 1))
    size, found = codes & (sign - 1), []
    for step, there in ((-1, size > 0), (1, size < sign - 1)):
        moved = np.where(there, codes.astype(np.int64) + step, codes).astype(codes.dtype)
        number = moved.view(made.dtype).astype(np.float64)
        found.append((np.where(there, number, np.nan), size % 2 == 1))
    return found


def _cut(x: NDArray[Any], y: NDArray[Any], made: NDArray[Any], kind: DType) -> bool:
    """The same for integers and bools."""
    if kind.kind == "bool":
        return bool(np.array_equal(made.astype(bool), x != 0))
    if kind.kind != "integer":
        return True
    low = -(2.0 ** (kind.bits - 1)) if kind.signed else 0.0
    high = 2.0 ** (kind.bits - kind.signed) - 1
    inside = (x >= low) & (x <= high) & (np.abs(x) <= _EXACT)
    return bool(np.array_equal(np.trunc(x)[inside], y[inside]))
