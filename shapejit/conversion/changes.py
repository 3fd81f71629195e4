"""Planned tensors: the source and the steps of each result, computed some rows at a time.

A `Planned` has a dtype and a shape, and computes any of its rows, in multiples of a unit; pieces,
bands and views in bounded memory follow from that. A `Change` is the result of rules: operations on
a Planned or on a stored tensor, under a name.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import groupby
from math import prod
from threading import local
from typing import ClassVar, NamedTuple

from ..arrays.tensor import Bytes, Tensor
from ..dtypes.table import DType, dtype
from ..files.pieces import MOST, PIECE_BYTES, Scratch, filled, parts, pieces, whole_elements
from ..files.stored import LOOKED_AT, Extent, FileType, Stored, blank
from ..files.writing import New
from ..operations.casts import cast
from ..programs.fuse import route
from ..programs.ops import Op
from ..programs.trace import traced
from ..shapes.layout import Layout

__all__ = ["Change", "Memory", "Planned", "Source", "View", "announced", "bands_of"]


@dataclass(frozen=True, eq=False)
class Planned(ABC):
    """A tensor that is computed, row-major: what it is, and how some of its rows are made.

    Rows are indices of dim 0. All else follows from them.
    """

    verb: ClassVar[str] = ""  # what it does to its sources
    dtype: DType
    shape: tuple[int, ...]

    @property
    def layout(self) -> Layout:
        """Row-major."""
        return Layout.row_major(self.shape, self.dtype.bits)

    @property
    def nbytes(self) -> int:
        """Bytes of the packed elements."""
        return self.dtype.nbytes(prod(self.shape))

    @property
    def size(self) -> int:
        """The number of elements."""
        return prod(self.shape)

    @property
    def outline(self) -> Tensor:
        """The tensor as far as `schemes.detect` needs it; only small ones are computed."""
        small = self.nbytes <= LOOKED_AT
        return self.tensor() if small else blank(self.dtype, self.shape)

    @property
    def extent(self) -> Extent | None:
        """The place of the same bytes in a file, if there is one."""
        return None

    @property
    def count(self) -> int:
        """The number of rows."""
        return self.shape[0] if self.shape else 1

    @property
    def unit(self) -> int:
        """Rows are computed in multiples of this number."""
        return self.count

    @property
    def made_of(self) -> Sequence[Change]:
        """The planned tensors that it is computed from."""
        return ()

    @property
    def reads(self) -> Sequence[Stored]:
        """The tensors of the source that it is computed from."""
        return [stored for part in self.made_of for stored in part.reads]

    @property
    def kind(self) -> tuple[object, ...]:
        """A value that is equal for tensors whose rows are computed in the same way."""
        return ()

    @abstractmethod
    def rows(self, begin: int, end: int) -> Tensor:
        """Compute some rows, between multiples of `unit`, or up to the last row."""

    def held(self, most: int) -> int:
        """The bytes in memory at a time, besides pieces, if `most` are allowed."""
        begin, end = self.bands()[0]
        band = self.nbytes * (end - begin) // max(1, self.count)
        return 2 * band + max((part.held(most) for part in self.made_of), default=0)

    def bands(self) -> list[tuple[int, int]]:
        """The ranges of rows that are computed at a time."""
        return bands_of(self.shape, self.dtype.bits, self.unit)

    def pieces(self, source: Scratch, result: Scratch) -> Iterator[Bytes]:
        """The packed elements in row-major order."""
        for begin, end in self.bands():
            yield from pieces(self.rows(begin, end), result)

    def tensor(self) -> Tensor:
        """All rows."""
        return self.rows(0, self.count)

    def with_layout(self, layout: Layout) -> Source:
        """A view of the tensor, when it has been made."""
        return self if layout == self.layout else View.of(self, layout)


Source = Stored | Planned  # of a tensor of the destination


class _Part(NamedTuple):
    """A part of a view, and the rows of its base that it needs."""

    layout: Layout
    begin: int
    end: int


@dataclass(frozen=True, eq=False)
class View(Planned):
    """A row-major copy of a view of another tensor, of Layout `seen`."""

    base: Source
    seen: Layout

    @staticmethod
    def of(base: Source, seen: Layout) -> View:
        """The view of a tensor with this Layout."""
        return View(base.dtype, seen.shape, base, seen)

    @property
    def unit(self) -> int:
        """1: each row is copied by itself."""
        return 1

    def rows(self, begin: int, end: int) -> Tensor:
        """Some rows, from as few rows of the base as necessary."""
        whole = end - begin == self.count
        seen = self.seen if whole else self.seen.narrow(0, begin, end - begin, 1)
        if isinstance(self.base, Stored):
            return self.base.with_layout(seen).tensor()
        if whole:
            return self.base.tensor().with_layout(seen).ascontiguous()
        some = View.of(self.base, seen)
        memory = Scratch().take(some.nbytes)
        return filled(some.pieces(Scratch(), Scratch()), self.dtype, seen.shape, memory)

    def pieces(self, source: Scratch, result: Scratch) -> Iterator[Bytes]:
        """The packed elements; a view of all elements in order is not copied."""
        if isinstance(self.base, Stored):
            yield from self.base.with_layout(self.seen).pieces(source, result)
            return
        if self._is_whole(self.base):
            yield from self.base.pieces(source, result)
            return
        known, row = None, _row(self.base)
        for part in self._parts(self.base, source.most):
            if known is None or known[1:] != part[1:]:
                known = None  # to release its memory
                known = self.base.rows(part.begin, part.end), part.begin, part.end
            back = part.layout.offset - part.begin * row
            yield from pieces(known[0].with_layout(part.layout.at(back)), result)

    def held(self, most: int) -> int:
        """The bytes of the rows that a part needs."""
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
        """Parts that need few rows each; or all rows, if that is as fast, and memory allows it."""
        count, found = base.count, list[_Part]()
        for layout in parts(self.seen, PIECE_BYTES):
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
    """Ranges of rows of about 8 MiB, in multiples of `unit`."""
    if not shape or not shape[0]:
        return [(0, shape[0] if shape else 1)]
    step = max(1, 8 * PIECE_BYTES // max(1, prod(shape[1:]) * bits * unit)) * unit
    return [(at, min(at + step, shape[0])) for at in range(0, shape[0], step)]


@dataclass(frozen=True, eq=False)
class Change(Planned):
    """A tensor of the destination: `ops` on `source`, with the resulting `shape` and `dtype`.

    `rules` is the number of rules applied to it, `saturate` that of all casts, `tensor_type` its
    GGUF type if it consists of blocks.
    """

    name: str
    source: Source
    saturate: bool = True
    rules: int = 0
    ops: tuple[Op, ...] = ()
    tensor_type: FileType | None = None

    @staticmethod
    def of(name: str, source: Source, saturate: bool = True, rules: int = 0) -> Change:
        """The whole source, unchanged."""
        return Change(source.dtype, source.layout.shape, name, source, saturate, rules)

    @property
    def made_of(self) -> Sequence[Change]:
        """The planned tensors that its source is computed from."""
        return () if isinstance(self.source, Stored) else self.source.made_of

    @property
    def reads(self) -> Sequence[Stored]:
        """The tensors of the source that it is computed from."""
        return [self.source] if isinstance(self.source, Stored) else self.source.reads

    @property
    def stages(self) -> tuple[Layout, ...]:
        """Layouts that are applied one after the other.

        The first to the source's bytes, each other one to a row-major copy of the stage
        before. The last is written in row-major order; a reshape at the end never copies,
        since it does not change that order. Then the elements are cast to each of `casts`.
        """
        return _routed(self.ops, self.source.layout, self.source.dtype)

    @property
    def casts(self) -> tuple[DType, ...]:
        """The dtypes to which the elements are cast, one after the other.

        Casts come after all reordering: the two commute.
        """
        return tuple(dtype(given[0]) for name, given in self.ops if name == "cast")

    @property
    def stored(self) -> Stored | None:
        """The stored tensor of which this is an unchanged copy, if it is one."""
        return self.source if isinstance(self.source, Stored) and not self.ops else None

    @property
    def moves(self) -> bool:
        """Whether elements or their order change; otherwise at most the header does."""
        stages = self.stages
        plain = isinstance(self.source, Stored) and len(stages) == 1 and stages[0].contiguous
        return bool(self.casts) or not plain

    @property
    def extent(self) -> Extent | None:
        """The place of the same bytes in a file, if there is one."""
        stages = () if self.casts else self.stages
        return self.source.with_layout(stages[0]).extent if len(stages) == 1 else None

    def then(self, apply: Callable[[Tensor], Tensor]) -> Change:
        """The tensor with one more step."""
        ops, kind, shape = _traced(apply, self.shape, self.dtype)
        return replace(self, ops=self.ops + ops, dtype=kind, shape=shape, rules=self.rules + 1)

    def cut(self, begin: int, end: int, axis: int = 0) -> Change:
        """The tensor cut to some indices of a dim."""
        return self.then(_cut(begin, end, axis))

    @property
    def unit(self) -> int:
        """1: any rows can be computed alone."""
        return 1

    def rows(self, begin: int, end: int) -> Tensor:
        """Some rows."""
        some = self if end - begin == self.count else self.cut(begin, end)
        return some._converted(some._seen.tensor()).reshape(some.shape)

    def pieces(self, source: Scratch, result: Scratch) -> Iterator[Bytes]:
        """The new packed bytes in order."""
        found, kind = self._seen.pieces(source, result), self.source.dtype
        if not self.casts:
            return found
        whole = whole_elements(found, kind.bits, prod(self.shape))
        each = (Tensor.frombuffer(data, kind, (count,)) for data, count in whole)
        return (self._converted(some, result).buffer for some in each)

    @property
    def _seen(self) -> Source:
        """The elements before they are cast."""
        first, *rest = self.stages
        seen: Source = self.source.with_layout(first)
        for layout in rest:
            seen = View.of(seen if isinstance(seen, Planned) else View.of(seen, first), layout)
        return seen

    def held(self, most: int) -> int:
        """The memory of its source, or of the rows that a stage needs."""
        return self._seen.held(most)

    def _converted(self, tensor: Tensor, memory: Scratch | None = None) -> Tensor:
        for kind in self.casts:
            raw = (memory or Scratch()).take(kind.nbytes(prod(tensor.shape)))
            out = Tensor.frombuffer(raw, kind, tensor.shape)
            tensor = cast(tensor, kind, saturate=self.saturate, out=out)
        return tensor


class Memory(local):
    """Scratch memory of a thread, for what is read and what is made: about `most` bytes each.

    All shards of a thread use the same pages.
    """

    def __init__(self, most: int = MOST) -> None:
        self.both = Scratch(most), Scratch(most)


def announced(changes: Iterable[Change], memory: Memory) -> list[New]:
    """The tensors for a writer in this thread."""
    both = memory.both
    return [New(c.name, c.dtype, c.shape, partial(c.pieces, *both), c.extent) for c in changes]


@lru_cache(maxsize=1024)
def _cut(begin: int, end: int, axis: int) -> Callable[[Tensor], Tensor]:
    return lambda t: t[(*(slice(None),) * axis, slice(begin, end))]


@lru_cache(maxsize=1024)
def _routed(ops: tuple[Op, ...], layout: Layout, kind: DType) -> tuple[Layout, ...]:
    made = route([op for op in ops if op[0] != "cast"], layout, kind)
    return tuple(step.layout for step in made.fills)


@lru_cache(maxsize=1024)
def _traced(
    apply: Callable[[Tensor], Tensor], shape: tuple[int, ...], kind: DType
) -> tuple[tuple[Op, ...], DType, tuple[int, ...]]:
    """The operations of a step, and the resulting dtype and shape."""
    seen: list[Tensor] = []

    def step(tensor: Tensor) -> Tensor:
        seen.append(apply(tensor))
        return seen[0]

    ops = traced(step, shape, kind)
    return ops, seen[0].dtype, seen[0].shape
