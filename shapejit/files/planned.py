"""Planned tensors: their dtype and shape, and how any of their rows are read or computed.

A Planned makes any of its rows, in multiples of a unit, so that pieces and views of it need bounded
memory. `Stored` reads them from a file; classes in `conversion` compute them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import lcm, prod
from typing import Any

import numpy as np

from ..arrays.tensor import Bytes, Tensor
from ..dtypes.table import DType
from ..operations import equality
from ..shapes.layout import Layout
from .pieces import PIECE_BYTES, TENSOR_MAX_BYTES, filled, parts, pieces

LOOKED_AT = 1 << 20  # bytes of a tensor that tells more of a weight than its dtype and shape


class Planned(ABC):
    """A row-major tensor, and how some of its rows are made.

    Rows are indices of dim 0; a tensor without dims is one row.
    """

    __slots__ = ()
    dtype: DType
    shape: Any  # a tuple of sizes: a field of most subclasses, a property of Stored

    @abstractmethod
    def rows(self, begin: int, end: int) -> Tensor:
        """Some rows, between multiples of `unit`, or up to the last row."""

    @property
    def unit(self) -> int:
        """Rows are made in multiples of this number; here any number."""
        return 1

    @property
    def made_of(self) -> Sequence[Planned]:
        """The tensors that it is computed from."""
        return ()

    @property
    def leaves(self) -> Iterator[Planned]:
        """The tensors that it ultimately consists of: stored, decoded or encoded ones."""
        if not self.made_of:
            yield self
        for part in self.made_of:
            yield from part.leaves

    @property
    def reads(self) -> Sequence[Any]:
        """The tensors in files (Stored) that it is computed from."""
        return [stored for part in self.made_of for stored in part.reads]

    @property
    def kind(self) -> tuple[object, ...]:
        """A value that is equal for tensors whose rows are made in the same way."""
        return ()

    @property
    def count(self) -> int:
        """The number of rows."""
        return self.shape[0] if self.shape else 1

    @property
    def size(self) -> int:
        """The number of elements."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the packed elements."""
        return self.dtype.nbytes(self.size)

    @property
    def layout(self) -> Layout:
        """Row-major."""
        return Layout.row_major(self.shape, self.dtype.bits)

    @property
    def extent(self) -> Any:
        """The tensor in a file (Stored) with exactly these bytes, if there is one."""
        return None

    @property
    def here(self) -> bool:
        """Whether it is in a local file, so that `mapped` takes no memory."""
        return False

    def mapped(self) -> Tensor:
        """All elements, from a memory map if possible, else in memory of their own."""
        return self.tensor()

    @property
    def outline(self) -> Tensor:
        """The tensor as `schemes.detect` needs it.

        If it is large, and would have to be read or computed first, zeros of its shape.
        """
        if self.here or self.nbytes <= LOOKED_AT:
            return self.mapped()
        layout = Layout.of(self.shape, [0] * len(self.shape), 0, self.dtype.bits)
        return Tensor(np.zeros(-(-self.dtype.bits // 8), np.uint8), self.dtype, layout)

    @property
    def bands(self) -> list[tuple[int, int]]:
        """The ranges of rows that are made at a time.

        All at once, if a few rows need as much of another tensor as all of them.
        """
        if not all(part.by_rows for part in self.made_of):
            return [(0, self.count)]
        return bands_of(self.shape, self.dtype.bits, self.unit)

    @property
    def by_rows(self) -> bool:
        """Whether a few rows need little data; those of a transposed matrix do not."""
        return self.nbytes <= PIECE_BYTES or self.peak_bytes <= 4 * PIECE_BYTES

    @property
    def peak_bytes(self) -> int:
        """The bytes in memory at a time, besides pieces."""
        begin, end = self.bands[0]
        band = self.nbytes * (end - begin) // max(1, self.count)
        return 2 * band + max((part.peak_bytes for part in self.made_of), default=0)

    def pieces(self) -> Iterator[Bytes]:
        """The packed elements in row-major order."""
        for begin, end in self.bands:
            yield from pieces(self.rows(begin, end))

    def tensor(self) -> Tensor:
        """All rows."""
        if len(self.bands) == 1:
            return self.rows(0, self.count)
        return filled(self.pieces(), self.dtype, self.shape)

    def with_layout(self, layout: Layout) -> Planned:
        """A view of the tensor, once it has been made."""
        return self if layout == self.layout else View(self.dtype, layout.shape, self, layout)


@dataclass(frozen=True, eq=False)
class Computed(Planned):
    """A tensor whose rows are computed from others."""

    dtype: DType
    shape: tuple[int, ...]


class ComputedWhole(Computed):
    """A tensor all of whose rows are computed at once."""

    @property
    def unit(self) -> int:
        """All rows."""
        return self.count


def bands_of(shape: Sequence[int], bits: int, unit: int) -> list[tuple[int, int]]:
    """Ranges of rows of about `PIECE_BYTES` bytes, in multiples of `unit`."""
    if not shape or not shape[0]:
        return [(0, shape[0] if shape else 1)]
    step = max(1, 8 * PIECE_BYTES // max(1, prod(shape[1:]) * bits * unit)) * unit
    return [(at, min(at + step, shape[0])) for at in range(0, shape[0], step)]


def both(x: Planned, y: Planned) -> Iterator[tuple[int, Tensor, Tensor]]:
    """The rows of two tensors of one shape, a few at a time, with the index of the first one."""
    bits, unit = max(x.dtype.bits, y.dtype.bits), lcm(max(1, x.unit), max(1, y.unit))
    p, q = (t if t.by_rows else t.tensor() for t in (x, y))
    for begin, end in bands_of(x.shape, bits, unit):
        p_rows, q_rows = (
            t.rows(begin, end) if isinstance(t, Planned) else t[begin:end] for t in (p, q)
        )
        yield begin, p_rows, q_rows


def first_difference(
    x: Planned, y: Planned,
    find: Callable[[Tensor, Tensor], tuple[int, ...] | None] = equality.first_difference,
) -> tuple[tuple[int, ...], Tensor, Tensor] | None:  # fmt: skip
    """The index of the first differing element of two tensors of one shape, and both elements.

    `find` returns its index in some rows of both; by default, all bits count.
    """
    for begin, p, q in both(x, y):
        at = find(p, q)
        if at is not None:
            return (at[0] + begin, *at[1:]) if at else at, p[at], q[at]
    return None


@dataclass(frozen=True, eq=False)
class View(Computed):
    """A row-major copy of a view of another tensor, of Layout `seen`."""

    base: Planned
    seen: Layout

    def rows(self, begin: int, end: int) -> Tensor:
        """Some rows, from as few rows of the base as possible."""
        if end - begin == self.count:
            return filled(self.pieces(), self.dtype, self.shape)
        return self.base.with_layout(self.seen.narrow(0, begin, end - begin, 1)).tensor()

    def pieces(self) -> Iterator[Bytes]:
        """The packed elements; a view of all elements in order is not copied."""
        if self._is_whole:
            yield from self.base.pieces()
            return
        for begin, end, found in self._rows_needed():
            whole = end - begin == self.base.count
            made = self.base.tensor() if whole else self.base.rows(begin, end)
            for layout in found:
                yield from pieces(made.with_layout(layout.at(layout.offset - begin * self._row)))
            del made  # before the next rows are made

    @property
    def peak_bytes(self) -> int:
        """The bytes of the rows that a part needs."""
        found = [] if self._is_whole else self._rows_needed()
        rows = max((end - begin for begin, end, _ in found), default=0)
        return rows * self._row // 8 + self.base.peak_bytes

    @property
    def _is_whole(self) -> bool:
        together = self.seen.contiguous and not self.seen.offset
        return together and self.seen.size == self.base.size

    @property
    def _row(self) -> int:
        """Bits of a row of the base."""
        row: int = prod(self.base.shape[1:]) * self.base.dtype.bits
        return row

    def _rows_needed(self) -> list[tuple[int, int, list[Layout]]]:
        """Rows of the base, with the parts of the view that they provide.

        A few rows at a time; or all rows, if that is as fast, and memory allows it.
        """
        count, unit = self.base.count, max(1, self.base.unit)
        found, cut = list[tuple[int, int, list[Layout]]](), [*parts(self.seen, PIECE_BYTES)]
        for layout in cut:
            (low, high), step = layout.span, self._row * unit
            begin = low // step * unit if step else 0
            end = min(count, -(-high // step) * unit) if step else count
            if not found or found[-1][:2] != (begin, end):
                found.append((begin, end, []))
            found[-1][2].append(layout)
        computed = sum(end - begin for begin, end, _ in found)
        if computed > (1 if 4 * self.base.nbytes <= TENSOR_MAX_BYTES else 2) * count:
            return [(0, count, cut)]
        return found
