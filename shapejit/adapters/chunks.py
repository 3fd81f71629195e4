"""How arrays that lie in chunks are cut: plain arithmetic, for any library of chunked arrays.

The chunks of a dim are a tuple of sizes (elements), those of an array one such tuple per dim.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise, product
from math import prod
from typing import NamedTuple

Sizes = tuple[int, ...]
Chunks = tuple[Sizes, ...]


class Group(NamedTuple):
    """Axes of a source and of a target, in both one after the other, of the same elements."""

    source: Sizes
    target: Sizes

    @property
    def same(self) -> bool:
        """Whether a dim stays as it is."""
        return len(self.source) == len(self.target) == 1


def groups(source: Sequence[int], target: Sequence[int]) -> list[Group]:
    """The smallest groups of dims that a reshape keeps apart; dims of size 1 are in none.

    >>> groups((4, 6, 1, 5), (8, 3, 5))
    [Group(source=(0, 1), target=(0, 1)), Group(source=(3,), target=(2,))]
    """
    sides = []
    for shape in (source, target):
        axes = [i for i, size in enumerate(shape) if size != 1]
        sides.append({prod(shape[i:]): i for i in axes} | {1: len(shape)})
    cuts = sorted(sides[0].keys() & sides[1].keys(), reverse=True)
    made = []
    for outer, inner in pairwise(cuts):
        ends = [(side[outer], side[inner]) for side in sides]
        both = zip(ends, (source, target), strict=True)
        made.append(Group(*(tuple(i for i in range(*end) if n[i] != 1) for end, n in both)))
    return made


def runs(sizes: Sequence[int], most: int) -> Chunks:
    """Chunks of at most `most` elements, each a range of the elements in row-major order.

    >>> runs((3, 4, 5), 12)
    ((1, 1, 1), (2, 2), (5,))
    """
    rows = [prod(sizes[i + 1 :]) for i in range(len(sizes))]
    return tuple(_even(n, max(1, most // row)) for n, row in zip(sizes, rows, strict=True))


def are_runs(chunks: Chunks) -> bool:
    """Whether each chunk is a range of the elements in row-major order.

    >>> are_runs(((1, 1, 1), (2, 2), (5,))), are_runs(((3,), (2, 2)))
    (True, False)
    """
    split = [i for i, sizes in enumerate(chunks) if len(sizes) > 1]
    return not split or all(set(sizes) == {1} for sizes in chunks[: split[-1]])


def edges(chunks: Chunks) -> list[int]:
    """Where the chunks, which are runs, begin, in row-major order; then where the last one ends.

    >>> edges(((1, 1), (2, 3)))
    [0, 2, 5, 7, 10]
    """
    return [*accumulate(map(prod, product(*chunks)), initial=0)]


class Overlap(NamedTuple):
    """What a source's chunk gives to a target's: ranges in the one and in the other."""

    chunk: int
    read: slice
    written: slice
    whole: bool


def overlaps(source: Sequence[int], begin: int, end: int) -> Iterator[Overlap]:
    """What the source's chunks, which begin at the edges `source`, give to [begin, end).

    >>> [(x.chunk, x.read, x.whole) for x in overlaps([0, 4, 8], 2, 8)]
    [(0, slice(2, 4, None), False), (1, slice(0, 4, None), True)]
    """
    at = begin
    chunk = bisect_right(source, begin) - 1
    while at < end:
        first, last = source[chunk], source[chunk + 1]
        stop = min(last, end)
        whole = at == first and stop == last
        yield Overlap(
            chunk, slice(at - first, stop - first), slice(at - begin, stop - begin), whole
        )
        at, chunk = stop, chunk + 1


def lengths(found: Sequence[int], totals: Sequence[int], most: int, least: int) -> list[int]:
    """The lengths of ranges, one per group, so that a box of them has at most `most` elements.

    `found` are those of the source's chunks, which are kept where they can be; boxes
    below `least` elements grow, last group first, to no more than `totals`.

    >>> lengths([50, 10], [100, 10], 100, 0), lengths([2, 5], [100, 5], 100, 40)
    ([10, 10], [8, 5])
    """
    made = list(found)
    size = prod(made)
    for i in range(len(made)):
        if size > most:
            rest = size // made[i]
            made[i] = max(1, most // rest)
            size = rest * made[i]
    for i in reversed(range(len(made))):
        if size < least:
            rest = size // made[i]
            made[i] = max(made[i], min(totals[i], least // rest))
            size = rest * made[i]
    return made


class Grid(NamedTuple):
    """Where a dim may be cut: at multiples of `grain`, and no chunk is part of two of `block`.

    A chunk lies within one block, or is whole blocks. `block` is a multiple of `grain`.
    """

    grain: int = 1
    block: int = 1

    def fitted(self, sizes: Sizes) -> Sizes:
        """The chunks of a dim, cut where they may be cut.

        >>> Grid(1, 4).fitted((3, 5, 3)), Grid(1, 8).fitted((3, 3, 3, 3)), Grid(2, 2).fitted((3, 5))
        ((4, 4, 3), (3, 3, 2, 1, 3), (4, 4))
        """
        total = sum(sizes)
        if not total:
            return (0,)
        step = self.block if 2 * max(sizes) >= self.block else self.grain
        cuts = {min(total, (end + step // 2) // step * step) for end in accumulate(sizes)}
        if step < self.block:
            cuts |= set(range(self.block, total, self.block))
        return tuple(b - a for a, b in pairwise(sorted({0, total} | cuts)))

    def cut(self, sizes: Sizes, most: int) -> Sizes:
        """Fitted chunks in pieces of at most `most`, or one grain.

        >>> Grid(1, 4).cut((12, 4), 9), Grid(1, 4).cut((8,), 3)
        ((8, 4, 4), (2, 2, 2, 2))
        """
        step = self.block if most >= self.block else self.grain
        most = max(step, most // step * step)
        whole = [
            n for size in sizes for n in (_steps(size, self.block) if step < self.block else [size])
        ]
        return tuple(n for size in whole for n in _even(size, most, step))


def _steps(size: int, step: int) -> Sizes:
    return tuple(min(step, size - first) for first in range(0, size, step))


def _even(size: int, most: int, step: int = 1) -> Sizes:
    """`size` in pieces of at most `most`, nearly alike, all but the last multiples of `step`.

    `most` is a multiple of `step`, too.

    >>> _even(10, 4), _even(3, 5), _even(10, 8, 4)
    ((4, 4, 2), (3,), (8, 2))
    """
    each = -(-size // -(-size // most)) if size else 1
    return _steps(size, min(most, -(-each // step) * step))


def bounded(chunks: Chunks, grids: Sequence[Grid], most: int) -> Chunks:
    """The chunks fitted to the grids and cut, first dim first, into at most `most` elements.

    >>> bounded(((8, 8), (6,)), [Grid(), Grid()], 12)
    ((2, 2, 2, 2, 2, 2, 2, 2), (6,))
    """
    made = [grid.fitted(sizes) for grid, sizes in zip(grids, chunks, strict=True)]
    for i, grid in enumerate(grids):
        largest = [max(sizes, default=0) for sizes in made]
        size = prod(largest)
        if size > most:
            made[i] = grid.cut(made[i], max(1, most // max(1, size // max(1, largest[i]))))
    return tuple(made)
