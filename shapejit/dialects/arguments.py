"""Arguments and results that all dialects share: ints, permutations, results as views or copies."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from ..arrays.tensor import Array, Tensor, is_array
from ..dtypes.table import DType
from ..errors import DTypeError, type_name
from ..operations.views import dtype_of, permute_dims, reshape
from ..runtime.ndarrays import is_a, plain
from ..shapes.layout import permutation
from ..shapes.request import MAX_INTS, Request, are_several, integer, integers, request

Types = tuple[str, ...] | frozenset[str]  # names of dtypes
_INT64 = np.dtype(np.int64)


def view_or_copy(x: Array, copy: bool | None, out: Array | None) -> Array:
    """The result of a view operation: the view itself, or a copy if `copy` or `out` require one."""
    return x if copy is None and out is None else reshape(x, x.shape, copy=copy, out=out)


def dtype_in(data: Any, asked_by: object) -> DType:
    """The dtype of an operand; DTypeError if it is not an array.

    >>> dtype_in(np.zeros(2, np.float32), "doctest")
    shapejit.dtype('float32')
    """
    if not is_array(data):
        wanted = "a numpy.ndarray or a shapejit.Tensor"
        raise DTypeError(f"{asked_by} expects {wanted}, not {type_name(data)}")
    return dtype_of(data)


def permuted(x: Array, order: Sequence[int], name: str, asked_by: object) -> Array:
    """The view whose dim i is dim `order[i]`; negative axes are refused."""
    axes = permutation(order, x.shape, asked_by, name, negative=False)
    if type(x) is np.ndarray:
        return x.transpose(axes)
    made: Array = permute_dims(x, axes)
    return made


def ints(
    values: Any, name: str, asked_by: object, types: Types = (), scalar: bool = True
) -> tuple[int, ...]:
    """The ints of an attribute, of a sequence or of a 1-D array of one of `types` (any, if none).

    With `scalar` one int, or an array without dims, is a sequence of one.

    >>> ints(np.array([0, -1]), "axes", "doctest"), ints(2, "axes", "doctest")
    ((0, -1), (2,))
    """
    if type(values) is np.ndarray and values.dtype is _INT64 and values.ndim == 1:
        found = values.tolist()  # the input of most nodes: the rest takes twice the time of a view
        if len(found) <= MAX_INTS and ("int64" in types or not types):
            return tuple(found)
    if is_a(values, Tensor):
        values = np.asarray(values)
    if is_a(values, np.ndarray):
        values = plain(values)
        if types and values.dtype not in _dtypes(types):
            listed = " or ".join(sorted(types))
            raise DTypeError(f"{name} of {asked_by} must be {listed}, not {values.dtype}")
    alone = scalar and not are_several(values)
    return (integer(values, name, asked_by),) if alone else integers(values, name, asked_by)


@lru_cache(maxsize=64)
def _dtypes(types: Types) -> frozenset[Any]:
    return frozenset(map(np.dtype, types))


def special_zero_request(shape: Any, special_zero: bool, name: str, cancel: bool) -> Request:
    """The Request for a shape in which `special_zero` says whether 0 copies; `cancel` as there."""
    if not isinstance(special_zero, bool | np.bool_):
        raise DTypeError(f"special_zero of {name} must be a bool, not {special_zero!r}")
    who = f"{name} (special_zero={str(bool(special_zero)).lower()})"
    sizes = ints(shape, "the target shape", who, scalar=False)
    return request(sizes, copy_zeros=bool(special_zero), cancel=cancel, asked_by=who)


def check_alike(kinds: Sequence[DType], asked_by: object) -> None:
    """Refuse inputs of different dtypes: no specification promotes them.

    >>> from shapejit import dtype
    >>> check_alike([dtype("int8"), dtype("int8")], "doctest")
    """
    for i, kind in enumerate(kinds):
        if kind is not kinds[0]:
            raise DTypeError(f"input {i} of {asked_by} is {kind}, input 0 {kinds[0]}")
