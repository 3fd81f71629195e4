"""Methods of Tensor under the names that NumPy and torch use."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ..arrays.tensor import Tensor
from ..dtypes.table import fixed_width
from ..errors import ReshapeError, elements
from . import casts, manipulation, views


def transpose(t: Tensor, *axes: Any) -> Tensor:
    """The view with the dims in the order `axes`; without axes in reverse order.

    `axes` is one sequence or several ints. Raises ReshapeError, DTypeError.

    >>> t = Tensor.frombuffer(bytes(3), "int4", (1, 2, 3))
    >>> t.transpose().shape, t.transpose(1, 0, 2).shape, t.transpose((0, -1, 1)).shape
    ((3, 2, 1), (2, 1, 3), (1, 3, 2))
    """
    given = axes[0] if len(axes) == 1 and not isinstance(axes[0], int | np.integer) else axes
    return manipulation.transpose(t, given if axes else None)


def reshape(
    t: Tensor,
    *sizes: Any,
    shape: Any = None,
    copy: bool | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """`shapejit.reshape` of a shape that is given as one sequence or as several ints.

    Raises ReshapeError, DTypeError.

    >>> t = Tensor.frombuffer(bytes(3), "int4", (2, 3))
    >>> t.reshape(3, 2).shape, t.reshape((3, -1)).shape, t.reshape(6).shape
    ((3, 2), (3, 2), (6,))
    """
    if sizes:
        shape = sizes[0] if len(sizes) == 1 else sizes
    return views.reshape_as(t, views.array_request(shape, "reshape"), copy, out)


def flatten(t: Tensor) -> Tensor:
    """All elements in one dim, in row-major order: a view wherever one exists, else a copy.

    >>> Tensor.frombuffer(bytes([0x21, 0x43]), "int4", (2, 2)).flatten()
    Tensor([1, 2, 3, 4], shape=(4,), dtype=int4, 4 bits each)
    """
    return views.reshape(t, -1)


def tolist(t: Tensor) -> Any:
    """The elements as nested lists of Python numbers; of a 0-D tensor, the number itself.

    Raises DTypeError for a dtype that NumPy and ml_dtypes lack; `unpack` returns its codes.

    >>> Tensor.frombuffer(bytes([0x21, 0xF3]), "int4", (2, 2)).tolist()
    [[1, 2], [3, -1]]
    """
    return np.asarray(t).tolist()


def item(t: Tensor) -> Any:
    """The only element as a Python number. Raises ReshapeError unless there is exactly one.

    >>> Tensor.frombuffer(bytes([0x21]), "int4", (2,))[1].item()
    2
    """
    if t.size != 1:
        raise ReshapeError(f"item() needs a Tensor of one element, not of {elements(t.size)}")
    return np.asarray(t.reshape(())).item()


def astype(t: Tensor, dtype: object, /, *, copy: bool = True) -> Tensor:
    """As `cast`; with `copy=False`, a Tensor of that dtype is returned unchanged (Array API).

    Raises DTypeError.

    >>> Tensor.frombuffer(bytes([0x21]), "int4", (2,)).astype("float32").tolist()
    [1.0, 2.0]
    """
    return t if not copy and fixed_width(dtype) is t.dtype else casts.cast(t, dtype)


def __iter__(t: Tensor) -> Iterator[Tensor]:  # noqa: N807  # a method of Tensor
    """The views at each index of dim 0.

    >>> [row.tolist() for row in Tensor.frombuffer(bytes([0x21, 0x43]), "int4", (2, 2))]
    [[1, 2], [3, 4]]
    """
    if not t.shape:
        raise TypeError("a Tensor of 0 dims cannot be iterated over")
    return (t[i] for i in range(len(t)))
