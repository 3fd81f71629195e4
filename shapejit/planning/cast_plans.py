"""CastPlan: the plan of a copy that converts, for printing and for the kernel of `boxes`."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..kernels.small_plans import PLANE_MOVER
from ..runtime.kernel_names import Code, Functions
from ..runtime.lazy import cached_property
from ..shapes.layout import Layout
from .box_tables import Box, Scaling, Steps, functions_of, steps_of
from .loops import BoxLoop
from .plans import Plan
from .small_plans import small_plan_of_dims


class Dim(NamedTuple):
    """A dim with its strides: bits in source and target, bytes in scales and zero points."""

    size: int
    source: int
    target: int
    scale: int
    zero: int


class Scales(NamedTuple):
    """The Layouts of scales, and of zero points if there are any: one float of `bits` per result.

    They have the shape of the result, with strides of 0 where elements share a scale.
    """

    bits: int
    scale: Layout
    zero: Layout | None = None


@dataclass(frozen=True, eq=False)
class CastPlan:
    """A copy that converts.

    `loops` go over boxes, whose last `run` dims are converted in one loop; `block` is the number of
    elements with one scale. `scales` is "" (none), "blocks", "each" or "repeated".
    """

    source_bits: int
    unit: int
    nbytes: int
    offset: int
    target_offset: int
    loops: tuple[BoxLoop, ...]
    box: Box
    run: int
    scales: str
    block: int
    scale_step: int
    zero_step: int
    reach: int
    parallel: bool
    streaming: bool
    has_zero: bool
    float_bytes: int
    tiles: Plan | None = None

    @cached_property
    def count(self) -> int:
        """The number of boxes."""
        return prod(loop.size for loop in self.loops)

    @cached_property
    def elements(self) -> int:
        """The elements of a box."""
        return prod(dim.size for dim in self.box.dims)

    @cached_property
    def run_length(self) -> int:
        """The elements of a run."""
        return prod(dim.size for dim in self.box.dims[len(self.box.dims) - self.run :])

    @property
    def one_run(self) -> bool:
        """Whether one call of the function that converts does it all: whole adjacent bytes."""
        dense = self.box.direct and self.count == 1 and self.elements == self.run_length
        return dense and not self.scales and min(self.source_bits, self.unit) >= 8

    @property
    def scale_pattern(self) -> str:
        """The pattern of the scales of a run, as in a Conversion."""
        return self.scales if self.scales in ("", "blocks") else "each"

    @property
    def scaling(self) -> Scaling:
        """How its runs are scaled."""
        dims, around = self.box.dims, self.box.dims[: len(self.box.dims) - self.run]
        steps, size = (self.scale_step, self.zero_step), self.float_bytes
        if self.scales != "repeated":
            sides = [dim.scale for dim in around], [dim.zero for dim in around]
            return Scaling(self.block, steps, sides, np.zeros(0, np.int64), (0, 0))
        scale, zero = (
            small_plan_of_dims([(dim.size, dim[side]) for dim in dims], size) for side in (3, 4)
        )
        words = [1 + len(scale), *scale, *zero] if self.has_zero else [0, *scale]
        sizes = *(dim.size for dim in around), self.run_length * size
        repeated = Layout.row_major(sizes, 1).strides[:-1]
        nbytes = self.elements * size
        used = nbytes, nbytes * self.has_zero
        return Scaling(self.block, steps, (repeated, repeated), np.array(words, np.int64), used)

    def box_of(self, lanes: int) -> Box:
        """Its box, with vectors of up to `lanes` 16-byte pieces."""
        return self.box._replace(lanes=min(lanes, self.box.lanes))

    def steps(self, lanes: int) -> Steps:
        """The tables of its boxes."""
        return steps_of(self.box_of(lanes), self.run, self.reach, self.scaling)

    def functions(self, lanes: int, converts: Code) -> Functions:
        """What the kernel of its boxes calls."""
        mover = PLANE_MOVER if self.scales == "repeated" else None
        return functions_of(self.box_of(lanes), converts, mover)

    @cached_property
    def table(self) -> NDArray[np.int64]:
        """The loops over boxes."""
        return np.array(self.loops, np.int64).reshape(-1, 7)

    def __str__(self) -> str:
        how = "put in order"
        if self.box.direct:
            how = "read where they lie"
        elif self.box.shuffle:
            how = "permuted in registers"
        lines = [f"cast: boxes {how}, {self.elements} elements per box, {self.nbytes} bytes"]
        lines += [f"  loop {loop} bits" for loop in self.loops]
        lines += [
            f"  box {d.size}: source {d.source:+d}, target {d.target:+d} bits"
            for d in self.box.dims
        ]
        lines.append("  split over the threads" if self.parallel else "  one thread")
        return "\n".join(lines)
