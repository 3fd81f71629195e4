"""Elements of any Layout in memory, packed or not, read and written as NumPy arrays of codes.

Places are bit addresses, from which the offsets of Layouts count. The caller has checked the
memory, and keeps it alive. Elements of whole bytes are read as views of it. Packed elements are
divided into units of equal width, and each unit is expanded to a byte. The width of a unit is the
largest that divides the width and all positions of elements.
"""

from __future__ import annotations

from functools import lru_cache
from math import gcd, lcm, prod
from threading import RLock
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..runtime.cpu_caches import LINE
from ..runtime.system import PerProcess
from ..shapes.layout import Layout
from .buffers import Bytes, Lent

Codes = NDArray[Any]  # the narrowest unsigned ints that hold them, or raw bytes for other widths

COLUMNS = 32  # elements of a row of the target that are written at a time
COLUMNS_FROM = 1024 * 1024  # bytes

# Held while a byte is read, modified and written: other threads may write other elements in it.
# An RLock, since a signal handler may write, too; in a forked child no thread holds it.
_changing = PerProcess(RLock)


def read(place: int, layout: Layout) -> Codes:
    """The codes of elements, in the shape of their Layout; a view if elements are whole bytes."""
    if whole(place, layout):
        return _view(place, layout)
    shift, mask = (place + layout.offset) % 8, (1 << layout.bits) - 1
    if _one_a_byte(shift, layout):
        return _view(place - shift, _in_bytes(layout)) >> np.uint8(shift) & np.uint8(mask)
    units = _units_of(place & 7, layout)
    some = units.elements(_unpacked(units.memory(place), units.bits))
    if units.each == 1:
        codes = some[..., 0]
    elif layout.bits <= 8:
        codes = some[..., 0].copy()
        for k in range(1, units.each):
            codes |= some[..., k] << np.uint8(k * units.bits)
    else:
        made = np.zeros((*layout.shape, -(-layout.bits // 8)), np.uint8)
        for k in range(units.each):
            byte, shift = divmod(k * units.bits, 8)
            made[..., byte] |= some[..., k] << np.uint8(shift)
        codes = made.view(_kind(made.shape[-1]))[..., 0]
    return codes


def write(codes: Codes, place: int, layout: Layout) -> None:
    """Write the codes of elements; bits between elements keep their values."""
    if whole(place, layout):
        assign(_view(place, layout), codes)
        return
    with _changing.value:
        _change(codes, place, layout)


def assign(target: Codes, x: Codes) -> None:
    """`target[...] = x` of arrays of one shape that share no memory, also of different dtypes.

    A transposed `x` is copied in groups of columns whose cache lines stay in a cache; row by row,
    as NumPy copies it, takes 2 to 8 times as long.
    """
    small = target.nbytes < COLUMNS_FROM or x.ndim < 2
    if small or abs(x.strides[-1]) < LINE or abs(x.strides[-1]) == min(map(abs, x.strides)):
        target[...] = x
        return
    if x.dtype.isbuiltin == 2 and x.dtype == target.dtype:  # ml_dtypes' own copies are slower
        x, target = (array.view(f"u{array.itemsize}") for array in (x, target))
    for begin in range(0, x.shape[-1], COLUMNS):
        columns = ..., slice(begin, begin + COLUMNS)
        target[columns] = x[columns]


def _change(codes: Codes, place: int, layout: Layout) -> None:
    shift, mask = (place + layout.offset) % 8, (1 << layout.bits) - 1
    if _one_a_byte(shift, layout):
        memory = _view(place - shift, _in_bytes(layout))
        memory &= np.uint8(0xFF ^ mask << shift)
        memory |= (codes & mask).astype(np.uint8, copy=False) << np.uint8(shift)
        return
    units = _units_of(place & 7, layout)
    memory, nbytes = units.memory(place), units.shape[-1]
    filled = units.bits * units.used == 8 * nbytes
    if filled and layout.size * units.each == units.used * prod(units.shape[:-1]):
        size, word = _word(units.bits)
        stage = np.empty((*units.shape[:-1], -(-nbytes // word) * size), np.uint8)
    else:
        stage = _unpacked(memory, units.bits)
    some, mask = units.elements(stage), (1 << units.bits) - 1
    if layout.bits <= 8:
        for k in range(units.each):
            part = codes >> (k * units.bits) if k else codes
            np.bitwise_and(part, mask, out=some[..., k], casting="unsafe")
    else:
        kind = _kind(-(-layout.bits // 8))
        wide = np.array(codes, kind if kind[0] == "u" else codes.dtype, order="C")
        parts = wide.reshape(*codes.shape, 1).view(np.uint8)
        for k in range(units.each):
            byte, shift = divmod(k * units.bits, 8)
            np.bitwise_and(parts[..., byte] >> np.uint8(shift), np.uint8(mask), out=some[..., k])
    memory[...] = _packed(stage, units.bits)[..., :nbytes]


def whole(place: int, layout: Layout) -> bool:
    """Whether elements begin and end on bytes, as those of an ndarray do."""
    return not any(bits % 8 for bits in (place + layout.offset, layout.bits, *layout.strides))


def _one_a_byte(shift: int, layout: Layout) -> bool:
    """Whether each element is within one byte, `shift` bits from its start."""
    return shift + layout.bits <= 8 and not any(stride % 8 for stride in layout.strides)


def _in_bytes(layout: Layout) -> Layout:
    """A view of the bytes that the elements are in."""
    return Layout.of(layout.shape, layout.strides, layout.offset, 8)


def _kind(nbytes: int) -> str:
    return f"u{nbytes}" if nbytes in (1, 2, 4, 8) else f"V{nbytes}"


def _memory(place: int, layout: Layout) -> tuple[Bytes, int]:
    """The bytes that elements span, and the bit address of the first of these."""
    low, high = layout.span
    first, end = (place + low) >> 3, (place + high + 7) >> 3
    lent = Lent(None, first, end - first, writeable=True, one_per_byte=False)
    return np.asarray(lent), 8 * first


def _view(place: int, layout: Layout) -> Codes:
    """A view of elements of whole bytes."""
    memory, first = _memory(place, layout)
    begin, strides = (place + layout.offset - first) // 8, [s // 8 for s in layout.strides]
    return np.ndarray(layout.shape, _kind(layout.bits // 8), memory.data, begin, strides)


class _Units(NamedTuple):
    """Memory as chunks, which begin and end on bytes, of units of equal width."""

    layout: Layout
    shape: tuple[int, ...]  # of the memory: dims outside a chunk, and the bytes of a chunk
    strides: tuple[int, ...]
    outer: tuple[int, ...]  # the dims of the Layout that are outside a chunk
    first: int  # the unit of the lowest element in a chunk
    bits: int
    used: int  # units of a chunk, up to the end of its last element

    @property
    def each(self) -> int:
        """Units of an element."""
        return self.layout.bits // self.bits

    def memory(self, place: int) -> Bytes:
        """The chunks of elements at a place, a row for each."""
        return np.ndarray(
            self.shape, np.uint8, _memory(place, self.layout)[0].data, 0, self.strides
        )

    def elements(self, units: Bytes) -> Bytes:
        """The units of each element among those of all chunks."""
        layout, begin, strides = self.layout, self.first, list[int]()
        for axis, (size, stride) in enumerate(zip(layout.shape, layout.strides, strict=True)):
            step = abs(stride) // self.bits
            if axis in self.outer:
                step = units.strides[self.outer.index(axis)]
            begin += (size - 1) * step if stride < 0 else 0
            strides.append(-step if stride < 0 else step)
        shape = (*layout.shape, self.each)
        return np.ndarray(shape, np.uint8, units.data, begin, (*strides, 1))


@lru_cache(maxsize=1024)
def _units_of(bits: int, layout: Layout) -> _Units:
    """The units that elements consist of; `bits` are the lowest three of their place."""
    shift = (bits + layout.span[0]) & 7
    steps = [abs(stride) for stride in layout.strides]
    inner = [k for k, size in enumerate(layout.shape) if size > 1 and steps[k]]
    inner.sort(key=lambda k: -steps[k])

    def reach() -> int:
        """The bits of a chunk up to the end of its last element."""
        return shift + sum((layout.shape[k] - 1) * steps[k] for k in inner) + layout.bits

    outer = []
    while inner:
        step, end = steps[inner[0]], reach() - (layout.shape[inner[0]] - 1) * steps[inner[0]]
        if step % 8 or step < (end + 7) // 8 * 8:
            break
        outer.append(inner.pop(0))
    bits = gcd(layout.bits, shift, *(steps[k] for k in inner))
    if bits > 8 or layout.bits > 8:
        bits = gcd(bits, 8)
    shape = (*(layout.shape[k] for k in outer), (reach() + 7) // 8)
    strides = (*(steps[k] // 8 for k in outer), 1)
    return _Units(layout, shape, strides, (*outer,), shift // bits, bits, reach() // bits)


def _word(bits: int) -> tuple[int, int]:
    """The units and the bytes of the smallest word of whole units."""
    return lcm(8, bits) // bits, lcm(8, bits) // 8


def _unpacked(memory: Bytes, bits: int) -> Bytes:
    """Units, a byte each, of rows of bytes; zeros fill the last word."""
    if bits == 1:
        return np.unpackbits(memory, axis=-1, bitorder="little")
    size, nbytes = _word(bits)
    words: Codes = memory
    if nbytes > 1:
        short = -memory.shape[-1] % nbytes
        rows = np.pad(memory, [(0, 0)] * (memory.ndim - 1) + [(0, short)])
        rows = rows.reshape(*rows.shape[:-1], -1, nbytes)
        wide = np.zeros((*rows.shape[:-1], 4 if nbytes < 4 else 8), np.uint8)
        wide[..., :nbytes] = rows
        words = wide.view(_kind(wide.shape[-1]))[..., 0]
    units = np.empty((*words.shape, size), np.uint8)
    mask = words.dtype.type((1 << bits) - 1)
    for k in range(size):
        shifted = words >> words.dtype.type(k * bits)
        np.bitwise_and(shifted, mask, out=units[..., k], casting="unsafe")
    return units.reshape(*memory.shape[:-1], -1)


def _packed(units: Bytes, bits: int) -> Bytes:
    """Rows of bytes of units; those of the last word are whole."""
    if bits == 1:
        return np.packbits(units, axis=-1, bitorder="little")
    size, nbytes = _word(bits)
    kind = np.dtype(np.uint8 if nbytes == 1 else np.uint32 if nbytes < 4 else np.uint64)
    groups = units.reshape(*units.shape[:-1], -1, size)
    words = groups[..., 0].astype(kind)
    for k in range(1, size):
        words |= groups[..., k].astype(kind, copy=False) << kind.type(k * bits)
    rows = words[..., None].view(np.uint8)[..., :nbytes]
    return rows.reshape(*units.shape[:-1], -1)
