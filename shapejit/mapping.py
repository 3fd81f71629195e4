"""Where like tensors lie, and where their results go: checked before a byte is written."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from . import engine, operations, roster
from .dtypes import DType
from .engine import Addresses
from .errors import DTypeError, ReshapeError, about
from .layout import Layout
from .roster import Spans
from .tensor import Tensor, plain


class Group(NamedTuple):
    """Plain ndarrays of the same strides: which of all they are, and where their elements begin."""

    which: NDArray[np.intp]
    arrays: tuple[NDArray[Any], ...]
    addresses: Addresses


class Targets(NamedTuple):
    """Row-major memory for every result, in order; `results` holds it: the arrays, or one slab."""

    addresses: Addresses
    results: Any
    spans: Spans


def named(first: int, index: int) -> str:
    """How an error calls a tensor of a sequence."""
    return f"tensor {first + index}"


def grouped(
    items: tuple[Any, ...],
    dtype: np.dtype[Any],
    shape: tuple[int, ...],
    check: Callable[[Any], None],
    first: int,
) -> list[Group]:
    """The tensors as plain ndarrays, those of like strides together.

    `check` raises what is wrong with a tensor; `first` is the number of the first one.
    """
    if items and type(items[0]) is np.ndarray and items[0].shape == shape:
        addresses, count = roster.alike(items, dtype, shape, items[0].strides)
        if count == len(items):
            return [Group(np.arange(count), items, addresses)]
    places: dict[tuple[int, ...], list[tuple[int, NDArray[Any]]]] = {}
    for i, x in enumerate(items):
        with about(named(first, i)):
            array = plain(x) if isinstance(x, np.ndarray) else x
            check(array)
        places.setdefault(array.strides, []).append((i, array))
    groups = []
    for found in places.values():
        which, arrays = zip(*found, strict=True)
        addresses = np.array([engine.address_of(x) for x in arrays], np.int64)
        groups.append(Group(np.array(which), arrays, addresses))
    return groups


def given(
    out: Any, count: int, shape: tuple[int, ...], dtype: np.dtype[Any], first: int
) -> Targets:
    """The memory of `out`: one slab of all results, or a sequence of an array for each."""
    if isinstance(out, np.ndarray):
        operations._check_array_out(dtype, (count, *shape), out)
        return _rows(out)
    if not isinstance(out, Sequence) or isinstance(out, str | bytes):
        raise DTypeError(
            f"out= must be one array of all results or a sequence of arrays, "
            f"not {type(out).__name__}"
        )
    arrays = tuple(out)
    if len(arrays) != count:
        raise ReshapeError(f"out= holds {len(arrays)} arrays for {count} tensors")
    strides = row_major(shape, dtype)
    addresses, alike = roster.alike(arrays, dtype, shape, strides, filled=True)
    for i in range(alike, count):
        with about(f"out {first + i}"):
            operations._check_array_out(dtype, shape, arrays[i])
        addresses[i] = engine.address_of(arrays[i])
    spans = roster.spans(addresses, shape, strides, dtype.itemsize)
    roster.check_disjoint(spans, range(first, first + count))
    return Targets(addresses, arrays, spans)


def row_major(shape: tuple[int, ...], dtype: np.dtype[Any]) -> tuple[int, ...]:
    """The strides, in bytes, of an array without gaps."""
    return tuple(s // 8 for s in Layout.row_major(shape, 8 * dtype.itemsize).strides)


def _rows(slab: NDArray[Any]) -> Targets:
    start, each = engine.address_of(slab), slab.nbytes // max(len(slab), 1)
    addresses = start + each * np.arange(len(slab))
    return Targets(addresses, slab, (np.array([start]), np.array([start + slab.nbytes])))


def check_apart(groups: Sequence[Group], targets: Targets, first: int) -> None:
    """Refuse targets that share memory with any tensor."""
    out = targets.results
    for group in groups:
        x = group.arrays[0]
        spans = roster.spans(group.addresses, x.shape, x.strides, x.itemsize)
        for i, j in roster.crossings(spans, targets.spans):
            with about(named(first, int(group.which[i]))):
                target = out if isinstance(out, np.ndarray) else out[j]
                operations._check_apart(group.arrays[i], target)


class Filled:
    """Outputs of results that were not yielded yet."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def add(self, out: Any) -> bool:
        """Whether it lies apart from all before; what is no array is refused later."""
        x = operations._reach(out) if isinstance(out, Tensor) else out
        if not isinstance(x, np.ndarray) or x.nbytes == 0:
            return True
        start = engine.address_of(x)
        end = start + x.nbytes
        place = bisect(self._ends, start)
        if place < len(self._starts) and self._starts[place] < end:
            return False
        self._starts.insert(place, start)
        self._ends.insert(place, end)
        return True


def as_arrays(out: Any, dtype: DType, first: int) -> Any:
    """An out= of Tensors of whole bytes as one of ndarrays over the same memory."""
    if isinstance(out, Tensor):
        return written(out, dtype, "out=")
    if not isinstance(out, Sequence) or isinstance(out, str | bytes):
        raise DTypeError(
            f"out= must be one Tensor of all results or a sequence of them, "
            f"not {type(out).__name__}"
        )
    return [written(t, dtype, f"out {first + i}") for i, t in enumerate(out)]


def written(t: Any, dtype: DType, what: str) -> NDArray[Any]:
    """An output Tensor of whole bytes as an ndarray over its memory."""
    if not isinstance(t, Tensor):
        raise DTypeError(f"{what} must be a Tensor like the source, not {type(t).__name__}")
    if t.dtype is not dtype:
        raise DTypeError(f"{what} has dtype {t.dtype}, the result {dtype}")
    return t.numpy()


class Places(NamedTuple):
    """Where packed tensors begin: the bytes and the bits in them; and what bytes they reach.

    Tensor k has the Layout `layouts[kinds[k]]`; `memory` holds them all.
    """

    addresses: Addresses
    bits: Addresses
    spans: Spans
    layouts: Sequence[Layout]
    kinds: NDArray[np.intp]
    memory: Sequence[Tensor]

    @classmethod
    def of(cls, tensors: Sequence[Tensor]) -> Places:
        """Those of Tensors."""
        known: dict[Layout, int] = {}
        kinds = np.array([known.setdefault(t.layout, len(known)) for t in tensors], np.intp)
        begins = _buffers(tensors)
        facts = [(layout.offset, *layout.span) for layout in known]
        offsets, lows, highs = np.array(facts, np.int64).reshape(-1, 3)[kinds].T
        spans = begins + lows // 8, begins + (highs + 7) // 8
        return cls(begins + offsets // 8, offsets % 8, spans, tuple(known), kinds, tensors)

    def lots(self) -> dict[Layout, NDArray[np.intp]]:
        """Those that lie alike in the bytes they begin in, by the Layout they have there."""
        found: dict[Layout, list[int]] = {}
        for kind, layout in enumerate(self.layouts):
            found.setdefault(layout.within_byte(), []).append(kind)
        return {
            layout: np.flatnonzero(np.isin(self.kinds, kinds)) for layout, kinds in found.items()
        }


def _buffers(tensors: Sequence[Tensor]) -> Addresses:
    """The addresses of the memory of Tensors."""
    buffers = tuple(t.buffer for t in tensors)
    if not buffers:
        return np.empty(0, np.int64)
    one = buffers[0]
    addresses, alike = roster.alike(buffers, one.dtype, one.shape, one.strides)
    addresses[alike:] = [engine.address_of(x) for x in buffers[alike:]]
    return addresses


def packed_places(
    out: Any,
    items: Sequence[Tensor],
    sources: Places,
    shape: tuple[int, ...],
    dtype: DType,
    first: int,
) -> Places:
    """Those of the checked `out` for the packed results of `items`, which lie at `sources`.

    Rows of one slab may begin within bytes.
    """
    count = len(items)
    if isinstance(out, Tensor):
        operations._check_tensor_out(dtype, (count, *shape), out)
        begins = out.layout.offset + dtype.bits * prod(shape) * np.arange(count)
        start = engine.address_of(out.buffer)
        span = np.array([out.layout.span], np.int64)
        spans = start + span[:, 0] // 8, start + (span[:, 1] + 7) // 8
        kinds = np.zeros(count, np.intp)
        targets = Places(start + begins // 8, begins % 8, spans, (out.layout,), kinds, (out,))
        outs: Sequence[Tensor] = [out] * count
    else:
        outs = _packed_outs(out, count, shape, dtype, first)
        targets = Places.of(outs)
        roster.check_disjoint(targets.spans, range(first, first + count))
    for i, j in roster.crossings(sources.spans, targets.spans):
        with about(named(first, i)):
            operations._check_apart(operations._reach(items[i]), operations._reach(outs[j]))
    return targets


def _packed_outs(
    out: Any, count: int, shape: tuple[int, ...], dtype: DType, first: int
) -> Sequence[Tensor]:
    if not isinstance(out, Sequence) or isinstance(out, str | bytes):
        raise DTypeError(
            f"out= must be one Tensor of all results or a sequence of them, "
            f"not {type(out).__name__}"
        )
    outs = tuple(out)
    if len(outs) != count:
        raise ReshapeError(f"out= holds {len(outs)} Tensors for {count} tensors")
    for i, t in enumerate(outs):
        with about(f"out {first + i}"):
            operations._check_tensor_out(dtype, shape, t)
    return outs
