"""Boxes: parts of a copy that fill a stage in the order of the target and leave in long runs.

The arguments are those of `copies`; `loops` has two more columns, how far the last
step of a loop goes back in source and target, so that all boxes are alike.
`shape` holds (length, start) of each part of `offsets`: rows in the source, columns,
their places on the stage; the first rows of blocks, pieces of columns, the places of
these; runs on the stage and in the target; lines of the source. Then (bytes of a run,
bytes behind a box's first element that are read in whole pieces).
"""

from __future__ import annotations

from typing import Any

from .constants import HIGH, LINE, LOW, PIECE, SPAN, TENSOR
from .copies import small_row
from .jit import Numbers, Table, kernel
from .memory import (
    WIDTHS,
    copy,
    move,
    move_piece,
    pick,
    prefetch,
    size_of,
    stream_line,
    transpose_block,
)
from .odometer import advance, enter
from .shares import take

SHIFT = 24
CHUNK = 64  # rows between which lines of the next box are asked for

W1, W4 = WIDTHS[1], WIDTHS[4]


@kernel
def back(loops: Table, at: Numbers) -> tuple[int, int]:
    """How far the box at `at` reaches back in source and target."""
    source = target = 0
    for k in range(loops.shape[0]):
        if at[k] == loops[k, 0] - 1:
            source += loops[k, 3]
            target += loops[k, 4]
    return source, target


@kernel
def singles(
    come: int,
    stage: int,
    ahead: int,
    shape: Table,
    offsets: Table,
    nbytes: int,
    safe: bool,
    width: Any,
) -> None:
    """Fill the stage by runs of `nbytes`; `safe` if 16 bytes may be read of each."""
    rows, columns, places, lines = shape[0, 1], shape[1, 1], shape[2, 1], shape[8, 1]
    count, every = shape[0, 0], shape[0, 0] * shape[1, 0]
    asked = 0
    for j in range(shape[1, 0]):
        begin, place = come + offsets[columns + j], stage + offsets[places + j]
        for first in range(0, count, CHUNK):
            last = min(first + CHUNK, count)
            wanted = (j * count + last) * shape[8, 0] // every
            while asked < wanted:
                prefetch(ahead + offsets[lines + asked])
                asked += 1
            if nbytes == size_of(width):
                for i in range(first, last):
                    move(place + i * size_of(width), begin + offsets[rows + i], width)
                continue
            if safe and nbytes < PIECE:
                # What is too much of one run lies where the next row's will be.
                last -= 1
                for i in range(first, last):
                    move_piece(place + i * nbytes, begin + offsets[rows + i])
                first = last
                last += 1
            for i in range(first, last):
                small_row(place + i * nbytes, begin + offsets[rows + i], nbytes, width)


@kernel
def fragment(target: int, source: int, nbytes: int) -> None:
    """Copy less than a line."""
    if nbytes >= PIECE:
        done = PIECE
        while done < nbytes:
            move_piece(target + done - PIECE, source + done - PIECE)
            done += PIECE
        move_piece(target + nbytes - PIECE, source + nbytes - PIECE)
    elif nbytes >= 4:
        move(target, source, W4)
        if nbytes > 8:
            move(target + 4, source + 4, W4)
            move(target + nbytes - 8, source + nbytes - 8, W4)
        move(target + nbytes - 4, source + nbytes - 4, W4)
    else:
        for i in range(nbytes):
            move(target + i, source + i, W1)


@kernel
def leave(target: int, stage: int, nbytes: int) -> None:
    """Stream the whole lines of a run."""
    done = min(-target & (LINE - 1), nbytes)
    fragment(target, stage, done)
    while done + LINE <= nbytes:
        stream_line(target + done, stage + done)
        done += LINE
    fragment(target + done, stage + done, nbytes - done)


@kernel
def drain(target: int, stage: int, shape: Table, offsets: Table, streamed: bool) -> None:
    """Move the runs of a full stage to the target."""
    staged, places, run = shape[6, 1], shape[7, 1], shape[9, 0]
    for k in range(shape[6, 0]):
        if streamed:
            leave(target + offsets[places + k], stage + offsets[staged + k], run)
        else:
            copy(target + offsets[places + k], stage + offsets[staged + k], run)


@kernel
def boxes(
    places: Table,
    work: Numbers,
    span: Numbers,
    stage: int,
    loops: Table,
    shape: Table,
    offsets: Table,
    streamed: bool,
    nbytes: int,
    reach: int,
    width: Any,
    pieces: Any,
) -> None:
    """Fill the stage with each box, by blocks transposed in registers if there are any.

    Of the source, `reach` bytes may be read.
    """
    size, table = size_of(width), offsets.ctypes.data
    step_q = PIECE // size
    lines, blocks, starts = shape[8, 1], shape[3, 0], shape[4, 0]
    # Lines of the next box to ask for with each block, as a binary fraction.
    each = (shape[8, 0] << SHIFT) // max(1, blocks * starts)
    at = span[SPAN:]
    while take(work, span):
        source, target = places[0, span[TENSOR]], places[1, span[TENSOR]]
        low, high = span[LOW], span[HIGH]
        s, t = enter(loops, at, low)
        back_s, back_t = back(loops, at)
        for _ in range(low, high):
            come, to = source + s - back_s, target + t - back_t
            s, t = advance(loops, at, s, t)
            back_s, back_t = back(loops, at)
            ahead = source + s - back_s
            safe = come + shape[9, 1] <= source + reach
            if safe and blocks > 0:
                asked = done = 0
                for i in range(blocks):
                    first = offsets[shape[3, 1] + i]
                    rows_at, place = table + 8 * (shape[0, 1] + first), stage + first * size
                    for j in range(starts):
                        done += each
                        while asked < done >> SHIFT:
                            prefetch(ahead + offsets[lines + asked])
                            asked += 1
                        begin = come + offsets[shape[4, 1] + j]
                        columns = table + 8 * (shape[5, 1] + j * step_q)
                        transpose_block(begin, rows_at, place, columns, width, pieces)
            else:
                singles(come, stage, ahead, shape, offsets, nbytes, safe, width)
            drain(to, stage, shape, offsets, streamed)


@kernel
def pick_boxes(
    places: Table,
    work: Numbers,
    span: Numbers,
    stage: int,
    loops: Table,
    shape: Table,
    offsets: Table,
    streamed: bool,
    step: Any,
    back_tag: Any,
    width: Any,
    pieces: Any,
) -> None:
    """`boxes` of rows whose elements lie a few apart in the source, or backwards."""
    size = size_of(width)
    each = PIECE // size * size_of(pieces)
    rows, columns, staged, lines = shape[0, 1], shape[1, 1], shape[2, 1], shape[8, 1]
    count = shape[0, 0]
    at = span[SPAN:]
    while take(work, span):
        source, target = places[0, span[TENSOR]], places[1, span[TENSOR]]
        low, high = span[LOW], span[HIGH]
        s, t = enter(loops, at, low)
        back_s, back_t = back(loops, at)
        for _ in range(low, high):
            come, to = source + s - back_s, target + t - back_t
            s, t = advance(loops, at, s, t)
            back_s, back_t = back(loops, at)
            ahead, asked = source + s - back_s, 0
            for j in range(shape[1, 0]):
                begin, place = come + offsets[columns + j], stage + offsets[staged + j]
                wanted = (j + 1) * shape[8, 0] // shape[1, 0]
                while asked < wanted:
                    prefetch(ahead + offsets[lines + asked])
                    asked += 1
                for i in range(0, count, each):
                    p = min(i, count - each)
                    pick(begin + offsets[rows + p], place + p * size, step, back_tag, width, pieces)
            drain(to, stage, shape, offsets, streamed)
