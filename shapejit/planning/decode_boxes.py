"""Plans of weights whose codes are transposed, box by box, before they are decoded.

A box is some rows by some columns of the result, held in a cache as packed codes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..kernels.numbers import Conversion
from ..runtime.cpu_caches import LINE
from ..shapes.dims import merged
from ..shapes.layout import Layout
from . import thresholds
from .loops import Loop, length_of, split
from .shuffles import Shuffle, shuffle_of
from .units import Units, units_of

# Rows and columns at most: few pages are used at a time, and half an L2 cache. Runs are long, since
# the lines at their ends are read before they are written.
SIDES = 512, 2048


@dataclass(frozen=True)
class BoxPlan:
    """Boxes of `rows` by `run` elements of a result with `columns` columns.

    `boxes` are the loops over them (bytes in the source, elements in the result); `shuffle`
    permutes the codes of a box into rows `pitch` bytes apart, and `units` unpack a row. `block` is
    the rows and columns that share a scale and a zero point.
    """

    boxes: tuple[Loop, ...]
    shuffle: Shuffle
    units: Units
    rows: int
    run: int
    columns: int
    pitch: int
    conversion: Conversion
    block: tuple[int, int]
    offset: int

    @property
    def table(self) -> NDArray[np.int64]:
        """The loops over boxes."""
        return np.array(self.boxes or [(1, 0, 0)], np.int64)

    @property
    def inner(self) -> NDArray[np.int64]:
        """The loops over the calls of a box."""
        return np.array(self.shuffle.loops[:-1] or [(1, 0, 0)], np.int64)

    @property
    def codes(self) -> int:
        """The offset of a run's codes on the stage."""
        return self.rows * self.pitch + LINE

    @property
    def stage(self) -> int:
        """The bytes of the stage."""
        return self.codes + self.run + 3 * LINE


def box_plan(
    rows: Layout, columns: Layout, conversion: Conversion, block: tuple[int, int]
) -> BoxPlan | None:
    """The plan for codes of these Layouts, all in the same memory; None if there is none.

    `block` is the rows and columns that share a scale.
    """
    bits, wide = rows.bits, columns.size
    if rows.size * wide * bits < 8 * thresholds.SHUFFLES_FROM:
        return None
    sides = (
        _parted(merged(side.shape, side.strides), most)
        for side, most in zip((rows, columns), SIDES, strict=True)
    )
    (outer_rows, inner_rows), (outer_columns, inner_columns) = sides
    count, run = length_of(inner_rows, 1), length_of(inner_columns, 1)
    if min(count, run) < thresholds.SHORT or (run % block[1] and block[1] % run):
        return None
    pitch = run * bits // 8 + LINE
    loops = [*_loops(inner_rows, 8 * pitch), *_loops(inner_columns, bits)]
    found = shuffle_of(loops, bits, boxes=False)
    units = units_of([(Layout.row_major((run,), bits), 0)])
    boxes = [*_loops(outer_rows, count * wide), *_loops(outer_columns, run)]
    if found is None or units is None or any(s % 8 for _, s, _ in boxes):
        return None
    offset = rows.offset + found.shift
    if offset % 8:
        return None
    found = found._replace(loops=tuple(sorted(found.loops, key=lambda each: -abs(each.source))))
    return BoxPlan(
        tuple(Loop(n, s // 8, t) for n, s, t in boxes), found, units, count, run, wide,
        pitch, conversion, block, offset // 8,
    )  # fmt: skip


def _parted(dims: Sequence[tuple[int, ...]], most: int) -> tuple[list[Loop], list[Loop]]:
    """The loops around a box and those within it, which have at most `most` elements."""
    outer, inner = list[Loop](), list[Loop]()
    for size, stride in reversed(dims):
        around, within = split(Loop(size, stride, 0), most)
        outer.insert(0, around)
        inner.insert(0, within)
        most = most // within.size if around.size == 1 else 1
    return outer, inner


def _loops(loops: Sequence[Loop], step: int) -> list[Loop]:
    """The loops, row-major in the target with a distance of `step`."""
    made = list[Loop]()
    for loop in reversed(loops):
        if loop.size > 1:
            made.insert(0, loop._replace(target=step))
            step *= loop.size
    return made
