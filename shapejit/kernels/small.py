"""Small tensors copied whole, each by a small plan (see `small_plans`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..runtime.cpu_caches import LINE
from ..shapes.arithmetic import merge
from . import small_plans
from .calls import call
from .constants import COUNTS, PIECE, WIDTHS
from .copies import move_run
from .jit import Address, inlined, kernel
from .memory import VECTOR, load_word, move, pointer, prefetch, size_of, store_word
from .small_plans import (
    BLOCKS,
    COLUMN_GAP,
    COLUMN_STEP,
    COLUMNS,
    COUNT,
    HEAD,
    LOOPS,
    MOVES,
    ROW_STEP,
    ROWS,
    RUNS,
    SHIFT,
    TARGET_SHIFT,
    WIDTH,
)
from .vectors import interleave, pick, transpose_even

ONE, WHOLE = WIDTHS[1], WIDTHS[VECTOR // PIECE]  # pieces of a row in a block
THREE = COUNTS[3]


# Of arrays, where they say sequences.
merge_dims: Any = kernel(merge)
row_major: Any = kernel(small_plans.row_major)
write_plan: Any = kernel(small_plans.write_plan)


@inlined
def word(table: Address, index: int) -> int:
    """Word `index` of a table at an address."""
    return int(load_word(table + 8 * index))


def by_width(function: Any, *widths: int) -> Callable[..., int]:
    """The kernel that calls another one with the tag of one of some widths, its first argument."""
    width, *others = widths
    tag = WIDTHS[width]
    if not others:
        return inlined(lambda _, *given: function(tag, *given))
    rest = by_width(function, *others)

    @inlined  # else there is a call for each width before it
    def chosen(nbytes: int, *given: Any) -> Any:
        return function(tag, *given) if nbytes == width else rest(nbytes, *given)

    return chosen


@kernel
def prefetch_lines(ahead: Address, end: Address, nbytes: int) -> Address:
    """Prefetch as many lines as `nbytes` has, up to `end`; return the next address."""
    while nbytes > 0 and ahead < end:
        prefetch(ahead)
        ahead += LINE
        nbytes -= LINE
    return ahead


@kernel
def blocks(
    width: Any,
    source: Address,
    target: Address,
    plan: Address,
    ahead: Address,
    end: Address,
    spacing: int,
) -> Address:
    """Transpose a plane in registers, with last blocks that reach back; prefetch lines ahead.

    The next plane is like this one, `spacing` bytes after it (0: unknown).
    """
    size, step_q = size_of(width), PIECE // size_of(width)
    rows, row_step = word(plan, ROWS), word(plan, ROW_STEP)
    columns, gap = word(plan, COLUMNS), word(plan, COLUMN_GAP)
    whole = rows * size >= VECTOR
    step_p = VECTOR // size if whole else step_q
    nbytes = step_p * PIECE
    for i in range(0, rows, step_p):
        p = min(i, rows - step_p)
        for j in range(0, columns, step_q):
            q = min(j, columns - step_q)
            if ahead < end:
                for line in range(0, nbytes, LINE):
                    prefetch(ahead + line)
                ahead += nbytes
            src, dst = source + p * row_step + q * size, target + p * size + q * gap
            if spacing != 0:
                # The next block of rows, which may belong to the next plane.
                quarter = (j // step_q) & 3
                line = source + (q * size - quarter * PIECE)
                line += spacing if i + step_p >= rows else (i + step_p) * row_step
                for r in range(quarter * step_p // 4, (quarter + 1) * step_p // 4):
                    prefetch(line + r * row_step)
            if whole:
                transpose_even(src, row_step, dst, gap, width, WHOLE)
            else:
                transpose_even(src, row_step, dst, gap, width, ONE)
    return ahead


@kernel
def move_all(width: Any, source: Address, step: int, target: Address, gap: int, count: int) -> None:
    """Copy elements of this width that are evenly spaced on both sides."""
    for k in range(count):
        move(target + k * gap, source + k * step, width)


@kernel
def channels(
    width: Any,
    source: Address,
    step: int,
    target: Address,
    gap: int,
    count: int,
    rows: int,
    spacing: int,
    scratch: Address,
) -> bool:
    """Copy a plane of THREE channels (images) by whole vectors, if it is one.

    `count` elements have strides of `step` in the source and `gap` in the target, and so have those
    of the other `rows`, which begin `spacing` further in the source. `scratch` has space for their
    offsets.
    """
    size, each = size_of(width), VECTOR // size_of(width)
    if count < each:
        return False
    if gap == size and step == 3 * size:
        for i in range(0, count, each):
            p = min(i, count - each)
            pick(source + p * step, target + p * size, THREE, width, WHOLE)
        return True
    if step == size and gap == 3 * size and rows == 3:
        for row in range(3):
            store_word(scratch + 8 * row, row * spacing)
        for i in range(0, count, each):
            p = min(i, count - each)
            interleave(source + p * size, scratch, target + p * gap, THREE, width, WHOLE)
        return True
    return False


transpose = by_width(blocks, *WIDTHS)
strip = by_width(move_all, *WIDTHS)
colours = by_width(channels, 1, 2, 4)  # there are no vectors for wider elements


@kernel
def elements(
    source: Address,
    target: Address,
    plan: Address,
    ahead: Address,
    end: Address,
    scratch: Address,
) -> Address:
    """Copy a plane one element at a time, along its longer side.

    It goes along rows, too, unless they are so short that the lines of a column would not stay in a
    cache: every third element of 256 x 256 bytes took 16 times as long.
    """
    size = word(plan, WIDTH)
    long, step, gap = word(plan, ROWS), word(plan, ROW_STEP), size
    short, around, over = word(plan, COLUMNS), word(plan, COLUMN_STEP), word(plan, COLUMN_GAP)
    if short > long and (long < PIECE or short <= 2 * LINE):
        long, short, step, around, gap, over = short, long, around, step, over, gap
    rows = short if over == size else 0
    for k in range(short):
        src, dst = source + k * around, target + k * over
        ahead = prefetch_lines(ahead, end, long * size)
        if size <= 4 and colours(size, src, step, dst, gap, long, rows, around, scratch):
            if gap != size:
                break  # all rows were interleaved
        else:
            strip(size, src, step, dst, gap, long)
    return ahead


@kernel
def runs(source: Address, target: Address, plan: Address, ahead: Address, end: Address) -> Address:
    """Copy a plane of runs of any length."""
    nbytes = word(plan, WIDTH)
    rows, row_step = word(plan, ROWS), word(plan, ROW_STEP)
    columns, step, gap = word(plan, COLUMNS), word(plan, COLUMN_STEP), word(plan, COLUMN_GAP)
    for q in range(columns):
        for p in range(rows):
            src, dst = source + q * step + p * row_step, target + q * gap + p * nbytes
            ahead = prefetch_lines(ahead, end, nbytes)
            move_run(dst, src, nbytes)
    return ahead


@kernel
def plane(
    source: Address,
    target: Address,
    plan: Address,
    ahead: Address,
    end: Address,
    spacing: int,
    scratch: Address,
) -> Address:
    """Copy a plane by its small plan; return the end of the prefetched lines."""
    moves = word(plan, MOVES)
    if moves == RUNS:
        return runs(source, target, plan, ahead, end)
    if moves == BLOCKS:
        return transpose(word(plan, WIDTH), source, target, plan, ahead, end, spacing)
    return elements(source, target, plan, ahead, end, scratch)


@kernel
def put(
    source: Address,
    target: Address,
    plan: Address,
    position: Address,
    ahead: Address,
    end: Address,
    spacing: int,
    mover: int,
) -> Address:
    """Copy one tensor, and prefetch the lines [ahead, end) of the next one.

    Returns the beginning of the lines that it did not prefetch. The next tensor begins `spacing`
    bytes after this one, with the same strides; 0 if unknown. `plan` and `mover` (the
    `PLANE_MOVER`) are addresses, and so is `position`: scratch for the loops, and for three words
    more.
    """
    loops = word(plan, LOOPS)
    source += word(plan, SHIFT)
    target += word(plan, TARGET_SHIFT)
    for k in range(loops):
        store_word(position + 8 * k, 0)
    for _ in range(word(plan, COUNT)):
        scratch = position + 8 * loops
        ahead = pointer(call(mover, (source, target, plan, ahead, end, spacing, scratch)))
        k = loops - 1
        while k >= 0:
            row = HEAD + 3 * k
            at, size = word(position, k) + 1, word(plan, row)
            step, gap = word(plan, row + 1), word(plan, row + 2)
            source += step
            target += gap
            store_word(position + 8 * k, at)
            if at < size:
                break
            source -= size * step
            target -= size * gap
            store_word(position + 8 * k, 0)
            k -= 1
    return ahead
