"""One planned tensor of a destination, and how its bytes are produced."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from math import prod
from typing import NamedTuple

from ..arrays.tensor import Bytes, Tensor
from ..dtypes.table import DType, dtype
from ..files.checkpoint import FileType
from ..files.pieces import MOST, Scratch, whole_elements
from ..files.stored import Extent, Stored
from ..files.writing import New
from ..operations.casts import cast
from ..programs.fuse import route
from ..programs.ops import Op
from ..programs.trace import traced
from ..quantization.parts import WeightNode
from ..shapes.layout import Layout
from .sources import Planned, Source, View

__all__ = ["Change", "Result", "Results", "announced"]


@dataclass(frozen=True, eq=False)
class Change:
    """A tensor of the destination: `ops` are done to `source`, and make `shape` and `dtype`.

    `rules` counts the rules that made it what it is; `saturate` is that of all casts.
    """

    name: str
    source: Source
    dtype: DType
    shape: tuple[int, ...]
    saturate: bool = True
    rules: int = 0
    ops: tuple[Op, ...] = ()

    @staticmethod
    def of(name: str, source: Source, saturate: bool = True, rules: int = 0) -> Change:
        """The whole source, unchanged."""
        return Change(name, source, source.dtype, source.layout.shape, saturate, rules)

    @property
    def stages(self) -> tuple[Layout, ...]:
        """Layouts that are applied in turn.

        The first to the source's bytes, each other one to a row-major copy of the stage
        before. The last is written in row-major order; a reshape at the end never copies,
        since it does not change that order. Then the elements are cast to each of `casts`.
        """
        return _routed(self.ops, self.source.layout, self.source.dtype)

    @property
    def casts(self) -> tuple[DType, ...]:
        """The dtypes to which the elements are cast, one after the other.

        That is done in the order of the destination: moves and casts may change places.
        """
        return tuple(dtype(given[0]) for name, given in self.ops if name == "cast")

    @property
    def nbytes(self) -> int:
        """Bytes of the elements in the destination."""
        return self.dtype.nbytes(prod(self.shape))

    @property
    def stored(self) -> Stored | None:
        """The tensor of the source that this one is, whole and unchanged, if it is one."""
        return self.source if isinstance(self.source, Stored) and not self.ops else None

    @property
    def moves(self) -> bool:
        """Whether elements change, or their order; otherwise only the header may change."""
        stages = self.stages
        plain = isinstance(self.source, Stored) and len(stages) == 1 and stages[0].contiguous
        return bool(self.casts) or not plain

    @property
    def extent(self) -> Extent | None:
        """Where a file has the same bytes already, if one does."""
        stages = () if self.casts else self.stages
        return self.source.with_layout(stages[0]).extent if len(stages) == 1 else None

    def then(self, apply: Callable[[Tensor], Tensor]) -> Change:
        """With one more step."""
        ops, kind, shape = _traced(apply, self.shape, self.dtype)
        return replace(self, ops=self.ops + ops, dtype=kind, shape=shape, rules=self.rules + 1)

    def pieces(self, source: Scratch, result: Scratch) -> Iterator[Bytes]:
        """The new packed bytes in order; what is read takes memory of `source`."""
        found = self._seen.pieces(source, result)
        return self._cast(found, result) if self.casts else found

    @property
    def _seen(self) -> Source:
        """The elements before they are cast."""
        first, *rest = self.stages
        seen: Source = self.source.with_layout(first)
        for layout in rest:
            seen = View.of(seen if isinstance(seen, Planned) else View.of(seen, first), layout)
        return seen

    def held(self, most: int) -> int:
        """Bytes of it that are in memory at a time, beside pieces, if that may be `most`."""
        return self._seen.held(most)

    def rows(self, begin: int, end: int) -> Change:
        """Some indices of dim 0."""
        return self.then(_rows(begin, end))

    def _cast(self, found: Iterator[Bytes], result: Scratch) -> Iterator[Bytes]:
        """The pieces, cast."""
        kind = self.source.dtype
        for data, count in whole_elements(found, kind.bits, prod(self.shape)):
            yield self._converted(Tensor.frombuffer(data, kind, (count,)), result).buffer

    def _converted(self, tensor: Tensor, memory: Scratch | None = None) -> Tensor:
        for kind in self.casts:
            nbytes = kind.nbytes(prod(tensor.shape))
            raw = (memory or Scratch()).take(nbytes)
            out = Tensor.frombuffer(raw, kind, tensor.shape)
            tensor = cast(tensor, kind, saturate=self.saturate, out=out)
        return tensor

    def tensor(self) -> Tensor:
        """The new tensor in memory."""
        return self._converted(self._seen.tensor()).reshape(self.shape)

    def result(self, tensor: Tensor) -> Tensor:
        """The Tensor whose elements, in row-major order, are the new ones of `tensor`."""
        first, *rest = self.stages
        tensor = tensor.with_layout(first)
        for layout in rest:
            tensor = tensor.ascontiguous().with_layout(layout)
        return self._converted(tensor)


class Result(NamedTuple):
    """A tensor of the destination, made when its data are asked for.

    It has the attributes that `schemes.detect` reads; `tensor_type` is the type that a GGUF
    file gives it, if it is rows of blocks.
    """

    change: Change
    tensor_type: FileType | None

    @property
    def dtype(self) -> DType:
        """What the elements are."""
        return self.change.dtype

    @property
    def size(self) -> int:
        """The number of elements."""
        return prod(self.change.shape)

    @property
    def data(self) -> Tensor:
        """The tensor, in memory."""
        return self.change.tensor()


class Results(Mapping[str, Result]):
    """The tensors of a destination, and the types of those that are rows of blocks, by name.

    `weight_nodes` are those of a graph that take quantised weights among them.
    """

    def __init__(
        self,
        changes: Mapping[str, Change],
        types: Mapping[str, str],
        weight_nodes: Sequence[WeightNode],
    ) -> None:
        self._changes, self._types = changes, types
        self.weight_nodes = weight_nodes

    def __getitem__(self, name: str) -> Result:
        kind = self._types.get(name)
        return Result(self._changes[name], None if kind is None else FileType(kind))

    def __iter__(self) -> Iterator[str]:
        return iter(self._changes)

    def __len__(self) -> int:
        return len(self._changes)


def announced(changes: Iterable[Change], most: int = MOST) -> list[New]:
    """The tensors as they are written; they share memory, which should hold `most` of a tensor."""
    memory = Scratch(most), Scratch(most)
    return [New(c.name, c.dtype, c.shape, partial(c.pieces, *memory), c.extent) for c in changes]


@lru_cache(maxsize=1024)
def _rows(begin: int, end: int) -> Callable[[Tensor], Tensor]:
    return lambda t: t[begin:end]


@lru_cache(maxsize=1024)
def _routed(ops: tuple[Op, ...], layout: Layout, kind: DType) -> tuple[Layout, ...]:
    made = route([op for op in ops if op[0] != "cast"], layout, kind)
    return tuple(step.layout for step in made.fills)


@lru_cache(maxsize=1024)
def _traced(
    apply: Callable[[Tensor], Tensor], shape: tuple[int, ...], kind: DType
) -> tuple[tuple[Op, ...], DType, tuple[int, ...]]:
    """The operations of a step, and the dtype and shape that they result in."""
    seen: list[Tensor] = []

    def step(tensor: Tensor) -> Tensor:
        seen.append(apply(tensor))
        return seen[0]

    ops = traced(step, shape, kind)
    return ops, seen[0].dtype, seen[0].shape
