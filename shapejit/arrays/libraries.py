"""Libraries whose arrays are accepted: one row per library that needs a module of its own.

All others exchange memory by DLPack: arrays are read by their `__dlpack__`, results returned by
`from_dlpack` of the library's namespace (the Array API's `__array_namespace__()`, or the module).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import lru_cache
from importlib import import_module
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..dtypes.table import DType, dtype
from ..errors import DTypeError, FormatError
from ..runtime.ndarrays import is_a
from . import dlpack
from .tensor import Tensor, asarray

Native = NDArray[Any] | Tensor


class Library(NamedTuple):
    """Conversions from and to the arrays of one library.

    `enter` (array) returns an ndarray or a Tensor over the same memory. `leave` (result, original
    array or None) returns an array of the library, over the memory of the result if the library
    supports that. Both raise DTypeError or FormatError.
    """

    enter: Callable[[Any], Native]
    leave: Callable[[Native, Any], Any]


# The package of an array's class, and the module here that handles it.
_ADAPTERS = {"torch": "torch_arrays"}


def adapter(kind: type) -> Library | None:
    """The library of arrays of this type, if it has a row."""
    for base in kind.__mro__ if hasattr(kind, "__dlpack__") else ():
        module = _ADAPTERS.get(base.__module__.partition(".")[0])
        if module is not None:
            found: Library = import_module(f"{__package__}.{module}").LIBRARY
            return found
    return None


@lru_cache(maxsize=1024)
def library(kind: Any) -> Library:
    """The library of arrays of this type; a type without a row is a library of its own."""
    return adapter(kind) or Library(_enter, _leave)


def _enter(x: Any) -> Native:
    """By DLPack: an ndarray if NumPy or ml_dtypes has the dtype in whole bytes, else a Tensor."""
    try:
        t = Tensor(*dlpack.borrow(x))
    except (RuntimeError, TypeError) as fault:
        return _read(x, fault)
    return t if t.dtype.packed or t.dtype.numpy is None else t.numpy()


def _read(x: Any, fault: Exception) -> Native:
    """An array whose dtype its library does not export by DLPack (jax's int4), as read by NumPy.

    Read-only, since it may be a copy.
    """
    if not hasattr(x, "__array__"):
        raise FormatError(f"the {type(x).__name__} cannot be read: {fault}") from fault
    array = np.asarray(x).view()
    array.flags.writeable = False
    return array


def _leave(made: Native, like: Any) -> Any:
    """By DLPack: a view if the library has such views, otherwise a copy in row-major order.

    If the library refuses it by DLPack, its `asarray` of an ndarray is tried.
    """
    library, t = _namespace(like), asarray(made)
    whole = t.contiguous and t.buffer.flags.writeable
    ways: tuple[Callable[[], Any], ...] = (
        lambda: library.from_dlpack(t),
        lambda: library.from_dlpack(t if whole else t.reshape(t.shape, copy=True)),
        lambda: library.asarray(t.unpack() if t.dtype.packed else t.numpy().copy()),
    )
    faults = []
    for way in ways:
        try:
            received = way()
        except Exception as fault:  # each library raises errors of its own
            faults.append(fault)
            continue
        if _is(received, t.dtype):
            return received
    note = f": {faults[0]}" if faults else ""
    raise DTypeError(f"{type(like).__name__} cannot hold {t.dtype}{note}")


def _is(received: Any, kind: DType) -> bool:
    """Whether an array that a library made has this dtype: jax turns int64 into int32."""
    try:
        return dtype(received.dtype) is kind
    except DTypeError:  # the library has dtypes of its own
        return True


def _namespace(x: Any) -> Any:
    """The namespace of an array's library, which has `from_dlpack`."""
    if hasattr(x, "__array_namespace__"):
        return x.__array_namespace__()
    name = type(x).__module__
    while name:
        module = sys.modules.get(name)
        if is_a(module, ModuleType) and hasattr(module, "from_dlpack"):
            return module
        name = name.rpartition(".")[0]
    raise DTypeError(
        f"no from_dlpack is known for {type(x).__name__}: pass shapejit.asarray(x), "
        f"which gives a Tensor, or out="
    )
