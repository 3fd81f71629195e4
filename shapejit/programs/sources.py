"""What a Program takes: arrays of one shape and dtype, or a stack of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays.tensor import Tensor
from ..dtypes.table import DType
from ..errors import DTypeError, ReshapeError, shape_text
from ..runtime.ndarrays import is_a, plain


def check(x: Any, as_tensors: bool, dtype: DType, shape: tuple[int, ...]) -> None:
    """Refuse what is not a Tensor, or an ndarray, of this dtype and shape."""
    if is_a(x, Tensor) is not as_tensors:
        among = f"{type(x).__name__} among Tensors" if as_tensors else "a Tensor among ndarrays"
        raise DTypeError(among)
    if not as_tensors and not is_a(x, np.ndarray):
        raise DTypeError(f"expected a numpy.ndarray or a shapejit.Tensor, not {type(x).__name__}")
    kind = dtype if as_tensors else dtype.numpy
    if x.dtype is not kind and x.dtype != kind:
        raise DTypeError(f"the dtype is {x.dtype}, the program's {dtype}")
    if x.shape != shape:
        have, want = shape_text(x.shape), shape_text(shape)
        raise ReshapeError(f"the shape is {have}, the program's {want}")


def checked_stack(x: NDArray[Any] | Tensor, shape: tuple[int, ...]) -> Any:
    """An array of tensors of this shape along dim 0, without its subclass."""
    stack = x if is_a(x, Tensor) else plain(x)
    if stack.shape[1:] != shape or not stack.ndim:
        want = ", ".join(["n", *map(str, shape)])
        raise ReshapeError(f"a stack for this program has shape ({want}), not {stack.shape}")
    return stack


def rows(stack: Any) -> Iterator[Any]:
    """The tensors of a stack, those without dims as arrays, too."""
    return (stack[i, ...] for i in range(len(stack)))
