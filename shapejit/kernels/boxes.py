"""Boxes: parts of a copy that fit into a cache, whose elements pass through several steps there.

The steps are: unpack elements narrower than a byte; put the elements in the target's order, on a
stage; then, run by run: unpack those that are not yet, convert numbers, pack, and store. All but
the last are optional. `loops` are those of `odometer.box_at`: all boxes have equal sizes. `box` is
the table of the parts of `offsets`, whose words are in `constants`. Addresses of source and target
count bits.
"""

from __future__ import annotations

from typing import Any

from ..runtime.cpu_caches import LINE, PAGE
from ..runtime.jobs import HIGH, LOW, SPAN, STREAMED
from .bits import move_bits
from .calls import call
from .constants import (
    BLOCKS,
    COLUMNS,
    COUNT,
    LINES,
    MOVED,
    PIECE,
    PIECE_PLACES,
    PIECES,
    PLACES,
    REACH,
    READS,
    ROWS,
    RUN_SCALES,
    RUN_TARGETS,
    RUN_ZEROS,
    RUNS,
    START,
)
from .copies import move_run, write_run
from .jit import Address, Numbers, Table, inlined, kernel
from .memory import (
    address_of,
    columns_of,
    move,
    move_piece,
    pointer,
    prefetch,
    prefetch_to_write,
    size_of,
)
from .odometer import box_at
from .shares import bit_ends, take
from .small import put, word
from .vectors import VECTOR_ROWS, transpose_block

SHIFT = 24
CHUNK = 64  # rows between prefetches of lines of the next box


@inlined
def part(box: Address, which: int) -> tuple[int, int]:
    """How many offsets a part of a box has, and where they start."""
    return word(box, 2 * which + COUNT), word(box, 2 * which + START)


@kernel
def singles(
    src: Address,
    stage: Address,
    ahead: Address,
    box: Address,
    offsets: Address,
    safe: int,
    width: Any,
) -> None:
    """Fill the stage one element or run at a time; `safe` if 16 bytes may be read of each."""
    count, _ = part(box, ROWS)
    columns, column = part(box, COLUMNS)
    _, place = part(box, PLACES)
    lines, line = part(box, LINES)
    nbytes, _ = part(box, MOVED)
    asked, each = 0, (lines << SHIFT) // (count * columns)
    for j in range(columns):
        begin, into = src + word(offsets, column + j), stage + word(offsets, place + j)
        for first in range(0, count, CHUNK):
            last = min(first + CHUNK, count)
            while asked < (j * count + last) * each >> SHIFT:
                prefetch(ahead + word(offsets, line + asked))
                asked += 1
            if nbytes == size_of(width):  # by pieces: bytes 1.3 to 1.5, 16 bits 1.05
                for i in range(first, last):
                    move(into + i * size_of(width), begin + word(offsets, i), width)
                continue
            if safe != 0 and nbytes < PIECE:
                # Stores run over the end of a run, into the next rows, which overwrite that; those
                # of the last rows would do so into another column.
                whole = max(first, last - (PIECE - 1) // nbytes)
                for i in range(first, whole):
                    move_piece(into + i * nbytes, begin + word(offsets, i))
                first = whole
            for i in range(first, last):
                move_run(into + i * nbytes, begin + word(offsets, i), nbytes)


@kernel
def fill(
    src: Address,
    stage: Address,
    ahead: Address,
    box: Address,
    offsets: Address,
    safe: int,
    width: Any,
    pieces: Any,
) -> None:
    """Fill the stage, if `safe` by blocks transposed in registers, if there are any."""
    blocks, block = part(box, BLOCKS)
    if safe == 0 or blocks == 0:
        singles(src, stage, ahead, box, offsets, safe, width)
        return
    lines, line = part(box, LINES)
    count, piece = part(box, PIECES)
    _, place = part(box, PIECE_PLACES)
    # Lines of the next box to prefetch per block, as a binary fraction.
    each = (lines << SHIFT) // (blocks * count)
    asked = done = 0
    for i in range(blocks):
        first = word(offsets, block + i)
        rows, dst = offsets + 8 * first, stage + first * size_of(width)
        for j in range(count):
            done += each
            while asked < done >> SHIFT:
                prefetch(ahead + word(offsets, line + asked))
                asked += 1
            begin = src + word(offsets, piece + j)
            columns = offsets + 8 * (place + j * columns_of(width))
            transpose_block(begin, rows, dst, columns, VECTOR_ROWS, width, pieces)


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
    blocks, source_step, target_step, far = steps
    for k in range(count):
        last = box[LINES, COUNT] * (k + 1) // count
        while asked < last:
            prefetch(ahead + offsets[lines + asked])
            asked += 1
        into = stage + offsets[places + k]
        call(entry, (src + offsets[k], into, table, blocks, source_step, target_step, far, 0))


@kernel
def boxes(
    addresses: Table,
    work: Numbers,
    span: Numbers,
    stage: Address,
    loops: Table,
    box: Table,
    offsets: Numbers,
    scale_plans: Numbers,
    sizes: Numbers,
    functions: Numbers,
) -> None:
    """Pass each box through its steps.

    The box has three words for each of its READS, which are unpacked first. Offsets of RUNS and
    RUN_TARGETS count bits.

    `sizes`: the first scale and zero point; bytes that may be read of the source; elements of a
    run, and its bits in the target; elements with one scale, and the steps between scales and zero
    points; whether bytes of the source are packed where they lie, unless they are its last; four
    arguments of a network: blocks, steps on both sides, and how far ahead it prefetches; where
    codes begin on the stage, and the first element in them, or in the source; where converted
    elements, packed ones, repeated scales and zero points go.

    `functions` unpack, fill the stage, permute (of a network), convert, pack, and move planes of
    small plans (0: none). The one that converts writes results that are not packed into the target,
    and streams them.
    """
    (first_scale, first_zero, reach, count, bits, block, scale_step, zero_step, in_place,
     _, _, _, _, codes_at, first, made_at, packed_at, scales_at, zeros_at) = sizes  # fmt: skip
    unpacks, fills, network, converts, packs, mover = functions
    codes, made, packed = stage + codes_at, stage + made_at, stage + packed_at
    streamed, scratch = work[STREAMED] != 0, address_of(span) + 8 * SPAN
    reads, staged, into = box[READS, START], box[RUNS, START], box[RUN_TARGETS, START]
    by_run = unpacks != 0 and box[READS, COUNT] == 0
    while take(work, span):
        source, target = bit_ends(addresses, span)
        end = (source >> 3) + reach
        for index in range(span[LOW], span[HIGH]):
            s, t, scale, zero = box_at(loops, index)
            # The last box prefetches its own lines, which are in a cache.
            ahead = source + box_at(loops, min(index + 1, span[HIGH] - 1))[0] >> 3
            begin, last = source + s, end
            if packs != 0:
                for k in range(box[RUNS, COUNT]):
                    place = target + (t + offsets[into + k])
                    prefetch_to_write(place >> 3)
                    prefetch_to_write((place + bits) >> 3)
            if box[READS, COUNT] > 0:
                for r in range(reads, reads + 3 * box[READS, COUNT], 3):
                    call(unpacks, (codes + offsets[r + 1], begin + offsets[r], offsets[r + 2], end))
                begin = 8 * codes
            begin += 8 * first
            if network != 0:
                by_network(begin >> 3, stage, ahead, box, offsets, network, sizes[9:13])
            elif fills != 0:
                # Bytes after the source may be read if they lie in the page of its last one.
                near = (begin >> 3) + box[MOVED, REACH] <= end + (-end & (PAGE - 1))
                safe = int(near or box[READS, COUNT] > 0)
                tables = address_of(box), address_of(offsets)
                call(fills, (begin >> 3, stage, ahead, tables[0], tables[1], safe))
            if network != 0 or fills != 0:
                begin, last = 8 * stage, codes
            scales, zeros = pointer(first_scale) + scale, pointer(first_zero) + zero
            if len(scale_plans) > 0:
                plans, half = address_of(scale_plans), scale_plans[0]
                put(scales, stage + scales_at, plans + 8, scratch, mover)
                scales = stage + scales_at
                if half > 0:
                    put(zeros, stage + zeros_at, plans + 8 * half, scratch, mover)
                    zeros = stage + zeros_at
            for k in range(box[RUNS, COUNT]):
                place, codes_of_run = target + (t + offsets[into + k]), begin + offsets[staged + k]
                found = codes_of_run >> 3
                if by_run and not (in_place != 0 and found + count + LINE <= last):
                    call(unpacks, (codes, codes_of_run, count, last))
                    found = codes
                if converts != 0:
                    results = place >> 3 if packs == 0 else made
                    call(
                        converts,
                        (found, results, count, block,
                         scales + offsets[box[RUN_SCALES, START] + k], scale_step,
                         zeros + offsets[box[RUN_ZEROS, START] + k], zero_step),
                    )  # fmt: skip
                    found = results
                if packs != 0:
                    call(packs, (packed, found, count))
                    move_bits(place, 8 * packed, bits, streamed)
                elif converts == 0:
                    write_run(place >> 3, found, bits >> 3, streamed)
