"""CPU tensors of torch, of every dtype, converted to ndarrays and back without DLPack.

That takes 1 us; DLPack takes 40. If NumPy lacks the dtype, the ndarray has integers of that width.
A result in the memory of an argument is returned as a view of that argument.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..dtypes import table
from ..errors import DTypeError, FormatError
from ..runtime.launches import address_of
from ..runtime.ndarrays import is_a
from ..shapes.layout import Layout
from . import dlpack
from .libraries import Library, Native
from .tensor import Tensor, asarray

_TORCH_INTS = {8: torch.uint8, 16: torch.int16, 32: torch.int32}  # NumPy has them, too; by bits
_NUMPY_CODES = {8: np.uint8, 16: np.int16, 32: np.int32}
_FLOAT4_PAIRS = torch.float4_e2m1fn_x2 if hasattr(torch, "float4_e2m1fn_x2") else None

# Dtypes that NumPy lacks: the torch dtype and then the NumPy dtype to view them as.
_SEEN: dict[torch.dtype, tuple[torch.dtype, np.dtype[Any]]] = {}
_TORCH: dict[np.dtype[Any], torch.dtype] = {}
for _row in table.all():
    _kind = None if _row.torch is None else getattr(torch, _row.torch, None)
    if _kind is None or _row.packed or _row.numpy is None:
        continue
    _TORCH[_row.numpy] = _kind
    if _row.numpy.isbuiltin != 1:
        _SEEN[_kind] = _TORCH_INTS[_row.bits], _row.numpy


def _enter(x: Any) -> Native:
    if x.is_meta:
        raise FormatError("the torch.Tensor is on the device meta: it has a shape, but no elements")
    if not x.is_cpu:
        raise FormatError(
            f"the torch.Tensor is on the device {x.device}, not on the CPU: pass x.cpu()"
        )
    if x.requires_grad:
        raise FormatError("the torch.Tensor requires grad, which would be lost: pass x.detach()")
    kind = x.dtype
    try:
        if kind in _SEEN:
            codes, seen = _SEEN[kind]
            entered: Native = x.view(codes).numpy().view(seen)
        elif kind is _FLOAT4_PAIRS:
            entered = Tensor(*dlpack.borrow(x))
        else:
            entered = x.numpy()
    except (RuntimeError, TypeError) as fault:
        why = "it is nested: pass the tensors of x.unbind()" if x.is_nested else fault
        raise FormatError(f"the torch.Tensor cannot be read in place: {why}") from None
    return entered


def _leave(made: Native, like: Any) -> Any:
    if is_a(made, Tensor) and (made.dtype.packed or made.dtype.numpy is None):
        return _packed(made)
    array: Any = made.numpy() if is_a(made, Tensor) else made
    kind, size = _TORCH.get(array.dtype), array.itemsize
    if kind is None:
        return _packed(asarray(array))
    if any(stride < 0 or stride % size for stride in array.strides):
        array = _forwards(array)
    if like is not None and like.dtype is kind and array.size:
        memory = like.untyped_storage()
        offset = address_of(array) - memory.data_ptr()
        if 0 <= offset < memory.nbytes():
            steps = [stride // size for stride in array.strides]
            return like.as_strided(array.shape, steps, offset // size)
    if not array.flags.writeable:  # torch has no read-only tensors
        array = _writable(array)
    if kind not in _SEEN:
        return torch.from_numpy(array)
    return torch.from_numpy(array.view(_NUMPY_CODES[8 * size])).view(kind)


def _forwards(array: NDArray[Any]) -> NDArray[Any]:
    """The array with non-negative strides of whole elements; copied if it has others."""
    size, dims = array.itemsize, zip(array.shape, array.strides, strict=True)
    if array.size and any(n > 1 and (stride < 0 or stride % size) for n, stride in dims):
        return np.asarray(asarray(array).ascontiguous())
    # The strides of the other dims have no effect.
    strides = Layout.of(array.shape, array.strides, 0, size).strides
    return np.lib.stride_tricks.as_strided(array, strides=strides)


def _writable(array: NDArray[Any]) -> NDArray[Any]:
    """A writable view of the same memory, or of a copy if the memory itself is read-only."""
    view = array.view()
    try:
        view.flags.writeable = True
    except ValueError:
        view = np.array(array, order="C")
    return view


def _packed(t: Tensor) -> Any:
    """Pairs of float4, the only elements of fewer than 8 bits that torch has."""
    kind = None if t.dtype.torch is None else getattr(torch, t.dtype.torch, None)
    if kind is None or not t.dtype.packed:
        raise DTypeError(f"torch has no {t.dtype}: pass shapejit.asarray(x), which gives a Tensor")
    if not t.shape or t.shape[-1] % 2:
        raise DTypeError(f"torch has pairs of float4: the last dim of {t.shape} is not even")
    t = t.ascontiguous()
    first = t.offset // 8
    memory = t.buffer[first : first + t.nbytes].reshape(*t.shape[:-1], t.shape[-1] // 2)
    if not memory.flags.writeable:
        memory = memory.copy()
    return torch.from_numpy(memory).view(kind)


LIBRARY = Library(_enter, _leave)
