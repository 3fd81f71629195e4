"""Neighbouring dims as one: the only place that merges them.

`merge` is in the subset of Python that numba compiles: small plans run the same
function, compiled.
"""

from __future__ import annotations

from collections.abc import MutableSequence, Sequence


def merge(sizes: MutableSequence[int], sides: Sequence[MutableSequence[int]], rank: int) -> int:
    """Merge neighbours that are evenly spaced on every side, where they stand, and drop size 1.

    `sides` holds the strides of the dims, of the source alone or of more. Returns how
    many dims are left; what stands behind them means nothing.
    """
    kept = 0
    for k in range(rank):
        size = sizes[k]
        if size == 1:
            continue
        joins = kept > 0
        for strides in sides:
            joins = joins and strides[kept - 1] == size * strides[k]
        if joins:
            kept -= 1
            size *= sizes[kept]
        sizes[kept] = size
        for strides in sides:
            strides[kept] = strides[k]
        kept += 1
    return kept


def merged(sizes: Sequence[int], *sides: Sequence[int]) -> list[tuple[int, ...]]:
    """The merged dims: (size, stride of each side), outermost first.

    >>> merged((2, 3, 1, 4), (120, 40, 7, 8))
    [(6, 40), (4, 8)]
    """
    columns = [list(sizes), *map(list, sides)]
    kept = merge(columns[0], columns[1:], len(columns[0]))
    return list(zip(*(column[:kept] for column in columns), strict=True))
