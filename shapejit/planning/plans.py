"""Plan: how the elements of a view are copied to row-major order, as a printable value."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..runtime.lazy import cached_property
from ..shapes.layout import Layout
from .loops import Loop
from .tables import Sides


@dataclass(frozen=True)
class Plan:
    """How the elements of one Layout are copied to row-major order.

    `loops` are the outer dims, outermost first. `rows` are the dims of a tile that are contiguous
    in the target, `columns` those that are contiguous in the source. `width` is the bytes of an
    element or run that moves as a whole. `step` depends on the strategy: the 16-byte pieces of a
    vector of BOXES, 0 without vectors; the bytes of a converted element of TILES that convert.

    `offset` and `target_offset` (bits) are those of the first element. For the strategies of bits,
    `width` and all strides are bits, and `unit` is the width of an element in the target. `reach`
    is the number of bytes that may be read, counted from that of the first element. `gaps`: the
    target has gaps, as a part of a larger output. `nbytes` is what is written: only bits of
    elements. `by_numpy`: NumPy copies one ndarray as fast. The targets of interleaved arrays begin
    every `array_stride` bits. `small` is the Layout for a small plan, `shuffle` the network of
    SHUFFLE, or that of a box of CODE_BOXES. `seen` and `into` are the Layouts of source and target.
    """

    strategy: Enum  # a strategies.Strategy
    nbytes: int
    loops: tuple[Any, ...] = ()  # Loops, or BoxLoops
    rows: tuple[Loop, ...] = ()
    columns: tuple[Loop, ...] = ()
    width: int = 1
    unit: int = 8
    step: int = 0
    offset: int = 0
    target_offset: int = 0
    reach: int = 0
    gaps: bool = False
    parallel: bool = False
    streaming: bool = False
    by_numpy: bool = False
    array_stride: int = 0
    small: Layout | None = None
    shuffle: Any = None  # a Shuffle
    seen: Layout | None = field(default=None, compare=False, repr=False)
    into: Layout | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        scale = "bits" if self.row.bits else "bytes"
        words = "NumPy's copy, the fastest for one array" if self.by_numpy else self.row.words
        lines = [f"{words}; {self.width} {scale} at a time, {self.nbytes} bytes"]
        for part, loops in (("loop", self.loops), ("column", self.columns), ("row", self.rows)):
            lines += [f"  {part} {loop} {scale}" for loop in loops]
        parallel, streaming = (not self.by_numpy and x for x in (self.parallel, self.streaming))
        lines.append("  split over the threads" if parallel else "  one thread")
        if streaming:
            lines[-1] += ", whole lines streamed past the caches"
        return "\n".join(lines)

    @cached_property
    def row(self) -> Any:
        """The row of its strategy, a `strategies.StrategyRow`."""
        return self.strategy.value

    @cached_property
    def table(self) -> NDArray[np.int64]:
        """Loops for the kernels, rows of (size, source, target); see `StrategyRow.loops`."""
        loops = self.row.loops(self)
        return np.array(loops, np.int64).reshape(len(loops), -1 if loops else 3)

    @cached_property
    def count(self) -> int:
        """Units of work: pages, boxes, or iterations of the loops around rows and tiles."""
        return int(self.table[:, 0].prod())

    @cached_property
    def sides(self) -> Sides:
        """Rows and columns of a tile, as tables."""
        made: Sides = self.row.sides(self)
        return made
