"""Methods of Tensors that are defined in other modules; `methods.pyi` has their types.

A method is bound when one of its module is first called: what is imported with the package
takes its time in every process.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..runtime.compilation import module

# One row per module: the methods that it binds to Tensor.
DEFINED = {
    "operations.views": "ascontiguous broadcast_to expand_dims flip matrix_transpose permute_dims "
    "reshape squeeze materialized reshaped",
    "operations.codes": "numpy tobytes unpack",
    "operations.casts": "cast dequantize quantize converted",
    "operations.manipulation": "moveaxis repeat roll split tile unstack",
    "operations.aliases": "astype flatten item tolist transpose __iter__",
    "operations.numpy_protocol": "__array_function__",
}


class Methods:
    """What the modules of `DEFINED` bind to Tensor."""

    __slots__ = ()


def _first_call(name: str, where: str) -> Callable[..., Any]:
    """The method that has its module bind the one of this name, and calls it."""

    def method(t: Any, *args: Any, **named: Any) -> Any:
        module(where)
        return getattr(type(t), name)(t, *args, **named)

    method.__name__ = name
    method.__doc__ = f"See shapejit.{where}.{name}."
    return method


for _where, _names in DEFINED.items():
    for _name in _names.split():
        setattr(Methods, _name, _first_call(_name, _where))
