"""Joins of Tensors: as rows of bytes, as codes by NumPy, or by a Route for parts of each Layout.

The Route that joined Tensors once joins those of the same Layouts again, without checks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..arrays import elements
from ..arrays.elements import Codes
from ..arrays.tensor import Tensor
from ..runtime.launches import Addresses
from ..runtime.ndarrays import MOST_DIMS, may_share_memory
from ..shapes.layout import Layout
from ..shapes.request import Ints
from . import fast_joins, outputs, routes
from .addresses import BitAddresses, bit_address_of
from .fast_joins import SCRATCH
from .numpy_fallback import MOST
from .patience import NEVER, by_numpy
from .routes import FOUND, Route
from .small_calls import TABLE

_LAYOUT = attrgetter("dtype.name", "layout.shape", "layout.strides", "layout.offset")


def key_of(parts: Any, axis: Any, new: bool) -> tuple[object, ...] | None:
    """A key for joins of Tensors like these; None for other objects."""
    if axis is not None and type(axis) is not int:
        return None
    if type(parts) not in (list, tuple) or {*map(type, parts)} != {Tensor}:
        return None
    return "join", axis, new, *map(_LAYOUT, parts)


class RowsRoute(NamedTuple):
    """The Route of Tensors that are joined as rows of bytes: those of parts, and of the result."""

    parts: list[tuple[Ints, int, Ints]]
    into: tuple[Ints, int, Ints]
    layout: Layout
    at: int

    @property
    def weight(self) -> int:
        """A bound on its bytes."""
        return 1024 * (1 + len(self.parts))

    def __call__(self, tensors: Sequence[Tensor], out: Any) -> Any:
        """The Tensors joined, as `out` or new; None if that takes another way."""
        into, kind = None, tensors[0].dtype
        if out is not None:
            if not outputs.fits(out, kind, self.layout.shape):
                return None
            shape, _, strides = self.into
            into = _row(out, (shape, out.layout.offset // 8, strides))
        rows = tuple(map(_row, tensors, self.parts))
        made = fast_joins.run(rows, into, self.at, False, SCRATCH, TABLE)
        if made is None or out is not None:
            return None if made is None else out
        return Tensor.unchecked(made.reshape(-1) if self.at else made, kind, self.layout)


def _row(x: Tensor, row: tuple[Ints, int, Ints]) -> NDArray[Any]:
    """The bytes of a Tensor."""
    shape, offset, strides = row
    memory = x.buffer
    return memory if shape == memory.shape else np.ndarray(shape, np.uint8, memory, offset, strides)


def by_rows(key: object, tensors: Sequence[Tensor], out: Any, whole: Layout, at: int) -> Any:
    """Tensors joined along dim `at` as rows of bytes, whose dims from there on are one.

    None if elements share bytes, or if that takes another way. `whole` is the Layout of the result.
    """
    into = _row_layout(whole, at)
    rows = [row for x in tensors if into and (row := _row_layout(x.layout, at))]
    if into is None or len(rows) < len(tensors):
        return None
    known = RowsRoute(rows, into, whole, at)
    joined = known(tensors, out)
    if joined is not None:
        FOUND.put(key, known)
    return joined


def _row_layout(layout: Layout, at: int) -> tuple[Ints, int, Ints] | None:
    """Shape, offset and strides of a Tensor's bytes, with one dim for those from `at` on, or None.

    These dims are contiguous, and each run of theirs is of whole bytes.
    """
    outer, inner = layout.strides[:at], Layout.row_major(layout.shape[at:], layout.bits)
    nbits = inner.size * layout.bits
    whole = not any(n % 8 for n in (nbits, layout.offset, *outer)) and at < MOST_DIMS
    if not whole or layout.strides[at:] != inner.strides:
        return None
    strides = *(stride // 8 for stride in outer), 1
    return (*layout.shape[:at], nbits // 8), layout.offset // 8, strides


class CodesRoute(NamedTuple):
    """The Route of packed Tensors that NumPy joins, as codes, until the `needed` ones are ready."""

    needed: Sequence[Route]
    shape: Ints
    join_codes: Callable[[Sequence[Codes]], Codes]

    def __call__(self, tensors: Sequence[Tensor], out: Any) -> Any:
        """The Tensors joined, as `out` or new; None if that takes another way."""
        kinds = [route.kind for route in self.needed if not route.ready]
        kind, apart = tensors[0].dtype, True
        if out is not None:
            apart = outputs.fits(out, kind, self.shape)
            apart = apart and not any(may_share_memory(x.buffer, out.buffer) for x in tensors)
        if not kinds or not apart:
            return None
        target = outputs.new_array(kind, self.shape)[0] if out is None else out
        with by_numpy(*kinds):
            codes = [elements.read(*bit_address_of(x)) for x in tensors]
            elements.write(self.join_codes(codes), *bit_address_of(target))
        return target


def by_codes(
    key: object, tensors: Sequence[Any], out: Any, join: Any, needed: Sequence[Route]
) -> bool:
    """Join packed Tensors into `out` by NumPy, if the `needed` Routes are not ready.

    Returns whether it did. More codes than stay in a cache take longer than parts one by one; they
    are read with a dim more, of the units of an element.
    """
    if type(out) is not Tensor or out.size > MOST or out.ndim >= MOST_DIMS:
        return False
    known = CodesRoute(needed, out.shape, join)
    done = known(tensors, out) is not None
    if done and key is not None and key not in FOUND:  # or rows that do not fit this `out`
        FOUND.put(key, known)
    return done


def launches(
    places: BitAddresses, sizes: Sequence[int], begin: int, whole: Layout, at: int
) -> list[tuple[Route, Addresses, Addresses]]:
    """The Route of parts with equal Layouts, into equal boxes of the whole; sources, targets.

    Part k has `sizes[k]` indices of dim `at`.
    """
    made = []
    ends = np.cumsum(np.array(sizes, np.int64))
    starts = begin + whole.strides[at] * (ends - sizes)
    for layout, bit, which in places.groups(starts):
        if not layout.size:
            continue
        box = whole.narrow(at, 0, sizes[which[0]], 1).at(bit)
        into = box if box.shape == layout.shape else box.reshape(layout.shape)
        assert into is not None  # only contiguous boxes have another shape
        sources, targets = places.begins(which) & ~7, starts[which] & ~7
        steps = targets[1:] - targets[:-1]
        spacing = int(steps[0]) if len(steps) and (steps == steps[0]).all() else 0
        route = routes.joins(layout, into, len(which), spacing)
        if route.kind is NEVER:
            route = routes.compiled(layout, into=into)
        made.append((route, sources, targets))
    return made
