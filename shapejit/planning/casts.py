"""Layouts of elements, scales and results -> CastPlan: how a copy that converts runs.

A CastPlan cuts the result into boxes that fit into a cache with what they are made of.
A box is fetched in the result's order, unless it lies so in the source already, and
converted in runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..dims import merged
from ..kernels.constants import COUNTS, LINE, ONE_BY_ONE, RUN_BY_RUN, per_byte
from ..layout import Layout
from ..lazy import cached_property
from ..recent import Recent
from .boxes import parts_of
from .loops import Loop
from .planner import PARALLEL_FROM, REMEMBERED, STREAM_FROM

RUN = 4096  # elements of a run at most: it stays in an L1 cache between its steps
SHORT = 64  # elements of a run that is worth a call of its own
VECTOR = 16  # elements with one scale that are worth a loop of their own
STREAMED = 512  # bytes of a run that is worth streaming


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
    """How scales lie, and zero points if there are any: for each result one, in floats of `bits`.

    Layouts have the shape of the result, with strides of 0 where scales are shared.
    """

    bits: int
    scale: Layout
    zero: Layout | None = None


@dataclass(frozen=True, eq=False)
class CastPlan:
    """A copy that converts.

    `boxes` are the outer loops with how far their last step goes back; `inner` the dims
    of a box; `run` its last dims that are converted in one go, `block` elements with one
    scale. `fetch` is "direct", "bytes" (the elements of a box are put in order), "codes"
    (they are unpacked run by run), "phases" (bytes are put in order, each of which holds
    several elements of a dim) or "bits" (they are unpacked one by one). `scales` is "",
    "blocks", "each" or "repeated".
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
        """How the scales of a run lie, as a Conversion says it."""
        return self.scales if self.scales in ("", "blocks") else "each"

    @property
    def packed(self) -> bool:
        """Whether elements narrower than a byte are unpacked, or packed."""
        return self.unit < 8 or self.fetch in ("codes", "bits")

    @property
    def packing(self) -> tuple[Any, ...]:
        """What the kernel of packed elements takes beside that of bytes."""
        inner = np.array([dim[:3] for dim in self.inner], np.int64)
        bits = [COUNTS[n if n < 8 else 1] for n in (self.source_bits, self.unit)]
        unpacks = {"codes": RUN_BY_RUN, "bits": ONE_BY_ONE}.get(self.fetch, 0)
        return inner, self.reach, *bits, unpacks, self.unit < 8

    @property
    def weight(self) -> int:
        """A bound on the bytes of the plan and its tables."""
        return 4096 + 40 * (self.elements // self.run_length)

    @cached_property
    def spots(self) -> NDArray[np.int64]:
        """Where things stand on the stage, and its bytes: see `kernels.casts`."""
        width, unit = max(8, self.source_bits) // 8, max(8, self.unit) // 8
        codes = self.run_length if self.fetch == "codes" else self.elements
        floats = self.elements * self.float_bytes if self.scales == "repeated" else 0
        needed = (
            0 if self.fetch == "direct" else codes * width,
            floats,
            floats if self.has_zero else 0,
            self.run_length * unit,
            self.run_length,
        )
        # Vectors of codes are read and written beyond the last one.
        return np.cumsum([0, *((n + 3 * LINE) // LINE * LINE for n in needed)])

    @cached_property
    def fetched(self) -> tuple[Dim, ...]:
        """The dims of what is put in order on the stage, outermost first."""
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
        """Where each run of a box begins, one row per run: see `kernels.casts`."""
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


def cast_plan(
    source: Layout, unit: int, into: Layout | None, scales: Scales | None, count: int
) -> CastPlan:
    """The CastPlan for elements at `source`, results of `unit` bits, and so many tensors.

    Results are row-major, or lie as `into` says, whose last dim is dense.
    """
    key = source, unit, into, scales, 1 << (count - 1).bit_length()
    made = _plans.get(key)
    if made is None:
        made = _made(source, unit, into or Layout.row_major(source.shape, unit), scales, key[-1])
        _plans.put(key, made)
    return made


_plans: Recent[object, CastPlan] = Recent(REMEMBERED, attrgetter("weight"))


def _made(
    source: Layout, unit: int, target: Layout, scales: Scales | None, copies: int
) -> CastPlan:
    bits = source.bits
    dims = _normal_form(source, target, scales)
    parts = _parts(dims, bits, unit)
    boxes: list[tuple[int, ...]] = []
    inner: list[Dim] = []
    for dim, part in zip(dims, parts, strict=True):
        steps = -(-dim.size // part)
        if part > 1:
            inner.append(Dim(part, *dim[1:]))
        if steps > 1:
            boxes.append((steps, *dim.times(part), *dim.times(steps * part - dim.size)))
    if not inner:
        inner.append(Dim(1, bits, unit, 0, 0))
    fetch, dense = _fetch(inner, bits, source.offset)
    kind, run, block, steps_ = _run(inner, unit, scales, dense)
    size = prod(dim.size for dim in run)
    total = source.size * (unit + bits) // 8 * copies
    nbytes = (source.size * unit + 7) // 8
    return CastPlan(
        bits,
        unit,
        nbytes,
        source.offset,
        target.offset,
        tuple(boxes),
        tuple(inner),
        tuple(run),
        fetch,
        kind,
        block,
        *steps_,
        reach=-(-source.span[1] // 8) - source.offset // 8,
        parallel=total >= PARALLEL_FROM,
        streaming=nbytes * copies >= STREAM_FROM and size * unit >= 8 * STREAMED,
        has_zero=scales is not None and scales.zero is not None,
        float_bytes=scales.bits // 8 if scales else 0,
    )


def _normal_form(source: Layout, target: Layout, scales: Scales | None) -> list[Dim]:
    """The dims in the order of the target; neighbours that go on evenly everywhere are one."""
    none = (0,) * source.ndim
    scale = scales.scale.strides if scales else none
    zero = scales.zero.strides if scales and scales.zero else none
    sides = [[s // 8 for s in side] for side in (scale, zero)]
    dims = merged(source.shape, source.strides, target.strides, *sides)
    return [Dim(*dim) for dim in dims]


def _parts(dims: Sequence[Dim], bits: int, unit: int) -> list[int]:
    """How much of each dim a box takes."""
    if not dims:
        return []
    width = max(bits, unit, 8) // 8
    loops = [Loop(dim.size, dim.source * width // bits, dim.target * width // unit) for dim in dims]
    parts = parts_of(loops, width)
    last = len(dims) - 1
    # Runs as long as possible where that costs nothing; whole bytes of packed elements.
    if dims[last].source == bits and all(part == 1 for part in parts[:-1]):
        parts[last] = dims[last].size
    elif parts[last] < dims[last].size:
        parts[last] = _uneven(dims[last].size, parts[last], width)
    if parts[last] > RUN:
        steps = -(-dims[last].size // RUN)
        parts[last] = min(RUN, -(-dims[last].size // steps // LINE) * LINE)
    room = BOX_ELEMENTS // prod(parts)
    for k in range(last - 1, -1, -1):
        if room < 2 or parts[k + 1] < dims[k + 1].size:
            break
        if prod(parts[k + 1 :]) * 2 <= RUN and parts[k] < dims[k].size:
            parts[k] = min(
                dims[k].size, parts[k] * room, max(parts[k], RUN // prod(parts[k + 1 :]))
            )
            room = BOX_ELEMENTS // prod(parts)
    per = per_byte(bits) if bits < 8 else 1
    for k, dim in enumerate(dims):
        if per > 1 and dim.source == bits and k < last and dim.size % per == 0:
            parts[k] = min(dim.size, -(-parts[k] // per) * per)
    return parts


BOX_ELEMENTS = 1 << 16


def _uneven(size: int, part: int, width: int) -> int:
    """About `part` of `size` elements, an odd number of lines: no two rows fall on one set."""
    per = LINE // width
    steps = -(-size // part)
    options = [
        (tried * found - size, found)
        for tried in range(steps, steps + 3)
        for found in [((-(-size // tried) + per - 1) // per | 1) * per]
        if found <= size
    ]
    return min(options)[1] if options else part


def _fetch(inner: Sequence[Dim], bits: int, offset: int) -> tuple[str, int]:
    """How a box is fetched, and how many of its last dims lie side by side then."""
    dense, length = 0, 1
    for dim in reversed(inner):
        if dim.source != bits * length:
            break
        dense, length = dense + 1, length * dim.size
    elements = prod(dim.size for dim in inner)
    if length >= min(SHORT, elements):
        return ("direct" if bits >= 8 else "codes"), dense
    if bits >= 8:
        return "bytes", len(inner)
    per = per_byte(bits)
    within = [k for k, dim in enumerate(inner) if dim.source == bits]
    others = [dim.source for k, dim in enumerate(inner) if k not in within]
    even = per > 1 and not offset % 8 and not any(stride % 8 for stride in others)
    if even and len(within) == 1 and inner[within[0]].size % per == 0:
        return "phases", len(inner) - 1 - within[0]
    return "bits", len(inner)


def _run(
    inner: Sequence[Dim], unit: int, scales: Scales | None, dense: int
) -> tuple[str, list[Dim], int, tuple[int, int]]:
    """How scales are read, the dims of a run, elements with one scale, steps to the next one."""
    most, length = 0, 1
    for dim in reversed(inner[len(inner) - dense :]):
        if dim.target != unit * length or length * dim.size > max(RUN, inner[-1].size):
            break
        most, length = most + 1, length * dim.size
    longest = list(inner[len(inner) - most :])
    if scales is None:
        return "", longest, length, (0, 0)
    for first in range(most):
        run = longest[first:]
        count = prod(dim.size for dim in run)
        if count < SHORT and first:
            break
        found = _pattern(run, scales)
        if found is not None:
            kind, block, steps = found
            return kind, run, block, steps
    return "repeated", longest, 1, (0, 0)


def _pattern(run: Sequence[Dim], scales: Scales) -> tuple[str, int, tuple[int, int]] | None:
    """How the scales of a run lie, if a loop can follow them: see `_run`."""
    size, same, rest = scales.bits // 8, 1, list(run)
    while rest and rest[-1].scale == 0 and rest[-1].zero == 0:
        same *= rest.pop().size
    if not rest:
        return "blocks", same, (0, 0)
    step = rest[-1].scale, rest[-1].zero
    length = 1
    for dim in reversed(rest):
        if (dim.scale, dim.zero) != (step[0] * length, step[1] * length):
            return None
        length *= dim.size
    if same >= VECTOR:
        return "blocks", same, step
    if same == 1 and step == (size, size if scales.zero else 0):
        return "each", 1, step
    return None
