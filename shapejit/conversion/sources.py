"""Where the elements of a destination's tensors come from, beside tensors that are stored."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from math import gcd, prod
from threading import local
from typing import Any, ClassVar, NamedTuple, Protocol

from ..arrays.tensor import Bytes, Tensor
from ..dtypes.table import DType
from ..files.pieces import PIECE, Scratch, parts, pieces
from ..files.stored import Extent
from ..operations import joining
from ..shapes.layout import Layout

__all__ = ["LATEST", "Copied", "Joined", "Made", "Source", "bands_of"]


class Source(Protocol):
    """A tensor of which a destination's tensor is made: a `Stored` one, or one that is computed."""

    @property
    def dtype(self) -> DType:
        """What the elements are."""

    @property
    def layout(self) -> Layout:
        """Where they lie."""

    @property
    def extent(self) -> Extent | None:
        """Where a file has them side by side, if one does."""

    def with_layout(self, layout: Layout) -> Source:
        """Another view."""

    def pieces(self, source: Scratch, result: Scratch) -> Iterator[Bytes]:
        """The packed elements in row-major order."""

    def held(self, most: int) -> int:
        """Bytes that are in memory at a time, beside pieces of them, if that may be `most`."""

    def tensor(self, scratch: Scratch | None = None) -> Tensor:
        """All elements in memory, in row-major order."""


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
class Made(ABC):
    """A tensor that is computed, row-major, of `shape`."""

    extent: ClassVar[None] = None
    dtype: DType
    shape: tuple[int, ...]

    @property
    def layout(self) -> Layout:
        """Row-major."""
        return Layout.row_major(self.shape, self.dtype.bits)

    @property
    def unit(self) -> int:
        """Of how many rows (indices of dim 0) those are a multiple that are computed alone."""
        return self.shape[0] if self.shape else 1

    def with_layout(self, layout: Layout) -> Source:
        """A view of the tensor, when it has been computed."""
        return self if layout == self.layout else _View(self, layout)

    @abstractmethod
    def pieces(self, source: Scratch, result: Scratch) -> Iterator[Bytes]:
        """The packed elements in row-major order."""

    @abstractmethod
    def held(self, most: int) -> int:
        """Bytes that are in memory at a time, beside pieces of them, if that may be `most`."""

    @abstractmethod
    def tensor(self, scratch: Scratch | None = None) -> Tensor:
        """All elements in memory."""

    def rows(self, begin: int, end: int) -> Tensor:
        """Some rows in memory, from a multiple of `unit` to another one, or to the last row."""
        return self.tensor()


class _Part(NamedTuple):
    """A part of a view, and the rows of its base that it needs."""

    layout: Layout
    begin: int
    end: int


@dataclass(frozen=True, eq=False)
class _View:
    """A view of a computed tensor."""

    extent: ClassVar[None] = None
    base: Made
    layout: Layout

    @property
    def dtype(self) -> DType:
        """What the elements are."""
        return self.base.dtype

    def with_layout(self, layout: Layout) -> Source:
        """Another view of the same tensor."""
        return self.base.with_layout(layout)

    def pieces(self, source: Scratch, result: Scratch) -> Iterator[Bytes]:
        """The packed elements; a view of all of them in their order needs no copy."""
        if self._is_whole:
            yield from self.base.pieces(source, result)
            return
        known = None
        for part in self._parts(source.most):
            if known is None or known[1:] != part[1:]:
                known = None  # which gives its memory back
                known = self.base.rows(part.begin, part.end), part.begin, part.end
            back = part.layout.offset - part.begin * self._row
            yield from pieces(known[0].with_layout(part.layout.at(back)), result)

    def held(self, most: int) -> int:
        """The rows that a part needs."""
        if self._is_whole:
            return self.base.held(most)
        rows = max((part.end - part.begin for part in self._parts(most)), default=0)
        return rows * self._row // 8 + self.base.held(most)

    def tensor(self, scratch: Scratch | None = None) -> Tensor:
        """The view in memory."""
        return self.base.tensor(scratch).with_layout(self.layout)

    @property
    def _is_whole(self) -> bool:
        together = self.layout.contiguous and not self.layout.offset
        return together and self.layout.size == prod(self.base.shape)

    @property
    def _row(self) -> int:
        """Bits of a row of the base."""
        return prod(self.base.shape[1:]) * self.dtype.bits

    def _parts(self, most: int) -> list[_Part]:
        """Parts that need few rows each; all rows where that takes no longer, and may be held."""
        count = self.base.shape[0] if self.base.shape else 1
        found = list[_Part]()
        for layout in parts(self.layout, PIECE):
            (low, high), unit = layout.span, self._row * max(1, self.base.unit)
            begin = low // unit * self.base.unit if unit else 0
            end = min(count, -(-high // unit) * self.base.unit) if unit else count
            found.append(_Part(layout, begin, end))
        computed = sum(end - begin for (begin, end), _ in groupby(part[1:] for part in found))
        fits = 4 * self.dtype.nbytes(prod(self.base.shape)) <= most
        if computed > 2 * count or (fits and computed >= count):
            return [_Part(part.layout, 0, count) for part in found]
        return found


@dataclass(frozen=True, eq=False)
class Copied(Made):
    """A row-major copy of a view."""

    view: Source

    @property
    def unit(self) -> int:
        """One: each row is copied by itself."""
        return 1

    def pieces(self, source: Scratch, result: Scratch) -> Iterator[Bytes]:
        """Those of the view."""
        return self.view.pieces(source, result)

    def held(self, most: int) -> int:
        """What the view holds."""
        return self.view.held(most)

    def tensor(self, scratch: Scratch | None = None) -> Tensor:
        """The whole."""
        return self.view.tensor(scratch).ascontiguous()

    def rows(self, begin: int, end: int) -> Tensor:
        """Some rows."""
        if not self.shape or end - begin == self.shape[0]:
            return self.tensor()
        layout = self.view.layout.narrow(0, begin, end - begin, 1)
        return self.view.with_layout(layout).tensor().ascontiguous()


class _Piecewise(Protocol):
    """What is joined: a Change."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def nbytes(self) -> int: ...

    @property
    def source(self) -> Source: ...

    def pieces(self, source: Scratch, result: Scratch) -> Iterator[Bytes]: ...

    def held(self, most: int) -> int: ...

    def tensor(self) -> Tensor: ...

    def rows(self, begin: int, end: int) -> _Piecewise: ...


@dataclass(frozen=True, eq=False)
class Joined(Made):
    """Tensors one after the other along `axis`."""

    parts: Sequence[_Piecewise]
    axis: int

    @property
    def unit(self) -> int:
        """The rows of whole bytes."""
        return 8 // gcd(prod(self.shape[1:]) * self.dtype.bits, 8)

    @cached_property
    def _in_order(self) -> bool:
        """Whether the bytes of the whole are those of the parts, one after the other."""
        bits = [prod(part.shape) * self.dtype.bits for part in self.parts]
        return prod(self.shape[: self.axis]) == 1 and not any(n % 8 for n in bits)

    def pieces(self, source: Scratch, result: Scratch) -> Iterator[Bytes]:
        """The elements."""
        if self._in_order:
            for part in self.parts:
                yield from part.pieces(source, result)
        else:
            for begin, end in self._bands(0, self._count):
                yield from pieces(self.rows(begin, end), result)

    def held(self, most: int) -> int:
        """What a part holds, or some rows of the parts together."""
        if self._in_order:
            return max((part.held(most) for part in self.parts), default=0)
        begin, end = self._bands(0, self._count)[0]
        parts = self._cut(begin, end)
        return sum(2 * part.nbytes for part in parts) + max(part.held(most) for part in parts)

    def tensor(self, scratch: Scratch | None = None) -> Tensor:
        """The whole in memory."""
        return self.rows(0, self._count)

    def rows(self, begin: int, end: int) -> Tensor:
        """Some rows in memory: of the parts a few at a time, beside the result."""
        found = self._bands(begin, end)
        if len(found) == 1:
            parts = [part.tensor() for part in self._cut(begin, end)]
            made: Tensor = joining.concat(parts, axis=self.axis)
            return made
        shape, at = (end - begin, *self.shape[1:]), 0
        raw = Scratch().take(self.dtype.nbytes(prod(shape)))
        for first, last in found:
            some = self.rows(first, last)
            raw[at : at + some.nbytes] = some.buffer
            at += some.nbytes
        return Tensor.frombuffer(raw, self.dtype, shape)

    @property
    def _count(self) -> int:
        return self.shape[0] if self.shape else 1

    def _bands(self, begin: int, end: int) -> list[tuple[int, int]]:
        """The rows that are joined at a time, of those from `begin` to `end`."""
        found = bands_of((end - begin, *self.shape[1:]), self.dtype.bits, self.unit)
        return [(begin + first, begin + last) for first, last in found]

    def _cut(self, begin: int, end: int) -> list[_Piecewise]:
        """The rows of the parts that are among those of the whole."""
        if not self.shape or end - begin == self.shape[0]:
            return [*self.parts]
        if self.axis:
            return [part.rows(begin, end) for part in self.parts]
        made, at = list[_Piecewise](), 0
        for part in self.parts:
            first, last = max(begin - at, 0), min(end - at, part.shape[0])
            if first < last:
                made.append(part if last - first == part.shape[0] else part.rows(first, last))
            at += part.shape[0]
        return made


def bands_of(shape: tuple[int, ...], bits: int, unit: int) -> list[tuple[int, int]]:
    """Rows (begin, end), multiples of `unit`, of about 8 MiB; all rows where they are no more."""
    if not shape or not shape[0]:
        return [(0, shape[0] if shape else 1)]
    step = max(1, 8 * PIECE // max(1, prod(shape[1:]) * bits * unit)) * unit
    return [(at, min(at + step, shape[0])) for at in range(0, shape[0], step)]
