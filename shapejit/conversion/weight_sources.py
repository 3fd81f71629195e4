"""Quantised weights as sources of a destination's tensors: decoded, or in another scheme."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

from ..arrays.tensor import Bytes, Tensor
from ..errors import FormatError, about, quoted, shape_text
from ..files.pieces import Scratch, pieces
from ..quantization.bands import bands
from ..quantization.carrying import carried
from ..quantization.table import schemes
from .sources import LATEST, Made
from .weights import Weight

__all__ = ["BAND", "Converted", "Decoded", "PartOf"]

BAND = 1 << 22  # elements that are decoded at a time, where a scheme allows it


@dataclass(frozen=True, eq=False)
class Decoded(Made):
    """A quantised weight as plain numbers."""

    weight: Weight

    @cached_property
    def unit(self) -> int:
        """The rows of the smallest band."""
        found = bands(self.weight.group, 1)
        return found[0].end - found[0].begin if found else 1

    def held(self, most: int) -> int:
        """A band, and the parts of the weight that it needs."""
        found = bands(self.weight.group, _limit(most))[:1]
        return sum(
            self.dtype.nbytes(prod(band.shape)) + self.weight.nbytes(band.slices) for band in found
        )

    def rows(self, begin: int, end: int) -> Tensor:
        """Some rows; all of them are kept until another weight is decoded."""
        if not self.shape or end - begin == self.shape[0]:
            return self.tensor()
        return self._decoded(begin, end)

    def pieces(self, source: Scratch, result: Scratch) -> Iterator[Bytes]:
        """The elements, a band at a time."""
        return self._bands(source, result, 0, None)

    def _bands(
        self, source: Scratch, result: Scratch, begin: int, end: int | None
    ) -> Iterator[Bytes]:
        for band in bands(self.weight.group, _limit(source.most), begin, end):
            count = self.dtype.nbytes(prod(band.shape))
            out = Tensor.frombuffer(result.take(count), self.dtype, band.shape)
            tensors = self.weight.read(band.slices, source)
            with about(f"weight {quoted(self.weight.name)}"):
                band.decode(tensors, self.dtype, out)
            yield out.buffer

    def tensor(self, scratch: Scratch | None = None) -> Tensor:
        """The whole weight, which is kept until another one is decoded."""
        made: Tensor = LATEST.of(self)
        return made

    def computed(self) -> Tensor:
        """The whole weight."""
        return self._decoded(0, self.shape[0] if self.shape else 1)

    def _decoded(self, begin: int, end: int) -> Tensor:
        shape = (end - begin, *self.shape[1:]) if self.shape else ()
        memory, at = Scratch().take(self.dtype.nbytes(prod(shape))), 0
        for piece in self._bands(Scratch(), Scratch(), begin, end):
            memory[at : at + piece.size] = piece
            at += piece.size
        return Tensor.frombuffer(memory, self.dtype, shape)


def _limit(most: int) -> int:
    """Elements of a band."""
    return max(1, min(BAND, most // 128))


@dataclass(frozen=True, eq=False)
class Converted:
    """A quantised weight with the same codes in another scheme."""

    weight: Weight
    scheme: str

    def parts(self) -> Mapping[str, Tensor]:
        """Its parts, which are kept until another weight is converted."""
        made: Mapping[str, Tensor] = LATEST.of(self)
        return made

    def computed(self) -> Mapping[str, Tensor]:
        """Its parts, from those in the file, a band at a time."""
        weight, memory = self.weight, Scratch()
        with about(f"weight {quoted(weight.name)}"):
            return carried(
                weight.group,
                lambda slices: weight.read(slices, memory),
                self.scheme,
                schemes[self.scheme].row.forms,
                BAND // 4,
            )

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

    def held(self, most: int) -> int:
        """The whole weight: its parts, its codes a byte each, the parts of the other scheme."""
        return 3 * self.whole.weight.nbytes({})

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
