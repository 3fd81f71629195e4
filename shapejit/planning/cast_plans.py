"""CastPlan: the plan of a copy that converts, for printing and for the kernels of `casts`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..kernels.constants import ONE_BY_ONE, RUN_BY_RUN, STREAMED_PARTS, coders
from ..runtime.cpu_caches import LINE
from ..runtime.kernel_names import Function
from ..runtime.lazy import cached_property
from ..shapes.layout import Layout
from .plans import Plan


class Dim(NamedTuple):
    """A dim with its strides: bits in source and target, bytes in scales and zero points."""

    size: int
    source: int
    target: int
    scale: int
    zero: int

    def times(self, count: int) -> tuple[int, ...]:
        """`count` of each stride."""
        return tuple(count * stride for stride in self[1:])


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

    `boxes` are the outer loops, with the distance by which the last step of each goes back; `inner`
    are the dims of a box; `run` its last dims, which are converted in one loop; `block` is the
    number of elements with one scale. `fetch` says how a box is read: "direct" (as it is in the
    source), "bytes" (its elements are reordered first), "codes" (unpacked run by run), "phases"
    (bytes that hold several elements of a dim are reordered) or "bits" (unpacked one by one).
    `scales` is "" (none), "blocks", "each" or "repeated".
    """

    source_bits: int
    unit: int
    nbytes: int
    offset: int
    target_offset: int
    boxes: tuple[tuple[int, ...], ...]
    inner: tuple[Dim, ...]
    run: tuple[Dim, ...]
    fetch: str
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
        return prod(box[0] for box in self.boxes)

    @cached_property
    def elements(self) -> int:
        """The elements of a box."""
        return prod(dim.size for dim in self.inner)

    @cached_property
    def run_length(self) -> int:
        """The elements of a run."""
        return prod(dim.size for dim in self.run)

    @property
    def lie(self) -> str:
        """The pattern of the scales of a run, as in a Conversion."""
        return self.scales if self.scales in ("", "blocks") else "each"

    @property
    def streams(self) -> int:
        """How runs are streamed, see `kernels.conversions`; 0 if they are packed first."""
        if self.unit < 8:
            return 0
        return STREAMED_PARTS if self.fetch == "direct" and self.tiles is None else 1

    @property
    def fetches(self) -> int:
        """How packed elements become codes; 0 if they are not unpacked."""
        return {"codes": RUN_BY_RUN, "bits": ONE_BY_ONE}.get(self.fetch, 0)

    @property
    def coders(self) -> tuple[Function | None, Function | None]:
        """The functions that unpack elements of the source and pack results, if any."""
        unpacks, packs = coders(self.source_bits)[0], coders(self.unit)[1]
        return unpacks if self.fetches else None, packs if self.unit < 8 else None

    def numbers(self, functions: Sequence[int]) -> NDArray[np.int64]:
        """The arguments of the kernel beside its tables.

        They are the addresses of the functions that convert, unpack, pack and move planes of small
        plans, and those of scales and zero points.
        """
        scales = 0, self.scale_step, 0, self.zero_step
        bits = self.source_bits, self.run_length * self.unit
        run = self.run_length, self.block, *scales, self.reach, *bits, self.fetches
        return np.array([*self.spots[:-1], *functions, *run], np.int64)

    @property
    def weight(self) -> int:
        """A bound on the bytes of the plan and its tables."""
        return 4096 + 40 * (self.elements // self.run_length)

    @cached_property
    def spots(self) -> NDArray[np.int64]:
        """The offsets of buffers on the stage, and its size in bytes: see `kernels.casts`."""
        width = max(8, self.source_bits) // 8
        codes = self.run_length if self.fetch == "codes" else self.elements
        floats = self.elements * self.float_bytes if self.scales == "repeated" else 0
        packed = self.run_length if self.unit < 8 else 0
        needed = (
            0 if self.fetch == "direct" else codes * width,
            floats,
            floats if self.has_zero else 0,
            packed,
            packed,
        )
        # Vectors read and write beyond the last code.
        return np.cumsum([0, *((n + 3 * LINE) // LINE * LINE for n in needed)])

    @cached_property
    def fetched(self) -> tuple[Dim, ...]:
        """The dims of what is reordered on the stage, outermost first."""
        if self.fetch != "phases":
            return self.inner
        per = 8 // self.source_bits
        return tuple(
            Dim(dim.size // per, per * dim.source, 0, 0, 0)
            if dim.source == self.source_bits
            else dim
            for dim in self.inner
        )

    @cached_property
    def runs(self) -> NDArray[np.int64]:
        """The start of each run of a box, one row per run: see `kernels.casts`."""
        around = self.inner[: len(self.inner) - len(self.run)]
        size = max(8, self.source_bits) // 8
        staged, strides = size * self.run_length, list[int]()
        per = 8 // self.source_bits if self.fetch == "phases" else 1
        for dim in reversed(around):
            strides.insert(0, staged)
            phased = per > 1 and dim.source == self.source_bits
            staged *= dim.size // per if phased else dim.size
        repeated, floats = self.run_length * self.float_bytes, list[int]()
        for dim in reversed(around):
            floats.insert(0, repeated)
            repeated *= dim.size
        table = np.zeros((1, 5), np.int64)
        for dim, stride, apart in zip(around, strides, floats, strict=True):
            at = np.arange(dim.size)
            phased = per > 1 and dim.source == self.source_bits
            source = {
                "direct": at * (dim.source // 8),
                "codes": at * dim.source,
            }.get(self.fetch, at // per * stride if phased else at * stride)
            scale, zero = at * dim.scale, at * dim.zero
            if self.scales == "repeated":
                scale = zero = at * apart
            shift = at % per * self.source_bits if phased else 0 * at
            columns = np.stack([source, at * dim.target, scale, zero, shift], axis=1)
            table = (table[:, None, :] + columns).reshape(-1, 5)
        return table

    @cached_property
    def table(self) -> NDArray[np.int64]:
        """The loops over boxes, as `kernels.casts` walks them."""
        return np.array(self.boxes, np.int64).reshape(-1, 9)

    @property
    def within(self) -> NDArray[np.int64]:
        """The loops within a box, as `kernels.codes` walks them."""
        return np.array([dim[:3] for dim in self.inner], np.int64)

    def __str__(self) -> str:
        how = {
            "direct": "where they lie",
            "bytes": "boxes put in order",
            "codes": "runs unpacked",
            "phases": "boxes of bytes put in order",
            "bits": "boxes unpacked",
        }[self.fetch]
        lines = [f"cast: {how}, {self.elements} elements per box, {self.nbytes} bytes"]
        lines += [
            f"  loop {box[0]}: source {box[1]:+d}, target {box[2]:+d} bits" for box in self.boxes
        ]
        lines += [
            f"  box {d.size}: source {d.source:+d}, target {d.target:+d} bits" for d in self.inner
        ]
        lines.append("  split over the threads" if self.parallel else "  one thread")
        return "\n".join(lines)
