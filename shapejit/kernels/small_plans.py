"""Small plans: a few numbers that describe how a small tensor of any strides is copied.

It has runs of `WIDTH` bytes in a plane of `ROWS`, which are adjacent in the target, by `COLUMNS`,
inside the loops after `LOOPS`. Plans are better for large copies, but take longer to make. A small
plan is computed from sizes and strides alone, in compiled code, for thousands of different tensors:
`small` compiles `write_plan`. Importing this module does not import numba.
"""

from __future__ import annotations

from collections.abc import MutableSequence, Sequence

from ..runtime.kernel_names import Function
from .constants import MAX_RANK, PIECE

# A small plan, word by word. Strides and shifts are bytes. `NEAR` is the offset of the `NEAR_BYTES`
# of the source that are prefetched; `BLOCKS` says whether planes are moved in registers.
WIDTH, ROWS, ROW_STEP, COLUMNS, COLUMN_STEP, COLUMN_GAP = 0, 1, 2, 3, 4, 5
SHIFT, TARGET_SHIFT, NEAR, NEAR_BYTES, COUNT, LOOPS, BLOCKS = 6, 7, 8, 9, 10, 11, 12
HEAD = 13  # then one triple (size, source stride, target stride) per loop, outermost first

PREFETCH_MAX_BYTES = 4096
SHORT = 16  # steps of a loop

# The scratch of `small.put`, word by word, all 0 at first: the lines [AHEAD, END) of the next
# tensor, which are prefetched, and the positions of the loops.
AHEAD, END, POSITIONS = 0, 1, 2
SCRATCH_WORDS = POSITIONS + MAX_RANK
PLANE_MOVER = Function("small.plane", 4)


def row_major(sizes: Sequence[int], kept: int, itemsize: int, gaps: MutableSequence[int]) -> None:
    """Write the strides (bytes) of merged dims in a target without gaps."""
    gap = itemsize
    for k in range(kept - 1, -1, -1):
        gaps[k] = gap
        gap *= sizes[k]


def write_plan(
    sizes: Sequence[int],
    strides: Sequence[int],
    gaps: Sequence[int],
    kept: int,
    itemsize: int,
    table: MutableSequence[int],
) -> int:
    """Write the small plan of merged dims to `table`; return its number of words.

    `strides` and `gaps` are those of source and target, in bytes. There is at least one element.
    """
    low, reach, nbytes = 0, itemsize, itemsize
    for k in range(kept):
        nbytes *= sizes[k]
        reach += (sizes[k] - 1) * abs(strides[k])
        low += min(0, (sizes[k] - 1) * strides[k])
    width = itemsize
    if kept > 0 and strides[kept - 1] == width and gaps[kept - 1] == width:
        kept -= 1
        width *= sizes[kept]

    for k in range(HEAD):
        table[k] = 0
    table[WIDTH] = width
    table[ROWS] = table[COLUMNS] = table[COUNT] = 1
    table[NEAR] = low
    if reach <= 2 * nbytes:
        table[NEAR_BYTES] = min(reach, PREFETCH_MAX_BYTES)
    single = width <= PIECE and width & (width - 1) == 0

    # Rows are adjacent in the target; columns run through the source, or are long.
    rows = kept - 1 if kept > 0 and gaps[kept - 1] == width else kept
    columns = rows - 1
    if rows == kept:
        for k in range(kept):
            if sizes[columns] < SHORT and sizes[k] > sizes[columns]:
                columns = k
    elif single:
        for k in range(rows):
            if abs(strides[k]) == width:
                columns = k
    for k in range(kept):
        size, step, gap = sizes[k], strides[k], gaps[k]
        if k == rows:
            table[ROWS], table[ROW_STEP] = size, step
        elif k == columns:
            if step == -width:  # reversed on both sides
                table[SHIFT] = (size - 1) * step
                table[TARGET_SHIFT] = (size - 1) * gap
                step, gap = width, -gap
            table[COLUMNS], table[COLUMN_STEP], table[COLUMN_GAP] = size, step, gap
        else:
            word = HEAD + 3 * table[LOOPS]
            table[word], table[word + 1], table[word + 2] = size, step, gap
            table[COUNT] *= size
            table[LOOPS] += 1
    shorter = min(table[ROWS], table[COLUMNS]) * width
    table[BLOCKS] = single and table[COLUMN_STEP] == width and shorter >= PIECE
    return int(HEAD + 3 * table[LOOPS])
