"""Plans of weights that are decoded run by run: see `kernels.decodes`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd, lcm
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..kernels.constants import STEP_ON_STAGE
from ..kernels.numbers import Conversion, Number
from ..runtime.cpu_caches import LINE
from .units import Units

MOST_RUN = 4096  # elements of a run at most: it stays in an L1 cache between its steps


class StoredNumbers(NamedTuple):
    """The location of numbers in the order of the result, one per `per` of its elements.

    `address` is that of the first one, or the base of `units`; without units they are contiguous.
    """

    number: Number
    address: int
    units: Units | None
    per: int

    @property
    def each(self) -> int:
        """The numbers of a unit."""
        return self.units.unit.size // self.number.nbytes if self.units else 1


class Operand(NamedTuple):
    """Scales or zero points in float32, one for each `per` elements of the result.

    `place` is an address, or the index of the step that computes them; `spacing` is in bytes, 0 if
    every run starts with the first one.
    """

    place: int
    spacing: int
    per: int
    staged: bool = False


class Step(NamedTuple):
    """One step of a run: numbers that are converted, scaled or not."""

    source: StoredNumbers
    conversion: Conversion
    scale: Operand | None = None
    zero: Operand | None = None


@dataclass(frozen=True)
class DecodePlan:
    """The steps of a run of `length` elements, of `total`, the last of which makes the result."""

    steps: tuple[Step, ...]
    total: int
    length: int

    @property
    def itemsize(self) -> int:
        """The bytes of an element of the result."""
        return self.steps[-1].conversion.target.nbytes

    def table(
        self, readers: Sequence[int], converts: Sequence[int]
    ) -> tuple[NDArray[np.int64], int]:
        """The kernel's table of steps, with the functions they call; the bytes of the stage."""
        rows, stage = list[list[int]](), 0
        places = list[int]()
        for step in self.steps:
            source, count = step.source, -(-self.length // step.source.per)
            codes = stage
            stage += _room(count * source.number.nbytes) if source.units else 0
            places.append(stage)
            stage += _room(count * step.conversion.target.nbytes)
            operands = list[int]()
            flags = 0
            for flag, operand in zip(STEP_ON_STAGE, (step.scale, step.zero), strict=True):
                if operand is None:
                    operands += [0, 0]
                    continue
                flags |= flag * operand.staged
                place = places[operand.place] if operand.staged else operand.place
                operands += [place, operand.spacing]
            block = step.scale.per // source.per if step.scale else 1
            begin = source.address + (source.units.first if source.units else 0)
            spacing = source.units.step if source.units else source.number.nbytes
            rows.append([
                readers[len(rows)], begin, spacing, source.each, source.per,
                converts[len(rows)], max(1, block), *operands, flags, codes, places[-1],
            ])  # fmt: skip
        return np.array(rows, np.int64), stage


def _room(nbytes: int) -> int:
    """The bytes on the stage for a run: vectors read and write beyond its end."""
    return (nbytes + 3 * LINE) // LINE * LINE


def decode_plan(steps: Sequence[Step], total: int) -> DecodePlan | None:
    """The plan of steps for `total` elements; None if no length of a run fits all steps."""
    sources = [step.source for step in steps]
    pers = [source.per for source in sources]
    pers += [step.scale.per for step in steps if step.scale is not None]
    units = [source.per * source.each for source in sources if source.each > 1]  # none is cut
    base = lcm(*units, *(per for per in pers if per <= MOST_RUN))
    long = [per for per in pers if MOST_RUN < per < total]
    whole = gcd(*long)
    if base > MOST_RUN or whole % base or total % base:
        return None
    length = next(n for n in range(MOST_RUN // base * base, 0, -base) if whole % n == 0)
    return DecodePlan(tuple(steps), total, length)
