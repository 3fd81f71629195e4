"""The arrays that a Program accepts: of its dtype and shape, where None matches any length."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays.tensor import Tensor
from ..dtypes.promotion import AnyDtype
from ..dtypes.table import DType
from ..errors import DTypeError, ReshapeError, shape_text, type_name
from ..runtime.ndarrays import is_a, plain


def check_source(x: Any, as_tensors: bool, dtype: DType, shape: tuple[int | None, ...]) -> None:
    """Raise for anything but a Tensor or ndarray of this dtype and shape (None: any length)."""
    if is_a(x, Tensor) is not as_tensors:
        among = f"{type_name(x)} among Tensors" if as_tensors else "a Tensor among ndarrays"
        raise DTypeError(among)
    if not as_tensors and not is_a(x, np.ndarray):
        wanted = "expected a numpy.ndarray or a shapejit.Tensor"
        raise DTypeError(f"{wanted}, not {type_name(x)}; all must be of one library")
    if not is_of(dtype, x.dtype):
        raise DTypeError(f"the dtype is {x.dtype}, the program's {dtype}")
    if x.shape != shape and not fits(x.shape, shape):
        raise ReshapeError(f"the shape is {shape_text(x.shape)}, the program's {free_text(shape)}")


def is_of(dtype: DType, kind: AnyDtype) -> bool:
    """Whether an array whose dtype is `kind`, a DType or NumPy's, is of this dtype.

    No ndarray is of one that NumPy lacks.

    >>> from shapejit.dtypes import dtype
    >>> [is_of(dtype(name), np.dtype("float64")) for name in ("float64", "float32", "nf4")]
    [True, False, False]
    """
    wanted = dtype if isinstance(kind, DType) else dtype.numpy
    return wanted is not None and (kind is wanted or bool(kind == wanted))  # NumPy: None is float64


def fits(shape: tuple[int, ...], wanted: tuple[int | None, ...]) -> bool:
    """Whether a shape matches the wanted one, in which None is any length."""
    sizes = zip(shape, wanted, strict=False)
    return len(shape) == len(wanted) and all(want in (None, have) for have, want in sizes)


def free_text(shape: tuple[int | None, ...]) -> str:
    """A shape as text, with n for a free dim."""
    return str(shape).replace("None", "n")


def checked_stack(x: NDArray[Any] | Tensor, shape: tuple[int | None, ...]) -> Any:
    """An exact array of tensors of this shape, stacked along dim 0."""
    stack = x if is_a(x, Tensor) else plain(x)
    if not stack.ndim or not fits(stack.shape[1:], shape):
        want = ", ".join(["n", *("any" if size is None else str(size) for size in shape)])
        raise ReshapeError(f"a stack for this program has shape ({want}), not {stack.shape}")
    return stack


def rows_of(stack: Any) -> Iterator[Any]:
    """The tensors of a stack; 0-D ones as arrays, too."""
    return (stack[i, ...] for i in range(len(stack)))
