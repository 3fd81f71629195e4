"""Change: a tensor of the destination, as operations on a planned tensor."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod

from ..arrays.tensor import Bytes, Tensor
from ..dtypes.table import DType, dtype
from ..errors import FileFormatError
from ..files.checkpoint import Checkpoint
from ..files.pieces import new_memory, whole_elements
from ..files.places import file_system
from ..files.planned import Computed, Planned, View, first_difference
from ..files.stored import FileType, Stored
from ..files.writing import New
from ..operations.casts import cast
from ..programs.fuse import fused
from ..programs.ops import Op
from ..programs.trace import traced
from ..shapes.layout import Layout
from ..shapes.request import Ints


@dataclass(frozen=True, eq=False)
class Change(Computed):
    """A tensor of the destination: `ops` on `source`, with the resulting `shape` and `dtype`.

    `tensor_type` is its GGUF type if it consists of blocks.
    """

    name: str
    source: Planned
    ops: tuple[Op, ...] = ()
    tensor_type: FileType | None = None

    @staticmethod
    def of(name: str, source: Planned) -> Change:
        """The whole source, unchanged."""
        return Change(source.dtype, source.shape, name, source)

    @property
    def made_of(self) -> tuple[Planned]:
        """Its source."""
        return (self.source,)

    @property
    def stages(self) -> tuple[Layout, ...]:
        """Layouts that are applied one after the other.

        The first applies to the source's bytes, each other one to a row-major copy of the previous
        stage; the last is written in row-major order. A final reshape never copies, since it does
        not change that order. Then the elements are cast to each of `casts`.
        """
        return _routed(self.ops, self.source.layout, self.source.dtype)

    @property
    def casts(self) -> tuple[tuple[DType, bool], ...]:
        """The dtypes to which the elements are cast in sequence, each with its `saturate`.

        Casts come after all reordering: the two commute.
        """
        return tuple((dtype(given[0]), given[1]) for name, given in self.ops if name == "cast")

    @property
    def stored(self) -> Stored | None:
        """The stored tensor of which this is an unchanged copy, if it is one."""
        return self.source if isinstance(self.source, Stored) and not self.ops else None

    @property
    def same(self) -> bool:
        """Whether it is an unchanged tensor of the source, with its name there."""
        return self.stored is not None and self.stored.name == self.name

    @property
    def moves(self) -> bool:
        """Whether elements or their order change, not just the entry in the header."""
        stages = self.stages
        plain = isinstance(self.source, Stored) and len(stages) == 1 and stages[0].contiguous
        return bool(self.casts) or not plain

    @property
    def extent(self) -> Stored | None:
        """The tensor in a file that has the same bytes, if there is one."""
        stages = () if self.casts else self.stages
        found: Stored | None = None
        if len(stages) == 1:
            found = self.source.with_layout(stages[0]).extent
        return found

    def then(self, step: Callable[..., Tensor], *arguments: object) -> Change:
        """The tensor with one more step, a function of it and these arguments."""
        ops, kind, shape = _traced(step, arguments, self.shape, self.dtype)
        return replace(self, ops=self.ops + ops, dtype=kind, shape=shape)

    def cut(self, begin: int, end: int, axis: int = 0) -> Change:
        """The tensor restricted to some indices of a dim."""
        return self.then(_cut, begin, end, axis)

    def rows(self, begin: int, end: int) -> Tensor:
        """Some rows."""
        return (self if end - begin == self.count else self.cut(begin, end)).tensor()

    def tensor(self) -> Tensor:
        """All rows."""
        return self._converted(self._seen.tensor()).reshape(self.shape)

    def pieces(self) -> Iterator[Bytes]:
        """The new packed bytes in order."""
        found, kind = self._seen.pieces(), self.source.dtype
        if not self.casts:
            return found
        whole = whole_elements(found, kind.bits, prod(self.shape))
        each = (Tensor.frombuffer(data, kind, (count,)) for data, count in whole)
        return (self._converted(some).buffer for some in each)

    @property
    def _seen(self) -> Planned:
        """The elements before they are cast."""
        first, *others = self.stages
        seen = self.source.with_layout(first)
        for layout in others:
            seen = View(seen.dtype, layout.shape, seen, layout)
        return seen

    @property
    def peak_bytes(self) -> int:
        """The memory of its source, or of the rows that a stage needs."""
        return self._seen.peak_bytes

    def _converted(self, tensor: Tensor) -> Tensor:
        for kind, saturate in self.casts:
            out = Tensor.frombuffer(new_memory(kind.nbytes(tensor.size)), kind, tensor.shape)
            tensor = cast(tensor, kind, saturate=saturate, out=out)
        return tensor


def to_write(changes: Iterable[Change]) -> list[New]:
    """The tensors for a writer."""
    return [New(c.name, c.dtype, c.shape, c.pieces, c.extent) for c in changes]


def check_written(changes: Iterable[Change], found: Checkpoint, path: str) -> None:
    """Compute all bytes again; raise FileFormatError if those in a file differ.

    `path` is the destination's name in errors.
    """
    for change in changes:
        name = change.name if change.name in found.members else next(iter(found.members))
        stored = found.members[name]
        alike = (stored.dtype, stored.shape) == (change.dtype, change.shape)
        if not alike or first_difference(change, stored) is not None:
            where = file_system(path).base(found.path)
            reason = f"its bytes in {where} differ from those computed again"
            raise FileFormatError(path, change.name, f"{reason}: nothing was published")


def _cut(t: Tensor, begin: int, end: int, axis: int) -> Tensor:
    return t[(*(slice(None),) * axis, slice(begin, end))]


@lru_cache(maxsize=1024)
def _routed(ops: tuple[Op, ...], layout: Layout, kind: DType) -> tuple[Layout, ...]:
    made = fused([op for op in ops if op[0] != "cast"], layout, kind)
    return tuple(step.layout for step in made.fills)


@lru_cache(maxsize=1024)
def _traced(
    step: Callable[..., Tensor], arguments: tuple[object, ...], shape: Ints, kind: DType
) -> tuple[tuple[Op, ...], DType, Ints]:
    """The operations of a step, and the resulting dtype and shape."""
    seen: list[Tensor] = []

    def seen_step(tensor: Tensor) -> Tensor:
        seen.append(step(tensor, *arguments))
        return seen[0]

    ops = traced(seen_step, shape, kind)
    return ops, seen[0].dtype, seen[0].shape
