"""Quantised weights as sources of a destination's tensors: decoded, or in another scheme."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

from ..arrays.tensor import Tensor
from ..errors import FormatError, about, quoted, shape_text
from ..files.pieces import Scratch
from ..quantization.bands import bands
from ..quantization.carrying import carried
from ..quantization.table import schemes
from .sources import LATEST, Planned
from .weights import Weight

__all__ = ["BAND", "Converted", "Decoded", "PartOf"]

BAND = 1 << 22  # elements that are decoded at a time, where a scheme allows it


@dataclass(frozen=True, eq=False)
class Decoded(Planned):
    """A quantised weight as plain numbers."""

    weight: Weight

    @cached_property
    def unit(self) -> int:
        """The rows of the smallest band."""
        found = bands(self.weight.group, 1)
        return found[0].end - found[0].begin if found else 1

    def bands(self, most: int) -> list[tuple[int, int]]:
        """Those of the weight; one alone, which may count elements instead, has all rows."""
        found = bands(self.weight.group, _limit(most))
        if len(found) == 1:
            return [(0, self.count)]
        return [(band.begin, band.end) for band in found]

    def held(self, most: int) -> int:
        """A band, and the parts of the weight that it needs."""
        found = bands(self.weight.group, _limit(most))[:1]
        return sum(
            self.dtype.nbytes(prod(band.shape)) + self.weight.nbytes(band.slices) for band in found
        )

    def rows(
        self, begin: int, end: int, source: Scratch | None = None, result: Scratch | None = None
    ) -> Tensor:
        """Some rows; all of them are kept until another weight is decoded, but for pieces."""
        if result is None and end - begin == self.count:
            made: Tensor = LATEST.of(self)
            return made
        return self._decoded(begin, end, source or Scratch(), result or Scratch())

    def computed(self) -> Tensor:
        """The whole weight."""
        return self._decoded(0, self.count, Scratch(), Scratch())

    def _decoded(self, begin: int, end: int, source: Scratch, result: Scratch) -> Tensor:
        shape = (end - begin, *self.shape[1:]) if self.shape else ()
        raw = result.take(self.dtype.nbytes(prod(shape)))
        made = Tensor.frombuffer(raw, self.dtype, shape)
        found = bands(self.weight.group, _limit(source.most), begin, end)
        for band in found:
            out = made if len(found) == 1 else made[band.begin - begin : band.end - begin]
            with about(f"weight {quoted(self.weight.name)}"):
                band.decode(self.weight.read(band.slices, source), self.dtype, out)
        return made


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
class PartOf(Planned):
    """A tensor that another scheme stores; `settings` are those of the weight there."""

    whole: Converted
    key: str
    settings: Mapping[str, Any]

    def held(self, most: int) -> int:
        """The whole weight: its parts, its codes a byte each, the parts of the other scheme."""
        return 3 * self.whole.weight.nbytes({})

    def rows(
        self, begin: int, end: int, source: Scratch | None = None, result: Scratch | None = None
    ) -> Tensor:
        """The part; FormatError unless it has the dtype and the shape that were planned."""
        found = self.whole.parts().get(self.key)
        if found is None or (found.dtype, found.shape) != (self.dtype, self.shape):
            given = "missing" if found is None else f"{found.dtype} {shape_text(found.shape)}"
            raise FormatError(
                f"weight {quoted(self.whole.weight.name)}: as {self.whole.scheme} its {self.key} "
                f"is {given}, that of others {self.dtype} {shape_text(self.shape)}"
            )
        return found
