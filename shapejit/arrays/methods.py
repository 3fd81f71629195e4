"""Methods of Tensors that are defined, and bound, below the class: their names and types."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Self

from numpy.typing import NDArray

# Bound when one of them is first called, by the module that defines it: what is imported with
# the package takes its time in every process.
LATER = {
    **dict.fromkeys(
        ("ascontiguous", "broadcast_to", "expand_dims", "flip", "materialized"), "operations.views"
    ),
    **dict.fromkeys(
        ("matrix_transpose", "permute_dims", "reshape", "reshaped", "squeeze"), "operations.views"
    ),
    **dict.fromkeys(("numpy", "tobytes", "unpack"), "operations.codes"),
    **dict.fromkeys(("cast", "converted", "dequantize", "quantize"), "operations.casts"),
    **dict.fromkeys(
        ("moveaxis", "repeat", "roll", "split", "tile", "unstack"), "operations.manipulation"
    ),
    **dict.fromkeys(
        ("astype", "flatten", "item", "tolist", "transpose", "__iter__"), "operations.aliases"
    ),
    "__array_function__": "operations.numpy_protocol",
}


def unknown(module: str) -> None:
    """What `load` is until the package has set it."""
    raise ImportError(f"shapejit.{module} cannot be imported by itself")


# (a module of the package): imports it. The package sets it, since the modules stand below.
load: Callable[[str], Any] = unknown


class Methods:
    """What the modules of `LATER` bind to Tensor."""

    __slots__ = ()

    ascontiguous: Callable[..., Self]
    astype: Callable[..., Self]
    broadcast_to: Callable[..., Self]
    cast: Callable[..., Self]
    dequantize: Callable[..., Self]
    expand_dims: Callable[..., Self]
    flatten: Callable[..., Self]
    flip: Callable[..., Self]
    item: Callable[[], Any]
    matrix_transpose: Callable[..., Self]
    moveaxis: Callable[..., Self]
    permute_dims: Callable[..., Self]
    quantize: Callable[..., Self]
    repeat: Callable[..., Self]
    reshape: Callable[..., Self]
    roll: Callable[..., Self]
    split: Callable[..., list[Self]]
    squeeze: Callable[..., Self]
    tile: Callable[..., Self]
    transpose: Callable[..., Self]
    unstack: Callable[..., tuple[Self, ...]]
    numpy: Callable[..., NDArray[Any]]
    tobytes: Callable[[], bytes]
    tolist: Callable[[], Any]
    unpack: Callable[..., NDArray[Any]]
    __iter__: Callable[[], Iterator[Self]]
    __array_function__: Callable[..., Any]

    # What the same names do to a Tensor, or to one that is traced.
    converted: Callable[..., Any]
    materialized: Callable[..., Self]
    reshaped: Callable[..., Self]


def _first_call(name: str) -> Callable[..., Any]:
    """The method that binds the one of this name, and calls it."""

    def method(t: Any, *args: Any, **named: Any) -> Any:
        load(LATER[name])
        return getattr(type(t), name)(t, *args, **named)

    method.__name__ = name
    method.__doc__ = f"See shapejit.{LATER[name]}.{name}."
    return method


for _name in LATER:
    setattr(Methods, _name, _first_call(_name))
