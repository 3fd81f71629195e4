"""Layout -> normal form -> Plan: how the bytes of a view reach row-major order.

A Plan is a printable value: it names its strategy, the loops in the order in
which they run, and how they are split. Running it is the engine's work.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .layout import Layout

# Below these sizes another way is faster on a 2-core x86: a compiled call costs
# about 4 us beyond NumPy's, a parallel launch 2-10 us.
NUMPY_BELOW = 16 * 1024
PARALLEL_FROM = 256 * 1024

# A macro tile of 64 x 64 elements: 16 KiB of each side at 4 bytes, in L1 together.
TILE = 64


class Strategy(Enum):
    """Which loop moves the bytes."""

    NOTHING = "nothing: there are no elements"
    ONE_RUN = "one run: memcpy"
    ROWS = "rows: memcpy of each run"
    TILES = "tiles: 2-D blocks of elements"
    BITS = "bits: elements across byte boundaries"
    NUMPY = "NumPy's copy: too small for a compiled call to pay"


class Loop(NamedTuple):
    """One dim of the normal form: its size and both strides (bytes; bits for BITS)."""

    size: int
    source: int
    target: int


@dataclass(frozen=True)
class Plan:
    """How one layout becomes row-major.

    `loops` are the outer dims, outermost first; `inner` the two dims of a tile;
    `width` the bytes of an element or run that moves whole. For BITS, `width`
    and all strides are bits, and `unit` is what an element takes in the target.
    `offset` (bytes) and `bit_offset` lead to the first element; `nbytes` is what
    is written, `padding` the bits behind the last element, which become zero.
    """

    strategy: Strategy
    nbytes: int
    loops: tuple[Loop, ...] = ()
    inner: tuple[Loop, ...] = ()
    width: int = 1
    unit: int = 8
    offset: int = 0
    bit_offset: int = 0
    padding: int = 0
    parallel: bool = False

    def __str__(self) -> str:
        scale = "bits" if self.strategy is Strategy.BITS else "bytes"
        lines = [f"{self.strategy.value}; {self.width} {scale} at a time, {self.nbytes} bytes"]
        for depth, loop in enumerate((*self.loops, *self.inner)):
            part = "tile" if depth >= len(self.loops) else "loop"
            lines.append(
                f"{'  ' * (depth + 1)}{part} {loop.size}: "
                f"source {loop.source:+d}, target {loop.target:+d} {scale}"
            )
        lines.append("split over the threads" if self.parallel else "one thread")
        return "\n".join(lines)

    @cached_property
    def table(self) -> NDArray[np.int64]:
        """What the kernels walk, one row (size, source, target) a loop; blocks of a tile last."""
        blocks = [
            (-(-loop.size // TILE), TILE * loop.source, TILE * loop.target) for loop in self.inner
        ]
        return np.array([*self.loops, *blocks], np.int64).reshape(-1, 3)

    @cached_property
    def tile(self) -> NDArray[np.int64]:
        """The dims of a tile, one row (size, source, target, block size) each."""
        return np.array([(*loop, TILE) for loop in self.inner], np.int64).reshape(-1, 4)

    @cached_property
    def count(self) -> int:
        """Units of work: iterations of everything in `table`."""
        return int(self.table[:, 0].prod())


@lru_cache(maxsize=4096)
def plan(layout: Layout, unit: int) -> Plan:
    """The Plan that puts the elements of `layout` side by side, `unit` bits apart.

    `unit` is `layout.bits`, or 8 to unpack elements narrower than a byte.

    >>> print(plan(Layout.row_major((512, 512), 32).permute((1, 0)), 32))
    tiles: 2-D blocks of elements; 4 bytes at a time, 1048576 bytes
      tile 512: source +4, target +2048 bytes
        tile 512: source +2048, target +4 bytes
    split over the threads
    """
    count = layout.size
    nbytes = (count * unit + 7) // 8
    if count == 0:
        return Plan(Strategy.NOTHING, 0)
    parallel = nbytes >= PARALLEL_FROM
    loops = _normal_form(layout, unit)
    offset, bit_offset = divmod(layout.offset, 8)
    run, outer = _run(layout, unit, loops)
    if not outer and bit_offset == 0 and (layout.bits == unit or count == 1):
        return Plan(Strategy.ONE_RUN, nbytes, offset=offset, padding=-run % 8, parallel=parallel)
    strides = [s for loop in outer for s in (loop.source, loop.target)]
    if run % 8 or bit_offset or any(s % 8 for s in strides):
        # fmt: off
        return Plan(Strategy.BITS, nbytes, tuple(loops), width=layout.bits, unit=unit,
                    offset=offset, bit_offset=bit_offset, parallel=parallel)
        # fmt: on
    width = run // 8
    outer = [Loop(size, source // 8, target // 8) for size, source, target in outer]
    if nbytes < NUMPY_BELOW and layout.bits >= 8:
        return Plan(Strategy.NUMPY, nbytes, tuple(outer), width=width)
    if width not in (1, 2, 4, 8, 16):
        return Plan(
            Strategy.ROWS, nbytes, tuple(outer), width=width, offset=offset, parallel=parallel
        )
    around, inner = _tile(outer)
    return Plan(Strategy.TILES, nbytes, around, inner, width, offset=offset, parallel=parallel)


def _normal_form(layout: Layout, unit: int) -> list[Loop]:
    """The dims in target order, in bits: size-1 dims dropped, neighbours merged."""
    target = Layout.row_major(layout.shape, unit)
    loops: list[Loop] = []
    for size, source, to in zip(layout.shape, layout.strides, target.strides, strict=True):
        if size == 1:
            continue
        if loops and loops[-1].source == size * source:
            loops[-1] = Loop(loops[-1].size * size, source, to)
        else:
            loops.append(Loop(size, source, to))
    return loops


def _run(layout: Layout, unit: int, loops: list[Loop]) -> tuple[int, list[Loop]]:
    """The bits that lie side by side in source and target, and the loops around them."""
    if layout.bits == unit and loops and loops[-1].source == unit:
        return unit * loops[-1].size, loops[:-1]
    return layout.bits, loops


def _tile(loops: list[Loop]) -> tuple[tuple[Loop, ...], tuple[Loop, ...]]:
    """The outer loops, and the two dims of a tile: the source's fastest and the target's."""
    *outer, last = loops
    if not outer:
        return (), (Loop(1, 0, 0), last)
    fastest = min(outer, key=lambda loop: abs(loop.source) or last.size * abs(last.source) + 1)
    outer.remove(fastest)
    return tuple(outer), (fastest, last)
