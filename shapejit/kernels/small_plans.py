"""Small plans: a few numbers that describe how a small tensor of any strides is copied.

It has runs of `WIDTH` bytes in a plane of `ROWS`, which are adjacent in the target, by `COLUMNS`,
inside the loops after `LOOPS`. Plans are better for large copies, but take longer to make. A small
plan is computed from sizes and strides alone, in compiled code, for thousands of different tensors:
`small` compiles `write_plan`. Importing this module does not import numba.
"""

from __future__ import annotations

from collections.abc import MutableSequence, Sequence

from ..runtime.kernel_names import Function
from .constants import PIECE

# A small plan, word by word. Strides and shifts are bytes; the target is row-major. `NEAR`
# is the offset of the `NEAR_BYTES` of the source that are prefetched; `MOVES` says how a plane is
# moved.
WIDTH, ROWS, ROW_STEP, COLUMNS, COLUMN_STEP, COLUMN_GAP = 0, 1, 2, 3, 4, 5
SHIFT, TARGET_SHIFT, NEAR, NEAR_BYTES, COUNT, LOOPS, MOVES = 6, 7, 8, 9, 10, 11, 12
HEAD = 13  # then one triple (size, source stride, target stride) per loop, outermost first

ASKED = 4096

RUNS, ELEMENTS, BLOCKS = 0, 1, 2  # of any number of bytes, of one of WIDTHS, and in registers
PLANE_MOVER = Function("small.plane", 7)


def write_plan(
    sizes: Sequence[int],
    strides: Sequence[int],
    kept: int,
    itemsize: int,
    table: MutableSequence[int],
    at: int,
) -> int:
    """Write the small plan of merged dims at `table[at:]`; return the words it takes.

    Strides are in bytes. There is at least one element.
    """
    low, reach, nbytes = 0, itemsize, itemsize
    for k in range(kept):
        nbytes *= sizes[k]
        reach += (sizes[k] - 1) * abs(strides[k])
        low += min(0, (sizes[k] - 1) * strides[k])
    width = itemsize
    if kept > 0 and strides[kept - 1] == width:
        kept -= 1
        width *= sizes[kept]

    for k in range(HEAD):
        table[at + k] = 0
    table[at + WIDTH] = width
    table[at + ROWS] = table[at + COLUMNS] = table[at + COUNT] = 1
    table[at + NEAR] = low
    if reach <= 2 * nbytes:
        table[at + NEAR_BYTES] = min(reach, ASKED)
    if kept == 0:
        return HEAD
    single = width == 1 or width == 2 or width == 4 or width == 8 or width == 16

    # Rows are the last loop; columns the one that runs through the source, or the one before.
    rows, columns = kept - 1, kept - 2
    if single:
        for k in range(kept - 1):
            if abs(strides[k]) == width:
                columns = k
    table[at + ROWS], table[at + ROW_STEP] = sizes[rows], strides[rows]
    gap, word = width * sizes[rows], at + HEAD + 3 * max(kept - 2, 0)
    for k in range(kept - 2, -1, -1):
        if k == columns:
            table[at + COLUMNS], table[at + COLUMN_STEP] = sizes[k], strides[k]
            table[at + COLUMN_GAP] = gap
            if strides[k] == -width:
                # Reversed on both sides.
                table[at + COLUMN_STEP], table[at + COLUMN_GAP] = width, -gap
                table[at + SHIFT] = (sizes[k] - 1) * strides[k]
                table[at + TARGET_SHIFT] = (sizes[k] - 1) * gap
        else:
            word -= 3
            table[word], table[word + 1], table[word + 2] = sizes[k], strides[k], gap
            table[at + COUNT] *= sizes[k]
            table[at + LOOPS] += 1
        gap *= sizes[k]
    if single:
        shorter = min(table[at + ROWS], table[at + COLUMNS]) * width
        blocky = table[at + COLUMN_STEP] == width and shorter >= PIECE
        table[at + MOVES] = BLOCKS if blocky else ELEMENTS
    return int(HEAD + 3 * table[at + LOOPS])
