"""Blocks of rows alone: interleaved, picked a few apart, turned around, or one by one.

The arguments are those of `copies` and `tiles`. Blocks follow one another in the
target: with a stage they gather there until it is full.
"""

from __future__ import annotations

from typing import Any

from .constants import (
    BLOCK,
    COLUMNS,
    COUNT,
    HIGH,
    INNER,
    LINE,
    LOW,
    PIECE,
    ROWS,
    SPAN,
    STAGE,
    START,
    STRIDE,
    TENSOR,
)
from .copies import flush, stream
from .jit import Numbers, Table, kernel
from .memory import interleave, move, pick, size_of, turn_groups
from .odometer import advance, enter
from .shares import take


@kernel
def interleave_rows(
    places: Table,
    work: Numbers,
    span: Numbers,
    stage: int,
    loops: Table,
    tile: Table,
    offsets: Table,
    factor: Any,
    width: Any,
    pieces: Any,
) -> None:
    """`tiles` of a few rows, which take turns element by element in the target.

    The columns of a tile lie side by side in source and target.
    """
    size = size_of(width)
    step_q, rows = PIECE // size * size_of(pieces), len(factor)
    table = offsets.ctypes.data
    at = span[SPAN:]
    while take(work, span):
        source, target = places[0, span[TENSOR]], places[1, span[TENSOR]]
        low, high = span[LOW], span[HIGH]
        s, t = enter(loops, at, low)
        next_line = target + t + at[loops.shape[0] - 1] * tile[COLUMNS, BLOCK] * size * rows
        lead = filled = next_line & (LINE - 1)
        for _ in range(low, high):
            q_low = at[loops.shape[0] - 1] * tile[COLUMNS, BLOCK]
            count = min(tile[COLUMNS, BLOCK], tile[COLUMNS, COUNT] - q_low)
            # A short last block reaches back; what it writes again is there already.
            back = max(step_q - count, 0)
            first = tile[COLUMNS, START] + (q_low - back) % tile[COLUMNS, INNER]
            come = source + s + (q_low - back) // tile[COLUMNS, INNER] * tile[COLUMNS, STRIDE]
            place = target + t + (q_low - back) * size * rows
            if stage != 0:
                place = stage + filled - back * size * rows
            for j in range(0, count + back, step_q):
                q = min(j, count + back - step_q)
                begin = come + offsets[first + q]
                interleave(begin, table, place + q * size * rows, factor, width, pieces)
            if stage != 0:
                filled += count * size * rows
                if filled > STAGE:
                    next_line, filled = flush(next_line, stage, lead, filled)
                    lead = 0
            s, t = advance(loops, at, s, t)
        if stage != 0:
            stream(next_line, stage + lead, filled - lead)


@kernel
def pick_rows(
    places: Table,
    work: Numbers,
    span: Numbers,
    stage: int,
    loops: Table,
    tile: Table,
    offsets: Table,
    step: Any,
    back_tag: Any,
    width: Any,
    pieces: Any,
) -> None:
    """Copy blocks of rows whose elements lie a few apart in the source, or backwards."""
    size = size_of(width)
    each = PIECE // size * size_of(pieces)
    at = span[SPAN:]
    while take(work, span):
        source, target = places[0, span[TENSOR]], places[1, span[TENSOR]]
        low, high = span[LOW], span[HIGH]
        s, t = enter(loops, at, low)
        next_line = target + t + at[loops.shape[0] - 1] * tile[ROWS, BLOCK] * size
        lead = filled = next_line & (LINE - 1)
        for _ in range(low, high):
            p_low = at[loops.shape[0] - 1] * tile[ROWS, BLOCK]
            count = min(tile[ROWS, BLOCK], tile[ROWS, COUNT] - p_low)
            # A short last block reaches back; what it writes again is there already.
            back = max(each - count, 0)
            first = tile[ROWS, START] + (p_low - back) % tile[ROWS, INNER]
            come = source + s + (p_low - back) // tile[ROWS, INNER] * tile[ROWS, STRIDE]
            place = target + t + (p_low - back) * size
            if stage != 0:
                place = stage + filled - back * size
            for i in range(0, count + back, each):
                p = min(i, count + back - each)
                pick(come + offsets[first + p], place + p * size, step, back_tag, width, pieces)
            if stage != 0:
                filled += count * size
                if filled > STAGE:
                    next_line, filled = flush(next_line, stage, lead, filled)
                    lead = 0
            s, t = advance(loops, at, s, t)
        if stage != 0:
            stream(next_line, stage + lead, filled - lead)


@kernel
def turn_rows(
    places: Table,
    work: Numbers,
    span: Numbers,
    stage: int,
    loops: Table,
    tile: Table,
    offsets: Table,
    count: Any,
    width: Any,
) -> None:
    """Copy blocks of groups of `count` elements, each group in the other order."""
    size, group = size_of(width), len(count) * size_of(width)
    at = span[SPAN:]
    while take(work, span):
        source, target = places[0, span[TENSOR]], places[1, span[TENSOR]]
        low, high = span[LOW], span[HIGH]
        s, t = enter(loops, at, low)
        next_line = target + t + at[loops.shape[0] - 1] * tile[ROWS, BLOCK] * group
        lead = filled = next_line & (LINE - 1)
        for _ in range(low, high):
            p_low = at[loops.shape[0] - 1] * tile[ROWS, BLOCK]
            nbytes = min(tile[ROWS, BLOCK], tile[ROWS, COUNT] - p_low) * group
            come = source + s + p_low * group
            place = target + t + p_low * group
            if stage != 0:
                place = stage + filled
            done = 0
            # 16 bytes hold whole groups and a rest, which the next store writes again.
            while done + PIECE <= nbytes:
                turn_groups(come + done, place + done, count, width)
                done += PIECE // group * group
            while done < nbytes:
                for i in range(len(count)):
                    move(place + done + i * size, come + done + group - (i + 1) * size, width)
                done += group
            if stage != 0:
                filled += nbytes
                if filled > STAGE:
                    next_line, filled = flush(next_line, stage, lead, filled)
                    lead = 0
            s, t = advance(loops, at, s, t)
        if stage != 0:
            stream(next_line, stage + lead, filled - lead)


@kernel
def gather(
    places: Table,
    work: Numbers,
    span: Numbers,
    stage: int,
    loops: Table,
    tile: Table,
    offsets: Table,
    width: Any,
) -> None:
    """Copy blocks of rows that lie side by side in the target, one element at a time.

    `tile` and `offsets` are those of the rows of `tiles`; the last of `loops`
    walks the blocks.
    """
    size = size_of(width)
    at = span[SPAN:]
    while take(work, span):
        source, target = places[0, span[TENSOR]], places[1, span[TENSOR]]
        low, high = span[LOW], span[HIGH]
        s, t = enter(loops, at, low)
        next_line = target + t + at[loops.shape[0] - 1] * tile[ROWS, BLOCK] * size
        lead = filled = next_line & (LINE - 1)
        for _ in range(low, high):
            p_low = at[loops.shape[0] - 1] * tile[ROWS, BLOCK]
            count = min(tile[ROWS, BLOCK], tile[ROWS, COUNT] - p_low)
            first = tile[ROWS, START] + p_low % tile[ROWS, INNER]
            come = source + s + p_low // tile[ROWS, INNER] * tile[ROWS, STRIDE]
            place = target + t + p_low * size
            if stage != 0:
                place = stage + filled
            for p in range(count):
                move(place + p * size, come + offsets[first + p], width)
            if stage != 0:
                filled += count * size
                if filled > STAGE:
                    next_line, filled = flush(next_line, stage, lead, filled)
                    lead = 0
            s, t = advance(loops, at, s, t)
        if stage != 0:
            stream(next_line, stage + lead, filled - lead)
