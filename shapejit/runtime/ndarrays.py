"""Array arguments as exact ndarrays, and the shapes that ndarrays can have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..errors import DTypeError, ReshapeError, shape_text, shortened, type_name

if TYPE_CHECKING:
    from typing_extensions import TypeIs

T = TypeVar("T")

MOST_DIMS = 64  # of an ndarray
_MOST_BYTES = 2**63 - 1
# NumPy's own functions: for exact ndarrays they need not look for `__array_function__`.
concatenate: Any = getattr(np.concatenate, "_implementation", np.concatenate)
stack: Any = getattr(np.stack, "_implementation", np.stack)
may_share_memory: Any = getattr(np.may_share_memory, "_implementation", np.may_share_memory)


def is_a(x: object, kind: type[T]) -> TypeIs[T]:
    """`isinstance` by the actual type, ignoring `__class__`."""
    return issubclass(type(x), kind)


def is_sequence(x: object) -> TypeIs[Sequence[Any]]:
    """`is_a` for sequences; mypy accepts no abstract class there."""
    return issubclass(type(x), Sequence)


def is_mapping(x: object) -> TypeIs[Mapping[Any, Any]]:
    """`is_a` for mappings."""
    return issubclass(type(x), Mapping)


def distinct(x: NDArray[Any]) -> NDArray[Any]:
    """`np.unique`, which imports numpy.ma: 9 ms, and a signal handler may interrupt the import.

    >>> distinct(np.array([[3, 1], [1, 3]]))
    array([1, 3])
    """
    values: NDArray[Any] = np.sort(x, axis=None)
    first = np.flatnonzero(values[1:] != values[:-1]) + 1
    return concatenate((values[:1], values[first]))  # type: ignore[no-any-return]  # NumPy's own


def plain(x: Any) -> NDArray[Any]:
    """The ndarray without its subclass, over the same memory; an exact ndarray is itself.

    A subclass may override `shape`, `strides` or `__array_interface__`: none of its
    code runs here, and the attributes of the result are NumPy's own. Raises
    DTypeError for other objects, even if their `__class__` is ndarray, and for
    masked arrays, whose mask would be lost.

    >>> type(plain(np.zeros(3).view(np.recarray)))
    <class 'numpy.ndarray'>
    """
    if type(x) is np.ndarray:
        return x
    if not issubclass(type(x), np.ndarray):
        raise DTypeError(f"expected a numpy.ndarray, not {type_name(x)}")
    if issubclass(type(x), np.ma.MaskedArray):
        raise DTypeError("a masked array would lose its mask: pass x.data and x.mask separately")
    return np.ndarray.view(x, np.ndarray)


def unwrapped(x: Any) -> Any:
    """`plain` of an ndarray; a NumPy scalar as a 0-D array; other objects unchanged."""
    if is_a(x, np.ndarray):
        return plain(x)
    return np.asarray(x) if issubclass(type(x), np.generic) else x


def possible(shape: Sequence[int], itemsize: int) -> bool:
    """Whether an ndarray may have this shape, with elements of `itemsize` bytes.

    NumPy counts dims of size 0 as if they were 1.

    >>> possible((1,) * 64, 8), possible((1,) * 65, 8), possible((0, 2**62), 8)
    (True, False, False)
    """
    size = prod(shape) or prod(size for size in shape if size)
    return len(shape) <= MOST_DIMS and size * itemsize <= _MOST_BYTES


def check_possible(shape: Sequence[int], itemsize: int) -> None:
    """Raise ReshapeError for a shape that no ndarray can have."""
    if not possible(shape, itemsize):
        many = len(shape) > MOST_DIMS
        most = f"{MOST_DIMS} dims" if many else f"{_MOST_BYTES} bytes, sizes of 0 not counted"
        text = shortened(shape_text(shape), 60)
        raise ReshapeError(
            f"NumPy has no array of {len(shape)} dims {text}: it allows {most}; "
            f"a shapejit.Tensor can have more"
        )


def array_of(
    shape: Sequence[int],
    dtype: np.dtype[Any],
    memory: Any = None,
    offset: int = 0,
    strides: Sequence[int] | None = None,
) -> NDArray[Any]:
    """An ndarray over memory (offset and strides in bytes), or in new memory; see `possible`."""
    try:
        return np.ndarray(shape, dtype, memory, offset, strides)
    except (ValueError, OverflowError):
        check_possible(shape, dtype.itemsize)
        raise
