"""Elements of any Layout in memory, packed or not, read and written as NumPy arrays of codes.

Addresses are those of bits, from which the offsets of Layouts count. The caller has checked the
memory, and keeps it alive. Elements of whole bytes are read as views of it. Packed elements are
divided into units of 1, 2 or 4 bits, the widest that divide the width and all positions of
elements, and each unit is expanded to a byte.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache
from math import gcd, prod
from threading import RLock
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..runtime.cpu_caches import LINE
from ..runtime.ndarrays import MOST_DIMS
from ..runtime.system import PerProcess
from ..shapes.layout import Layout
from ..shapes.request import Ints
from .buffers import Bytes, Lent

Codes = NDArray[Any]  # the narrowest unsigned ints that hold them, or raw bytes for other widths

COLUMNS = 32  # elements of a row of the target that are written at a time
COLUMNS_FROM = 1024 * 1024  # bytes

# Held while a byte is read, modified and written: other threads may write other elements in it.
# An RLock, since a signal handler may write, too; in a forked child no thread holds it.
_changing = PerProcess(RLock)


Read = Callable[[int], Codes]
Write = Callable[[Codes, int], None]


def read(address: int, layout: Layout) -> Codes:
    """The codes of elements, in the shape of their Layout; a view if elements are whole bytes."""
    return reader(address & 7, layout)(address)


@lru_cache(maxsize=256)
def reader(bits: int, layout: Layout) -> Read:
    """A function that reads elements of a Layout at addresses with these three lowest `bits`."""
    if whole(bits, layout):
        return _memory_of(layout)
    if not layout.size:  # no byte may be read
        return lambda address: np.empty(layout.shape, _kind(-(-layout.bits // 8)))
    begin = (bits + layout.offset) % 8
    if _one_a_byte(begin, layout):
        own, shift = _memory_of(_in_bytes(layout)), np.uint8(begin)
        mask = np.uint8((1 << layout.bits) - 1)
        return lambda address: own(address) >> shift & mask
    units = _units_of(bits, layout)

    def codes_at(address: int) -> Codes:
        some = units.elements(_unpacked(units.memory(address), units.bits))
        if units.each == 1:
            return some[..., 0]
        made = np.empty((*layout.shape, -(-layout.bits // 8)), np.uint8)
        for k in range(units.each):
            byte, shift = divmod(k * units.bits, 8)
            if shift:
                made[..., byte] |= some[..., k] << np.uint8(shift)
            else:
                made[..., byte] = some[..., k]
        return made.view(_kind(made.shape[-1]))[..., 0]

    return codes_at


def preview(address: int, layout: Layout, codes: np.dtype[Any], prefix: str) -> str:
    """The elements as NumPy prints an array of this dtype after `prefix`.

    If there are many elements, only the first and last ones of each dim are read and shown.
    """
    if layout.ndim > MOST_DIMS or not layout.size:
        return "[...]" if layout.size else "[]"
    options = np.get_printoptions()
    edge, whole = options["edgeitems"], layout.size <= options["threshold"]

    def seen(part: Layout, axis: int) -> Codes:
        if axis == part.ndim:
            return read(address, part)
        size = part.shape[axis]
        if whole or size <= 2 * edge:
            return seen(part, axis + 1)
        # One more than is shown, so that NumPy prints an ellipsis.
        ends = (0, edge + 1), (size - edge, edge)
        return np.concatenate([seen(part.narrow(axis, *end, 1), axis + 1) for end in ends], axis)

    shown = np.array(seen(layout, 0), order="C").view(codes)
    threshold = shown.size if whole else 0
    return np.array2string(shown, separator=", ", prefix=prefix, threshold=threshold)


def write(codes: Codes, address: int, layout: Layout) -> None:
    """Write the codes of elements; bits between elements keep their values."""
    writer(address & 7, layout)(codes, address)


@lru_cache(maxsize=256)
def writer(bits: int, layout: Layout) -> Write:
    """A function that writes elements of a Layout to addresses with these three lowest `bits`."""
    if whole(bits, layout):
        own = _memory_of(layout)
        return lambda codes, address: assign(own(address), codes)
    if not layout.size:
        return lambda codes, address: None
    change = _changes_of(bits, layout)

    def write(codes: Codes, address: int) -> None:
        with _changing.value:
            change(codes, address)

    return write


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


def _changes_of(bits: int, layout: Layout) -> Write:
    """A function that changes bytes which contain several elements: see `writer`."""
    begin, most = (bits + layout.offset) % 8, (1 << layout.bits) - 1
    if _one_a_byte(begin, layout):
        own, shift, others = _memory_of(_in_bytes(layout)), np.uint8(begin), 0xFF ^ most << begin

        def in_bytes(codes: Codes, address: int) -> None:
            memory = own(address)
            memory &= np.uint8(others)
            memory |= (codes & most).astype(np.uint8, copy=False) << shift

        return in_bytes
    units = _units_of(bits, layout)
    each, mask, nbytes = units.each, np.uint8((1 << units.bits) - 1), units.shape[-1]
    staged = *units.shape[:-1], nbytes * 8 // units.bits
    dense = units.bits * units.used == 8 * nbytes
    all_of_it = dense and layout.size * each == units.used * prod(units.shape[:-1])
    kind = _kind(-(-layout.bits // 8))

    def in_units(codes: Codes, address: int) -> None:
        memory = units.memory(address)
        stage = np.empty(staged, np.uint8) if all_of_it else _unpacked(memory, units.bits)
        some = units.elements(stage)
        wide = np.array(codes, kind if kind[0] == "u" else codes.dtype, order="C")
        parts = wide.reshape(*codes.shape, 1).view(np.uint8)
        for k in range(each):
            byte, shift = divmod(k * units.bits, 8)
            part = parts[..., byte] >> np.uint8(shift) if shift else parts[..., byte]
            np.bitwise_and(part, mask, out=some[..., k])
        memory[...] = _packed(stage, units.bits)

    return in_units


def whole(address: int, layout: Layout) -> bool:
    """Whether elements begin and end on bytes, as those of an ndarray do."""
    low = (address + layout.offset) | layout.bits
    for stride in layout.strides:
        low |= stride
    return not low & 7


def _one_a_byte(shift: int, layout: Layout) -> bool:
    """Whether each element is within one byte, `shift` bits from its start."""
    return shift + layout.bits <= 8 and not any(stride % 8 for stride in layout.strides)


def _in_bytes(layout: Layout) -> Layout:
    """A view of the bytes that the elements are in."""
    return Layout.of(layout.shape, layout.strides, layout.offset, 8)


def _kind(nbytes: int) -> str:
    return f"u{nbytes}" if nbytes in (1, 2, 4, 8) else f"V{nbytes}"


def _memory_of(layout: Layout) -> Read:
    """A function that makes views of elements of whole bytes, at any address."""
    strides = tuple([stride // 8 for stride in layout.strides])
    shape, kind, offset = layout.shape, _kind(layout.bits // 8), layout.offset
    return lambda address: np.asarray(Lent((address + offset) // 8, shape, strides, kind))


class _Units(NamedTuple):
    """Memory as chunks, which begin and end on bytes, of units of equal width."""

    low: int  # the first bit that is used, counted from the address
    size: Ints  # units of elements: the shape of the Layout, and units of an element
    shape: Ints  # of the memory: dims outside a chunk, and the bytes of a chunk
    strides: Ints
    first: int  # of the unit of the first element, among those of all chunks
    steps: Ints  # units from one element to the next along each dim, and 1
    bits: int
    used: int  # units of a chunk, up to the end of its last element

    @property
    def each(self) -> int:
        """Units of an element."""
        return self.size[-1]

    def memory(self, address: int) -> Bytes:
        """The chunks of elements at an address, a row for each."""
        return np.asarray(Lent((address + self.low) // 8, self.shape, self.strides))

    def elements(self, units: Bytes) -> Bytes:
        """The units of each element among those of all chunks."""
        return np.ndarray(self.size, np.uint8, units, self.first, self.steps)


def _units_of(bits: int, layout: Layout) -> _Units:
    """The units that elements consist of; `bits` are the lowest three of their address."""
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
    bits = gcd(8, layout.bits, shift, *(steps[k] for k in inner))
    shape = (*(layout.shape[k] for k in outer), (reach() + 7) // 8)
    strides = (*(steps[k] // 8 for k in outer), 1)
    # Strides among all units: rows of chunks are side by side.
    distances = {k: shape[-1] * 8 // bits * prod(shape[j + 1 : -1]) for j, k in enumerate(outer)}
    jumps, first = list[int](), shift // bits
    for k, (size, stride) in enumerate(zip(layout.shape, layout.strides, strict=True)):
        jump = distances.get(k, steps[k] // bits)
        first += (size - 1) * jump if stride < 0 else 0
        jumps.append(-jump if stride < 0 else jump)
    units = *layout.shape, layout.bits // bits
    low, used = layout.span[0], reach() // bits
    return _Units(low, units, shape, strides, first, (*jumps, 1), bits, used)


def _unpacked(memory: Bytes, bits: int) -> Bytes:
    """Units, a byte each, of rows of bytes."""
    if bits == 1:
        return np.unpackbits(memory, axis=-1, bitorder="little")
    return _spread(bits).take(memory).view(np.uint8)


@cache
def _spread(bits: int) -> NDArray[Any]:
    """A word for each byte, with one unit in each of its bytes."""
    units = np.arange(256, dtype=np.uint8)[:, None] >> np.arange(0, 8, bits, dtype=np.uint8)
    return (units & np.uint8((1 << bits) - 1)).view(f"u{8 // bits}")[:, 0]


def _packed(units: Bytes, bits: int) -> Bytes:
    """Rows of bytes of units, whose memory is overwritten."""
    if bits == 1:
        return np.packbits(units, axis=-1, bitorder="little")
    words = units.view(f"u{8 // bits}")
    top = 8 * (words.itemsize - 1)  # where a product has the sum of all units, each in its address
    words *= words.dtype.type(sum(1 << top - k * (8 - bits) for k in range(words.itemsize)))
    words >>= words.dtype.type(top)
    return words.astype(np.uint8)
