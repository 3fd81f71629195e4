"""pack and unpack: between packed elements and codes in whole bytes, one each."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays.buffers import Bytes
from ..arrays.tensor import Tensor, asarray, fixed_width
from ..dtypes.table import UINT8, DType
from ..engine import copying, outputs
from ..engine.calls import follow, key_of
from ..errors import DTypeError, FormatError, type_name
from ..runtime.cpu_caches import LINE
from ..runtime.ndarrays import array_of, is_a
from ..shapes.layout import Layout
from .views import ascontiguous, copied

SMALL = 4096  # elements: so few are not reordered in a step of their own


def pack(x: NDArray[Any] | Tensor, dtype: object = None, *, out: Tensor | None = None) -> Tensor:
    """Pack an array with whole bytes per element into a contiguous Tensor: a new one, or `out`.

    `x` has a sub-byte dtype of ml_dtypes (bits above an element's width are ignored), or holds
    integers of any width for `dtype`: signed ones are numbers if `dtype` is an integer dtype,
    unsigned ones are always codes (bit patterns). Padding bits are zero. `out` as in `reshape`, of
    the packed dtype. Raises FormatError, which names the first number out of range, DTypeError,
    ReshapeError.

    >>> import numpy as np
    >>> pack(np.array([1, 2, 3], np.uint8), "uint4").tobytes().hex()
    '2103'
    >>> pack(np.array([1, -2]), "int4")
    Tensor([1, -2], shape=(2,), dtype=int4, 4 bits each)
    >>> pack(np.array([1, -9]), "int4")
    Traceback (most recent call last):
        ...
    shapejit.errors.FormatError: -9 at index (1,) is out of the range of int4, [-8, 7]
    """
    source = given = asarray(x)
    kind = given.dtype if dtype is None else fixed_width(dtype)
    if kind is not given.dtype:
        given = _codes_as(_in_range(given, kind), kind)
    if not kind.packed:
        return ascontiguous(given, out=out)
    target, fresh = outputs.target(out, kind, given.shape, (source,))
    if all(s % 8 == 0 for s in (given.offset, *given.strides)) and not _side_by_side(given, 8):
        # Whole bytes are reordered faster than packed elements.
        codes = Tensor.unchecked(given.buffer, UINT8, _with_bits(given.layout, 8))
        given = _codes_as(copied(codes, codes.shape, None), kind)
    # Not the caller's own byte, whose high bits may be set.
    copying.copy(given, target, fresh)
    return target if out is None else out


def _in_range(given: Tensor, kind: DType) -> Tensor:
    """Integers as codes of a packed dtype; the high bits of negative ones are set."""
    if given.dtype.kind != "integer" or given.dtype.packed or not kind.packed:
        raise DTypeError(f"{given.dtype} elements are not codes of {kind}: pass integers, or cast")
    numbers = given.numpy()
    low, high = 0, (1 << kind.bits) - 1
    if kind.kind == "integer" and kind.signed and given.dtype.signed:
        low, high = -1 << (kind.bits - 1), high >> 1
    least = numbers.min(initial=0) if given.dtype.signed else 0
    if least < low or numbers.max(initial=0) > high:
        at = np.unravel_index(np.argmax((numbers < low) | (numbers > high)), numbers.shape)
        place = tuple(map(int, at))
        what = str(kind) if low else f"the codes of {kind}"
        raise FormatError(
            f"{numbers[at]} at index {place} is out of the range of {what}, [{low}, {high}]"
        )
    return asarray(numbers.view(np.uint8) if given.dtype.bits == 8 else numbers.astype(np.uint8))


def _codes_as(codes: Tensor, kind: DType) -> Tensor:
    """Codes, one byte each, as elements of `kind`."""
    return Tensor.unchecked(codes.buffer, kind, _with_bits(codes.layout, kind.bits))


def _with_bits(layout: Layout, bits: int) -> Layout:
    """The Layout for elements of another width."""
    return Layout.of(layout.shape, layout.strides, layout.offset, bits)


def _side_by_side(t: Tensor, spacing: int) -> bool:
    """Whether most elements are `spacing` bits after the previous one, or the tensor is small."""
    runs = t.layout.runs()
    return t.size <= SMALL or (runs[-1][1] == spacing and runs[-1][0] >= LINE)


def unpack(t: Tensor, out: NDArray[Any] | None = None) -> NDArray[Any]:
    """The elements of a Tensor, one or more whole bytes each, as a new ndarray or in `out`.

    The dtype is that of ml_dtypes or NumPy; if both lack it, the result holds uint8 codes. Raises
    DTypeError if `t` is not a Tensor, DTypeError and ReshapeError for an `out` that does not fit.

    >>> Tensor.frombuffer(bytes([0x21, 0x03]), "uint4", (3,)).unpack()
    array([1, 2, 3], dtype=uint4)
    """
    if not is_a(t, Tensor):
        raise DTypeError(f"unpack takes a shapejit.Tensor, not {type_name(t)}")
    key = key_of(t, "unpack")
    done: NDArray[Any] | None = follow(key, t, out)
    if done is not None:
        return done
    target, fresh = outputs.target(out, t.dtype.codes, t.shape, (t,))
    if t.dtype.packed and not (_side_by_side(t, t.dtype.bits) or _side_by_side(t, 8)):
        # Packed elements are reordered faster than unpacked codes.
        t, key = copied(t, t.shape, None), None
    copying.copy(t, target, fresh, key)
    return target if out is None else out


def numpy(t: Tensor) -> NDArray[Any]:
    """The tensor as an ndarray: a view if elements are whole bytes, else an unpacked copy.

    Raises ReshapeError for more than NumPy's 64 dims, or more bytes than an ndarray can have.

    >>> Tensor.frombuffer(bytes([0x21, 0x43]), "uint4", (2, 2)).numpy()
    array([[1, 2],
           [3, 4]], dtype=uint4)
    """
    if t.dtype.packed:
        return unpack(t)
    strides = tuple(s // 8 for s in t.strides)
    return array_of(t.shape, t.dtype.codes, t.buffer.data, t.offset // 8, strides)


def tobytes(t: Tensor) -> bytes:
    """The packed elements in row-major order; padding bits are zero.

    >>> Tensor.frombuffer(bytes([0x21, 0xF3]), "uint4", (3,)).tobytes().hex()
    '2103'
    """
    # Not a packed tensor's own bytes: its padding bits may be set.
    return memory(copied(t, t.shape, None) if t.dtype.packed else t).tobytes()


def memory(t: Tensor) -> Bytes:
    """The bytes of the packed elements, contiguous; copied only if they are not.

    >>> memory(Tensor.frombuffer(bytes([0x21, 0x43]), "uint4", (2, 2))[1:]).tolist()
    [67]
    """
    whole = t if t.contiguous and t.offset % 8 == 0 else ascontiguous(t)
    first = whole.offset // 8
    return whole.buffer[first : first + whole.nbytes]
