"""Boxes: parts of a copy that are put in the target's order on a stage, and written in long runs.

The arguments are those of `copies`; `loops` are those of `odometer.box_at`: all boxes have
equal sizes. `box` is the table of the parts of `offsets`, whose words are in `constants`.
"""

from __future__ import annotations

from typing import Any

from ..runtime.jobs import HIGH, LOW, STREAMED, TENSOR
from .constants import (
    BLOCKS,
    COLUMNS,
    COUNT,
    LINES,
    NBYTES,
    PIECE,
    PIECE_PLACES,
    PIECES,
    PLACES,
    REACH,
    ROWS,
    RUN,
    RUN_TARGETS,
    RUNS,
    START,
)
from .copies import move_run, write_run
from .jit import Address, Numbers, Table, kernel
from .memory import address_of, move, move_piece, pointer, prefetch, size_of
from .odometer import box_at
from .shares import take
from .vectors import VECTOR_ROWS, transpose_block

SHIFT = 24
CHUNK = 64  # rows between prefetches of lines of the next box


@kernel
def singles(
    src: Address,
    stage: Address,
    ahead: Address,
    box: Table,
    offsets: Numbers,
    nbytes: int,
    safe: bool,
    width: Any,
) -> None:
    """Fill the stage by runs of `nbytes`; `safe` if 16 bytes may be read of each."""
    rows, columns = box[ROWS, START], box[COLUMNS, START]
    places, lines = box[PLACES, START], box[LINES, START]
    count, every = box[ROWS, COUNT], box[ROWS, COUNT] * box[COLUMNS, COUNT]
    asked = 0
    for j in range(box[COLUMNS, COUNT]):
        begin, place = src + offsets[columns + j], stage + offsets[places + j]
        for first in range(0, count, CHUNK):
            last = min(first + CHUNK, count)
            wanted = (j * count + last) * box[LINES, COUNT] // every
            while asked < wanted:
                prefetch(ahead + offsets[lines + asked])
                asked += 1
            if nbytes == size_of(width):
                for i in range(first, last):
                    move(place + i * size_of(width), begin + offsets[rows + i], width)
                continue
            if safe and nbytes < PIECE:
                # Stores run over the end of a run; the next row overwrites that.
                last -= 1
                for i in range(first, last):
                    move_piece(place + i * nbytes, begin + offsets[rows + i])
                first = last
                last += 1
            for i in range(first, last):
                move_run(place + i * nbytes, begin + offsets[rows + i], nbytes)


@kernel
def drain(target: Address, stage: Address, box: Table, offsets: Numbers, streamed: bool) -> None:
    """Copy the runs of a full stage to the target."""
    staged, places, run = box[RUNS, START], box[RUN_TARGETS, START], box[RUN, NBYTES]
    for k in range(box[RUNS, COUNT]):
        write_run(target + offsets[places + k], stage + offsets[staged + k], run, streamed)


@kernel
def blocks(
    src: Address,
    stage: Address,
    ahead: Address,
    box: Table,
    offsets: Numbers,
    width: Any,
    pieces: Any,
) -> None:
    """Fill the stage by blocks transposed in registers."""
    size, table = size_of(width), address_of(offsets)
    lines, count = box[LINES, START], box[PIECES, COUNT]
    # Lines of the next box to prefetch per block, as a binary fraction.
    each = (box[LINES, COUNT] << SHIFT) // (box[BLOCKS, COUNT] * count)
    asked = done = 0
    for i in range(box[BLOCKS, COUNT]):
        first = offsets[box[BLOCKS, START] + i]
        rows, dst = table + 8 * (box[ROWS, START] + first), stage + first * size
        for j in range(count):
            done += each
            while asked < done >> SHIFT:
                prefetch(ahead + offsets[lines + asked])
                asked += 1
            begin = src + offsets[box[PIECES, START] + j]
            columns = table + 8 * (box[PIECE_PLACES, START] + j * (PIECE // size))
            transpose_block(begin, rows, dst, columns, VECTOR_ROWS, width, pieces)


@kernel
def boxes(
    places: Table,
    work: Numbers,
    span: Numbers,
    stage: Address,
    loops: Table,
    box: Table,
    offsets: Numbers,
    nbytes: int,
    reach: int,
    width: Any,
    pieces: Any,
) -> None:
    """Fill the stage with each box, by blocks transposed in registers if there are any.

    `reach` bytes of the source may be read.
    """
    while take(work, span):
        source, target = pointer(places[0, span[TENSOR]]), pointer(places[1, span[TENSOR]])
        for unit in range(span[LOW], span[HIGH]):
            s, t, _, _ = box_at(loops, unit)
            src, ahead = source + s, source + box_at(loops, unit + 1)[0]
            safe = s + box[RUN, REACH] <= reach
            if safe and box[BLOCKS, COUNT] > 0:
                blocks(src, stage, ahead, box, offsets, width, pieces)
            else:
                singles(src, stage, ahead, box, offsets, nbytes, safe, width)
            drain(target + t, stage, box, offsets, work[STREAMED] != 0)
