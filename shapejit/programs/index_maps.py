"""View operations as maps of indices: which element of the source each element of a view is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

from ..errors import FormatError
from ..shapes.layout import Layout

View = Callable[[Layout], Layout]

# The strides of the probe are powers of this: no sum of indices and steps reaches the next one.
_BASE = 1 << 192


class Part(NamedTuple):
    """`size` elements of the source's dims [first, end), as if these were one dim.

    They begin with element `start`, in steps of `step`; with a step of 0 an element of no dim
    is repeated.
    """

    first: int
    end: int
    start: int
    size: int
    step: int


@dataclass(frozen=True, slots=True)
class IndexMap:
    """A view of `shape`: along dim i of the source it begins at `starts.get(i, 0)`.

    An index of dim k of the view moves `steps[k].get(i, 0)` elements along dim i. Dims of
    size 1 move nothing.
    """

    source: tuple[int, ...]
    shape: tuple[int, ...]
    starts: dict[int, int]
    steps: tuple[dict[int, int], ...]

    @staticmethod
    def of(source: tuple[int, ...], views: Sequence[View]) -> IndexMap:
        """What view operations of a Layout, one after the other, do to an array of a shape.

        >>> IndexMap.of((4, 6), [lambda layout: layout.permute((1, 0)).select(1, 3)])
        IndexMap(source=(4, 6), shape=(6,), starts={0: 3}, steps=({1: 1},))
        """
        probe = Layout.of(source, [_BASE ** (i + 1) for i in range(len(source))], 0, 1)
        for view in views:
            probe = view(probe)
        if 0 in source or 0 in probe.shape:  # strides without a meaning
            return IndexMap(source, probe.shape, {}, ({},) * probe.ndim)
        pairs = zip(probe.shape, probe.strides, strict=True)
        steps = tuple([_digits(stride) if size > 1 else {} for size, stride in pairs])
        return IndexMap(source, probe.shape, _digits(probe.offset), steps)

    def check(self, repeats: bool) -> None:
        """Refuse elements that the source lacks, and repeated ones where none may repeat."""
        if 0 in self.shape:
            return
        if 0 in self.source:
            raise FormatError("there are no elements")
        for axis, count in enumerate((1, *self.source), -1):
            low = high = self.starts.get(axis, 0)
            for size, steps in zip(self.shape, self.steps, strict=True):
                reach = (size - 1) * steps.get(axis, 0)
                low, high = low + min(reach, 0), high + max(reach, 0)
            if low < 0 or high >= count:
                raise FormatError(f"index {low if low < 0 else high} is out of bounds")
        pairs = zip(self.shape, self.steps, strict=True)
        if not repeats and any(size > 1 and not steps for size, steps in pairs):
            raise FormatError("an element would be there several times")

    def parts(self) -> list[Part] | None:
        """The elements dim by dim, neighbours that stay neighbours as one; None: dims mix."""
        made, used = list[Part](), set[int]()
        for size, steps in zip(self.shape, self.steps, strict=True):
            if size == 1:
                continue
            if not steps:
                made.append(Part(0, 0, 0, size, 0))
                continue
            (axis, step), *others = steps.items()
            if others or axis in used:
                return None
            used.add(axis)
            part = Part(axis, axis + 1, self.starts.get(axis, 0), size, step)
            if made and self._neighbours(made[-1], part):
                last = made.pop()
                start = last.start * size + part.start
                part = Part(last.first, part.end, start, last.size * size, step)
            made.append(part)
        dropped = (i for i, size in enumerate(self.source) if size > 1 and i not in used)
        return made + [Part(i, i + 1, self.starts.get(i, 0), 1, 1) for i in dropped]

    def _neighbours(self, part: Part, other: Part) -> bool:
        """Whether two parts are all elements of neighbouring dims, in the same direction."""
        between = self.source[part.end : other.first]
        if part.end > other.first or prod(between) != 1 or not part.step == other.step in (1, -1):
            return False
        return all(p.size == prod(self.source[p.first : p.end]) for p in (part, other))


def _digits(value: int) -> dict[int, int]:
    """The factors of the powers of `_BASE`, by dim; that of 1 is of no dim, -1."""
    digits, place = dict[int, int](), -1
    while value:
        digit = (value + _BASE // 2) % _BASE - _BASE // 2
        if digit:
            digits[place] = digit
        value, place = (value - digit) // _BASE, place + 1
    return digits
