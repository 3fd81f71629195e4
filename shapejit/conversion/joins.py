"""Tensors of a destination that are joined of several."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import gcd, prod

from ..arrays.tensor import Bytes, Tensor
from ..files.pieces import Scratch
from ..operations import joining
from .changes import Change, Planned, bands_of

__all__ = ["Joined"]


@dataclass(frozen=True, eq=False)
class Joined(Planned):
    """Tensors one after the other along `axis`."""

    verb = "join"
    parts: Sequence[Change]
    axis: int

    @staticmethod
    def of(parts: Sequence[Change], axis: int) -> Joined:
        """The whole of tensors that differ in the size of this dim alone."""
        first, shape = parts[0], list(parts[0].shape)
        shape[axis] = sum(part.shape[axis] for part in parts)
        return Joined(first.dtype, tuple(shape), parts, axis)

    @property
    def made_of(self) -> Sequence[Change]:
        """Its parts."""
        return self.parts

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
        if not self._in_order:
            return super().pieces(source, result)
        return (piece for part in self.parts for piece in part.pieces(source, result))

    def held(self, most: int) -> int:
        """What a part holds, or some rows of the parts together."""
        if self._in_order:
            return max((part.held(most) for part in self.parts), default=0)
        parts = self._cut(*self.bands()[0])
        return sum(2 * part.nbytes for part in parts) + max(part.held(most) for part in parts)

    def rows(self, begin: int, end: int) -> Tensor:
        """Some rows: of the parts a few at a time, beside the result."""
        shape = end - begin, *self.shape[1:]
        found = bands_of(shape, self.dtype.bits, self.unit) if self.shape else [(0, 1)]
        if len(found) == 1:
            parts = [part.tensor() for part in self._cut(begin, end)]
            made: Tensor = joining.concat(parts, axis=self.axis)
            return made
        raw, at = Scratch().take(self.dtype.nbytes(prod(shape))), 0
        for first, last in found:
            some = self.rows(begin + first, begin + last)
            raw[at : at + some.nbytes] = some.buffer
            at += some.nbytes
        return Tensor.frombuffer(raw, self.dtype, shape)

    def _cut(self, begin: int, end: int) -> list[Change]:
        """The rows of the parts that are among those of the whole."""
        if not self.shape or end - begin == self.shape[0]:
            return [*self.parts]
        if self.axis:
            return [part.cut(begin, end) for part in self.parts]
        made, at = list[Change](), 0
        for part in self.parts:
            first, last = max(begin - at, 0), min(end - at, part.shape[0])
            if first < last:
                made.append(part if last - first == part.shape[0] else part.cut(first, last))
            at += part.shape[0]
        return made
