"""Dims merged where they are evenly spaced; dims of two shapes split into common factors."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import prod

from .arithmetic import merge


def merged(sizes: Sequence[int], *sides: Sequence[int]) -> list[tuple[int, ...]]:
    """The merged dims: (size, stride of each side), outermost first.

    >>> merged((2, 3, 1, 4), (120, 40, 7, 8))
    [(6, 40), (4, 8)]
    """
    columns = [list(sizes), *map(list, sides)]
    kept = merge(columns[0], columns[1:], len(columns[0]))
    return list(zip(*(column[:kept] for column in columns), strict=True))


def common(first: Sequence[int], second: Sequence[int]) -> list[int] | None:
    """The sizes of common factors of two shapes; None if their factors do not divide one another.

    >>> common((4, 6), (2, 12)), common((4, 6), (8, 3)), common((2, 3), (3, 2))
    ([2, 2, 6], [4, 2, 3], None)
    """
    cuts = {prod(sizes[k:]) for sizes in (first, second) for k in range(len(sizes) + 1)}
    ordered = sorted(cuts)
    sizes = list[int]()
    for inner, outer in pairwise(ordered):
        if outer % inner:
            return None
        sizes.insert(0, outer // inner)
    return sizes
