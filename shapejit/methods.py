"""Methods of Tensors that are defined, and bound, below the class: their names and types."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

if TYPE_CHECKING:
    from .tensor import Tensor


class Methods:
    """What `operations`, `codes`, `casts`, `manipulation` and `familiar` bind to Tensor."""

    __slots__ = ()

    ascontiguous: Callable[..., Tensor]
    astype: Callable[..., Tensor]
    broadcast_to: Callable[..., Tensor]
    cast: Callable[..., Tensor]
    dequantize: Callable[..., Tensor]
    expand_dims: Callable[..., Tensor]
    flatten: Callable[..., Tensor]
    flip: Callable[..., Tensor]
    item: Callable[[], Any]
    matrix_transpose: Callable[..., Tensor]
    moveaxis: Callable[..., Tensor]
    permute_dims: Callable[..., Tensor]
    quantize: Callable[..., Tensor]
    repeat: Callable[..., Tensor]
    reshape: Callable[..., Tensor]
    roll: Callable[..., Tensor]
    split: Callable[..., list[Tensor]]
    squeeze: Callable[..., Tensor]
    tile: Callable[..., Tensor]
    transpose: Callable[..., Tensor]
    unstack: Callable[..., tuple[Tensor, ...]]
    numpy: Callable[..., NDArray[Any]]
    tobytes: Callable[[], bytes]
    tolist: Callable[[], Any]
    unpack: Callable[..., NDArray[Any]]
    __iter__: Callable[[], Iterator[Tensor]]
    __array_function__: Callable[..., Any]

    # What the same names do to a Tensor, or to one that is traced.
    converted: Callable[..., Any]
    materialized: Callable[..., Tensor]
    reshaped: Callable[..., Tensor]
