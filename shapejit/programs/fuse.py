"""Fusion: a sequence of operations as few copies of one source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..dtypes.table import DType
from ..engine.converting import parts_of
from ..planning.cast_plans import Scales
from ..shapes.layout import Layout
from .ops import OP_ROWS, Op, OpRow
from .passes import Pass, aligned
from .steps import ConversionStep


@dataclass(frozen=True, slots=True)
class Fused:
    """The copies that a sequence of operations needs, for one Layout of the source.

    `fills` are the copies if the result goes, row-major, into an `out`: the first copies the
    source, each other one the memory of the one before. The first `new` of them make a new result:
    `result` is its Layout in the memory of the last one, or of the source if there is none.
    `read_only` says that it must not be written.
    """

    fills: tuple[Pass, ...]
    new: int
    result: Layout
    read_only: bool = False

    @property
    def copies(self) -> tuple[Pass, ...]:
        """The copies that make a new result."""
        return self.fills[: self.new]

    @property
    def fresh(self) -> bool:
        """Whether the result shares no memory with the source."""
        return self.new > 0

    @property
    def whole(self) -> bool:
        """Whether the result is the whole last copy, in its order."""
        return self.new == len(self.fills)

    def stacked(self, count: int, spacing: int) -> Fused:
        """The Fused of `count` sources `spacing` bits from each to the next."""
        steps = [spacing, *(step.layout.size * step.unit for step in self.fills)]
        pairs = zip(self.fills, steps, strict=False)
        fills = tuple([copy.stacked(count, own) for copy, own in pairs])
        return replace(self, fills=fills, result=self.result.stacked(count, steps[self.new]))


class _Pending:
    """The next copy, which operations change until one of them needs its result.

    The elements at `layouts[0]`, in row-major order, are converted by `step` and viewed in `shape`.
    The other Layouts are those of the step's scales, by element.
    """

    def __init__(self, source: Layout, packed: bool) -> None:
        self.copies: list[Pass] = []
        self.layouts = [source]
        self.shape = source.shape
        self.step: ConversionStep | None = None
        self.packed = packed  # else elements of fewer than 8 bits get a byte each

    @property
    def unit(self) -> int:
        """The bits of an element of the copy."""
        if self.step is None:
            return self.layouts[0].bits
        bits = self.step.kind.bits
        return bits if self.packed else max(8, bits)

    def view(self, row: OpRow, given: tuple[Any, ...]) -> None:
        """Apply a view; to the elements of a copy if the Layouts have no such view."""
        seen = [layout.reshape(self.shape) for layout in self.layouts]
        if None in seen:
            self.copy()
            seen = [*self.layouts]
        made = [row.view(layout, *given) for layout in seen if layout is not None]
        self.layouts = [layout for layout in made if layout is not None]
        self.shape = self.layouts[0].shape

    def convert(self, step: ConversionStep) -> None:
        """Convert the elements, after a copy if they are converted already."""
        if self.step is not None:
            self.copy()
        self.step = step
        if step.operands is not None:
            scales = step.operands.layouts(self.shape)
            split = None if scales is None else aligned([self.layouts[0], *scales])
            if split is None:  # one scale per element has any dims that the elements have
                self.step = step.repeated(self.shape)
                assert self.step.operands is not None
                scales = self.step.operands.layouts(self.shape)
                split = aligned([self.layouts[0], *(scales or ())])
            assert split is not None
            self.layouts = split

    def copy(self) -> None:
        """Make the copy; later operations apply to its memory."""
        self.copies.append(self.made())
        self.layouts, self.step = [Layout.row_major(self.shape, self.unit)], None

    def made(self) -> Pass:
        """The pass over memory that makes the copy."""
        layout, *scales = self.layouts
        if self.step is None:
            return Pass(layout, self.unit)
        conversion, operands = self.step.conversion, self.step.operands
        if operands is None:
            if self.step.kind.kind == "complex":
                return Pass(parts_of(layout), self.unit // 2, conversion)
            return Pass(layout, self.unit, conversion)
        each = Scales(conversion.arithmetic, *(x.at(0) for x in scales))
        begins = tuple(x.offset // 8 for x in scales)
        return Pass(layout, self.unit, conversion, each, (operands.scale, operands.zero), begins)


def fused(ops: Sequence[Op], source: Layout, kind: DType, packed: bool = True) -> Fused:
    """The copies that do `ops`; the result is a view if it would be one step by step.

    Views around a conversion, and before a reshape that is no view, become part of its copy. `kind`
    is the dtype of the source; converted elements of fewer than 8 bits are `packed`, as in Tensors,
    or have a byte each, as in ndarrays. Raises ReshapeError for a reshape that must be a view and
    is none.

    >>> from shapejit.dtypes import dtype
    >>> ops = (("permute", ((1, 0),)), ("reshape", ((24,),)), ("reshape", ((2, 12),)))
    >>> len(fused(ops, Layout.row_major((4, 6), 8), dtype("int8")).copies)
    1
    """
    pending = _Pending(source, packed)
    seen: Layout = source  # of the result, step by step
    fresh = read_only = False
    for name, given in ops:
        row = OP_ROWS[name]
        stays = row.view(seen, *given)
        if row.convert is not None:
            step = row.convert(kind, pending.shape, *given)
            pending.convert(step)
            kind = step.kind
        elif row.views:
            if row.read_only and fresh and not pending.copies and pending.step is None:
                pending.copy()  # each element once
            pending.view(row, given)
        elif row.reshapes:
            (pending.shape,) = given
        fresh, read_only = fresh or stays is None, read_only and stays is not None
        read_only = read_only or row.read_only
        seen = Layout.row_major(pending.shape, pending.unit) if stays is None else stays
    if not fresh:
        return Fused((Pass(seen, seen.bits),), 0, seen, read_only)
    copies, fills = (*pending.copies,), (*pending.copies, pending.made())
    row_major = Layout.row_major(pending.shape, pending.unit)
    left = pending.layouts[0].reshape(pending.shape)
    if copies and left is not None and pending.step is None:
        # What is left may be a view of the last copy, or nothing. A writable result has no element
        # twice.
        if left == row_major and left.size == copies[-1].layout.size:
            return Fused(copies, len(copies), row_major)
        once = read_only or not left.repeats
        if once and (left.contiguous or not seen.contiguous):
            return Fused(fills, len(copies), left, read_only)
    return Fused(fills, len(fills), row_major)
