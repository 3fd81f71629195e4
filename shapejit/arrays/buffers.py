"""The memory of other objects as arrays of bytes, and the Layout of an ndarray in it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import FormatError
from ..runtime.ndarrays import is_a, plain
from ..shapes.layout import Layout
from ..shapes.request import Ints

Bytes = NDArray[np.uint8]


class Lent:
    """Memory at an address, which `owner` keeps alive, for `np.asarray` (its array interface).

    It has elements of `kind`, in NumPy's notation of dtypes; strides are in bytes. `one_per_byte`
    says that each byte has one sub-byte element.
    """

    def __init__(
        self,
        address: int,
        shape: Ints,
        strides: Ints | None = None,
        kind: str = "|u1",
        *,
        owner: object = None,
        writeable: bool = True,
        one_per_byte: bool = False,
    ) -> None:
        self.owner = owner
        self.one_per_byte = one_per_byte
        self.__array_interface__ = {
            "data": (address, not writeable),
            "shape": shape,
            "strides": strides,
            "typestr": kind,
            "version": 3,
        }


def bytes_of(buffer: Any) -> Bytes:
    """The bytes of any object with a contiguous buffer, not copied. Raises FormatError for others.

    >>> bytes_of(memoryview(b"abcd").cast("h"))
    array([ 97,  98,  99, 100], dtype=uint8)
    """
    if is_a(buffer, np.ndarray):
        array = plain(buffer)
        if not array.flags.c_contiguous or array.dtype.hasobject:
            raise FormatError("the ndarray must be C-contiguous and must not hold Python objects")
        return array.reshape(-1).view(np.uint8)
    try:
        return np.frombuffer(buffer, np.uint8)
    except (TypeError, AttributeError, BufferError, ValueError) as fault:
        raise FormatError(f"{type(buffer).__name__} has no usable buffer: {fault}") from None


def memory_of(x: NDArray[Any], bits: int) -> tuple[Bytes, Layout]:
    """The bytes from an ndarray's first to its last element, and its Layout in them.

    `bits` is the width of an element, at most that of the ndarray's items.
    """
    strides = [8 * s for s in x.strides]
    one_per_byte = bits < 8 * x.itemsize
    if x.flags.c_contiguous and not one_per_byte:
        return x.reshape(-1).view(np.uint8), Layout.of(x.shape, strides, 0, bits)
    reach = Layout.of(x.shape, strides, 0, 8 * x.itemsize)
    low, high = reach.span
    start = x.__array_interface__["data"][0] + low // 8
    size, writeable = (high - low) // 8, x.flags.writeable
    lent = Lent(start, (size,), owner=x, writeable=writeable, one_per_byte=one_per_byte)
    return np.asarray(lent), Layout.of(x.shape, strides, reach.offset - low, bits)


# Reads the owner of an ndarray's memory even if a subclass overrides `base`.
_base: Any = np.ndarray.base.__get__


def has_one_per_byte(memory: Bytes) -> bool:
    """Whether the memory is known to have one sub-byte element per byte.

    >>> import ml_dtypes
    >>> has_one_per_byte(memory_of(np.zeros(3, ml_dtypes.int4), 4)[0])
    True
    """
    owner: Any = memory
    while is_a(owner, np.ndarray):
        owner = _base(owner)
    return is_a(owner, Lent) and owner.one_per_byte


def check_bytes(memory: Bytes, layout: Layout) -> None:
    """Raise FormatError if `memory` is not a 1-D array of bytes that has all elements."""
    if memory.ndim != 1 or memory.dtype != np.uint8 or not memory.flags.c_contiguous:
        raise FormatError(
            f"the buffer must be a C-contiguous 1-D uint8 ndarray, not one of dtype "
            f"{memory.dtype}, shape {memory.shape} and strides {memory.strides}"
        )
    low, high = layout.span
    if low < 0 or high > 8 * memory.size:
        raise FormatError(
            f"the elements use the bits [{low}, {high}) of a buffer of {memory.size} bytes"
        )


def as_ndarray(x: Any) -> NDArray[Any] | None:
    """`x` as an exact ndarray, converted by NumPy; None if only DLPack can read it."""
    if is_a(x, np.ndarray):
        return plain(x)
    exports = hasattr(x, "__dlpack__") and hasattr(x, "__dlpack_device__")
    if exports and not hasattr(x, "__array__"):
        return None
    try:
        return plain(np.asarray(x))
    except TypeError:
        if exports:
            return None
        raise
