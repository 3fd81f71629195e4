"""Layout -> normal form: the loops of a copy, neighbours merged."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

from ..shapes.dims import merged
from ..shapes.layout import Layout


class Loop(NamedTuple):
    """One dim of the normal form: its size and both strides, in bytes, or bits where they count."""

    size: int
    source: int
    target: int

    def __str__(self) -> str:
        return f"{self.size}: source {self.source:+d}, target {self.target:+d}"


class ArrayLoop(Loop):
    """The loop over several arrays, each of which lies anywhere: no stride leads to the next one.

    Its `source` is 0, as if it were one array again and again.
    """

    __slots__ = ()

    def __str__(self) -> str:
        return f"{self.size}: source of the next array, target {self.target:+d}"


def normal_form(layout: Layout, target: Layout) -> list[Loop]:
    """The dims in target order, in bits: size-1 dims dropped, neighbours merged."""
    return [Loop(*dim) for dim in merged(layout.shape, layout.strides, target.strides)]


def split_run(layout: Layout, unit: int, loops: list[Loop]) -> tuple[int, list[Loop]]:
    """The bits that lie side by side in source and target, and the loops around them."""
    if layout.bits == unit and loops and loops[-1][1:] == (unit, unit):
        return unit * loops[-1].size, loops[:-1]
    return layout.bits, loops


def length_of(loops: Sequence[Loop], width: int) -> int:
    """What the loops walk, elements of `width`, in the same unit."""
    return width * prod(loop.size for loop in loops)


def streams(loops: Sequence[Loop], nearest: Loop) -> int:
    """How many places of the source are read in turn before the reads move on from each."""
    return length_of(loops[loops.index(nearest) + 1 :], 1)


def by_source(loops: Sequence[Loop]) -> list[Loop]:
    """The loops that move in the source, the nearest elements first."""
    return sorted((loop for loop in loops if loop.source), key=lambda loop: abs(loop.source))


def split(loop: Loop, most: int) -> tuple[Loop, Loop]:
    """A loop as two of equal parts, the inner one of at most so many steps."""
    few = max(n for n in range(1, max(1, most) + 1) if loop.size % n == 0)
    return Loop(loop.size // few, loop.source * few, loop.target * few), loop._replace(size=few)
