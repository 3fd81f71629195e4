"""Bit addresses of tensors, one or thousands; the bytes that they span; tests for overlap.

A bit address is 8 times the address of a byte, plus the bit at which an element begins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..arrays.buffers import Lent
from ..arrays.tensor import Tensor
from ..errors import about
from ..runtime.launches import Addresses, address_of
from ..runtime.ndarrays import unwrapped
from ..shapes.layout import Layout

Spans = tuple[Addresses, Addresses]  # the first byte of each, and the byte past its last


class BitAddresses(NamedTuple):
    """Where n tensors are: the first element of tensor k is at the bit address `addresses[k]`.

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
        """The tensors of equal Layouts: that Layout within their first byte, and their indices.

        Their `targets` begin at the same bit of a byte, which stands between the two.
        """
        bits = self.addresses & 7 if targets is None else self.addresses & 7 | (targets & 7) << 3
        if len(self.layouts) == 1 and len(bits) and not np.bitwise_or.reduce(bits):
            yield self.layouts[0].at(0), 0, np.arange(len(bits))
            return
        kinds = 64 * self.which + bits
        for kind in np.unique(kinds).tolist():
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

    `check` raises for bad ones, and is called once for each dtype and shape.
    """
    if items and type(items[0]) is Tensor:
        with about(f"tensor {names[0]!r}"):
            check(items[0])
        found = _tensors_alike(items)
        if found is not None:
            return items, found
    arrays, checked, last = list(items), set[Any](), None
    for i, x in enumerate(items):
        kind = (x.dtype, x.shape) if type(x) in (np.ndarray, Tensor) else None
        if kind is not None and kind == last:
            continue
        last = kind
        if kind is None or kind not in checked:
            with about(f"tensor {names[i]!r}"):
                arrays[i] = unwrapped(x)
                check(arrays[i])
            checked.add(kind)
    return arrays, bit_addresses_of(arrays)


def _tensors_alike(items: Sequence[Any]) -> BitAddresses | None:
    """The BitAddresses of Tensors of one dtype and Layout; None if they are not alike."""
    dtype, layout = items[0].dtype, items[0].layout
    for x in items:
        if type(x) is not Tensor or x.dtype is not dtype:
            return None
        if x.layout is not layout and x.layout != layout:
            return None
    addresses = np.array([address_of(x.buffer) for x in items], np.int64)
    return BitAddresses.alike(8 * addresses + layout.offset, layout.at(0))


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
    starts, ends = starts[order], ends[order]
    gaps = starts[1:] > ends[:-1]  # ranges without gaps between them are one
    starts, ends = starts[np.append(True, gaps)], ends[np.append(gaps, True)]
    first = np.searchsorted(ends, lows[near], "right")
    last = np.searchsorted(starts, highs[near], "left")
    ranges = list(zip(starts.tolist(), ends.tolist(), strict=True))
    for i, *among in zip(near.tolist(), first, last, strict=True):
        if any(meets(*locate(i), *one) for one in ranges[slice(*among)]):
            return int(i)
    return None


MOST_WORK = 1 << 22  # steps that are spent on one pair of arrays, about 0.1 s


def meets(address: int, layout: Layout, start: int, end: int) -> bool:
    """Whether an element at a bit address has a bit of the bytes from `start` to `end`.

    Bits have the addresses of bytes, which are not read. Where windows overlap in so many ways that
    it takes too long to find out, they may.
    """
    runs = [(size, stride) for size, stride in layout.runs() if stride]
    shape, strides = zip(*runs, (layout.bits, 1), strict=True)
    bits = np.asarray(Lent(address + layout.offset, shape, strides))
    others = np.asarray(Lent(8 * start, (8 * (end - start),)))
    search: Any = np.may_share_memory  # NumPy's stubs know two numbers of steps only
    return bool(search(bits, others, max_work=MOST_WORK))
