"""The normal form of a copy: its loops, with neighbouring dims merged."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

from ..shapes.dims import merged
from ..shapes.layout import Layout


class Loop(NamedTuple):
    """One dim of the normal form: its size and both strides, in bytes; bits for packed elements."""

    size: int
    source: int
    target: int

    def __str__(self) -> str:
        return f"{self.size}: source {self.source:+d}, target {self.target:+d}"


class ArrayLoop(Loop):
    """A loop over several arrays at arbitrary addresses: there is no stride between them.

    Its `source` stride is 0, as if one array were repeated.
    """

    __slots__ = ()

    def __str__(self) -> str:
        return f"{self.size}: source of the next array, target {self.target:+d}"


class BoxLoop(NamedTuple):
    """A loop over boxes, a row for `kernels.odometer.box_at`.

    Each step advances `part` elements of a dim, the last one fewer: `most` in all. `source` and
    `target` are the strides of the dim, `scale` and `zero` those of operands.
    """

    size: int
    part: int
    most: int
    source: int
    target: int
    scale: int = 0
    zero: int = 0

    def __str__(self) -> str:
        return str(Loop(self.size, self.part * self.source, self.part * self.target))


def in_boxes(dims: Sequence[Any], parts: Sequence[int]) -> tuple[tuple[BoxLoop, ...], list[Any]]:
    """The loops over boxes of `parts` elements of each dim, and the dims within a box."""
    cut = [(dim, part, -(-dim[0] // part)) for dim, part in zip(dims, parts, strict=True)]
    outer = (BoxLoop(n, part, dim[0] - part, *dim[1:]) for dim, part, n in cut if n > 1)
    return tuple(outer), [dim._replace(size=part) for dim, part, _ in cut if part > 1]


def normal_form(layout: Layout, target: Layout) -> list[Loop]:
    """The dims in target order, in bits: size-1 dims dropped, neighbours merged."""
    return [Loop(*dim) for dim in merged(layout.shape, layout.strides, target.strides)]


def split_run(layout: Layout, unit: int, loops: list[Loop]) -> tuple[int, list[Loop]]:
    """The bits of a contiguous run in source and target, and the loops around it."""
    if layout.bits == unit and loops and loops[-1][1:] == (unit, unit):
        return unit * loops[-1].size, loops[:-1]
    return layout.bits, loops


def length_of(loops: Sequence[Loop], width: int) -> int:
    """The total length of the loops, with elements of `width`, in the same unit."""
    return width * prod(loop.size for loop in loops)


def by_source(loops: Sequence[Loop]) -> list[Loop]:
    """The loops with a stride in the source, smallest stride first."""
    return sorted((loop for loop in loops if loop.source), key=lambda loop: abs(loop.source))


def in_order(dims: Sequence[Any]) -> bool:
    """Whether the source is read in its own order."""
    strides = [abs(dim.source) for dim in dims]
    return strides == sorted(strides, reverse=True)


def split(loop: Loop, most: int) -> tuple[Loop, Loop]:
    """A loop as two with equal parts, the inner one of at most `most` steps."""
    few = max(n for n in range(1, max(1, most) + 1) if loop.size % n == 0)
    return Loop(loop.size // few, loop.source * few, loop.target * few), loop._replace(size=few)
