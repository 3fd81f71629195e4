"""Arguments that operators share: ints in attributes and tensors, axes, flags."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np

from ...arrays.tensor import Array
from ...dtypes.table import dtype
from ...errors import ReshapeError
from ...operations.views import checked
from ...runtime.ndarrays import is_a
from ...shapes.layout import normal_axes, normal_axis
from .. import arguments
from .versions import NEGATIVE_AXES, Version, version

# The ints of an attribute, a sequence, or of a 1-D array of one of `types`.
ints = partial(arguments.ints, types=("int64",), scalar=False)


def entered(operator: str, opset: int, data: Array, name: str = "") -> tuple[Version, Array]:
    """The version of an operator and its first operand, whose dtype the version must list.

    >>> import numpy as np
    >>> row, x = entered("Expand", 25, np.zeros(3, np.float32))
    >>> str(row), x.shape
    ('onnx.Expand-13', (3,))
    """
    if type(data) is np.ndarray and not data.dtype.hasobject:
        return _entered(operator, opset, name, data.dtype), data
    row = version(operator, opset)
    row.check(data, name)
    return row, checked(data)


@lru_cache(maxsize=1024, typed=True)
def _entered(operator: str, opset: int, name: str, kind: np.dtype[Any]) -> Version:
    """The version of an operator that must list the dtype of an ndarray, cached."""
    row = version(operator, opset)
    row.check_dtype(dtype(kind), name)
    return row


def axes_of(row: Version, axes: Sequence[int], rank: int) -> tuple[int, ...]:
    """Axes counted from the front, which must differ; see `check_sign` for negative ones.

    >>> from .versions import version
    >>> axes_of(version("Squeeze", 13), (0, -1), 3)
    (0, 2)
    """
    check_sign(row, axes)
    return normal_axes(axes, rank, row)


def axis_of(row: Version, axis: int, rank: int) -> int:
    """`axes_of` for one axis."""
    check_sign(row, (axis,))
    return normal_axis(axis, rank, row)


def check_sign(row: Version, axes: Sequence[int]) -> None:
    """Refuse negative axes in versions that do not allow them."""
    if min(axes, default=0) >= 0:
        return
    since = NEGATIVE_AXES.get(row.operator, NEGATIVE_AXES[""])
    if row.since < since:
        raise ReshapeError(
            f"axes {tuple(axes)} must not be negative (from opset {since} on they may be)",
            asked_by=row,
        )


def one_of(row: Version, value: Any, name: str, allowed: Sequence[str]) -> str:
    """The attribute, a string; ReshapeError if it is not one of those allowed."""
    text = value.decode("utf-8", "replace") if is_a(value, bytes) else value
    if not is_a(text, str) or text not in allowed:
        listed = ", ".join(allowed)
        raise ReshapeError(f"{name} must be one of {listed}, not {value!r}", asked_by=row)
    return text
