"""Blocks of rows: interleaved, picked every n-th, with groups reversed, or one by one.

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
from .constants import BLOCK, COLUMNS, COUNT, PIECE, ROWS, STAGE
from .copies import flush, stream
from .jit import Address, Numbers, Table, inlined, kernel
from .memory import address_of, move, pointer, size_of
from .odometer import advance, offset_at
from .vectors import interleave, pick, turn_groups


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
def interleave_rows(
    places: Table,
    work: Numbers,
    span: Numbers,
    stage: Address,
    loops: Table,
    tile: Table,
    offsets: Numbers,
    row: int,
    factor: Any,
    width: Any,
    pieces: Any,
) -> None:
    """`tiles` of a few rows, which are interleaved element by element in the target.

    The columns of a tile are contiguous in source and target, `row` of them at a time: a block has
    whole rows of columns, or a part of the only one.
    """
    size = size_of(width) * len(factor)
    each = PIECE // size_of(width) * size_of(pieces)
    rows = address_of(offsets)
    while next_block(places, work, span, stage, loops, tile, COLUMNS, size, each):
        src, dst = block_at(places, span, stage)
        first, count = span[FIRST], span[LENGTH]
        length = min(row, count)
        for start in range(0, count, length):
            for i in range(0, length, each):
                q = start + min(i, length - each)
                interleave(src + offsets[first + q], rows, dst + q * size, factor, width, pieces)


@kernel
def pick_rows(
    places: Table,
    work: Numbers,
    span: Numbers,
    stage: Address,
    loops: Table,
    tile: Table,
    offsets: Numbers,
    row: int,
    apart: Any,
    direction: Any,
    width: Any,
    pieces: Any,
) -> None:
    """Copy blocks of rows of `row` elements: every n-th ones of the source, or backwards.

    A block has whole rows, or a part of the only one.
    """
    size = size_of(width)
    each = PIECE // size * size_of(pieces)
    gap = len(apart) * size if size_of(direction) == 1 else -len(apart) * size
    while next_block(places, work, span, stage, loops, tile, ROWS, size, each):
        src, dst = block_at(places, span, stage)
        first, count = span[FIRST], span[LENGTH]
        length = min(row, count)
        for start in range(0, count, length):
            begin, to = src + offsets[first + start], dst + start * size
            for i in range(0, length, each):
                p = min(i, length - each)
                pick(begin + p * gap, to + p * size, apart, direction, width, pieces)


@kernel
def turn_rows(
    places: Table,
    work: Numbers,
    span: Numbers,
    stage: Address,
    loops: Table,
    tile: Table,
    offsets: Numbers,
    count: Any,
    width: Any,
    pieces: Any,
) -> None:
    """Copy blocks of groups of `count` elements, each group reversed."""
    size, group = size_of(width), len(count) * size_of(width)
    vector = PIECE * size_of(pieces)
    while next_block(places, work, span, stage, loops, tile, ROWS, group, 1):
        src, dst = block_at(places, span, stage)
        src, nbytes = src + offsets[span[FIRST]], span[LENGTH] * group
        done = 0
        # A vector holds whole groups and a rest, which the next store writes again.
        while done + vector <= nbytes:
            turn_groups(src + done, dst + done, count, width, pieces)
            done += vector // group * group
        while done < nbytes:
            for i in range(len(count)):
                move(dst + done + i * size, src + done + group - (i + 1) * size, width)
            done += group


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
