"""A sequence of view operations as one view, whose dims may have several strides each.

A Chain is a Layout whose elements are ordered by *factors*: (size, stride) pairs in row-major
order, which need not be the dims. A reshape that is no view of any Layout only changes how many
factors make a dim. An operation that moves a dim cuts the factors at its ends; a copy is needed
only if an end is within a factor, and does not divide it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod

from ..shapes.dims import common
from ..shapes.layout import Layout
from .index_maps import IndexMap


@dataclass(frozen=True, slots=True)
class Chain:
    """Elements in `shape`; `layout` has them in row-major order, with one dim per factor.

    >>> def turned(shape):
    ...     return IndexMap.of(IndexMap.probe(shape).permute((1, 0)))
    >>> chain = Chain.of(Layout.row_major((4, 6), 8)).viewed(turned((4, 6))).reshape((3, 8))
    >>> chain.shape, chain.layout
    ((3, 8), Layout(shape=(6, 4), strides=(8, 48), offset=0, bits=8))
    >>> chain.viewed(turned((3, 8))).layout.shape
    (2, 12)
    >>> chain.reshape((8, 3)).viewed(turned((8, 3))) is None
    True
    """

    shape: tuple[int, ...]
    layout: Layout

    @staticmethod
    def of(layout: Layout, shape: Sequence[int] | None = None) -> Chain:
        """The elements of a Layout, in row-major order, in its own shape or in `shape`.

        Evenly spaced neighbouring dims become one factor.
        """
        sizes, strides = [0], [0]
        if 0 not in layout.shape:
            sizes, strides = ([run[k] for run in layout.runs()] for k in (0, 1))
        factors = Layout.of(sizes, strides, layout.offset, layout.bits)
        return Chain(layout.shape if shape is None else tuple(shape), factors)

    def reshape(self, shape: Sequence[int]) -> Chain:
        """The same elements in the same order, in another `shape`."""
        return Chain(tuple(shape), self.layout)

    def viewed(self, view: IndexMap) -> Chain | None:
        """The view of this Chain; None if a copy is needed first."""
        bits = self.layout.bits
        if 0 in view.shape:
            return Chain.of(Layout.row_major(view.shape, bits))
        parts = view.parts(self.shape)
        if parts is None:  # each dim has one stride
            layout = self.layout.reshape(self.shape)
            return None if layout is None else Chain.of(view.applied(layout))
        cuts = sorted({0, self.ndim, *(cut for part in parts for cut in (part.first, part.end))})
        blocks = self._blocks(cuts)
        if blocks is None:
            return None
        sizes, strides, offset = list[int](), list[int](), self.layout.offset
        for first, _, start, size, step in parts:
            seen: Layout | None = Layout.of((size,), (0,), 0, bits)
            if step:
                seen = _narrowed(blocks[first], start, size, step)
            if seen is None:
                return None
            sizes += seen.shape
            strides += seen.strides
            offset += seen.offset
        return Chain.of(Layout.of(sizes, strides, offset, bits), view.shape)

    def once(self) -> tuple[Layout, Layout | None]:
        """A Layout to copy, without repeated elements, and the view of the copy (None: of no use).

        >>> Chain.of(Layout((3, 99), (8, 0), 0, 8)).once()[0].shape
        (3,)
        """
        sizes, strides, bits = self.layout.shape, self.layout.strides, self.layout.bits
        if 0 in self.shape or all(strides):
            return self.layout, None
        once = self.layout
        for axis in reversed(range(once.ndim)):
            once = once if strides[axis] else once.select(axis, 0)
        apart = Layout.row_major([n if s else 1 for n, s in zip(sizes, strides, strict=True)], bits)
        return once, apart.broadcast_to(sizes).reshape(self.shape)

    @property
    def ndim(self) -> int:
        """The number of dims of the shape."""
        return len(self.shape)

    def _blocks(self, cuts: Sequence[int]) -> dict[int, Layout] | None:
        """The factors of the dims between each two `cuts`, by where they begin.

        None if a cut is within a factor that it does not divide.
        """
        counts = [prod(self.shape[i:j]) for i, j in pairwise(cuts)]
        sizes = common(self.layout.shape, counts)
        split = None if sizes is None else self.layout.reshape(sizes)
        if sizes is None or split is None:
            return None
        made, dims = dict[int, Layout](), zip(sizes, split.strides, strict=True)
        for cut, count in zip(cuts, counts, strict=False):
            block = _taken(dims, count)
            own, strides = [n for n, _ in block], [s for _, s in block]
            made[cut] = Layout.of(own, strides, 0, self.layout.bits)
        return made


def _taken(dims: Iterator[tuple[int, int]], count: int) -> list[tuple[int, int]]:
    """The next dims, with `count` elements in total."""
    taken = list[tuple[int, int]]()
    while prod(size for size, _ in taken) < count:
        taken.append(next(dims))
    return taken


def _narrowed(block: Layout, start: int, size: int, step: int) -> Layout | None:
    """Elements `start`, `start` + `step` ... of a block, counted in row-major order."""
    if step < 0:  # the same elements of the block from its end
        for axis, count in enumerate(block.shape):
            block = block.narrow(axis, count - 1, count, -1)
        return _narrowed(block, block.size - 1 - start, size, -step)
    if not block.ndim or (step == 1 and size == block.size):
        return block
    if block.ndim == 1:
        return block.narrow(0, start, size, step)
    inner, stride = block.select(0, 0), block.strides[0]
    first, rest = divmod(start, inner.size)
    each, count = inner.size // step, size
    if rest + (size - 1) * step < inner.size:
        return _narrowed(block.select(0, first), rest, size, step)
    if step % inner.size == 0:
        seen, stride = _narrowed(inner, rest, 1, 1), stride * (step // inner.size)
    elif inner.size % step == 0 and rest < step and size % each == 0:
        seen, count = _narrowed(inner, rest, each, step), size // each
    else:
        return None
    if seen is None:
        return None
    offset = seen.offset + first * block.strides[0]
    return Layout.of((count, *seen.shape), (stride, *seen.strides), offset, block.bits)
