"""Weights decoded in one pass: their codes are stored in units, in the order of the result.

Runs of the result are decoded one by one. Their scales are read in place, multiplied and converted
on a stage in the cache; then their codes are: see `kernels.decodes`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..arrays.tensor import Tensor
from ..dtypes.table import DType
from ..engine.converting import number_of
from ..engine.execution import conversion_code
from ..engine.patience import Kind, kind_named
from ..engine.routes import ENTRY
from ..kernels.numbers import Conversion
from ..planning import thresholds
from ..planning.casts import MIN_VECTOR_RUN
from ..planning.decode_plans import (
    DecodePlan,
    Operand,
    Place,
    Step,
    Steps,
    StoredNumbers,
    decode_plan,
)
from ..planning.units import units_of
from ..runtime.kernel_names import Code, Name
from ..runtime.kernels import address
from ..runtime.launches import SHARE, Launch, launch_of, run_launch
from ..shapes.layout import Layout
from . import sizes
from .forms import Numbers
from .groups import Group
from .memories import FLOAT, Floats, Memory, located, place_of, products, stored_zeros
from .operands import meaning

_MINUS_ONE = np.full(1, -1, np.float32)


class UnfitError(Exception):
    """Numbers that are not in the order of the result."""


@dataclass(frozen=True, eq=False)
class Decoding:
    """A decoder of weights of one kind: a plan, and the `memories` that it reads.

    The kernel calls functions, `codes`, which read the units of each step, if any, and convert its
    numbers. It does not divide by infinity, NaN and 0: weights with such numbers among `divisors`
    are decoded otherwise.
    """

    plan: DecodePlan
    memories: tuple[Memory, ...]
    codes: tuple[Sequence[Code | None], Sequence[Code]]
    divisors: tuple[Numbers, ...]

    @property
    def weight(self) -> int:
        """A bound on the bytes of its tables and key."""
        return 4 * ENTRY

    @cached_property
    def names(self) -> tuple[Name, ...]:
        """The kernels that it needs."""
        return self._launched(Steps(*(np.empty((0, 0), np.int64),) * 2, 0)).names

    @cached_property
    def kind(self) -> Kind:
        """Its kind of work, for `patience`."""
        return kind_named("decode", self.names)

    def fits(self, group: Group) -> bool:
        """Whether it can decode a weight of its kind."""
        return all(_divides(group.numbers(each).tensor) for each in self.divisors)

    def run(self, group: Group, place: int) -> None:
        """Decode a weight, row-major, to the address `place`, once all `names` are ready."""
        plan, (steps, launch) = self.plan, self._ready
        kept, begins = located(self.memories, group)
        table, (rows, columns, which) = steps.table.copy(), steps.uses
        table[rows, columns] += begins[which]
        places, count = np.array([[0], [place]], np.int64), -(-plan.total // plan.length)
        nbytes = plan.total * plan.itemsize
        shares = nbytes // SHARE if nbytes >= thresholds.PARALLEL_FROM else 1
        launch = launch.given(table, *launch.arguments[1:])
        run_launch(launch, _streamed(plan), places, count, count, shares, 0)
        del kept

    @cached_property
    def _ready(self) -> tuple[Steps, Launch]:
        """The table of steps, with addresses of functions, and its launch."""
        steps = self.plan.tables(
            *([address(code) if code else 0 for code in each] for each in self.codes)
        )
        return steps, self._launched(steps)

    def _launched(self, steps: Steps) -> Launch:
        plan, (readers, converts) = self.plan, self.codes
        arguments = steps.table, plan.total, plan.length, plan.itemsize
        others = tuple(filter(None, (*readers, *converts)))
        return launch_of("decodes.decode_runs", arguments, steps.stage, staged=True, others=others)


def _streamed(plan: DecodePlan) -> bool:
    return plan.total * plan.itemsize >= thresholds.STREAM_FROM


def decoding(group: Group, kind: DType, total: int) -> Decoding | None:
    """The Decoding of weights like this one to `total` elements; None if it does not fit."""
    if group.order is not None:
        return None
    program = _Program(group, kind, total)
    try:
        plan = program.plan()
    except UnfitError:
        return None
    if plan is None:
        return None
    sources = (step.source.units for step in plan.steps)
    readers = [units and Code("unit_generator", units.unit) for units in sources]
    *before, last = (step.conversion for step in plan.steps)
    converts = (
        *map(conversion_code, before),
        conversion_code(last, _streamed(plan)),
    )
    return Decoding(plan, tuple(program.memories), (readers, converts), tuple(program.divisors))


class _Program:
    """The steps that decode a weight, and the memories that they read."""

    def __init__(self, group: Group, kind: DType, total: int) -> None:
        self.group, self.total = group, total
        self.result = number_of(kind)
        self.order = group.form.order
        self.steps: list[Step] = []
        self.memories: list[Memory] = []
        self.divisors: list[Numbers] = []

    def plan(self) -> DecodePlan | None:
        """The plan of all steps."""
        form = self.group.form
        codes = self._stored(form.codes)
        if codes.units is None or codes.per != 1:
            raise UnfitError
        number, bias, kind = meaning(self.group, codes.number)
        scale, zero = self._product(form.scales), None
        if form.offset:
            zero, kind = self._product(form.offset), "offset"
        elif form.zeros and self.group.has(form.zeros):
            zero, kind = self._array(stored_zeros(self.group, self.order), form.zeros), "float"
        if zero is not None and zero.per != scale.per:
            raise UnfitError
        pattern = self._pattern(scale.per, codes.per)
        made = Conversion(number, self.result, 32, "dequantize", pattern, kind, bias=bias)
        self.steps.append(Step(codes, made, scale, zero))
        return decode_plan(self.steps, self.total)

    def _product(self, numbers: Sequence[Numbers]) -> Operand:
        """The product of several numbers, as in `multiplied`."""
        first, *others = (each for each in numbers if each is numbers[0] or self.group.has(each))
        try:
            source = self._stored(first)
        except UnfitError:
            return self._array(products(self.group, numbers, self.order), first)
        if len(others) > 1:
            raise UnfitError
        return self._scaled(source, others[0]) if others else self._floats(source)

    def _scaled(self, source: StoredNumbers, other: Numbers) -> Operand:
        """Numbers times others or their negatives, or divided by them."""
        factors, over = self._stored(other), other.step == "/"
        if factors.per < MIN_VECTOR_RUN * source.per:
            factors = self._stored(other, factors.per // source.per)
        if over:
            self.divisors.append(other)
        if other.step == "-":
            minus = Operand(self._place(_MINUS_ONE), 0, self.total)
            return self._taken(source, "dequantize", self._taken(factors, "dequantize", minus))
        factor = self._floats(factors)
        return self._taken(source, "quantize" if over else "dequantize", factor)

    def _floats(self, source: StoredNumbers) -> Operand:
        """Numbers in float32."""
        if source.units is None and source.number == FLOAT:
            return Operand(source.place, 4, source.per)
        return self._taken(source, "cast", None)

    def _taken(self, source: StoredNumbers, step: str, factor: Operand | None) -> Operand:
        """The result of another step, on the stage."""
        pattern = "" if factor is None else self._pattern(factor.per, source.per)
        made = Conversion(source.number, FLOAT, 32, step, pattern)
        self.steps.append(Step(source, made, factor))
        return Operand(len(self.steps) - 1, 0, source.per)

    def _pattern(self, per: int, of: int) -> str:
        """How numbers for `per` elements correspond to those for `of`."""
        if per != of and per // of < MIN_VECTOR_RUN and per != self.total:
            raise UnfitError
        return "each" if per == of else "blocks"

    def _array(self, found: Floats, numbers: Numbers) -> Operand:
        """Numbers that are computed first, in the order of the result."""
        per = self._per(numbers, int(np.prod(found.shape)))
        return Operand(self._place(found.memory, found.offset), 4, per)

    def _place(self, memory: Memory, offset: int = 0) -> Place:
        """A byte of a memory."""
        self.memories.append(memory)
        return Place(len(self.memories) - 1, offset)

    def _stored(self, numbers: Numbers, times: int = 1) -> StoredNumbers:
        """The location of stored numbers, each counted `times` times."""
        planes, kind = self.group.planes(numbers), self.group.kind(numbers)
        if planes is None:
            raise UnfitError
        layouts = [(plane.permuted(self.order).tensor.layout, low) for plane, low in planes]
        (first, _), *others = layouts
        per, number = self._per(numbers, first.size), number_of(kind)
        memory, offset = place_of(self.group, numbers, planes[0][0].tensor)
        whole = first.contiguous_bytes and kind.bits >= 8
        if whole and not others and times == 1:
            place = self._place(memory, offset + first.offset // 8)
            return StoredNumbers(number, place, None, per)
        units = units_of(
            tuple((_in_bytes(_repeated(layout, times)), low) for layout, low in layouts)
        )
        if units is None or units.unit.size % number.nbytes:
            raise UnfitError
        return StoredNumbers(number, self._place(memory, offset), units, per // times)

    def _per(self, numbers: Numbers, count: int) -> int:
        """The elements of the result for each of `count` numbers."""
        known, per, several = self.group.known, 1, False
        steps = sizes.steps(numbers.dims, known)
        for axis in reversed(self.order[1:]):
            size = known[axis]
            step = min(steps.get(axis, size), size)
            if size % step or (several and step > 1):
                raise UnfitError
            several = several or step < size
            per *= step
        if count == 1:
            return self.total
        if per * count != self.total:
            raise UnfitError
        return per


def _divides(t: Tensor) -> bool:
    """Whether all numbers are finite, and none is 0."""
    values = np.asarray(t.numpy())
    return bool(np.isfinite(values).all() and (values != 0).all())


def _repeated(layout: Layout, times: int) -> Layout:
    """Each element repeated."""
    if times == 1:
        return layout
    return Layout.of((*layout.shape, times), (*layout.strides, 0), layout.offset, layout.bits)


def _in_bytes(layout: Layout) -> Layout:
    """The bytes of elements that consist of several."""
    if layout.bits <= 8:
        return layout
    sizes_, strides = (*layout.shape, layout.bits // 8), (*layout.strides, 8)
    return Layout.of(sizes_, strides, layout.offset, 8)
