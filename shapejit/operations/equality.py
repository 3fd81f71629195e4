"""array_equal: bitwise equality of arrays, with any strides."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays.foreign import native
from ..arrays.tensor import Bytes, Tensor, asarray
from ..dtypes.table import STRING
from ..shapes.request import Ints
from .views import ascontiguous, checked, dtype_of

Index = tuple[int | slice, ...]

COMPARED_BYTES = 1 << 20  # of each side that are copied and compared at a time


def array_equal(a: NDArray[Any] | Tensor, b: NDArray[Any] | Tensor) -> bool:
    """Whether shapes, dtypes and the bits of all elements are the same.

    `a` and `b` are ndarrays, Tensors or arrays of other libraries (also one of
    each), packed or with one element per byte, with any strides; a view is
    copied and compared in pieces of at most 1 MiB. NaNs with equal bits are equal,
    0.0 and -0.0 are not; bits outside the elements (padding, the high bits of
    ml_dtypes' sub-byte types) are ignored. Strings are compared with `==`. Raises
    DTypeError for objects other than arrays and for unsupported dtypes.

    >>> import numpy as np
    >>> array_equal(np.array([np.nan, 0.0]), np.array([np.nan, 0.0]))
    True
    >>> array_equal(np.array([0.0]), np.array([-0.0]))
    False
    """
    x, y = checked(native(a)), checked(native(b))
    kind = dtype_of(x)
    if dtype_of(y) is not kind or x.shape != y.shape:
        return False
    if kind is STRING:
        return all(p is q or p == q for p, q in zip(x.flat, y.flat, strict=True))
    return _same_bits(asarray(x), asarray(y))


def _same_bits(x: Tensor, y: Tensor) -> bool:
    """Whether two tensors of the same dtype and shape have equal bits."""
    if x.size == 0:
        return True
    if x.layout.contiguous_bytes and y.layout.contiguous_bytes:
        return _same_bytes(x, y)
    # Dims that are broadcast on both sides are compared once.
    once = tuple(
        0 if size == 1 or p == q == 0 else slice(None)
        for size, p, q in zip(x.shape, x.strides, y.strides, strict=True)
    )
    x, y = x[once], y[once]
    # In the memory order of x: two transposed matrices are compared without a transposition.
    order = sorted(range(x.ndim), key=lambda i: -abs(x.strides[i]))
    x, y = x.permute_dims(order), y.permute_dims(order)
    return all(
        _same_bytes(ascontiguous(x[index]), ascontiguous(y[index]))
        for index in blocks(x.shape, x.dtype.bits)
    )


def blocks(shape: Sequence[int], bits: int) -> Iterator[Index]:
    """Slices along the outer dims, in order, of at most 1 MiB of elements of `bits` bits each."""
    size = prod(shape) * bits
    if not shape or size <= 8 * COMPARED_BYTES:
        yield ()
        return
    row = size // shape[0]
    if row > 8 * COMPARED_BYTES:
        for i in range(shape[0]):
            for index in blocks(shape[1:], bits):
                yield (i, *index)
        return
    rows = 8 * COMPARED_BYTES // row
    rows -= rows % 8 if rows > 8 else 0  # so that the next piece begins on a byte
    for i in range(0, shape[0], rows):
        yield (slice(i, min(i + rows, shape[0])),)


def place(index: tuple[Any, ...], shape: Sequence[int], at: int) -> Ints:
    """The index in the whole array of element `at` of a block of this shape.

    >>> place((1, slice(8, 16)), (8, 5), 7)
    (1, 9, 2)
    """
    inner = list(map(int, np.unravel_index(at, tuple(shape))))
    if index and isinstance(index[-1], slice):
        return (*index[:-1], index[-1].start + inner[0], *inner[1:])
    return (*index, *inner)


def first_difference(a: Tensor, b: Tensor) -> Ints | None:
    """The index of the first element that differs, in row-major order; None if all bits are equal.

    `a` and `b` have the same dtype and shape, which is not `string`, and any strides.

    >>> import numpy as np
    >>> x = asarray(np.arange(6).reshape(2, 3))
    >>> first_difference(x, asarray(np.array([[0, 1, 2], [3, 5, 4]])))
    (1, 1)
    """
    if _same_bits(a, b):
        return None
    found = list[int]()
    while a.shape:
        low, high = 0, len(a)  # between which the first difference is
        while high - low > 1:
            middle = (low + high) // 2
            if _same_bits(a[low:middle], b[low:middle]):
                low = middle
            else:
                high = middle
        found.append(low)
        a, b = a[low], b[low]
    return tuple(found)


def _same_bytes(x: Tensor, y: Tensor) -> bool:
    """Whether two contiguous tensors that begin on a byte have equal bits."""
    bits = x.size * x.dtype.bits
    left, right = (t.buffer[t.offset // 8 :] for t in (x, y))
    whole = bits // 8
    for at in range(0, whole, COMPARED_BYTES):
        end = min(at + COMPARED_BYTES, whole)
        if not np.array_equal(_wide(left[at:end]), _wide(right[at:end])):
            return False
    return not (bits % 8 and (left[whole] ^ right[whole]) & (1 << bits % 8) - 1)


def _wide(memory: Bytes) -> NDArray[Any]:
    """The bytes as 64-bit words if their number allows that: compared in a third of the time."""
    return memory.view(np.uint64) if memory.size % 8 == 0 else memory
