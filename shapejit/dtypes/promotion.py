"""Type promotion: the dtype of an array that holds the elements of several arrays."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import ml_dtypes
import numpy as np

from ..errors import DTypeError
from .table import DType, all, dtype

AnyDtype = np.dtype[Any] | DType  # of an ndarray, or of a Tensor

# Floats with all the special values of others: infinities, NaNs, a negative zero.
_SPECIAL = {
    "finite": ("finite", "fn", "ieee"),
    "unsigned": ("unsigned", "fn", "ieee"),
    "fnuz": ("fnuz", "fn", "ieee"),
    "fn": ("fn", "ieee"),
    "ieee": ("ieee",),
}


@lru_cache(maxsize=256)
def promoted(kinds: tuple[AnyDtype, ...], asked_by: str) -> AnyDtype:
    """The promoted dtype of several dtypes (Array API, Type Promotion Rules).

    NumPy's dtypes are promoted by NumPy. Others of one kind become the narrowest dtype of the table
    that holds all their values, if there is only one of that width. Raises DTypeError if there is
    none, and for different kinds.

    >>> promoted((np.dtype("int8"), np.dtype("uint8")), "doctest")
    dtype('int16')
    >>> promoted((dtype("int4"), dtype("uint4")), "doctest")
    shapejit.dtype('int8')
    >>> promoted((dtype("bfloat16"), dtype("float16")), "doctest")
    shapejit.dtype('float32')
    """
    first = kinds[0]
    if not any(kind != first for kind in kinds):
        return first
    try:
        if not any(map(beyond_numpy, kinds)):
            made = np.result_type(*(k.codes if isinstance(k, DType) else k for k in kinds))
            return dtype(made) if isinstance(first, DType) else made
        row = _narrowest([dtype(kind) for kind in kinds])
    except TypeError:
        row = None
    if row is None:
        names = ", ".join(sorted({str(kind) for kind in kinds}))
        raise DTypeError(f"{names} have no dtype in common: cast to one first ({asked_by})")
    return row if isinstance(first, DType) else row.codes


def beyond_numpy(kind: AnyDtype) -> bool:
    """Whether a dtype is not NumPy's own: one of ml_dtypes, or of the table alone."""
    known = kind.numpy if isinstance(kind, DType) else kind
    return known is None or known.isbuiltin == 2


def _narrowest(kinds: Sequence[DType]) -> DType | None:
    """The narrowest dtype that holds all values, if only one has its width."""
    if len({kind.kind for kind in kinds}) > 1:
        return None
    fits = [row for row in all() if _holds_all(row, kinds)]
    for bits in sorted({row.bits for row in fits}):
        best = [row for row in fits if row.bits == bits]
        given = [row for row in best if row in kinds]
        if len(given or best) == 1:
            return (given or best)[0]
    return None


def _holds_all(row: DType, kinds: Sequence[DType]) -> bool:
    return row.kind == kinds[0].kind and not any(not _holds(row, kind) for kind in kinds)


def _holds(wide: DType, narrow: DType) -> bool:
    """Whether every value of `narrow`, of the same kind, is one of `wide`."""
    if wide is narrow:
        return True
    if wide.kind == "integer":
        more = wide.bits - narrow.bits
        return more >= 0 if wide.signed == narrow.signed else wide.signed and more > 0
    if wide.format is None or narrow.format is None or wide.format.table or narrow.format.table:
        return False
    if wide.format.special not in _SPECIAL[narrow.format.special]:
        return False
    of, parts = _numbers(wide), _numbers(narrow)
    return not any(a < b for a, b in zip(of, parts, strict=True))


def _numbers(kind: DType) -> tuple[float, float, float]:
    """The largest finite value of a float, the exponent of its smallest, its fraction bits."""
    facts = ml_dtypes.finfo(kind.codes)  # type: ignore[no-untyped-call]  # ml_dtypes has no types
    return float(facts.max), -float(facts.smallest_subnormal), float(facts.nmant)
