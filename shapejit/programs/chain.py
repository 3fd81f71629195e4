"""View operations one after the other as one view: a dim may have several strides.

A Chain is a Layout whose elements follow one another along *factors*, (size,
stride) pairs that stand in row-major order but need not be the dims. A reshape
that no Layout has as a view only changes where the dims end; what moves a dim
cuts the factors at its ends. Only where an end falls inside a factor that it
does not divide, a copy must come between.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass
from math import prod

from ..shapes.layout import Layout
from .index_maps import IndexMap

Factor = tuple[int, int]  # size, stride in bits


@dataclass(frozen=True, slots=True)
class Chain:
    """Elements of `bits` in `shape`, found along `factors` from the bit `offset` on.

    >>> def turned(shape):
    ...     return IndexMap.of(IndexMap.probe(shape).permute((1, 0)))
    >>> chain = Chain.of(Layout.row_major((4, 6), 8)).viewed(turned((4, 6))).reshape((3, 8))
    >>> chain.factors
    ((6, 8), (4, 48))
    >>> chain.viewed(turned((3, 8))).factors
    ((2, 8), (12, 16))
    >>> chain.reshape((8, 3)).viewed(turned((8, 3))) is None
    True
    """

    shape: tuple[int, ...]
    factors: tuple[Factor, ...]
    offset: int
    bits: int

    @staticmethod
    def of(layout: Layout) -> Chain:
        """The Chain of a Layout."""
        return Chain(layout.shape, tuple(layout.runs()), layout.offset, layout.bits)

    @property
    def layout(self) -> Layout:
        """The elements in row-major order, one dim a factor."""
        sizes = [size for size, _ in self.factors]
        if 0 in self.shape:
            sizes, strides = [0], [self.bits]
        else:
            strides = [stride for _, stride in self.factors]
        return Layout.of(sizes, strides, self.offset, self.bits)

    def viewed(self, view: IndexMap) -> Chain | None:
        """The view of it; None: a copy must come first."""
        if 0 in view.shape:
            return self._with(view.shape, [])
        parts = view.parts(self.shape)
        if parts is None:  # as where each dim has one stride
            layout = self.layout.reshape(self.shape)
            return None if layout is None else Chain.of(view.applied(layout))
        blocks = self._blocks({cut for part in parts for cut in (part.first, part.end)})
        if blocks is None:
            return None
        offset, factors = self.offset, list[Factor]()
        for first, _, start, size, step in parts:
            kept = _narrowed(blocks[first], start, size, step) if step else ([(size, 0)], 0)
            if kept is None:
                return None
            factors += kept[0]
            offset += kept[1]
        return self._with(view.shape, factors, offset)

    def reshape(self, shape: Sequence[int]) -> Chain:
        """The same elements in the same order, in as many of `shape`."""
        return self._with(shape, self.factors)

    def once(self) -> tuple[Layout, Layout | None]:
        """What to copy if repeated elements are copied once, and the view of that; None: no use.

        >>> Chain.of(Layout((3, 99), (8, 0), 0, 8)).once()[0].shape
        (3,)
        """
        factors = [factor for factor in self.factors if factor[1] != 0]
        if len(factors) == len(self.factors) or 0 in self.shape:
            return self.layout, None
        stride, strides = self.bits, []
        for size, apart in reversed(self.factors):
            strides.append(stride if apart else 0)
            stride *= size if apart else 1
        sizes = [size for size, _ in self.factors]
        kept = Chain(tuple(n for n, _ in factors), tuple(factors), self.offset, self.bits)
        return kept.layout, Layout.of(sizes, strides[::-1], 0, self.bits).reshape(self.shape)

    def _with(
        self, shape: Sequence[int], factors: Sequence[Factor], offset: int | None = None
    ) -> Chain:
        """Another Chain over the same memory, evenly spaced neighbours merged."""
        if 0 in shape:
            return Chain(tuple(shape), (), 0, self.bits)
        at = self.offset if offset is None else offset
        sizes, strides = [n for n, _ in factors], [s for _, s in factors]
        merged = Layout.of(sizes, strides, at, self.bits).runs()
        return Chain(tuple(shape), tuple(merged), at, self.bits)

    def _blocks(self, cuts: Set[int]) -> dict[int, list[Factor]] | None:
        """The factors cut before each of the dims `cuts` and before dim 0, by these dims."""
        starts = sorted({0, *cuts})
        if 0 in self.shape:
            return {start: [] for start in starts}
        blocks: dict[int, list[Factor]] = {}
        left, behind = list(self.factors), 1
        for start in reversed(starts[1:]):
            block = _taken(left, prod(self.shape[start:]) // behind)
            if block is None:
                return None
            blocks[start] = block
            behind = prod(self.shape[start:])
        return {**blocks, 0: left}


def _taken(factors: list[Factor], count: int) -> list[Factor] | None:
    """The last factors, `count` elements together, taken off the list; None: they do not divide."""
    taken: list[Factor] = []
    while count > 1:
        size, stride = factors.pop()
        if count % size == 0:
            taken.insert(0, (size, stride))
            count //= size
        elif size % count == 0:
            taken.insert(0, (count, stride))
            factors.append((size // count, stride * count))
            count = 1
        else:
            return None
    return taken


def _offset(factors: Sequence[Factor], index: int) -> int:
    """Bits from the first element of a block to its element `index`."""
    offset = 0
    for size, stride in reversed(factors):
        index, digit = divmod(index, size)
        offset += digit * stride
    return offset


def _narrowed(
    factors: list[Factor], start: int, size: int, step: int
) -> tuple[list[Factor], int] | None:
    """The factors of elements `start`, `start` + `step` ... of a block, and where they begin."""
    if size == 1:
        return [], _offset(factors, start)
    if step == 1 and size == prod(n for n, _ in factors):
        return factors, 0
    if step < 0:
        turned = _narrowed(factors, start + (size - 1) * step, size, -step)
        if turned is None:
            return None
        kept, offset = turned
        offset += sum((n - 1) * stride for n, stride in kept)
        return [(n, -stride) for n, stride in kept], offset
    (_, stride), *inner = factors
    if not inner:
        return [(size, stride * step)], start * stride
    block = prod(n for n, _ in inner)
    first, rest = divmod(start, block)
    if start + (size - 1) * step < (first + 1) * block:
        found = _narrowed(inner, rest, size, step)
        return None if found is None else (found[0], first * stride + found[1])
    if step % block == 0:
        return [(size, stride * (step // block))], first * stride + _offset(inner, rest)
    each = block // step
    if block % step == 0 and rest < step and size % each == 0:
        found = _narrowed(inner, rest, each, step)
        if found is not None:
            return [(size // each, stride), *found[0]], first * stride + found[1]
    return None
