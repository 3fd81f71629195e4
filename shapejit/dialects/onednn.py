"""oneDNN Graph StaticReshape and DynamicReshape (`special_zero`; f32, f16, bf16).

oneDNN lists DynamicReshape without specifying it; here it is StaticReshape whose
shape is a run-time integer tensor.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..arrays.foreign import accepts_any_array
from ..arrays.tensor import Array
from ..errors import DTypeError
from ..operations.views import reshape_as
from ..shapes.request import Request
from .arguments import dtype_in, special_zero_request

__all__ = ["dynamic_reshape", "request", "static_reshape"]


def request(shape: Any, *, special_zero: bool) -> Request:
    """The Request of both oneDNN reshapes for `shape` (sizes in elements).

    With `special_zero` a 0 copies the source dim of the same index, without it
    0 is a size; one -1 is inferred, which is an error if another size is 0. Raises
    ReshapeError, DTypeError.

    >>> request([0, -1], special_zero=False).dims
    (0, -1)
    """
    return special_zero_request(shape, special_zero, "onednn.Reshape", cancel=False)


@accepts_any_array
def static_reshape(
    data: Array,
    *,
    shape: Sequence[int],
    special_zero: bool,
    copy: bool | None = None,
    out: Array | None = None,
) -> Array:
    """oneDNN Graph StaticReshape of an f32, f16 or bf16 ndarray or Tensor.

    `shape` and `special_zero` are attributes, as in `request`; `copy` and `out`
    as in `shapejit.reshape`. Raises DTypeError, ReshapeError.

    >>> import numpy as np
    >>> static_reshape(np.zeros((2, 3), np.float32), shape=[0, 3, 1], special_zero=True).shape
    (2, 3, 1)
    """
    return _reshape(data, shape, special_zero, "onednn.StaticReshape", copy, out)


@accepts_any_array
def dynamic_reshape(
    data: Array,
    shape: Any,
    *,
    special_zero: bool,
    copy: bool | None = None,
    out: Array | None = None,
) -> Array:
    """oneDNN Graph DynamicReshape: `static_reshape` with the shape as a 1-D integer tensor.

    Raises DTypeError, ReshapeError.

    >>> import numpy as np
    >>> dynamic_reshape(np.zeros((2, 3), np.float32), np.array([3, 2]), special_zero=False).shape
    (3, 2)
    """
    return _reshape(data, shape, special_zero, "onednn.DynamicReshape", copy, out)


def _reshape(
    data: Array, shape: Any, special_zero: bool, name: str, copy: bool | None, out: Array | None
) -> Array:
    asked = special_zero_request(shape, special_zero, name, cancel=False)
    kind = dtype_in(data, name)
    if kind.onednn is None:
        raise DTypeError(f"{name} supports f32, f16 and bf16, not {kind}")
    return reshape_as(data, asked, copy, out)
