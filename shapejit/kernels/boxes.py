"""Boxes: parts of a copy that are put in the target's order on a stage, and written in long runs.

The arguments are those of `copies`; `loops` are those of `odometer.box_at`: all boxes have
equal sizes. `box` is the table of the parts of `offsets`, whose words are in `constants`.
"""

from __future__ import annotations

from typing import Any

from ..runtime.cpu_caches import LINE, PAGE
from ..runtime.jobs import HIGH, LOW, STREAMED
from .bits import merge_first, merge_last, move_whole
from .calls import call
from .constants import (
    BLOCKS,
    BYTES_IN_PLACE,
    COLUMNS,
    COUNT,
    IN_PLACE,
    LINES,
    NBYTES,
    PIECE,
    PIECE_PLACES,
    PIECES,
    PLACES,
    REACH,
    READS,
    ROWS,
    RUN,
    RUN_TARGETS,
    RUNS,
    START,
    WIDTHS,
)
from .copies import move_run, write_run
from .jit import Address, Numbers, Table, kernel
from .memory import (
    address_of,
    columns_of,
    move,
    move_piece,
    prefetch,
    prefetch_to_write,
    size_of,
)
from .odometer import box_at
from .shares import bit_ends, ends, take
from .vectors import VECTOR_ROWS, transpose_block

SHIFT = 24
CHUNK = 64  # rows between prefetches of lines of the next box
_BYTE_TAG = WIDTHS[1]


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
    columns, places, lines = box[COLUMNS, START], box[PLACES, START], box[LINES, START]
    count, asked = box[ROWS, COUNT], 0
    each = (box[LINES, COUNT] << SHIFT) // (count * box[COLUMNS, COUNT])
    for j in range(box[COLUMNS, COUNT]):
        begin, place = src + offsets[columns + j], stage + offsets[places + j]
        for first in range(0, count, CHUNK):
            last = min(first + CHUNK, count)
            while asked < (j * count + last) * each >> SHIFT:
                prefetch(ahead + offsets[lines + asked])
                asked += 1
            if nbytes == size_of(width):  # by pieces: bytes 1.3 to 1.5, 16 bits 1.05
                for i in range(first, last):
                    move(place + i * size_of(width), begin + offsets[i], width)
                continue
            if safe and nbytes < PIECE:
                # Stores run over the end of a run, into the next rows, which overwrite that; those
                # of the last rows would do so into another column.
                whole = max(first, last - (PIECE - 1) // nbytes)
                for i in range(first, whole):
                    move_piece(place + i * nbytes, begin + offsets[i])
                first = whole
            for i in range(first, last):
                move_run(place + i * nbytes, begin + offsets[i], nbytes)


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
        rows, dst = table + 8 * first, stage + first * size
        for j in range(count):
            done += each
            while asked < done >> SHIFT:
                prefetch(ahead + offsets[lines + asked])
                asked += 1
            begin = src + offsets[box[PIECES, START] + j]
            columns = table + 8 * (box[PIECE_PLACES, START] + j * columns_of(width))
            transpose_block(begin, rows, dst, columns, VECTOR_ROWS, width, pieces)


@kernel
def boxes(
    addresses: Table,
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

    `reach` is the number of bytes of the source that may be read.
    """
    while take(work, span):
        source, target = ends(addresses, span)
        for unit in range(span[LOW], span[HIGH]):
            s, t, _, _ = box_at(loops, unit)
            src, ahead = source + s, source + box_at(loops, unit + 1)[0]
            # Bytes after the source may be read if they lie in the page of its last one.
            safe = s + box[RUN, REACH] - reach <= -(source + reach) & (PAGE - 1)
            if safe and box[BLOCKS, COUNT] > 0:
                blocks(src, stage, ahead, box, offsets, width, pieces)
            else:
                singles(src, stage, ahead, box, offsets, nbytes, safe, width)
            drain(target + t, stage, box, offsets, work[STREAMED] != 0)


@kernel
def by_network(
    src: Address,
    stage: Address,
    ahead: Address,
    box: Table,
    offsets: Numbers,
    entry: int,
    steps: Numbers,
) -> None:
    """Fill the stage by calls of the function of a network: see `planning.box_tables`."""
    lines, count, asked = box[LINES, START], box[ROWS, COUNT], 0
    table, places = address_of(offsets) + 8 * box[COLUMNS, START], box[PLACES, START]
    blocks, source_step, target_step = steps
    for k in range(count):
        last = box[LINES, COUNT] * (k + 1) // count
        while asked < last:
            prefetch(ahead + offsets[lines + asked])
            asked += 1
        into = stage + offsets[places + k]
        call(entry, (src + offsets[k], into, table, blocks, source_step, target_step, 0, 0))


@kernel
def code_boxes(
    addresses: Table,
    work: Numbers,
    span: Numbers,
    stage: Address,
    loops: Table,
    box: Table,
    offsets: Numbers,
    sizes: Numbers,
    unpacks: int,
    packs: int,
    entry: int,
    pieces: Any,
) -> None:
    """`boxes` of elements narrower than a byte, by way of codes: a byte each.

    The box has three words for each of its READS. `sizes`: bytes of the source, bits of an element
    in the target, codes that are moved at a time without blocks, or whether all are IN_PLACE, and
    where on the stage codes begin, the first element of a box is, and packed runs go; then the
    steps of a network. `unpacks`, `packs` (0: results are codes) and `entry` (0: no network) are
    addresses of functions.
    """
    reach, unit, piece, codes_at, first, packed_at = sizes[:6]
    codes, packed, streamed = stage + codes_at, stage + packed_at, work[STREAMED] != 0
    run, staged, into = box[RUN, NBYTES], box[RUNS, START], box[RUN_TARGETS, START]
    ends, reads = min(run, 8), box[READS, START]
    while take(work, span):
        source, target = bit_ends(addresses, span)
        end = (source >> 3) + reach
        for index in range(span[LOW], span[HIGH]):
            s, t, _, _ = box_at(loops, index)
            for k in range(box[RUNS, COUNT]):
                place = target + (t + unit * offsets[into + k])
                prefetch_to_write(place >> 3)
                prefetch_to_write((place + unit * run) >> 3)
            # The last box prefetches its own lines, which are in a cache.
            ahead = source + box_at(loops, min(index + 1, span[HIGH] - 1))[0] >> 3
            src, full = codes + first, stage
            if piece == BYTES_IN_PLACE and (source + s >> 3) + run + LINE <= end:
                full = source + s >> 3
            else:
                for r in range(reads, reads + 3 * box[READS, COUNT], 3):
                    begin, to, count = offsets[r], offsets[r + 1], offsets[r + 2]
                    call(unpacks, (codes + to, source + s + begin, count, end))
                if piece <= IN_PLACE:
                    full = src
                elif entry != 0:
                    by_network(src, stage, ahead, box, offsets, entry, sizes[6:])
                elif box[BLOCKS, COUNT] > 0:
                    blocks(src, stage, ahead, box, offsets, _BYTE_TAG, pieces)
                else:
                    singles(src, stage, ahead, box, offsets, piece, True, _BYTE_TAG)
            if packs == 0:
                drain(target + t >> 3, full, box, offsets, streamed)
                continue
            # Atomic operations wait for all stores before them: bytes are merged before long runs.
            for k in range(box[RUNS, COUNT]):
                place, begin = target + (t + unit * offsets[into + k]), full + offsets[staged + k]
                if place & 7 != 0:
                    call(packs, (packed, begin, ends))
                    merge_first(place, 8 * packed, unit * run)
                if place + unit * run & 7 != 0:
                    call(packs, (packed, begin + run - ends, ends))
                    merge_last(place, 8 * packed + unit * (ends - run), unit * run)
            for k in range(box[RUNS, COUNT]):
                place = target + (t + unit * offsets[into + k])
                call(packs, (packed, full + offsets[staged + k], run))
                move_whole(place, 8 * packed, unit * run, streamed)
