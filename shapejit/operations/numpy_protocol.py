"""NumPy's functions, called with Tensors (NEP 18: `__array_function__`).

Functions with a row here or in `OPERATIONS` are shapejit's: packed elements stay packed, and the
result is a Tensor. All others compute or read elements: Tensors of whole bytes are passed to NumPy
as ndarrays, packed ones raise. Nothing is unpacked implicitly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import Parameter, signature
from math import prod
from typing import Any

import numpy as np

from ..arrays.operations import OPERATIONS
from ..arrays.tensor import Tensor
from ..errors import DTypeError, ReshapeError
from ..runtime.ndarrays import is_a
from ..runtime.uninterrupted import module
from ..shapes.layout import normal_axis
from ..shapes.request import integers, plain_shape
from . import aliases, gathering, joining, manipulation, views

_OWN = (np.ndarray, Tensor)
POSITIONAL_ONLY = Parameter.POSITIONAL_ONLY
SAME_KIND = "same_kind"  # the default of NumPy's casting=


def __array_function__(  # noqa: N807  # a method of Tensor
    t: Tensor,
    func: Callable[..., Any],
    types: Sequence[type],
    args: Sequence[Any],
    kwargs: dict[str, Any],
) -> Any:
    """Call NumPy's `func` with Tensors; raises TypeError where that would unpack them.

    >>> t = Tensor.frombuffer(bytes([0x21, 0x43]), "int4", (4,))
    >>> np.concatenate([t, t[:2]])
    Tensor([1, 2, 3, 4, 1, 2], shape=(6,), dtype=int4, 4 bits each)
    """
    if not all(issubclass(kind, _OWN) for kind in types):
        return NotImplemented
    row = FUNCTIONS.get(func)
    if row is not None:
        return row(*args, **kwargs)
    return func(*_as_arrays(args, func), **_as_arrays(kwargs, func))


def _as_arrays(value: Any, func: Callable[..., Any]) -> Any:
    """The arguments with Tensors replaced by ndarrays over their memory."""
    if is_a(value, Tensor):
        if value.dtype.packed or value.dtype.numpy is None:
            raise DTypeError(
                f"numpy.{func.__name__} would unpack a Tensor of {value.dtype}: pass "
                f"numpy.asarray(tensor), or use a function of shapejit"
            )
        return value.numpy()
    if type(value) in (list, tuple):
        return type(value)(_as_arrays(item, func) for item in value)
    if type(value) is dict:
        return {key: _as_arrays(item, func) for key, item in value.items()}
    return value


def _default(**given: Any) -> None:
    """Raise for arguments that NumPy's functions have and shapejit's lack."""
    for name, value in given.items():
        if value is not None:
            raise DTypeError(f"{name}={value!r} is not supported for Tensors")


def _order(order: Any, orders: str) -> str:
    """NumPy's `order`, which must be one of the letters `orders`; None is C."""
    given = "C" if order is None else str(order).upper()
    if len(given) != 1 or given not in orders:
        raise ReshapeError(f"order is one of {', '.join(orders)} for Tensors, not {order!r}")
    return given


def _in_order(t: Tensor, order: str) -> Tensor:
    """The view of `t` whose elements, read in row-major order, are those of `t` in `order`."""
    if order == "K":  # as they lie in memory, but never backwards
        if t.layout.repeats:
            raise ReshapeError("order='K' of elements that repeat in memory is not supported")
        axes = sorted(range(t.ndim), key=lambda axis: -abs(t.strides[axis]))
        return views.permute_dims(t, axes)
    if order == "C" or (order == "A" and t.contiguous):
        return t
    turned = manipulation.transpose(t)
    return turned if order == "F" or turned.contiguous else t


def _joining(join: Callable[..., Any]) -> Callable[..., Any]:
    """`concat` or `stack`, with NumPy's arguments."""

    def call(
        arrays: Any, axis: Any = 0, out: Any = None, *, dtype: Any = None, casting: str = SAME_KIND
    ) -> Any:
        _default(dtype=dtype, casting=None if casting == SAME_KIND else casting)
        return join(arrays, axis, out=out)

    return call


def _reshape(a: Any, /, shape: Any, order: str = "C", *, copy: Any = None) -> Any:
    seen = _in_order(a, _order(order, "CFA"))
    if seen is a:
        return views.reshape(a, shape, copy=copy)
    sizes = plain_shape(shape, "the target shape", "numpy.reshape")
    return manipulation.transpose(views.reshape(seen, sizes[::-1], copy=copy))


def _ravel(a: Any, order: str = "C") -> Any:
    made = views.reshape(_in_order(a, _order(order, "CFAK")), -1)
    return made if made.contiguous else views.ascontiguous(made)


def _squeeze(a: Any, axis: Any = None) -> Any:
    ones = tuple(i for i, size in enumerate(np.shape(a)) if size == 1)
    return views.squeeze(a, ones if axis is None else axis)


def _swapaxes(a: Any, axis1: int, axis2: int) -> Any:
    order = list(range(a.ndim))
    axes = integers((axis1, axis2), "the axes", "swapaxes")
    i, j = (normal_axis(axis, a.ndim, "swapaxes") for axis in axes)
    order[i], order[j] = j, i
    return views.permute_dims(a, order)


def _take(a: Any, indices: Any, axis: Any = None, out: Any = None, mode: str = "raise") -> Any:
    _default(mode=None if mode == "raise" else mode)
    flat = views.reshape(a, -1) if axis is None else a
    return gathering.take(flat, indices, axis=0 if axis is None else axis, out=out)


def _copy(a: Any, order: str = "K", subok: bool = False) -> Any:
    _order(order, "CAK")  # the copy is row-major: this is about memory alone
    return views.reshape(a, a.shape, copy=True)


def _astype(x: Any, dtype: Any, /, *, copy: bool = True, device: Any = None) -> Any:
    _default(device=None if device == "cpu" else device)
    return aliases.astype(x, dtype, copy=copy)


def _repeat(a: Any, repeats: Any, axis: Any = None) -> Any:
    return manipulation.repeat(a, repeats, axis, copy=True)


def _size(a: Any, axis: Any = None) -> int:
    if axis is None:
        return int(a.size)
    return prod(a.shape[at] for at in views.axes_of(axis, a.ndim, "numpy.size"))


def _renamed(function: Callable[..., Any], names: Sequence[str]) -> Callable[..., Any]:
    """`function` under NumPy's names of its first parameters; ignores those without effect."""
    ours = dict(zip(names, signature(function).parameters.values(), strict=False))
    alone = [name for name, parameter in ours.items() if parameter.kind is POSITIONAL_ONLY]

    def call(*args: Any, **named: Any) -> Any:
        given = dict(zip(names, args, strict=False)) | named
        leading = [given.pop(name) for name in alone if name in given]
        return function(*leading, **{ours[k].name: v for k, v in given.items() if k in ours})

    return call


# NumPy's name of a function -> the function for Tensors, with NumPy's names of arguments.
FUNCTIONS: dict[Any, Callable[..., Any]] = {
    np.astype: _astype,
    np.broadcast_arrays: lambda *args, subok=False: manipulation.broadcast_arrays(*args),
    np.concatenate: _joining(joining.concat),
    np.copy: _copy,
    np.ndim: lambda a: a.ndim,
    np.ravel: _ravel,
    np.repeat: _repeat,
    np.reshape: _reshape,
    np.shape: lambda a: a.shape,
    np.size: _size,
    np.squeeze: _squeeze,
    np.stack: _joining(joining.stack),
    np.swapaxes: _swapaxes,
    np.take: _take,
    np.tile: lambda A, reps: manipulation.tile(A, reps, copy=True),  # noqa: N803  # NumPy's name
}
for _name, _row in OPERATIONS.items():
    if _row.numpy:
        _function = getattr(module(f"operations.{_row.function}"), _name)
        FUNCTIONS[getattr(np, _name)] = _renamed(_function, _row.numpy.split())
