"""Plans of weights whose codes are transposed, box by box, before they are decoded.

A box is some rows by some columns of the result, held in a cache as packed codes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..kernels.numbers import Conversion
from ..runtime.cpu_caches import LINE
from ..shapes.dims import merged
from ..shapes.layout import Layout
from . import thresholds
from .loops import Loop
from .shuffles import Shuffle, shuffle_of
from .units import Units, units_of

# Rows and columns at most: few pages are used at a time, and half an L2 cache. Runs are long, since
# the lines at their ends are read before they are written.
SIDES = 512, 2048


class Spread(NamedTuple):
    """Scales or zero points in float32, one for each block of the result.

    `place` is the address of the first one, `down` and `across` are the bytes from one to the next
    along rows and columns.
    """

    place: int
    down: int
    across: int


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
    def spots(self) -> tuple[int, int, int]:
        """The offsets of a run's codes and operands on the stage, and the bytes of the stage.

        If each column has operands of its own, those of all rows of a box are there.
        """
        codes = self.rows * self.pitch + LINE
        operands = codes + self.run + 3 * LINE
        each = (4 * self.run + LINE) * (self.rows // self.block[0] + 2)
        return codes, operands, operands + 2 * each if self.block[1] == 1 else operands


def box_plan(
    rows: Layout, columns: Layout, conversion: Conversion, block: tuple[int, int]
) -> BoxPlan | None:
    """The plan for codes of these Layouts, all in the same memory; None if there is none.

    `block` is the rows and columns that share a scale.
    """
    bits, wide = rows.bits, columns.size
    if rows.size * wide * bits < 8 * thresholds.SHUFFLES_FROM:
        return None
    down, across = (merged(side.shape, side.strides) for side in (rows, columns))
    parts = [_parted(dims, most) for dims, most in zip((down, across), SIDES, strict=True)]
    (outer_rows, inner_rows), (outer_columns, inner_columns) = parts
    count, run = (_size(inner) for inner in (inner_rows, inner_columns))
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


Dims = list[tuple[int, int]]  # sizes and strides (bits), outermost first


def _parted(dims: Sequence[tuple[int, ...]], most: int) -> tuple[Dims, Dims]:
    """The dims around a box and those within it, which have at most `most` elements."""
    outer, inner, room = Dims(), Dims(), most
    for size, stride in reversed(dims):
        part = max(n for n in range(1, min(size, room) + 1) if size % n == 0)
        if part > 1:
            inner.insert(0, (part, stride))
        if part < size:
            outer.insert(0, (size // part, stride * part))
            room = 1
        room //= part
    return outer, inner


def _size(dims: Dims) -> int:
    return int(np.prod([size for size, _ in dims], dtype=np.int64))


def _loops(dims: Dims, step: int) -> list[Loop]:
    """Loops over dims that are row-major in the target, with a distance of `step`."""
    made = list[Loop]()
    for size, stride in reversed(dims):
        made.insert(0, Loop(size, stride, step))
        step *= size
    return made
