"""OpenVINO Reshape-1 (operation specification, opset 1: `special_zero`)."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import request as requests
from ..arrays import is_a
from ..dtypes import STRING
from ..errors import DTypeError
from ..foreign import moves
from ..operations import dtype_of, reshape_as
from ..request import Request
from ..tensor import Array, Tensor, is_array

_NAME = "openvino.Reshape-1"


def request(shape: Any, *, special_zero: bool) -> Request:
    """The Request of OpenVINO Reshape-1 for `shape` (sizes in elements).

    With `special_zero` a 0 copies the source dim of the same index, and copied
    dims cancel on both sides before -1 is computed; without it 0 is a size.
    `shape` is a sequence of ints or a 1-D array of any integer type.

    >>> request([0, -1], special_zero=True).dims
    (-2, -1)
    """
    if not isinstance(special_zero, bool | np.bool_):
        raise DTypeError(f"special_zero of {_NAME} must be a bool, not {special_zero!r}")
    who = f"{_NAME} (special_zero={str(bool(special_zero)).lower()})"
    if is_a(shape, Tensor):
        shape = np.asarray(shape)
    return requests.request(shape, copy_zeros=bool(special_zero), cancel=True, asked_by=who)


@moves
def reshape(
    data: Array,
    shape: Any,
    *,
    special_zero: bool,
    copy: bool | None = None,
    out: Array | None = None,
) -> Array:
    """OpenVINO Reshape-1 of an ndarray or Tensor of any numeric OpenVINO element type.

    `shape` and `special_zero` as in `request`; `copy` and `out` as in
    `shapejit.reshape`. Raises DTypeError, ReshapeError.

    >>> import numpy as np
    >>> reshape(np.zeros((4, 0, 2), np.float32), [-1, 0], special_zero=True).shape
    (8, 0)
    """
    asked = request(shape, special_zero=special_zero)
    if not is_array(data):
        raise DTypeError(f"{_NAME} expects an ndarray or a Tensor, not {type(data).__name__}")
    kind = dtype_of(data)
    if kind.openvino is None or kind is STRING:
        raise DTypeError(f"{_NAME} supports OpenVINO's numeric types, not {kind}")
    return reshape_as(data, asked, copy, out)
