"""Tensors that are computed for a destination: some rows of them at a time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from math import prod
from threading import local
from typing import Any, ClassVar, NamedTuple

from ..arrays.tensor import Bytes, Tensor
from ..dtypes.table import DType
from ..files.pieces import PIECE, Scratch, parts, pieces
from ..files.stored import Stored
from ..shapes.layout import Layout

__all__ = ["LATEST", "Planned", "Source", "View", "bands_of"]


class _Latest(local):
    """What a thread computed last, for those who need it once more: parts of it, one by one."""

    def __init__(self) -> None:
        self._maker: object = None
        self._value: Any = None

    def of(self, maker: Any) -> Any:
        """What `maker.computed()` returns."""
        if self._maker is not maker:
            self.clear()
            self._value = maker.computed()
            self._maker = maker
        return self._value

    def clear(self) -> None:
        """Forget it."""
        self._maker = self._value = None


LATEST = _Latest()


@dataclass(frozen=True, eq=False)
class Planned(ABC):
    """A tensor that is computed, row-major: what it is, and how some of its rows are made.

    Rows are indices of dim 0. All else follows from them.
    """

    extent: ClassVar[None] = None
    dtype: DType
    shape: tuple[int, ...]

    @property
    def layout(self) -> Layout:
        """Row-major."""
        return Layout.row_major(self.shape, self.dtype.bits)

    @property
    def count(self) -> int:
        """The number of rows."""
        return self.shape[0] if self.shape else 1

    @property
    def unit(self) -> int:
        """Of how many rows those are a multiple that are made alone."""
        return self.count

    @abstractmethod
    def rows(
        self, begin: int, end: int, source: Scratch | None = None, result: Scratch | None = None
    ) -> Tensor:
        """Some rows, from a multiple of `unit` to another one, or to the last row.

        What is read, and what is made, may take memory of `source` and of `result`.
        """

    @abstractmethod
    def held(self, most: int) -> int:
        """Bytes that are in memory at a time, beside pieces of them, if that may be `most`."""

    def bands(self, most: int) -> list[tuple[int, int]]:
        """The rows that are made at a time, where `most` bytes may be in memory."""
        return bands_of(self.shape, self.dtype.bits, self.unit)

    def pieces(self, source: Scratch, result: Scratch) -> Iterator[Bytes]:
        """The packed elements in row-major order."""
        for begin, end in self.bands(source.most):
            yield from pieces(self.rows(begin, end, source, result), result)

    def tensor(self) -> Tensor:
        """All rows."""
        return self.rows(0, self.count)

    def with_layout(self, layout: Layout) -> Source:
        """A view of the tensor, when it has been made."""
        return self if layout == self.layout else View.of(self, layout)


Source = Stored | Planned  # a tensor of which a destination's tensor is made


class _Part(NamedTuple):
    """A part of a view, and the rows of its base that it needs."""

    layout: Layout
    begin: int
    end: int


@dataclass(frozen=True, eq=False)
class View(Planned):
    """A row-major copy of a view of another tensor, whose bits `seen` counts."""

    base: Source
    seen: Layout

    @staticmethod
    def of(base: Source, seen: Layout) -> View:
        """The view of a tensor that this layout says."""
        return View(base.dtype, seen.shape, base, seen)

    @property
    def unit(self) -> int:
        """One: each row is copied by itself."""
        return 1

    def rows(
        self, begin: int, end: int, source: Scratch | None = None, result: Scratch | None = None
    ) -> Tensor:
        """Some rows, of as few rows of the base as they need."""
        whole = end - begin == self.count
        seen = self.seen if whole else self.seen.narrow(0, begin, end - begin, 1)
        if isinstance(self.base, Stored):
            return self.base.with_layout(seen).tensor()
        if whole:
            return self.base.tensor().with_layout(seen).ascontiguous()
        memory, at = Scratch().take(self.dtype.nbytes(seen.size)), 0
        for piece in View.of(self.base, seen).pieces(Scratch(), Scratch()):
            memory[at : at + piece.size] = piece
            at += piece.size
        return Tensor.frombuffer(memory, self.dtype, seen.shape)

    def pieces(self, source: Scratch, result: Scratch) -> Iterator[Bytes]:
        """The packed elements; a view of all of them in their order needs no copy."""
        if isinstance(self.base, Stored):
            yield from self.base.with_layout(self.seen).pieces(source, result)
            return
        if self._is_whole(self.base):
            yield from self.base.pieces(source, result)
            return
        known, row = None, _row(self.base)
        for part in self._parts(self.base, source.most):
            if known is None or known[1:] != part[1:]:
                known = None  # which gives its memory back
                known = self.base.rows(part.begin, part.end), part.begin, part.end
            back = part.layout.offset - part.begin * row
            yield from pieces(known[0].with_layout(part.layout.at(back)), result)

    def held(self, most: int) -> int:
        """The rows that a part needs."""
        if isinstance(self.base, Stored):
            return self.base.with_layout(self.seen).held(most)
        if self._is_whole(self.base):
            return self.base.held(most)
        found = self._parts(self.base, most)
        rows = max((part.end - part.begin for part in found), default=0)
        return rows * _row(self.base) // 8 + self.base.held(most)

    def _is_whole(self, base: Planned) -> bool:
        together = self.seen.contiguous and not self.seen.offset
        return together and self.seen.size == prod(base.shape)

    def _parts(self, base: Planned, most: int) -> list[_Part]:
        """Parts that need few rows each; all rows where that takes no longer, and may be held."""
        count, found = base.count, list[_Part]()
        for layout in parts(self.seen, PIECE):
            (low, high), unit = layout.span, _row(base) * max(1, base.unit)
            begin = low // unit * base.unit if unit else 0
            end = min(count, -(-high // unit) * base.unit) if unit else count
            found.append(_Part(layout, begin, end))
        computed = sum(end - begin for (begin, end), _ in groupby(part[1:] for part in found))
        fits = 4 * self.dtype.nbytes(prod(base.shape)) <= most
        if computed > 2 * count or (fits and computed >= count):
            return [_Part(part.layout, 0, count) for part in found]
        return found


def _row(base: Planned) -> int:
    """Bits of a row."""
    return prod(base.shape[1:]) * base.dtype.bits


def bands_of(shape: tuple[int, ...], bits: int, unit: int) -> list[tuple[int, int]]:
    """Rows (begin, end), multiples of `unit`, of about 8 MiB; all rows where they are no more."""
    if not shape or not shape[0]:
        return [(0, shape[0] if shape else 1)]
    step = max(1, 8 * PIECE // max(1, prod(shape[1:]) * bits * unit)) * unit
    return [(at, min(at + step, shape[0])) for at in range(0, shape[0], step)]
