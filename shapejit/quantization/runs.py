"""Weights decoded in one pass: their codes are stored in units, in the order of the result.

Runs of the result are decoded one by one. Their scales are read in place, multiplied and converted
on a stage in the cache; then their codes are: see `kernels.decodes`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ..arrays.tensor import Tensor
from ..dtypes.table import FLOAT32
from ..engine.addresses import bit_address_of
from ..engine.converting import number_of
from ..engine.execution import conversion_code
from ..kernels.numbers import Conversion
from ..operations.casts import cast
from ..planning import thresholds
from ..planning.casts import MIN_VECTOR_RUN
from ..planning.decode_plans import MOST_RUN, DecodePlan, Operand, Step, StoredNumbers, decode_plan
from ..planning.units import units_of
from ..runtime.kernel_names import Code, Name
from ..runtime.kernels import address
from ..runtime.launches import SHARE, Addresses, Launch, address_of, launch_of, run_launch
from ..shapes.layout import Layout
from . import sizes
from .forms import Numbers
from .groups import Group
from .operands import multiplied, zero_points

_NUMBER = number_of(FLOAT32)


class UnfitError(Exception):
    """Numbers that are not in the order of the result."""


class Decoding(NamedTuple):
    """A decoder of one weight to the address `place`; its `plan` has addresses of memory in `kept`.

    `codes` are the functions that read the units of each step, if any, and convert its numbers.
    """

    plan: DecodePlan
    place: int
    kept: Sequence[Any]
    codes: tuple[Sequence[Code | None], Sequence[Code]]

    @property
    def names(self) -> tuple[Name, ...]:
        """The kernels that it needs."""
        return self._launch(np.empty((0, 0), np.int64), 0).names

    def run(self) -> None:
        """Decode the weight, row-major; the caller keeps the memory at `place` alive."""
        plan, nbytes = self.plan, self.plan.total * self.plan.itemsize
        readers, converts = ([address(code) if code else 0 for code in each] for each in self.codes)
        places, count = np.array([[0], [self.place]], np.int64), -(-plan.total // plan.length)
        shares = nbytes // SHARE if nbytes >= thresholds.PARALLEL_FROM else 1
        launch, streamed = self._launch(*plan.table(readers, converts)), _streamed(plan)
        run_launch(launch, streamed, places, count, count, shares, 0)

    def _launch(self, table: Addresses, stage: int) -> Launch:
        plan, (readers, converts) = self.plan, self.codes
        arguments = table, plan.total, plan.length, plan.itemsize
        others = tuple(filter(None, (*readers, *converts)))
        return launch_of("decodes.decode_runs", arguments, stage, staged=True, others=others)


def _streamed(plan: DecodePlan) -> bool:
    return plan.total * plan.itemsize >= thresholds.STREAM_FROM


def decoding(group: Group, target: Tensor) -> Decoding | None:
    """The Decoding of a weight into a row-major Tensor; None if it does not fit."""
    if group.order is not None:
        return None
    program = _Program(group, target)
    try:
        plan = program.plan()
    except UnfitError:
        return None
    if plan is None:
        return None
    sources = (step.source.units for step in plan.steps)
    readers = [units and Code("unit_generator", units.unit) for units in sources]
    *before, last = (step.conversion for step in plan.steps)
    converts = *map(conversion_code, before), conversion_code(last, _streamed(plan))
    place = bit_address_of(target)[0] // 8
    return Decoding(plan, place, program.kept, (readers, converts))


class _Program:
    """The steps that decode a weight, and the arrays that they read."""

    def __init__(self, group: Group, target: Tensor) -> None:
        self.group, self.total = group, target.size
        self.result = number_of(target.dtype)
        self.order = group.form.order
        self.steps: list[Step] = []
        self.kept: list[Any] = []

    def plan(self) -> DecodePlan | None:
        """The plan of all steps."""
        form = self.group.form
        codes = self._stored(form.codes)
        if codes.units is None or codes.per != 1:
            raise UnfitError
        if form.codes.table:
            number = codes.number._replace(kind="table", table=form.codes.table)
            codes = codes._replace(number=number)
        scale = self._product(form.scales)
        zero, kind = self._zero(scale)
        if form.offset:
            zero, kind = self._product(form.offset), "offset"
        if zero is not None and zero.per != scale.per:
            raise UnfitError
        pattern = self._pattern(scale.per, codes.per)
        made = Conversion(codes.number, self.result, 32, "dequantize", pattern, kind)
        self.steps.append(Step(codes, made, scale, zero))
        return decode_plan(self.steps, self.total)

    def _product(self, numbers: Sequence[Numbers]) -> Operand:
        """The product of several numbers, as in `multiplied`."""
        first, *others = (each for each in numbers if each is numbers[0] or self.group.has(each))
        try:
            source = self._stored(first)
        except UnfitError:
            return self._array(multiplied(self.group, numbers, self.order), first)
        if len(others) > 1:
            raise UnfitError
        return self._scaled(source, others[0]) if others else self._floats(source)

    def _scaled(self, source: StoredNumbers, other: Numbers) -> Operand:
        """Numbers times others or their negatives, or divided by them."""
        factors, over = self._stored(other), other.step == "/"
        if factors.per < MIN_VECTOR_RUN * source.per:
            factors = self._stored(other, factors.per // source.per)
        if over and not _divides(self.group.numbers(other).tensor):
            raise UnfitError
        if other.step == "-":
            minus = self._constant(-1.0, self.total, 1)
            return self._taken(source, "dequantize", self._taken(factors, "dequantize", minus))
        factor = self._floats(factors)
        return self._taken(source, "quantize" if over else "dequantize", factor)

    def _floats(self, source: StoredNumbers) -> Operand:
        """Numbers in float32."""
        if source.units is None and source.number == _NUMBER:
            return Operand(source.address, 4, source.per)
        return self._taken(source, "cast", None)

    def _taken(self, source: StoredNumbers, step: str, factor: Operand | None) -> Operand:
        """The result of another step, on the stage."""
        pattern = "" if factor is None else self._pattern(factor.per, source.per)
        made = Conversion(source.number, _NUMBER, 32, step, pattern)
        self.steps.append(Step(source, made, factor))
        return Operand(len(self.steps) - 1, 0, source.per, True)

    def _pattern(self, per: int, of: int) -> str:
        """How numbers for `per` elements correspond to those for `of`."""
        if per != of and per // of < MIN_VECTOR_RUN and per != self.total:
            raise UnfitError
        return "each" if per == of else "blocks"

    def _zero(self, scale: Operand) -> tuple[Operand | None, str]:
        """Zero points, and their kind in a Conversion."""
        zero = zero_points(self.group, self.order, FLOAT32)
        if zero is None:
            return None, ""
        stored = self.group.form.zeros
        if stored is None or not isinstance(zero, Tensor):
            return self._constant(float(zero), scale.per, MOST_RUN), "float"
        return self._array(zero, stored), "float"

    def _constant(self, value: float, per: int, count: int) -> Operand:
        """One number for all elements."""
        made = np.full(count, value, np.float32)
        self.kept.append(made)
        return Operand(address_of(made), 0, per)

    def _array(self, found: Tensor, numbers: Numbers) -> Operand:
        """Computed numbers, in the order of the result, as an array of float32."""
        t = found.ascontiguous() if found.dtype is FLOAT32 else cast(found, FLOAT32)
        made = t.numpy()
        self.kept.append(made)
        return Operand(address_of(made), 4, self._per(numbers, made.size))

    def _stored(self, numbers: Numbers, times: int = 1) -> StoredNumbers:
        """The location of stored numbers, each counted `times` times."""
        planes, kind = self.group.planes(numbers), self.group.kind(numbers)
        if planes is None:
            raise UnfitError
        self.kept.append(planes)
        layouts = [(plane.permuted(self.order).tensor.layout, low) for plane, low in planes]
        (first, _), *others = layouts
        per, number = self._per(numbers, first.size), number_of(kind)
        address = address_of(planes[0][0].tensor.buffer)
        whole = first.contiguous_bytes and kind.bits >= 8
        if whole and not others and times == 1:
            return StoredNumbers(number, address + first.offset // 8, None, per)
        units = units_of(
            tuple((_in_bytes(_repeated(layout, times)), low) for layout, low in layouts)
        )
        if units is None or units.unit.size % number.nbytes:
            raise UnfitError
        return StoredNumbers(number, address, units, per // times)

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
