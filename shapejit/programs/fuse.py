"""Fusion: a sequence of operations as the fewest copies of one source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from ..dtypes.table import DType
from ..engine.converting import parts_of
from ..planning.cast_plans import Scales
from ..shapes.layout import Layout
from .chain import Chain
from .index_maps import IndexMap, composed
from .ops import OPERATIONS, Op
from .passes import Pass, aligned
from .steps import Step


@dataclass(frozen=True, slots=True)
class Route:
    """The copies that a sequence of operations needs, for one Layout of the source.

    `copies` run one after the other: the first copies the source, each other one the memory of the
    one before. `result` is the result's Layout in the memory of the last copy, or of the source if
    there is none. `fills` are the copies if the result goes, row-major, into an `out`. `fresh` says
    that the result shares no memory with the source, `read_only` that it must not be written.
    """

    copies: tuple[Pass, ...]
    result: Layout
    fills: tuple[Pass, ...]
    fresh: bool
    read_only: bool

    @property
    def whole(self) -> bool:
        """Whether the result is the whole last copy, in its order."""
        return (
            self.fresh
            and self.result == Layout.row_major(self.result.shape, self.result.bits)
            and self.result.size == self.copies[-1].layout.size
        )

    def stacked(self, count: int, apart: int) -> Route:
        """The Route of `count` sources that are `apart` bits apart."""

        def each(steps: Sequence[Pass]) -> tuple[Pass, ...]:
            return tuple(
                [
                    step.stacked(count, gap)
                    for step, gap in zip(steps, _gaps(steps, apart), strict=False)
                ]
            )

        result = self.result.stacked(count, _gaps(self.copies, apart)[-1])
        return replace(self, copies=each(self.copies), fills=each(self.fills), result=result)


def _gaps(steps: Sequence[Pass], apart: int) -> list[int]:
    """The bits between stacked tensors: `apart` in the source, then those of each copy."""
    return [apart, *(step.layout.size * step.unit for step in steps)]


def route(ops: Sequence[Op], source: Layout, kind: DType, packed: bool = True) -> Route:
    """The fewest copies that do `ops`; the result is a view if it would be one step by step.

    `kind` is the dtype of the source. A conversion is part of a copy; its results of fewer than 8
    bits are `packed`, as in Tensors, or have a byte each, as in ndarrays. Raises ReshapeError for a
    reshape that must be a view and is none.

    >>> from shapejit.dtypes import dtype
    >>> turned = "view", ((6, 4), (), (((1, 1),), ((0, 1),)))
    >>> ops = (turned, ("reshape", ((24,),)), ("reshape", ((2, 12),)))
    >>> len(route(ops, Layout.row_major((4, 6), 8), dtype("int8")).copies)
    1
    """
    done: list[Pass] = []
    start, layout = 0, source
    while (at := _next_conversion(ops, start)) is not None:
        moved = _moved(ops[start:at], layout)
        shape = moved.result.shape
        name, given = ops[at]
        convert = OPERATIONS[name].convert
        assert convert is not None
        step = convert(kind, shape, *given)
        unit = step.kind.bits if packed else max(8, step.kind.bits)
        following = _next_conversion(ops, at + 1)
        after = ops[at + 1 : following]
        fused = _moved([*ops[start:at], *after], layout)
        made = None
        if len(fused.fills) == len(moved.fills):
            made = _converted(fused.fills[-1].layout, unit, step, shape, after)
        if made is None:
            fused, after = moved, ()
            made = _converted(moved.fills[-1].layout, unit, step, shape, ())
        assert made is not None
        done += [*fused.fills[:-1], made]
        start, kind = at + 1 + len(after), step.kind
        layout = Layout.row_major(fused.result.shape, unit)
    left = _moved(ops[start:], layout)
    if not done:
        return left
    if left.fresh or left.result != layout:
        done += left.fills
        layout = Layout.row_major(left.result.shape, layout.bits)
    return Route(tuple(done), layout, tuple(done), True, False)


def _next_conversion(ops: Sequence[Op], start: int) -> int | None:
    """The index of the first conversion from `start` on."""
    places = (i for i in range(start, len(ops)) if OPERATIONS[ops[i][0]].convert)
    return next(places, None)


def _converted(
    layout: Layout, unit: int, step: Step, shape: tuple[int, ...], after: Sequence[Op]
) -> Pass | None:
    """The pass that converts elements of `shape`, after the operations `after`; None if none can.

    They become elements of `unit` bits. The operations are applied to the scales as a view. If
    there is no such view, and no operations, there is one scale per element.
    """
    conversion, operands = step.conversion, step.operands
    if operands is None:
        if step.kind.kind == "complex":
            return Pass(parts_of(layout), unit // 2, conversion)
        return Pass(layout, unit, conversion)
    lie = operands.layouts(shape)
    moved = [None] if lie is None else [_followed(x, shape, after) for x in lie]
    split = None
    if None not in moved:
        split = aligned([layout, *(x for x in moved if x is not None)])
    if split is None:
        # One scale per element has any dims that the elements have.
        return None if after else _converted(layout, unit, step.repeated(shape), shape, ())
    scales = Scales(conversion.arithmetic, *(x.at(0) for x in split[1:]))
    begins = tuple(x.offset // 8 for x in split[1:])
    arrays = operands.scale, operands.zero
    return Pass(split[0], unit, conversion, scales, arrays, begins)


def _followed(layout: Layout, shape: tuple[int, ...], ops: Sequence[Op]) -> Layout | None:
    """The Layout of the scales after `ops` on the elements; None if it is no view."""
    chain: Chain | None = Chain.of(layout, shape)
    for op in ops:
        row = OPERATIONS[op[0]]
        if chain is None:
            return None
        if row.read_only is not None:
            chain = chain.viewed(IndexMap(*op[1]))
        elif row.reshapes:
            chain = chain.reshape(*op[1])
    return None if chain is None else chain.layout


def _moved(ops: Sequence[Op], source: Layout) -> Route:
    """The Route of operations without conversions."""
    seen, chain = source, Chain.of(source)
    fresh = read_only = False
    copies: list[Pass] = []
    for views, group in groupby(ops, lambda op: OPERATIONS[op[0]].read_only is not None):
        if views:
            together = tuple(group)
            view = composed(chain.shape, (IndexMap(*given) for _, given in together))
            seen = view.applied(seen)
            read_only = read_only or any(OPERATIONS[name].read_only for name, _ in together)
            chain = _viewed(chain, view, copies)
            continue
        for name, given in group:
            row = OPERATIONS[name]
            stays = row.view(seen, *given)
            chain = chain.reshape(*given) if row.reshapes else chain
            fresh, read_only = fresh or stays is None, read_only and stays is not None
            seen = Layout.row_major(chain.shape, chain.layout.bits) if stays is None else stays
    if not fresh:
        return Route((), seen, (_copy(seen),), False, read_only)
    return _copied(copies, chain, seen.contiguous, read_only)


def _viewed(chain: Chain, view: IndexMap, copies: list[Pass]) -> Chain:
    """The view of a Chain; if there is none, one more copy is added to `copies`."""
    made = chain.viewed(view)
    if made is None:
        copies.append(_copy(chain.layout))
        made = Chain.of(Layout.row_major(chain.shape, chain.layout.bits)).viewed(view)
    assert made is not None  # a row-major array has every view
    return made


def _copied(copies: Sequence[Pass], chain: Chain, contiguous: bool, read_only: bool) -> Route:
    """The Route to the elements of a Chain, after `copies`, in memory of its own.

    `contiguous`: whether the result would have no gaps step by step.
    """
    row_major = Layout.row_major(chain.shape, chain.layout.bits)
    fills = (*copies, _copy(chain.layout))
    if copies:
        # What is left may be a view of the last copy, or nothing.
        left = chain.layout.reshape(chain.shape)
        if left == row_major and left.size == copies[-1].layout.size:
            return Route(tuple(copies), row_major, tuple(copies), True, False)
        apart = read_only or left is None or not _repeats(left)
        if left is not None and apart and (left.contiguous or not contiguous):
            return Route(tuple(copies), left, fills, True, read_only)
    # A writable result has no element twice.
    once, view = chain.once()
    if view is not None and read_only and not contiguous:
        return Route((*copies, _copy(once)), view, fills, True, read_only)
    return Route(fills, row_major, fills, True, False)


def _copy(layout: Layout) -> Pass:
    """A copy of elements without a conversion."""
    return Pass(layout, layout.bits)


def _repeats(layout: Layout) -> bool:
    """Whether an element occurs more than once."""
    return any(s == 0 and n > 1 for n, s in zip(layout.shape, layout.strides, strict=True))
