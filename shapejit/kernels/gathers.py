"""Elements gathered one by one, in blocks of rows.

The arguments are those of `copies` and `tiles`; the last of `loops` walks the blocks.
"""

from __future__ import annotations

from typing import Any

from ..runtime.cpu_caches import LINE
from ..runtime.jobs import (
    DONE_BYTES,
    DST,
    FIRST,
    LEFT,
    LENGTH,
    LINE_OFFSET,
    NEXT_LINE,
    SOURCE,
    SPAN,
    SRC,
    STAGED_BYTES,
    TARGET,
    TENSOR,
)
from .constants import BLOCK, COUNT, ROWS, STAGE
from .copies import flush, stream
from .jit import Address, Numbers, Table, inlined, kernel
from .memory import move, pointer, size_of
from .odometer import advance, offset_at


@kernel
def next_block(
    places: Table,
    work: Numbers,
    span: Numbers,
    stage: Address,
    loops: Table,
    tile: Table,
    side: int,
    size: int,
    least: int,
) -> bool:
    """Go to the next block of a side of the tile; False when the job is done.

    Blocks are adjacent in the target, with `size` bytes per element; with a stage they are
    collected there until it is full. Sets in `span` the start of the block: `SRC` in its source (to
    which the offsets from `FIRST` on are added), `DST` in its target or on the stage; and its
    `LENGTH`. A block of fewer than `least` elements reaches back, and writes some elements twice.
    """
    at = span[SPAN:]
    last = loops.shape[0] - 1
    begins = span[LEFT] <= 1
    if span[LEFT] > 0 and stage != 0:
        span[STAGED_BYTES] += span[DONE_BYTES]
        target = pointer(places[1, span[TENSOR]]) + span[NEXT_LINE]
        if span[STAGED_BYTES] > STAGE:
            _, left = flush(target, stage, span[LINE_OFFSET], span[STAGED_BYTES])
            whole = span[STAGED_BYTES] - left - span[LINE_OFFSET]
            target += whole
            span[NEXT_LINE] += whole
            span[LINE_OFFSET], span[STAGED_BYTES] = 0, left
        if begins:
            stream(target, stage + span[LINE_OFFSET], span[STAGED_BYTES] - span[LINE_OFFSET])
    if not advance(work, span, loops):
        return False
    first = at[last] * tile[side, BLOCK]
    if begins:
        span[NEXT_LINE] = span[TARGET] + first * size
        target = pointer(places[1, span[TENSOR]])
        span[LINE_OFFSET] = span[STAGED_BYTES] = (target + span[NEXT_LINE]) & (LINE - 1)
    count = min(tile[side, BLOCK], tile[side, COUNT] - first)
    back = max(least - count, 0)
    src, span[FIRST] = offset_at(tile, side, first - back)
    span[SRC] = span[SOURCE] + src
    span[DST] = (span[TARGET] + first * size if stage == 0 else span[STAGED_BYTES]) - back * size
    span[LENGTH] = count + back
    span[DONE_BYTES] = count * size
    return True


@inlined
def block_at(places: Table, span: Numbers, stage: Address) -> tuple[Address, Address]:
    """The start addresses of a block in the source, and in the target or on the stage."""
    source, target = pointer(places[0, span[TENSOR]]), stage
    if stage == 0:
        target = pointer(places[1, span[TENSOR]])
    return source + span[SRC], target + span[DST]


@kernel
def gather(
    places: Table,
    work: Numbers,
    span: Numbers,
    stage: Address,
    loops: Table,
    tile: Table,
    offsets: Numbers,
    width: Any,
) -> None:
    """Copy blocks of rows that are adjacent in the target, one element at a time."""
    size = size_of(width)
    while next_block(places, work, span, stage, loops, tile, ROWS, size, 1):
        src, dst = block_at(places, span, stage)
        first, count = span[FIRST], span[LENGTH]
        for p in range(count):
            move(dst + p * size, src + offsets[first + p], width)
