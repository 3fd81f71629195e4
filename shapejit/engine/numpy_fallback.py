"""Copies and conversions by NumPy, wherever they lie, packed or not.

Places are bit addresses, from which the offsets of Layouts count; whoever calls keeps the
memory alive, and has checked it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays.buffers import Bytes, Lent
from ..kernels.numbers import Conversion
from ..kernels.plain_conversions import plain
from ..runtime.ndarrays import MOST_DIMS
from ..shapes.layout import Layout

MOST = 1 << 18  # elements at a time: each takes up to 100 bytes meanwhile

Codes = NDArray[np.uint8]  # of each element the bytes of its code, the least one first


def copy(source: int, seen: Layout, target: int, into: Layout) -> None:
    """Copy the elements at `source` to `target`, wider ones with zeros above."""
    for src, dst in _parts(seen, into):
        _write(_read(source, src), target, dst)


def convert(
    source: int,
    seen: Layout,
    target: int,
    into: Layout,
    conversion: Conversion,
    operands: tuple[tuple[int, Layout | None], ...],
) -> None:
    """Convert the elements; `operands` are where scales and zero points lie, one per element."""
    given = [(place, lie) for place, lie in operands if lie is not None]
    run = plain(conversion._replace(scales="each" if given else ""))
    for src, dst, *lies in _parts(seen, into, *(lie for _, lie in given)):
        codes = _read(source, src)
        made = np.empty((src.size, conversion.target.nbytes), np.uint8)
        numbers = [_read(place, lie) for (place, _), lie in zip(given, lies, strict=True)]
        scale, zero = [a.ctypes.data for a in numbers] + [0] * (2 - len(numbers))
        run(codes.ctypes.data, made.ctypes.data, src.size, 1, scale, 0, zero, 0, 0)
        _write(made, target, dst)


def _parts(*layouts: Layout) -> Iterator[tuple[Layout, ...]]:
    """Layouts of one shape, cut along their longest dims into parts of `MOST` elements."""
    shape = layouts[0].shape
    if layouts[0].size <= MOST or any(layout.shape != shape for layout in layouts):
        yield layouts
        return
    axis = shape.index(max(shape))
    half = shape[axis] // 2
    for begin, size in (0, half), (half, shape[axis] - half):
        yield from _parts(*(x.narrow(axis, begin, size, 1) for x in layouts))


def _memory(place: int, layout: Layout) -> tuple[Bytes, int]:
    """The bytes that elements reach, and the bit of the first element in them."""
    low, high = layout.span
    first, end = (place + low) >> 3, (place + high + 7) >> 3
    lent = Lent(None, first, end - first, writeable=True, one_per_byte=False)
    return np.asarray(lent), place + layout.offset - 8 * first


def _elements(memory: Bytes, begin: int, layout: Layout) -> NDArray[Any] | None:
    """The elements as a view, if they are whole bytes."""
    whole = not any(bits % 8 for bits in (begin, layout.bits, *layout.strides))
    if not whole or layout.ndim > MOST_DIMS:
        return None
    nbytes, strides = layout.bits // 8, tuple(stride // 8 for stride in layout.strides)
    kind = f"u{nbytes}" if nbytes in (1, 2, 4, 8) else f"V{nbytes}"
    return np.ndarray(layout.shape, kind, memory.data, begin // 8, strides)


def _bits(begin: int, layout: Layout) -> NDArray[np.int64]:
    """The bit of each element, in row-major order."""
    at = np.array([begin])
    for size, stride in zip(layout.shape, layout.strides, strict=True):
        at = np.add.outer(at, stride * np.arange(size)).reshape(-1)
    return at


def _read(place: int, layout: Layout) -> Codes:
    """The codes of elements in row-major order."""
    memory, begin = _memory(place, layout)
    nbytes = -(-layout.bits // 8)
    whole = _elements(memory, begin, layout)
    if whole is not None:
        return np.ascontiguousarray(whole).reshape(-1).view(np.uint8).reshape(-1, nbytes)
    bits = _bits(begin, layout)
    made, shift = np.empty((len(bits), nbytes), np.uint8), bits & 7
    for k in range(nbytes):
        low, high = (np.minimum((bits >> 3) + k + i, len(memory) - 1) for i in (0, 1))
        made[:, k] = (memory[low] | memory[high].astype(np.int64) << 8) >> shift
    made[:, -1] &= 0xFF >> -layout.bits % 8
    return made


def _write(codes: Codes, place: int, layout: Layout) -> None:
    """Write codes; bits between elements stay as they are."""
    memory, begin = _memory(place, layout)
    nbytes = -(-layout.bits // 8)
    codes = np.pad(codes[:, :nbytes], ((0, 0), (0, max(0, nbytes - codes.shape[1]))))
    whole = _elements(memory, begin, layout)
    if whole is not None:
        whole[...] = codes.reshape(-1).view(whole.dtype).reshape(whole.shape)
        return
    bits = _bits(begin, layout)
    for k in range(nbytes):
        mask = (1 << min(8, layout.bits - 8 * k)) - 1
        masks, values = mask << (bits & 7), (codes[:, k].astype(np.int64) & mask) << (bits & 7)
        for i in (0, 1):
            part = masks >> 8 * i & 0xFF
            some = np.flatnonzero(part)
            at = (bits[some] >> 3) + k + i
            np.bitwise_and.at(memory, at, ~part[some].astype(np.uint8))
            np.bitwise_or.at(memory, at, (values[some] >> 8 * i).astype(np.uint8))
