"""Arguments that operators share: ints in attributes and tensors, axes, flags."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from ...arrays.tensor import Array
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
    row = version(operator, opset)
    row.check(data, name)
    return row, checked(data)


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
    since = NEGATIVE_AXES.get(row.operator, NEGATIVE_AXES[""])
    if row.since < since and any(axis < 0 for axis in axes):
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
