"""Layout -> normal form -> Plan: how the bytes of a view reach row-major order.

A Plan is a printable value: it names its strategy, the loops in the order in
which they run, the two sides of a tile, and what is streamed past the caches.
Running it is the engine's work.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .boxes import box_of, most_bytes, pays
from .kernels.constants import LINE, PAGE, PIECE
from .layout import Layout
from .lazy import cached_property
from .recent import Recent
from .tiling import (
    BY_CODES,
    IN_BITS,
    IN_BOXES,
    STREAMED_ANYWHERE,
    Loop,
    Sides,
    Strategy,
    Tile,
    bit_sides,
    bit_tile_of,
    codes_block,
    sides,
    tile_of,
)

# Measured on 2-core x86 machines; bytes of the result. A compiled call costs about
# 4 us beyond NumPy's, a parallel launch 2-10 us; streaming past the caches pays once
# the result is too large to be found there again.
NUMPY_BELOW = 17 * 1024  # elements, or 16-byte pieces of runs
SMALL_BELOW = 128 * 1024  # bytes of a tensor, one of many, that one thread still moves whole
FEW_ELEMENTS = 1024  # bytes that small plans move as fast as the vectors of VECTORS
ONCE_BELOW = 4 * 1024 * 1024  # bytes of an array that is not worth a Plan when first met
NUMPYS_OWN_BELOW = 512  # bytes that NumPy copies in less time than a kernel is called
VECTORS = (Strategy.INTERLEAVE, Strategy.PICK, Strategy.TURN)  # small plans take elements
PARALLEL_FROM = 1536 * 1024
STREAM_FROM = 8 * 1024 * 1024
BOXES_FROM = 1024 * 1024  # what is smaller stays in a cache, whose lines may be met again

# Bytes of a plan with its tables, and of all plans that a cache remembers.
LARGEST = {Strategy.BIT_TILES: 128 * 1024}
LARGE = 32 * 1024  # of all others, but for boxes
REMEMBERED = 8 * 1024 * 1024


@dataclass(frozen=True)
class Plan:
    """How one layout becomes row-major.

    `loops` are the outer dims, outermost first. `rows` are the dims of a tile
    that lie side by side in the target, `columns` those that lie side by side
    in the source. `width` is the bytes of an element or run that moves whole.
    `step` is how many rows an INTERLEAVE takes, how many elements apart a PICK
    finds its own, or how many are in a group of TURN, whose `width` is a group's;
    for BOXES it is the 16-byte pieces of a vector, 0 without vectors. The last
    step of loop k goes back by `backs[k]` bytes in source and target.
    `offset` and `target_offset` (bits) lead to the first element. For the strategies
    of bits, `width` and all strides are bits and `unit` is what an element takes in
    the target. `reach` are the bytes behind the first element's that may be read.
    `gaps` tells whether the target, a part of a larger output, has any. `nbytes` is
    what is written: the bits of elements, and no other. `small` is the Layout that a
    small plan is made of. `kept` is the engine's.
    """

    strategy: Strategy
    nbytes: int
    loops: tuple[Loop, ...] = ()
    rows: tuple[Loop, ...] = ()
    columns: tuple[Loop, ...] = ()
    width: int = 1
    unit: int = 8
    step: int = 0
    offset: int = 0
    target_offset: int = 0
    reach: int = 0
    gaps: bool = False
    backs: tuple[tuple[int, int], ...] = ()
    parallel: bool = False
    streaming: bool = False
    small: Layout | None = None
    kept: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)

    def __str__(self) -> str:
        scale = "bits" if self.strategy in IN_BITS else "bytes"
        lines = [f"{self.strategy.value}; {self.width} {scale} at a time, {self.nbytes} bytes"]
        for part, loops in (("loop", self.loops), ("column", self.columns), ("row", self.rows)):
            lines += [
                f"  {part} {loop.size}: source {loop.source:+d}, target {loop.target:+d} {scale}"
                for loop in loops
            ]
        lines.append("  split over the threads" if self.parallel else "  one thread")
        if self.streaming:
            lines[-1] += ", whole lines streamed past the caches"
        return "\n".join(lines)

    @cached_property
    def table(self) -> NDArray[np.int64]:
        """What the kernels walk, one row (size, source, target) a loop; blocks of a tile last.

        For codes the loops within a row stand behind those around it; for boxes a row
        goes on with how far the last step goes back.
        """
        if self.strategy in IN_BOXES:
            steps = [(*loop, *back) for loop, back in zip(self.loops, self.backs, strict=True)]
            return np.array(steps, np.int64).reshape(-1, 5)
        if self.strategy in BY_CODES:
            loops = [*self.loops, self._blocks, *self.rows]
        else:
            tile = self.sides.tile
            blocks = [
                Loop(int(-(-facts[0] // facts[3])), 0, 0)
                for facts, dims in zip(tile, (self.rows, self.columns), strict=False)
                if dims
            ]
            loops = [*self.loops, *blocks]
        return np.array(loops, np.int64).reshape(-1, 3)

    @cached_property
    def block(self) -> int:
        """Elements that become codes together."""
        return codes_block(self.strategy, self.step)

    @cached_property
    def _blocks(self) -> Loop:
        """The loop over the blocks of a row of codes."""
        return Loop(-(-prod(loop.size for loop in self.rows) // self.block), 0, 0)

    @cached_property
    def count(self) -> int:
        """Units of work: pages, or iterations of all loops around rows and tiles."""
        if self.strategy is Strategy.ONE_RUN:
            return -(-self.nbytes // PAGE)
        if self.strategy is Strategy.BIT_RUN:
            return self.nbytes // PAGE + 2  # the pages that it may touch
        if self.strategy in BY_CODES:
            return self.elements * self._blocks.size
        return int(self.table[:, 0].prod())

    @cached_property
    def elements(self) -> int:
        """The number of elements, runs or rows that the outer loops walk."""
        return prod(loop.size for loop in self.loops)

    @cached_property
    def weight(self) -> int:
        """A bound on the bytes of the plan and its tables."""
        made = LARGEST.get(self.strategy, LARGE)
        if self.strategy in IN_BOXES:
            made += most_bytes(self.rows, self.columns, self.width)
        return made

    @cached_property
    def sides(self) -> Sides:
        """Rows and columns of a tile, as tables."""
        if self.strategy in IN_BITS:
            return bit_sides(self.rows, self.columns, self.width)
        return sides(self.strategy, self.rows, self.columns, self.width)


def plan(layout: Layout, unit: int = 0, into: Layout | None = None, count: int = 1) -> Plan:
    """The Plan that puts the elements of `layout` side by side, `unit` bits apart.

    `unit` is `layout.bits` (or 0), or 8 to unpack elements narrower than a byte. With
    `into`, a Layout of the same shape and width whose last dims are row-major,
    they go there instead: a part of a larger output, at any bit. `count` is the
    number of tensors in one launch; with more than one the plan is not NumPy's.

    >>> print(plan(Layout.row_major((512, 512), 32).permute((1, 0)), 32))
    tiles: blocks transposed in registers; 4 bytes at a time, 1048576 bytes
      column 512: source +4, target +2048 bytes
      row 512: source +2048, target +4 bytes
      one thread
    """
    # Rounded, or each number of tensors would have a plan of its own.
    key = layout, unit or layout.bits, into, 1 << (count - 1).bit_length() if count else 1
    made = _plans.get(key)
    if made is None:
        made = _plan(*key)
        _plans.put(key, made)
    return made


def compiled(layout: Layout, unit: int = 0, into: Layout | None = None, count: int = 1) -> Plan:
    """`plan`, but never NumPy's copy."""
    made = plan(layout, unit, into, count)
    return plan(layout, unit, into, 2) if made.strategy is Strategy.NUMPY else made


def recent_plans() -> Recent[Any, Plan]:
    """A cache of plans, bounded by the bytes of their tables."""
    return Recent(REMEMBERED, attrgetter("weight"))


_plans = recent_plans()


def _plan(layout: Layout, unit: int, into: Layout | None, copies: int) -> Plan:
    made = _planned(layout, unit, into, copies)
    whole = layout.bits == unit and (layout.bits | layout.offset) % 8 == 0 and into is None
    few = made.nbytes <= FEW_ELEMENTS or made.strategy not in VECTORS
    if copies > 1 and whole and few and 0 < made.nbytes <= SMALL_BELOW:
        return Plan(Strategy.SMALL, made.nbytes, offset=layout.offset, small=layout)
    return made


def _planned(layout: Layout, unit: int, into: Layout | None, copies: int) -> Plan:
    """The Plan for the copies of so many tensors, each by all threads."""
    count = layout.size
    nbytes = (count * unit + 7) // 8
    if count == 0:
        return Plan(Strategy.NOTHING, 0)
    total = nbytes * copies
    parallel, streaming = total >= PARALLEL_FROM, total >= STREAM_FROM
    target = into or Layout.row_major(layout.shape, unit)
    gaps = not target.contiguous
    loops = _normal_form(layout, target)
    offset, target_offset = layout.offset, target.offset
    run, outer = _run(layout, unit, loops)
    # fmt: off
    whole = layout.bits == unit or count == 1
    strides = [s for loop in outer for s in (loop.source, loop.target)]
    in_bytes = not any(s % 8 for s in (run, offset, target_offset, *strides))
    if not outer and whole and in_bytes:
        return Plan(Strategy.ONE_RUN, nbytes, offset=offset, target_offset=target_offset,
                    parallel=parallel, streaming=streaming)
    if not in_bytes:
        tile = (bit_tile_of(outer, run, layout.bits, unit) if outer or unit != layout.bits
                else Tile(Strategy.BIT_RUN, ()))
        width = run if tile.strategy in (Strategy.BIT_RUN, Strategy.BIT_ROWS) else layout.bits
        offset += tile.shift
        target_offset += tile.target_shift
        return Plan(tile.strategy, nbytes, tile.loops, tile.rows, tile.columns, width, unit,
                    offset=offset, target_offset=target_offset,
                    step=tile.step, reach=-(-layout.span[1] // 8) - offset // 8, gaps=gaps,
                    parallel=parallel, streaming=streaming)
    width = run // 8
    outer = [Loop(size, source // 8, target // 8) for size, source, target in outer]
    if copies == 1 and total < NUMPY_BELOW * min(width, PIECE) and layout.bits >= 8:
        return Plan(Strategy.NUMPY, nbytes, tuple(outer), width=width)
    tile = tile_of(outer, width)
    if total >= BOXES_FROM and pays(tile, outer, width):
        tile = box_of(outer, width)
    if copies == 1 and gaps and _into_gaps(tile, width, layout.bits // 8):
        return Plan(Strategy.NUMPY, nbytes, tuple(outer), width=width)
    # Into an output with gaps only tiles and pages stream: all else gathers on the stage.
    streaming &= not gaps or tile.strategy in STREAMED_ANYWHERE or width > PAGE
    if tile.strategy is Strategy.TURN:
        width *= tile.step
    offset += 8 * tile.shift
    return Plan(tile.strategy, nbytes, tile.loops, tile.rows, tile.columns, width,
                step=tile.step, offset=offset, target_offset=target_offset + 8 * tile.target_shift,
                reach=layout.span[1] // 8 - offset // 8, backs=tile.backs,
                parallel=parallel, streaming=streaming)
    # fmt: on


def _into_gaps(tile: Tile, width: int, itemsize: int) -> bool:
    """Whether single elements go one by one into gaps: NumPy takes 0.3 ns for each, we 3."""
    if tile.strategy is not Strategy.ROWS or width != itemsize or width > 8:
        return False
    return bool(tile.loops) and abs(tile.loops[-1].source) <= LINE


def _normal_form(layout: Layout, target: Layout) -> list[Loop]:
    """The dims in target order, in bits: size-1 dims dropped, neighbours merged."""
    loops: list[Loop] = []
    for size, source, to in zip(layout.shape, layout.strides, target.strides, strict=True):
        if size == 1:
            continue
        if loops and loops[-1][1:] == (size * source, size * to):
            loops[-1] = Loop(loops[-1].size * size, source, to)
        else:
            loops.append(Loop(size, source, to))
    return loops


def _run(layout: Layout, unit: int, loops: list[Loop]) -> tuple[int, list[Loop]]:
    """The bits that lie side by side in source and target, and the loops around them."""
    if layout.bits == unit and loops and loops[-1][1:] == (unit, unit):
        return unit * loops[-1].size, loops[:-1]
    return layout.bits, loops
