"""Bit addresses of tensors, one or thousands; the bytes that they span; tests for overlap.

A bit address is 8 times the address of a byte, plus the bit at which an element begins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..arrays.tensor import Tensor
from ..errors import about
from ..kernels.object_layouts import CONTIGUOUS_WRITEABLE
from ..runtime.launches import Addresses, address_of
from ..runtime.ndarrays import distinct, unwrapped
from ..shapes.layout import Layout
from . import array_structs
from .patience import by_numpy

Spans = tuple[Addresses, Addresses]  # the first byte of each, and the byte past its last


class BitAddresses(NamedTuple):
    """The locations of n tensors: tensor k begins at the bit address `addresses[k]`.

    Its Layout, counted from that element, is `layouts[which[k]]`.
    """

    addresses: Addresses
    layouts: Sequence[Layout]
    which: NDArray[np.intp]

    @classmethod
    def alike(cls, addresses: Addresses, layout: Layout) -> BitAddresses:
        """The BitAddresses of tensors of one Layout."""
        return cls(addresses, (layout,), np.zeros(len(addresses), np.intp))

    def groups(
        self, targets: Addresses | None = None
    ) -> Iterator[tuple[Layout, int, NDArray[np.intp]]]:
        """The tensors of equal Layouts: the Layout from their first byte, and their indices.

        Between the two is the bit of a byte at which their `targets` begin, which is the same for
        all.
        """
        bits = self.addresses & 7 if targets is None else self.addresses & 7 | (targets & 7) << 3
        if len(self.layouts) == 1 and len(bits) and not np.bitwise_or.reduce(bits):
            yield self.layouts[0].at(0), 0, np.arange(len(bits))
            return
        kinds = 64 * self.which + bits
        for kind in distinct(kinds).tolist():
            own = np.flatnonzero(kinds == kind)
            yield self.layouts[kind // 64].at(kind % 8), kind // 8 % 8, own

    def begins(self, group: NDArray[np.intp]) -> Addresses:
        """The addresses of the tensors of a group."""
        return self.addresses[group]

    def locate(self, index: int) -> tuple[int, Layout]:
        """The bit address of a tensor, and its Layout from there."""
        return int(self.addresses[index]), self.layouts[self.which[index]]

    def spans(self) -> Spans:
        """The bytes that each tensor spans."""
        low: Any
        high: Any
        if len(self.layouts) == 1:  # no array of indices: a tenth of the time of a large map
            low, high = self.layouts[0].span
        else:
            spans = np.array([layout.span for layout in self.layouts], np.int64).reshape(-1, 2)
            low, high = spans[self.which].T
        return self.addresses + low >> 3, self.addresses + high + 7 >> 3


def low_bits(addresses: Addresses) -> int:
    """Which of the three lowest bits are set in any of the addresses."""
    return int(np.bitwise_or.reduce(addresses)) & 7


def layout_of(x: NDArray[Any]) -> Layout:
    """The Layout of an ndarray, counted from its first element."""
    return Layout.of(x.shape, [8 * s for s in x.strides], 0, 8 * x.itemsize)


def bit_address_of(x: NDArray[Any] | Tensor) -> tuple[int, Layout]:
    """The bit address of the first element of an array, and its Layout from there."""
    if isinstance(x, Tensor):
        layout = x.layout
        begin = 8 * address_of(x.buffer) + layout.offset
        return begin, layout.at(0) if layout.offset else layout
    return 8 * address_of(x), layout_of(x)


def byte_of(x: NDArray[Any] | Tensor) -> tuple[int, Layout]:
    """The bit address of the byte in which an array begins, and its Layout from there.

    >>> t = Tensor.frombuffer(bytes(4), "int4", (8,))[1:]
    >>> bit_address_of(t)[0] - byte_of(t)[0], byte_of(t)[1].offset
    (4, 4)
    """
    address, layout = bit_address_of(x)
    return address & ~7, layout.within_byte(address)


def span_of(x: NDArray[Any] | Tensor) -> tuple[int, int]:
    """The first byte that the elements of an array span, and the byte past the last."""
    address, layout = bit_address_of(x)
    low, high = layout.span
    return (address + low) >> 3, (address + high + 7) >> 3


def bit_addresses_of(items: Sequence[NDArray[Any] | Tensor]) -> BitAddresses:
    """The BitAddresses of exact ndarrays and Tensors of any dtypes and shapes."""
    found = alike(items) if items else None
    if found is not None:
        return found
    known: dict[object, int] = {}
    layouts: list[Layout] = []
    which: list[int] = []
    addresses: list[int] = []
    last, kind = None, 0
    for x in items:
        key: Any
        if isinstance(x, Tensor):
            key, memory, offset = x.layout, x.buffer, x.layout.offset
        else:
            key, memory, offset = (x.strides, x.shape, x.itemsize), x, 0
        if key is not last and key != last:  # less time than to look it up
            last, kind = key, known.setdefault(key, len(layouts))
            if kind == len(layouts):
                layouts.append(bit_address_of(x)[1])
        which.append(kind)
        addresses.append(8 * address_of(memory) + offset)
    return BitAddresses(np.array(addresses, np.int64), layouts, np.array(which, np.intp))


def located(
    items: Sequence[Any], check: Callable[[Any], None], names: Sequence[object]
) -> tuple[Sequence[Any], BitAddresses]:
    """The named arrays as exact ndarrays or Tensors, and their BitAddresses.

    `check` raises for bad ones. Arrays that are like the first one are not checked again.
    """
    if items and type(items[0]) in (np.ndarray, Tensor):
        with about(f"tensor {names[0]!r}"):
            check(items[0])
        found = alike(items)
        if found is not None:
            return items, found
    arrays, checked = list(items), set[Any]()
    for i, x in enumerate(items):
        kind = (x.dtype, x.shape) if type(x) is np.ndarray else None
        if kind is None or kind not in checked:
            with about(f"tensor {names[i]!r}"):
                arrays[i] = unwrapped(x)
                check(arrays[i])
            checked.add(kind)
    return arrays, bit_addresses_of(arrays)


def alike(items: Sequence[Any]) -> BitAddresses | None:
    """The BitAddresses of ndarrays or Tensors, if all have the kind of the first; else None."""
    first: Any = items[0]
    if type(first) is np.ndarray:
        layout, begin = layout_of(first), 0
        addresses, count = read_alike(tuple(items), first.dtype, first.shape, first.strides)
    else:
        kind, layout = first.dtype, first.layout
        for x in items:
            if type(x) is not Tensor or x.dtype is not kind:
                return None
            if x.layout is not layout and x.layout != layout:
                return None
        layout, begin, count = layout.at(0), layout.offset, len(items)
        addresses = addresses_of([x.buffer for x in items])
    if count < len(items):
        return None
    addresses <<= 3
    if begin:
        addresses += begin
    return BitAddresses.alike(addresses, layout)


def addresses_of(arrays: Sequence[NDArray[Any]]) -> Addresses:
    """The byte addresses of the first elements."""
    if not arrays:
        return np.empty(0, np.int64)
    one = arrays[0]
    addresses, alike = read_alike(tuple(arrays), one.dtype, one.shape, one.strides)
    addresses[alike:] = [address_of(x) for x in arrays[alike:]]
    return addresses


def read_alike(
    items: tuple[Any, ...],
    dtype: np.dtype[Any],
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    to_fill: bool = False,
) -> tuple[Addresses, int]:
    """The byte addresses of exact ndarrays of one kind, and their number.

    Reading stops at the first item of another kind. Arrays `to_fill` must be C-contiguous and
    writable.
    """
    addresses = np.empty(len(items), np.int64)
    flags = CONTIGUOUS_WRITEABLE if to_fill else 0
    expected = array_structs.kind_of(dtype, shape, strides)
    read = array_structs.kernel(array_structs.READ_ALIKE)
    if read is not None:
        return addresses, read(items, len(items), expected, flags, addresses)
    with by_numpy(array_structs.work_of(array_structs.READ_ALIKE)):
        for i, x in enumerate(items):
            like = type(x) is np.ndarray and x.dtype == dtype and x.shape == shape
            same = like and (x.strides == strides or x.size <= 1)
            if not same or (to_fill and not x.flags.carray):
                return addresses, i
            addresses[i] = address_of(x)
    return addresses, len(items)


def overlap(
    sources: Spans, targets: Spans, locate: Callable[[int], tuple[int, Layout]]
) -> int | None:
    """The index of a source that shares a byte with a target; None where there is none.

    Targets are ranges of bytes; several may share one. `locate` returns the bit address and the
    Layout of a source whose span has bytes of a target: only bytes of its elements count, not the
    gaps between them.
    """
    filled = targets[1] > targets[0]
    starts, ends = (side[filled] for side in targets)
    lows, highs = sources
    if not len(starts):
        return None
    begin, end = np.minimum.reduce(starts), np.maximum.reduce(ends)  # half the time of min, max
    (near,) = ((lows < end) & (highs > begin) & (lows < highs)).nonzero()
    if not len(near):
        return None
    order = np.argsort(starts, kind="stable")
    starts, ends = starts[order], np.maximum.accumulate(ends[order])
    gaps = starts[1:] > ends[:-1]  # ranges without gaps between them are one
    starts, ends = starts[np.append(True, gaps)], ends[np.append(gaps, True)]
    first = np.searchsorted(ends, lows[near], "right")
    near = near[first < np.searchsorted(starts, highs[near], "left")]
    return next((i for i in near.tolist() if meets(*locate(i), starts, ends)), None)


def meets(address: int, layout: Layout, starts: Addresses, ends: Addresses) -> bool:
    """Whether an element has a bit of one of the ranges of bytes, which are disjoint and ascend."""
    return _runs_meet(*_dense_runs(address, layout), starts, ends)


RUNS = 1 << 16  # looked up at a time


def _dense_runs(address: int, layout: Layout) -> tuple[int, int, list[tuple[int, int]]]:
    """The first bit of the elements, the length of each contiguous run, and the loops over runs.

    Loops are (stride, size), the one with the greatest stride first; strides are positive.
    """
    low, _ = layout.span
    nbits, loops = layout.bits, sorted((abs(stride), size) for size, stride in layout.runs())
    while loops and loops[0][0] <= nbits:
        stride, size = loops.pop(0)
        nbits += (size - 1) * stride
    return address + low, nbits, loops[::-1]


def _runs_meet(
    begin: int, nbits: int, loops: list[tuple[int, int]], starts: Addresses, ends: Addresses
) -> bool:
    """Whether a run meets a range of bytes; ranges are disjoint and ascend."""
    end = begin + nbits + sum(stride * (size - 1) for stride, size in loops)
    if starts.searchsorted((end + 7) >> 3) <= ends.searchsorted(begin >> 3, "right"):
        return False
    if not loops:
        return True
    (stride, size), *inner = loops
    if size * prod([n for _, n in inner]) > RUNS:
        half = size // 2
        return any(
            _runs_meet(begin + at * stride, nbits, [(stride, n), *inner][n == 1 :], starts, ends)
            for at, n in ((0, half), (half, size - half))
            if n
        )
    runs = np.array([begin])
    for step, n in loops:
        runs = np.add.outer(runs, step * np.arange(n)).reshape(-1)
    met = ends.searchsorted(runs >> 3, "right") < starts.searchsorted((runs + nbits + 7) >> 3)
    return bool(met.any())
