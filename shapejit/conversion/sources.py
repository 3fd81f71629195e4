"""Where the elements of a destination's tensors come from, beside tensors that are stored."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any, ClassVar, Protocol

from .. import joining
from ..dtypes import DType
from ..errors import FormatError, about, quoted, shape_text
from ..files.pieces import Scratch, pieces
from ..files.stored import Extent
from ..layout import Layout
from ..quantization.bands import bands
from ..quantization.table import schemes
from ..tensor import Bytes, Tensor
from .weights import Weight

__all__ = ["Converted", "Decoded", "Joined", "Latest", "Made", "PartOf", "Source"]

BAND = 1 << 22  # elements that are decoded at a time, where a scheme allows it


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

    def tensor(self, scratch: Scratch | None = None) -> Tensor:
        """All elements in memory, in row-major order."""


class Latest:
    """What was computed last, for those who need it once more: parts of it, one by one."""

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

    def with_layout(self, layout: Layout) -> Source:
        """A view of the tensor, when it has been computed."""
        return self if layout == self.layout else _View(self, layout)

    @abstractmethod
    def pieces(self, source: Scratch, result: Scratch) -> Iterator[Bytes]:
        """The packed elements in row-major order."""

    @abstractmethod
    def tensor(self, scratch: Scratch | None = None) -> Tensor:
        """All elements in memory."""


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
        whole = self.layout.contiguous and not self.layout.offset
        if whole and self.layout.size == prod(self.base.shape):
            return self.base.pieces(source, result)
        return pieces(self.tensor(), result)

    def tensor(self, scratch: Scratch | None = None) -> Tensor:
        """The view in memory."""
        return self.base.tensor(scratch).with_layout(self.layout)


@dataclass(frozen=True, eq=False)
class Decoded(Made):
    """A quantised weight as plain numbers."""

    weight: Weight
    latest: Latest

    def pieces(self, source: Scratch, result: Scratch) -> Iterator[Bytes]:
        """The elements, a band at a time."""
        for band in bands(self.weight.group, BAND):
            count = self.dtype.nbytes(prod(band.shape))
            out = Tensor.frombuffer(result.take(count), self.dtype, band.shape)
            tensors = self.weight.read(band.slices, source)
            with about(f"weight {quoted(self.weight.name)}"):
                band.decode(tensors, self.dtype, out)
            yield out.buffer

    def tensor(self, scratch: Scratch | None = None) -> Tensor:
        """The whole weight, which is kept until another one is decoded."""
        made: Tensor = self.latest.of(self)
        return made

    def computed(self) -> Tensor:
        """The whole weight."""
        memory, at = Scratch().take(self.dtype.nbytes(prod(self.shape))), 0
        for piece in self.pieces(Scratch(), Scratch()):
            memory[at : at + piece.size] = piece
            at += piece.size
        return Tensor.frombuffer(memory, self.dtype, self.shape)


@dataclass(frozen=True, eq=False)
class Converted:
    """A quantised weight with the same codes in another scheme."""

    weight: Weight
    scheme: str
    latest: Latest

    def parts(self) -> Mapping[str, Tensor]:
        """Its parts, which are kept until another weight is converted."""
        made: Mapping[str, Tensor] = self.latest.of(self)
        return made

    def computed(self) -> Mapping[str, Tensor]:
        """Its parts, from those in the file."""
        parts = self.weight.parts()
        with about(f"weight {quoted(self.weight.name)}"):
            return schemes[self.weight.scheme].convert(parts, self.scheme)

    def made(self) -> dict[str, PartOf]:
        """The parts as sources; those of a weight of equal shapes have equal ones."""
        parts = self.parts()
        told = {"zero_points": "weight_zero_point" in parts, **getattr(parts, "settings", {})}
        told.pop("K", None)
        return {key: PartOf(t.dtype, t.shape, self, key, told) for key, t in parts.items()}


@dataclass(frozen=True, eq=False)
class PartOf(Made):
    """A tensor that another scheme stores; `settings` are those of the weight there."""

    whole: Converted
    key: str
    settings: Mapping[str, Any]

    def pieces(self, source: Scratch, result: Scratch) -> Iterator[Bytes]:
        """The elements."""
        return pieces(self.tensor(), result)

    def tensor(self, scratch: Scratch | None = None) -> Tensor:
        """The part; FormatError unless it has the dtype and the shape that were planned."""
        found = self.whole.parts().get(self.key)
        if found is None or (found.dtype, found.shape) != (self.dtype, self.shape):
            given = "missing" if found is None else f"{found.dtype} {shape_text(found.shape)}"
            raise FormatError(
                f"weight {quoted(self.whole.weight.name)}: as {self.whole.scheme} its {self.key} "
                f"is {given}, that of others {self.dtype} {shape_text(self.shape)}"
            )
        return found


class _Piecewise(Protocol):
    """What is joined: a Change."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def nbytes(self) -> int: ...

    def pieces(self, source: Scratch, result: Scratch) -> Iterator[Bytes]: ...

    def tensor(self) -> Tensor: ...


@dataclass(frozen=True, eq=False)
class Joined(Made):
    """Tensors one after the other along `axis`."""

    parts: Sequence[_Piecewise]
    axis: int

    @cached_property
    def _in_order(self) -> bool:
        """Whether the bytes of the whole are those of the parts, one after the other."""
        bits = [prod(part.shape) * self.dtype.bits for part in self.parts]
        return prod(self.shape[: self.axis]) == 1 and not any(n % 8 for n in bits)

    def pieces(self, source: Scratch, result: Scratch) -> Iterator[Bytes]:
        """The elements."""
        if not self._in_order:
            yield from pieces(self.tensor(), result)
            return
        for part in self.parts:
            yield from part.pieces(source, result)

    def tensor(self, scratch: Scratch | None = None) -> Tensor:
        """The whole in memory."""
        made: Tensor = joining.concat([part.tensor() for part in self.parts], axis=self.axis)
        return made
