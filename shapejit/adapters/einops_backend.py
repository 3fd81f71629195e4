"""einops on shapejit Tensors: import this module, and einops finds the backend.

The result is a view where one exists; if not, the last reshape makes the only
copy. Packed elements stay packed. Reductions, which compute, raise DTypeError.

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

from ..arrays.tensor import Tensor, asarray
from ..errors import DTypeError
from ..operations import joining
from ..runtime.ndarrays import is_a

try:
    from einops._backends import AbstractBackend
except ImportError as missing:
    raise ImportError(
        "shapejit.adapters.einops_backend needs einops: pip install 'shapejit[einops]'",
        name="einops",
    ) from missing


class ShapejitBackend(AbstractBackend):  # type: ignore[misc]  # Any: einops is not type-checked
    """The backend interface of einops for Tensors, traced ones included."""

    framework_name = "shapejit"

    def is_appropriate_type(self, tensor: object) -> bool:
        """Whether einops should use this backend."""
        return is_a(tensor, Tensor)

    def from_numpy(self, x: NDArray[Any]) -> Tensor:
        """An ndarray as a Tensor over the same memory."""
        return asarray(x)

    def to_numpy(self, x: Tensor) -> NDArray[Any]:
        """The elements as an ndarray, unpacked."""
        return x.numpy()

    def arange(self, start: int, stop: int) -> Tensor:
        """The ints from `start` to `stop`, exclusive, as a Tensor."""
        return asarray(np.arange(start, stop))

    def transpose(self, x: Tensor, axes: Sequence[int]) -> Tensor:
        """The view whose dim i is dim axes[i]."""
        return x.permute_dims(axes)

    def stack_on_zeroth_dimension(self, tensors: list[Tensor]) -> Tensor:
        """The Tensors of a list along a new dim 0."""
        return joining.stack(tensors)

    def concat(self, tensors: Sequence[Tensor], axis: int) -> Tensor:
        """The Tensors joined along `axis`."""
        return joining.concat(tensors, axis=axis)

    def add_axis(self, x: Tensor, new_position: int) -> Tensor:
        """The view with a new dim of size 1."""
        return x.expand_dims(new_position)

    def add_axes(self, x: Tensor, n_axes: int, pos2len: Mapping[int, int]) -> Tensor:
        """The view with new dims, along which the elements repeat."""
        for position in sorted(pos2len):
            x = x.expand_dims(position)
        return x.broadcast_to([pos2len.get(i, n) for i, n in enumerate(x.shape)])

    def tile(self, x: Tensor, repeats: Sequence[int]) -> Tensor:
        """The tensor repeated as a whole, `repeats[i]` times along dim i."""
        return x.tile(repeats)

    def is_float_type(self, x: Tensor) -> bool:
        """True: einops asks only before a mean, where `reduce` raises a better message."""
        return True

    def reduce(self, x: Tensor, operation: str, axes: Sequence[int]) -> NoReturn:
        """Raise DTypeError: shapejit does not compute."""
        raise DTypeError(
            f"shapejit does not compute: {operation} over dims {tuple(axes)} needs an ndarray, "
            f"for example from Tensor.numpy()"
        )
