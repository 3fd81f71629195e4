"""einops on shapejit Tensors: importing this module is enough, einops finds the backend itself.

Patterns move dims, so that the result is a view where one exists, and packed
elements stay packed; where none exists, the last reshape is the only copy.
Reductions compute with values, which shapejit does not: they are refused.

>>> import einops, shapejit as sj
>>> t = sj.Tensor.frombuffer(bytes([0x10, 0x32, 0x54]), "int4", (2, 3))
>>> einops.rearrange(t, "a b -> (b a)")
Tensor([0, 3, 1, 4, 2, 5], shape=(6,), dtype=int4, 4 bits each)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from .. import operations
from ..errors import DTypeError
from ..tensor import Tensor, asarray

try:
    from einops._backends import AbstractBackend
except ImportError as missing:
    raise ImportError(
        "shapejit.adapters.einops_backend needs einops: pip install 'shapejit[einops]'",
        name="einops",
    ) from missing


class ShapejitBackend(AbstractBackend):  # type: ignore[misc]  # Any: einops is not type-checked
    """What einops asks of a framework, for Tensors, traced ones too."""

    framework_name = "shapejit"

    def is_appropriate_type(self, tensor: object) -> bool:
        """Whether einops should use this backend."""
        return isinstance(tensor, Tensor)

    def from_numpy(self, x: NDArray[Any]) -> Tensor:
        """An ndarray as a Tensor over the same memory."""
        return asarray(x)

    def to_numpy(self, x: Tensor) -> NDArray[Any]:
        """The elements as an ndarray, unpacked."""
        return x.numpy()

    def arange(self, start: int, stop: int) -> Tensor:
        """As NumPy's."""
        return asarray(np.arange(start, stop))

    def transpose(self, x: Tensor, axes: Sequence[int]) -> Tensor:
        """The view whose dim i is dim axes[i]."""
        return x.permute_dims(axes)

    def stack_on_zeroth_dimension(self, tensors: list[Tensor]) -> Tensor:
        """The Tensors of a list along a new dim 0."""
        return operations.stack(tensors)

    def concat(self, tensors: Sequence[Tensor], axis: int) -> Tensor:
        """The Tensors one after the other."""
        return operations.concat(tensors, axis=axis)

    def add_axis(self, x: Tensor, new_position: int) -> Tensor:
        """The view with a new dim of size 1."""
        return x.expand_dims(new_position)

    def add_axes(self, x: Tensor, n_axes: int, pos2len: Mapping[int, int]) -> Tensor:
        """The view with new dims, along which the elements repeat."""
        for position in sorted(pos2len):
            x = x.expand_dims(position)
        return x.broadcast_to([pos2len.get(i, n) for i, n in enumerate(x.shape)])

    def tile(self, x: Tensor, repeats: Sequence[int]) -> Tensor:
        """The elements repeated: only along dims of size 1, which is all that einops asks for."""
        return x.broadcast_to([n * size for n, size in zip(repeats, x.shape, strict=True)])

    def is_float_type(self, x: Tensor) -> bool:
        """True: einops asks only before it takes a mean, and `reduce` says better why not."""
        return True

    def reduce(self, x: Tensor, operation: str, axes: Sequence[int]) -> NoReturn:
        """Refused: it would compute."""
        raise DTypeError(
            f"shapejit moves values and computes none: {operation} over dims {tuple(axes)} "
            f"needs an ndarray, such as Tensor.numpy() gives"
        )
