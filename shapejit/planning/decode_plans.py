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


class Place(NamedTuple):
    """A byte of one of the memories that a plan reads, whose addresses it does not know."""

    memory: int
    offset: int


class StoredNumbers(NamedTuple):
    """The location of numbers in the order of the result, one per `per` of its elements.

    `place` is that of the first one, or the base of `units`; without units they are contiguous.
    """

    number: Number
    place: Place
    units: Units | None
    per: int

    @property
    def each(self) -> int:
        """The numbers of a unit."""
        return self.units.unit.size // self.number.nbytes if self.units else 1


class Operand(NamedTuple):
    """Scales or zero points in float32, one for each `per` elements of the result.

    They are at a `place`, or on the stage: results of the step with this index. `spacing` is in
    bytes, 0 if every run starts with the first one.
    """

    place: Place | int
    spacing: int
    per: int


class Step(NamedTuple):
    """One step of a run: numbers that are converted, scaled or not."""

    source: StoredNumbers
    conversion: Conversion
    scale: Operand | None = None
    zero: Operand | None = None


class Steps(NamedTuple):
    """The kernel's table of steps, and the bytes of its stage.

    Before a run, the address of memory `uses[2][k]` is added at (`uses[0][k]`, `uses[1][k]`).
    """

    table: NDArray[np.int64]
    uses: NDArray[np.int64]
    stage: int


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

    def tables(self, readers: Sequence[int], converts: Sequence[int]) -> Steps:
        """The table of steps, given the functions that they call."""
        rows, uses, places, stage = list[list[int]](), list[tuple[int, int, int]](), list[int](), 0
        for k, step in enumerate(self.steps):
            (memory, begin), source = step.source.place, step.source
            uses.append((k, 1, memory))
            count, spacing, codes = -(-self.length // source.per), source.number.nbytes, stage
            if source.units:
                begin, spacing = begin + source.units.first, source.units.step
                stage += _room(count * source.number.nbytes)
            places.append(stage)
            stage += _room(count * step.conversion.target.nbytes)
            row = [readers[k], begin, spacing, source.each, source.per, converts[k]]
            row.append(max(1, step.scale.per // source.per if step.scale else 1))
            flags = 0
            for flag, operand in zip(STEP_ON_STAGE, (step.scale, step.zero), strict=True):
                place, apart, _ = operand or (0, 0, 0)
                if isinstance(place, Place):
                    uses.append((k, len(row), place.memory))
                    place = place.offset
                elif operand:
                    flags |= flag
                    place = places[place]
                row += [place, apart]
            rows.append([*row, flags, codes, places[-1]])
        return Steps(np.array(rows, np.int64), np.array(uses, np.int64).T, stage)


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
