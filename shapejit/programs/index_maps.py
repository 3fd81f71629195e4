"""Views as index maps: which element of the source each element of a view is."""

from __future__ import annotations

from typing import NamedTuple

from ..errors import FormatError
from ..shapes.layout import Layout

Pairs = tuple[tuple[int, int], ...]  # (axis of the source, index or step along it)

# The strides of a probe are powers of this: no sum of indices and steps reaches the next one.
_BASE = 1 << 192


class IndexMap(NamedTuple):
    """A view of `shape`, whose first element has the source index `starts`: pairs (dim, index).

    A step along dim k of the view moves along source dims by `steps[k]`: pairs (dim, elements).
    Dims of size 1 have no steps.
    """

    shape: tuple[int, ...]
    starts: Pairs
    steps: tuple[Pairs, ...]

    @staticmethod
    def probe(source: tuple[int, ...]) -> Layout:
        """A Layout of this shape with special strides, from whose views `of` reads an IndexMap."""
        return Layout.of(source, [_BASE ** (i + 1) for i in range(len(source))], 0, 1)

    @staticmethod
    def of(probe: Layout) -> IndexMap:
        """The IndexMap of a view of a probe, for any Layout of the source's shape.

        >>> IndexMap.of(IndexMap.probe((4, 6)).permute((1, 0)).select(1, 3))
        IndexMap(shape=(6,), starts=((0, 3),), steps=(((1, 1),),))
        """
        if 0 in probe.shape:  # strides have no effect
            return IndexMap(probe.shape, (), ((),) * probe.ndim)
        pairs = zip(probe.shape, probe.strides, strict=True)
        steps = tuple([_digits(stride) if size > 1 else () for size, stride in pairs])
        return IndexMap(probe.shape, _digits(probe.offset), steps)

    def applied(self, layout: Layout) -> Layout:
        """The view of a Layout that has the source's shape.

        >>> IndexMap((2,), ((0, 1),), (((1, 2),),)).applied(Layout.row_major((4, 6), 8))
        Layout(shape=(2,), strides=(16,), offset=48, bits=8)
        """
        strides = [sum(step * layout.strides[axis] for axis, step in each) for each in self.steps]
        offset = sum(index * layout.strides[axis] for axis, index in self.starts)
        return Layout.of(self.shape, strides, layout.offset + offset, layout.bits)

    def check(self, source: tuple[int, ...], repeats: bool) -> None:
        """Raise for elements that the source lacks, and for repeated ones where none may repeat."""
        for pairs in (self.starts, *self.steps):
            if len({axis for axis, n in pairs if n and 0 <= axis < len(source)}) < len(pairs):
                raise FormatError(f"axes are different ones of the {len(source)} dims, without 0")
        if 0 in self.shape:
            return
        if 0 in source:
            raise FormatError("there are no elements")
        starts, steps = dict(self.starts), [dict(pairs) for pairs in self.steps]
        for axis, count in enumerate(source):
            low = high = starts.get(axis, 0)
            for size, each in zip(self.shape, steps, strict=True):
                reach = (size - 1) * each.get(axis, 0)
                low, high = low + min(reach, 0), high + max(reach, 0)
            if low < 0 or high >= count:
                raise FormatError(f"index {low if low < 0 else high} is out of bounds")
        moved = zip(self.shape, steps, strict=True)
        if not repeats and any(size > 1 and not any(each.values()) for size, each in moved):
            raise FormatError("an element would be there several times")


def _digits(value: int) -> Pairs:
    """The factors of the powers of `_BASE`, by dim."""
    digits, axis = list[tuple[int, int]](), -1
    while value:
        digit = (value + _BASE // 2) % _BASE - _BASE // 2
        if digit:
            digits.append((axis, digit))
        value, axis = (value - digit) // _BASE, axis + 1
    return tuple(digits)
