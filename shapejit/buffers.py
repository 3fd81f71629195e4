"""Other objects' memory as bytes, and where the elements of an ndarray lie in it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .arrays import plain as plain
from .errors import FormatError
from .layout import Layout

Bytes = NDArray[np.uint8]


class Lent:
    """A stretch of memory at an address, for as long as `owner` lives.

    `spread` tells that elements narrower than a byte lie there one a byte.
    """

    def __init__(
        self, owner: object, address: int, nbytes: int, *, writeable: bool, spread: bool
    ) -> None:
        self.owner = owner
        self.spread = spread
        self.__array_interface__ = {
            "data": (address, not writeable),
            "shape": (nbytes,),
            "typestr": "|u1",
            "version": 3,
        }


def bytes_of(buffer: Any) -> Bytes:
    """The bytes of any buffer, in place; FormatError for what is none.

    >>> bytes_of(memoryview(b"abcd").cast("h"))
    array([ 97,  98,  99, 100], dtype=uint8)
    """
    if isinstance(buffer, np.ndarray):
        array = plain(buffer)
        if not array.flags.c_contiguous or array.dtype.hasobject:
            raise FormatError("an ndarray of packed bytes must be C-contiguous and hold plain data")
        return array.reshape(-1).view(np.uint8)
    try:
        return np.frombuffer(buffer, np.uint8)
    except (TypeError, AttributeError, BufferError, ValueError) as fault:
        raise FormatError(f"{type(buffer).__name__} is no buffer of bytes: {fault}") from None


def memory_of(x: NDArray[Any], bits: int) -> tuple[Bytes, Layout]:
    """The memory that an ndarray reaches, as bytes, and its Layout there.

    `bits` is the width of an element, at most that of the ndarray's items.
    """
    strides = [8 * s for s in x.strides]
    spread = bits < 8 * x.itemsize
    if x.flags.c_contiguous and not spread:
        return x.reshape(-1).view(np.uint8), Layout.of(x.shape, strides, 0, bits)
    reach = Layout.of(x.shape, strides, 0, 8 * x.itemsize)
    low, high = reach.span
    start = x.__array_interface__["data"][0] + low // 8
    writeable = x.flags.writeable
    lent = Lent(x, start, (high - low) // 8, writeable=writeable, spread=spread)
    return np.asarray(lent), Layout.of(x.shape, strides, reach.offset - low, bits)


# What an ndarray's memory belongs to; a subclass may override the attribute.
_base: Any = np.ndarray.base.__get__


def spread(memory: Bytes) -> bool:
    """Whether the memory is known to hold one element a byte where elements are narrower.

    >>> import ml_dtypes
    >>> spread(memory_of(np.zeros(3, ml_dtypes.int4), 4)[0]), spread(np.zeros(3, np.uint8))
    (True, False)
    """
    owner: Any = memory
    while isinstance(owner, np.ndarray):
        owner = _base(owner)
    return isinstance(owner, Lent) and owner.spread
