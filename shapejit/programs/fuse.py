"""Operations one after the other as the fewest copies of one source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..layout import Layout
from .chain import Chain
from .ops import OPERATIONS, Op


@dataclass(frozen=True, slots=True)
class Route:
    """The copies that operations need on one source.

    `copies` are Layouts that become row-major in turn, the first of the source, each
    other one of the memory of the last. `result` lies in the memory of the last copy,
    or of the source if there is none. `fills` are the copies if the result goes,
    row-major, into memory that is given. `fresh` says that the result shares no memory
    with the source, `read_only` that it must not be written.
    """

    copies: tuple[Layout, ...]
    result: Layout
    fills: tuple[Layout, ...]
    fresh: bool
    read_only: bool

    @property
    def whole(self) -> bool:
        """Whether the result is all of the last copy, as it lies there."""
        return (
            self.fresh
            and self.result == Layout.row_major(self.result.shape, self.result.bits)
            and self.result.size == self.copies[-1].size
        )


def route(ops: Sequence[Op], source: Layout) -> Route:
    """The fewest copies that do `ops`; the result shares memory where step by step it would.

    Raises ReshapeError where a VIEW is asked for that does not exist.

    >>> ops = (("permute", ((1, 0),)), ("reshape", ((24,),)), ("reshape", ((2, 12),)))
    >>> len(route(ops, Layout.row_major((4, 6), 8)).copies)
    1
    """
    seen, chain = source, Chain.of(source)
    fresh = read_only = False
    copies: list[Layout] = []
    for name, given in ops:
        row = OPERATIONS[name]
        view = row.view(seen, *given)
        following = row.fused(chain, *given)
        if following is None:
            copies.append(chain.layout)
            chain = Chain.of(Layout.row_major(chain.shape, chain.bits))
            following = row.fused(chain, *given)
            assert following is not None  # a row-major array has every view
        chain = following
        fresh = fresh or view is None
        read_only = view is not None and (read_only or row.read_only)
        seen = Layout.row_major(chain.shape, chain.bits) if view is None else view
    if not fresh:
        return Route((), seen, (seen,), False, read_only)
    return _copied(copies, chain, seen.contiguous, read_only)


def _copied(copies: Sequence[Layout], chain: Chain, contiguous: bool, read_only: bool) -> Route:
    """The Route to what a Chain describes, after `copies`, in memory of its own.

    `contiguous`: whether the result has no gaps if all is done step by step.
    """
    row_major = Layout.row_major(chain.shape, chain.bits)
    fills = (*copies, chain.layout)
    if copies:
        # What is left to do may be a view of the last copy, or nothing at all.
        left = chain.layout.reshape(chain.shape)
        if left == row_major and left.size == copies[-1].size:
            return Route(tuple(copies), row_major, tuple(copies), True, False)
        apart = read_only or left is None or not _repeats(left)
        if left is not None and apart and (left.contiguous or not contiguous):
            return Route(tuple(copies), left, fills, True, read_only)
    # What may be written has no element twice.
    once, view = chain.once()
    if view is not None and read_only and not contiguous:
        return Route((*copies, once), view, fills, True, read_only)
    return Route(fills, row_major, fills, True, False)


def _repeats(layout: Layout) -> bool:
    """Whether an element stands in more than one place."""
    return any(s == 0 and n > 1 for n, s in zip(layout.shape, layout.strides, strict=True))
