"""CastPlan: the plan of a copy that converts, for printing and for the kernels of `casts`."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..kernels.constants import coders
from ..kernels.small_plans import SHIFT
from ..runtime.cpu_caches import LINE
from ..runtime.kernel_names import Function
from ..runtime.lazy import cached_property
from ..shapes.layout import Layout
from .box_tables import Codes, codes_of
from .loops import BoxLoop, Loop
from .plans import Plan
from .shuffles import Shuffle
from .small_plans import small_plan_of_dims
from .tables import offsets_of


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

    `boxes` are the outer loops, `inner` the dims of a box, whose elements runs are read from at the
    strides `staged` (bits); `run` its last dims, which are converted in one loop; `block` is the
    number of elements with one scale. `fetch` says how a box is read: "direct" (as it is in the
    source), "bytes" (its elements are reordered first), "shuffled" (permuted by the network of
    `shuffle`) or "bits" (unpacked); else packed elements are unpacked run by run. `scales` is ""
    (none), "blocks", "each" or "repeated".
    """

    source_bits: int
    unit: int
    nbytes: int
    offset: int
    target_offset: int
    boxes: tuple[BoxLoop, ...]
    inner: tuple[Dim, ...]
    staged: tuple[int, ...]
    run: tuple[Dim, ...]
    fetch: str
    shuffle: Shuffle | None
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
        return prod(box.size for box in self.boxes)

    @cached_property
    def elements(self) -> int:
        """The elements of a box."""
        return prod(dim.size for dim in self.inner)

    @cached_property
    def run_length(self) -> int:
        """The elements of a run."""
        return prod(dim.size for dim in self.run)

    @property
    def one_run(self) -> bool:
        """Whether one call of the function that converts does it all: whole adjacent bytes."""
        dense = self.fetch == "direct" and self.count == 1 and self.elements == self.run_length
        return dense and not self.scales and min(self.source_bits, self.unit) >= 8

    @property
    def scale_pattern(self) -> str:
        """The pattern of the scales of a run, as in a Conversion."""
        return self.scales if self.scales in ("", "blocks") else "each"

    @property
    def coders(self) -> tuple[Function | None, Function | None]:
        """The functions that unpack elements, and pack results, if any."""
        unpacks, packs = coders(self.source_bits)[0], coders(self.unit)[1]
        return unpacks if self.source_bits < 8 else None, packs if self.unit < 8 else None

    @property
    def sizes(self) -> NDArray[np.int64]:
        """The numbers that the kernel reads, which begin with the scale and zero point."""
        steps = self.block, self.scale_step, self.zero_step
        run = self.run_length, self.run_length * self.unit, self.reach
        *calls, blocks = self.shuffle.loops if self.shuffle else (Loop(0, 0, 0),)
        permuted = blocks.source, blocks.target, calls[-1].source if calls else 0
        return np.array([0, 0, *steps, *run, *permuted], np.int64)

    @cached_property
    def spots(self) -> NDArray[np.int64]:
        """The offsets of buffers on the stage, and its size in bytes: see `kernels.casts`."""
        width = max(8, self.source_bits) // 8
        floats = self.elements * self.float_bytes if self.scales == "repeated" else 0
        packed = self.run_length if self.unit < 8 else 0
        by_run = self.run_length if self.source_bits < 8 else 0
        before = 0
        if self.shuffle:
            before = self.staged[0] * self.inner[0].size // 8
        elif self.fetch == "bits":
            before = self.codes.nbytes
        needed = (
            self.elements * width if self.fetch in ("bytes", "bits") else by_run,
            before,
            floats,
            floats if self.has_zero else 0,
            packed,
            packed,
        )
        # Vectors read and write beyond the last code.
        return np.cumsum([0, *((n + 3 * LINE) // LINE * LINE for n in needed)])

    @cached_property
    def codes(self) -> Codes:
        """The box as codes in the source's order, if it is unpacked."""
        loops = [Loop(dim.size, dim.source, dim.target) for dim in self.inner]
        return codes_of(loops, self.source_bits, self.unit)

    @property
    def fetched(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """What puts a box in order, `inner` and `fetch` of `kernels.casts`."""
        inner, fetch = np.zeros((0, 3), np.int64), np.zeros(0, np.int64)
        if self.shuffle:
            *calls, blocks = self.shuffle.loops
            sides = [offsets_of([(loop[0], loop[k]) for loop in calls]) for k in (1, 2)]
            inner = np.stack([*sides, np.full(len(sides[0]), blocks.size)], axis=1)
            fetch = np.array(self.shuffle.sources + self.shuffle.targets, np.int64)
        elif self.fetch == "bits":
            inner = self.codes.reads
            fetch = small_plan_of_dims([loop[:2] for loop in self.codes.loops], 1)
            fetch[SHIFT] += self.codes.first
        elif self.fetch == "bytes":
            dims = [(dim.size, dim.source // 8) for dim in self.inner]
            fetch = small_plan_of_dims(dims, self.source_bits // 8)
        return inner, fetch

    @property
    def repeated(self) -> NDArray[np.int64]:
        """The small plans that repeat scales and zero points, after where the latter begins."""
        if self.scales != "repeated":
            return np.zeros(0, np.int64)
        scale, zero = (
            small_plan_of_dims([(dim.size, dim[side]) for dim in self.inner], self.float_bytes)
            for side in (3, 4)
        )
        return np.array([1 + len(scale), *scale, *zero] if self.has_zero else [0, *scale], np.int64)

    @cached_property
    def runs(self) -> NDArray[np.int64]:
        """The start of each run of a box, one row per run: see `kernels.casts`."""
        outer, repeated = self.inner[: len(self.inner) - len(self.run)], self.scales == "repeated"
        floats = Layout.row_major((*(dim.size for dim in outer), self.run_length), 1).strides
        rows = [
            (dim.size, at, dim.target, *([self.float_bytes * k] * 2 if repeated else dim[3:]))
            for dim, at, k in zip(outer, self.staged, floats, strict=False)
        ]
        sides = (offsets_of([(row[0], row[k]) for row in rows]) for k in range(1, 5))
        return np.stack([*sides], axis=1)

    @cached_property
    def table(self) -> NDArray[np.int64]:
        """The loops over boxes."""
        return np.array(self.boxes, np.int64).reshape(-1, 7)

    def __str__(self) -> str:
        how = {
            "direct": "where they lie",
            "bytes": "boxes put in order",
            "shuffled": "boxes permuted in registers",
            "bits": "boxes unpacked",
        }[self.fetch]
        lines = [f"cast: {how}, {self.elements} elements per box, {self.nbytes} bytes"]
        lines += [f"  loop {box} bits" for box in self.boxes]
        lines += [
            f"  box {d.size}: source {d.source:+d}, target {d.target:+d} bits" for d in self.inner
        ]
        lines.append("  split over the threads" if self.parallel else "  one thread")
        return "\n".join(lines)
