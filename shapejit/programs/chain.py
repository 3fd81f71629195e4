"""View operations one after the other as one view: a dim may have several strides.

A Chain is a Layout whose elements follow one another along *factors*, (size,
stride) pairs that stand in row-major order but need not be the dims. A reshape
that no Layout has as a view only changes where the dims end; what moves a dim
cuts the factors at its ends. Only where an end falls inside a factor that it
does not divide, a copy must come between.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from ..shapes.layout import Layout

Factor = tuple[int, int]  # size, stride in bits


@dataclass(frozen=True, slots=True)
class Chain:
    """Elements of `bits` in `shape`, found along `factors` from the bit `offset` on.

    >>> chain = Chain.of(Layout.row_major((4, 6), 8)).permute((1, 0)).reshape((3, 2, 4))
    >>> chain.factors
    ((6, 8), (4, 48))
    >>> chain.permute((1, 0, 2)).factors
    ((2, 8), (3, 16), (4, 48))
    >>> chain.reshape((8, 3)).permute((1, 0)) is None
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

    def permute(self, axes: Sequence[int]) -> Chain | None:
        """Dim i of the result is dim axes[i]; None: a copy must come first."""
        # Neighbours that stay neighbours move together: nothing is cut between them.
        heads = [i for k, i in enumerate(axes) if k == 0 or i != axes[k - 1] + 1]
        blocks = self._blocks(heads)
        if blocks is None:
            return None
        order = dict(zip(sorted({0, *heads}), blocks, strict=True))
        moved = [factor for head in heads for factor in order[head]]
        return self._with([self.shape[i] for i in axes], moved)

    def flip(self, axes: Sequence[int]) -> Chain | None:
        """The order reversed along `axes`."""
        cuts = sorted({i for a in axes for i in (a, a + 1) if ((i - 1) in axes) != (i in axes)})
        blocks = self._blocks(cuts)
        if blocks is None:
            return None
        offset, factors = self.offset, []
        for first, block in zip(sorted({0, *cuts}), blocks, strict=True):
            if first in axes:
                offset += sum((size - 1) * stride for size, stride in block)
                block = [(size, -stride) for size, stride in block]
            factors += block
        return self._with(self.shape, factors, offset)

    def narrow(self, axis: int, start: int, size: int, step: int) -> Chain | None:
        """`size` elements along `axis`, from `start` in steps of `step`."""
        shape = [*self.shape[:axis], size, *self.shape[axis + 1 :]]
        if 0 in shape:
            return self._with(shape, [])
        blocks = self._around(axis)
        if blocks is None:
            return None
        before, own, behind = blocks
        kept = _narrowed(own, start, size, step)
        if kept is None:
            return None
        factors, offset = kept
        return self._with(shape, [*before, *factors, *behind], self.offset + offset)

    def select(self, axis: int, index: int) -> Chain | None:
        """The elements at `index` of `axis`, which is dropped."""
        shape = [*self.shape[:axis], *self.shape[axis + 1 :]]
        blocks = self._around(axis)
        if blocks is None:
            return None
        before, own, behind = blocks
        return self._with(shape, [*before, *behind], self.offset + _offset(own, index))

    def broadcast_to(self, shape: Sequence[int]) -> Chain | None:
        """Dims of size 1, and dims put in front, repeated by a stride of zero."""
        lead = len(shape) - len(self.shape)
        grown = [k for k, size in enumerate(shape) if k < lead or size != self.shape[k - lead]]
        cuts = sorted({max(k - lead, 0) for k in grown})
        blocks = self._blocks(cuts)
        if blocks is None:
            return None
        order = dict(zip(sorted({0, *cuts}), blocks, strict=True))
        factors: list[Factor] = []
        for k in range(len(shape) + 1):
            if k in grown and shape[k] != 1:
                # A dim of size 1 has no factors: the block behind its start follows.
                factors.append((shape[k], 0))
            if k >= lead:
                factors += order.pop(k - lead, [])
        return self._with(shape, factors)

    def reshape(self, shape: Sequence[int]) -> Chain:
        """The same elements in the same order, in as many of `shape`."""
        return self._with(shape, self.factors)

    def once(self) -> tuple[Layout, Layout | None]:
        """What to copy if repeated elements are copied once, and the view of that; None: no use.

        >>> Chain.of(Layout.row_major((3, 1), 8)).broadcast_to((3, 99)).once()[0].shape
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

    def _around(self, axis: int) -> tuple[list[Factor], list[Factor], list[Factor]] | None:
        """The factors before, of and behind a dim."""
        blocks = self._blocks(sorted({axis, axis + 1}))
        if blocks is None:
            return None
        order = dict(zip(sorted({0, axis, axis + 1}), blocks, strict=True))
        return (order[0] if axis else []), order[axis], order[axis + 1]

    def _blocks(self, cuts: Sequence[int]) -> list[list[Factor]] | None:
        """The factors cut before each of the dims `cuts` (and before dim 0), in order."""
        starts = sorted({0, *cuts})
        if 0 in self.shape:
            return [[] for _ in starts]
        blocks: list[list[Factor]] = []
        left = list(self.factors)
        for start in reversed(starts[1:]):
            behind = _taken(left, prod(self.shape[start:]) // _size(blocks))
            if behind is None:
                return None
            blocks.insert(0, behind)
        return [left, *blocks]


def _size(blocks: Sequence[Sequence[Factor]]) -> int:
    return prod(size for block in blocks for size, _ in block)


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
