"""The arguments of a Program: arrays of one shape and dtype, or a stack of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays.tensor import Tensor, is_array
from ..dtypes.table import DType
from ..errors import DTypeError, ReshapeError, about, shape_text, type_name
from ..runtime.ndarrays import is_a, plain


def check(x: Any, as_tensors: bool, dtype: DType, shape: tuple[int, ...]) -> None:
    """Raise for anything but a Tensor or ndarray of this dtype and shape."""
    if is_a(x, Tensor) is not as_tensors:
        among = f"{type_name(x)} among Tensors" if as_tensors else "a Tensor among ndarrays"
        raise DTypeError(among)
    if not as_tensors and not is_a(x, np.ndarray):
        raise DTypeError(f"expected a numpy.ndarray or a shapejit.Tensor, not {type_name(x)}")
    kind = dtype if as_tensors else dtype.numpy
    if x.dtype is not kind and x.dtype != kind:
        raise DTypeError(f"the dtype is {x.dtype}, the program's {dtype}")
    if x.shape != shape:
        have, want = shape_text(x.shape), shape_text(shape)
        raise ReshapeError(f"the shape is {have}, the program's {want}")


def length(x: Any, shape: tuple[int | None, ...]) -> int:
    """The length of dim 0 of an array whose other dims must be those of `shape`."""
    if not is_array(x):
        raise DTypeError(f"expected a numpy.ndarray or a shapejit.Tensor, not {type_name(x)}")
    found = x.shape if is_a(x, Tensor) else plain(x).shape
    if not found or found[1:] != shape[1:]:
        raise ReshapeError(f"a tensor for this program has shape {free_text(shape)}, not {found}")
    return int(found[0])


def free_text(shape: tuple[int | None, ...]) -> str:
    """A shape as text, with n for a free dim."""
    return str(shape).replace("None", "n")


def by_length(
    items: Sequence[Any], shape: tuple[int | None, ...], names: Sequence[object]
) -> dict[int, list[int]]:
    """The indices of the named arrays, grouped by the length of dim 0."""
    lengths: dict[int, list[int]] = {}
    for i, x in enumerate(items):
        with about(f"tensor {names[i]}"):
            lengths.setdefault(length(x, shape), []).append(i)
    return lengths


def listed(out: Any, count: int) -> list[Any]:
    """The arrays of an `out`; there must be one per result."""
    try:
        outs = list(out)
    except TypeError:
        raise DTypeError(
            f"out= must be a sequence of arrays, or a function of the index, "
            f"not {type(out).__name__}"
        ) from None
    if len(outs) != count:
        raise ReshapeError(f"out= holds {len(outs)} arrays for {count} tensors")
    return outs


def checked_stack(x: NDArray[Any] | Tensor, shape: tuple[int | None, ...]) -> Any:
    """An exact array of tensors of this shape, stacked along dim 0."""
    stack = x if is_a(x, Tensor) else plain(x)
    sizes = zip(stack.shape[1:], shape, strict=False)
    if stack.ndim != len(shape) + 1 or any(want not in (None, have) for have, want in sizes):
        want = ", ".join(["n", *("any" if size is None else str(size) for size in shape)])
        raise ReshapeError(f"a stack for this program has shape ({want}), not {stack.shape}")
    return stack


def rows(stack: Any) -> Iterator[Any]:
    """The tensors of a stack; 0-D ones as arrays, too."""
    return (stack[i, ...] for i in range(len(stack)))
