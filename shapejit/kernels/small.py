"""Small tensors copied whole, each by a small plan (see `small_plans`)."""

from __future__ import annotations

from typing import Any

from ..runtime.cpu_caches import LINE
from ..shapes.arithmetic import merge
from . import small_plans
from .calls import call
from .constants import COUNTS, PIECE, WIDTHS
from .copies import move_run
from .jit import Address, inlined, kernel
from .memory import (
    VECTOR,
    load_address,
    load_word,
    move,
    prefetch,
    size_of,
    store_address,
    store_word,
)
from .small_plans import (
    AHEAD,
    BLOCKS,
    COLUMN_GAP,
    COLUMN_STEP,
    COLUMNS,
    COUNT,
    END,
    HEAD,
    LOOPS,
    POSITIONS,
    ROW_STEP,
    ROWS,
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


def by_width(function: Any, *widths: int, otherwise: Any = None) -> Any:
    """The kernel that calls `function` with a tag: of the widest of some widths that a run holds.

    The second argument is the run's length. Runs of twice the last width and more are given to
    `otherwise`, if there is one.
    """
    width, *others = widths
    tag, rest = WIDTHS[width], otherwise
    if others:
        rest = by_width(function, *others, otherwise=otherwise)
    if rest is None:
        return inlined(lambda *given: function(tag, *given))

    @inlined  # else there is a call for each width before it
    def chosen(nbytes: int, *given: Any) -> Any:
        return function(tag, nbytes, *given) if nbytes < 2 * width else rest(nbytes, *given)

    return chosen


@kernel
def prefetch_lines(ahead: Address, end: Address, nbytes: int) -> Address:
    """Prefetch as many lines as `nbytes` has, up to `end`; return the next address."""
    while nbytes > 0 and ahead < end:
        prefetch(ahead)
        ahead += min(nbytes, LINE)
        nbytes -= LINE
    return ahead


@kernel
def blocks(
    width: Any, _: int, source: Address, target: Address, plan: Address, scratch: Address
) -> None:
    """Transpose a plane in registers, with last blocks that reach back; prefetch lines ahead.

    Elements of 16 bytes move by blocks, too, for their prefetching: 10 000 x 4 KiB took 1.2 times
    as long one by one.
    """
    size, step_q = size_of(width), PIECE // size_of(width)
    rows, row_step = word(plan, ROWS), word(plan, ROW_STEP)
    columns, gap = word(plan, COLUMNS), word(plan, COLUMN_GAP)
    ahead, end = load_address(scratch + 8 * AHEAD), load_address(scratch + 8 * END)
    whole = rows * size >= VECTOR
    step_p, half = VECTOR // size if whole else step_q, step_q // 2 * gap
    for i in range(0, rows, step_p):
        p = min(i, rows - step_p)
        for j in range(0, columns, step_q):
            q = min(j, columns - step_q)
            ahead = prefetch_lines(ahead, end, step_p * PIECE)
            src, dst = source + p * row_step + q * size, target + p * size + q * gap
            if whole:
                transpose_even(src, row_step, dst, gap, half, width, WHOLE)
            else:
                transpose_even(src, row_step, dst, gap, half, width, ONE)
    store_address(scratch + 8 * AHEAD, ahead)


@kernel
def move_all(
    width: Any, nbytes: int, source: Address, step: int, target: Address, gap: int, count: int
) -> None:
    """Copy runs of one to two elements of this width that are evenly spaced on both sides.

    Their length is looked at once: colours of 3 bytes took 4 times as long.
    """
    last = nbytes - size_of(width)
    if last == 0:
        for _ in range(count):
            move(target, source, width)
            source += step
            target += gap
    else:
        for k in range(count):
            src, dst = source + k * step, target + k * gap
            move(dst, src, width)
            move(dst + last, src + last, width)


@kernel
def channels(
    width: Any,
    nbytes: int,
    source: Address,
    step: int,
    target: Address,
    gap: int,
    count: int,
    rows: int,
    spacing: int,
) -> bool:
    """Copy a plane of THREE channels (images) by whole vectors, if it is one.

    `count` elements have strides of `step` in the source and `gap` in the target, and so have those
    of the other `rows`, which begin `spacing` further in the source. Without it those of 4 bytes
    take 1.3 to 1.9 times as long, narrower ones 3 to 4.5.
    """
    size, each = size_of(width), VECTOR // size_of(width)
    if nbytes != size or count < each:
        return False
    if gap == size and step == 3 * size:
        for i in range(0, count, each):
            p = min(i, count - each)
            pick(source + p * step, target + p * size, THREE, width, WHOLE)
        return True
    if step == size and gap == 3 * size and rows == 3:
        for i in range(0, count, each):
            p = min(i, count - each)
            interleave(source + p * size, spacing, target + p * gap, THREE, width, WHOLE)
        return True
    return False


@kernel
def move_runs(
    nbytes: int, source: Address, step: int, target: Address, gap: int, count: int
) -> None:
    """Copy longer runs that are evenly spaced on both sides."""
    for k in range(count):
        move_run(target + k * gap, source + k * step, nbytes)


transpose = by_width(blocks, *WIDTHS)
# There are no vectors for wider elements.
colours = by_width(channels, 1, 2, 4, otherwise=inlined(lambda *_: False))
strip = by_width(move_all, *WIDTHS, otherwise=move_runs)


@kernel
def elements(source: Address, target: Address, plan: Address) -> None:
    """Copy a plane one element or run at a time, along its longer side.

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
        if colours(size, src, step, dst, gap, long, rows, around):
            if gap != size:
                break  # all rows were interleaved
        else:
            strip(size, src, step, dst, gap, long)


@kernel
def plane(source: Address, target: Address, plan: Address, scratch: Address) -> None:
    """Copy a plane by its small plan."""
    if word(plan, ROWS) * word(plan, COLUMNS) == 1:
        move_run(target, source, word(plan, WIDTH))
    elif word(plan, BLOCKS):
        transpose(word(plan, WIDTH), source, target, plan, scratch)
    else:
        elements(source, target, plan)


@kernel
def put(source: Address, target: Address, plan: Address, scratch: Address, mover: int) -> None:
    """Copy one tensor, and prefetch the lines [AHEAD, END) of the next one, if any.

    `plan`, `scratch` (see `small_plans`: all 0 at first) and `mover` (the `PLANE_MOVER`) are
    addresses. Positions of loops are kept, to divide for them takes up to 1.3 times as long; they
    are 0 again at the end.
    """
    loops, position = word(plan, LOOPS), scratch + 8 * POSITIONS
    source += word(plan, SHIFT)
    target += word(plan, TARGET_SHIFT)
    for _ in range(word(plan, COUNT)):
        call(mover, (source, target, plan, scratch))
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
