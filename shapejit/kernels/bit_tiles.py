"""Tiles of elements narrower than a byte, at any bit of source and target.

As `tiles`, whose `shape` and `offsets` are here in elements and bits, and with the
`facts` of `bits`. A block of rows passes through a buffer, a few lines of each row at a
time; with several elements a byte these are exchanged within groups of rows, so
that what is left is a transposition of bytes. Elements of 3 and 6 bits travel as
codes, a byte each. Columns are staged, and moved to their bits from there.
"""

from __future__ import annotations

from typing import Any

from numba import prange

from ..tiling import BIT_COLUMNS, DENSE_PIECES
from .bitmoves import exchange, load_word, shift_line, shift_piece, widen_line, widen_piece
from .bits import LINE_BITS, append, flush_bits, move_bits, narrow
from .copies import STAGE, Table, advance, enter
from .jit import kernel, parallel_kernel
from .memory import (
    LINE,
    PIECE,
    WIDTHS,
    fence,
    move_line,
    move_piece,
    prefetch,
    size_of,
    transpose_even,
)
from .tiles import NEAR, block_of

PITCH = BIT_COLUMNS  # bytes of a row in the buffer, of elements that have a byte each
_BYTE = WIDTHS[1]


@kernel
def take(into: int, row: int, pieces: int, bits: Any) -> None:
    """Put 16 bytes of a row, or 16 codes, for each of `pieces`, into the buffer."""
    width = len(bits)
    come, shift = row >> 3, row & 7
    if 8 % width != 0:
        for _ in range(pieces >> 2):
            widen_line(into, come, shift, bits)
            come += 8 * width
            into += LINE
        for _ in range(pieces & 3):
            widen_piece(into, come, shift, bits)
            come += 2 * width
            into += PIECE
    elif shift == 0:
        for _ in range(pieces >> 2):
            move_line(into, come)
            come += LINE
            into += LINE
        for _ in range(pieces & 3):
            move_piece(into, come)
            come += PIECE
            into += PIECE
    else:
        for _ in range(pieces >> 2):
            shift_line(into, come, shift)
            come += LINE
            into += LINE
        for _ in range(pieces & 3):
            shift_piece(into, come, shift)
            come += PIECE
            into += PIECE


@kernel
def take_rows(
    buffer: int,
    source: int,
    rows_at: int,
    rows: int,
    count: int,
    next_source: int,
    next_at: int,
    bits: Any,
) -> None:
    """Put `count` elements of each of `rows` into the buffer; the last piece reaches back.

    The offsets of the rows stand at `rows_at`. The lines of the rows to come are
    asked for, at last those of the next block.
    """
    width = len(bits)
    per_byte = 8 // width if 8 % width == 0 else 1
    step = PIECE * per_byte
    pieces = count // step
    back = pieces * step < count
    for r in range(rows):
        if r + NEAR < rows:
            near = (source + load_word(rows_at + 8 * (r + NEAR))) >> 3
        else:
            near = (next_source + load_word(next_at + 8 * (r + NEAR - rows))) >> 3
        into = buffer + r % per_byte * LINE * PITCH // per_byte + r // per_byte * PITCH // per_byte
        row = source + load_word(rows_at + 8 * r)
        if count == BIT_COLUMNS:
            # As many as there are: a constant, so that the loops are unrolled.
            for line in range(0, BIT_COLUMNS * width // 8, LINE):
                prefetch(near + line)
            take(into, row, BIT_COLUMNS // step, bits)
        else:
            for line in range(0, count * width >> 3, LINE):
                prefetch(near + line)
            take(into, row, pieces, bits)
            if back:
                take(into + pieces * PIECE, row + (count - step) * width, 1, bits)


@kernel
def bit_tiles(
    source: int,
    target: int,
    loops: Table,
    at: Table,
    low: int,
    high: int,
    shape: Table,
    offsets: Table,
    facts: Table,
    stage: int,
    bits: Any,
    pieces: Any,
) -> None:
    """Transpose tiles of elements of as many bits as `bits` is long."""
    width, streamed = len(bits), facts[3]
    vector = PIECE * size_of(pieces)
    per_byte = 8 // width if 8 % width == 0 else 1
    step_p, step_q = per_byte * vector, PIECE * per_byte
    over = (LINE_BITS + width - 1) // width
    pitch = PITCH // per_byte
    apart, dense = shape[2, 2], shape[2, 0]
    table = offsets.ctypes.data
    buffer, packed = stage + shape[3, 1], stage + shape[3, 2]
    s, t = enter(loops, at, low)
    s += 8 * source + facts[1]
    t += 8 * target + facts[2]
    p_own, p_low, p_high, q_low, q_high = block_of(at, shape, loops, over, 0, step_q)
    for _ in range(low, high):
        come = s + p_low // shape[0, 1] * shape[0, 2] + q_low * width
        to = t + q_low // shape[1, 1] * shape[1, 2]
        p_rest, columns = p_low % shape[0, 1], shape[1, 4] + q_low % shape[1, 1]
        p_count, q_count, own = p_high - p_low, q_high - q_low, p_own
        s, t = advance(loops, at, s, t)
        p_own, p_low, p_high, q_low, q_high = block_of(at, shape, loops, over, 0, step_q)
        for p in range(0, p_count, step_p):
            rows = min(step_p, p_count - p)
            # What comes next: the next block of rows, which may be the next tile's.
            ahead, rows_ahead = come, p_rest + p + step_p
            if p + step_p >= p_count:
                ahead = s + p_low // shape[0, 1] * shape[0, 2] + q_low * width
                rows_ahead = p_low % shape[0, 1]
            rows_at, ahead_at = table + 8 * (p_rest + p), table + 8 * rows_ahead
            take_rows(buffer, come, rows_at, rows, q_count, ahead, ahead_at, bits)
            if per_byte > 1:
                for done in range(0, (rows + per_byte - 1) // per_byte * pitch, LINE):
                    exchange(buffer + done, LINE * pitch, bits)
            for c in range(per_byte):
                for k in range(0, q_count, step_q):
                    q = min(k, q_count - step_q)
                    piece = buffer + c * LINE * pitch + k // per_byte
                    place = stage + (q + c) * apart + p // per_byte
                    transpose_even(piece, pitch, place, per_byte * apart, _BYTE, pieces)
        limit = shape[0, 0]
        last = min(own + shape[0, 3], limit)
        if dense == DENSE_PIECES:
            move_bits(to + offsets[columns], 8 * stage, q_count * limit * width, streamed)
            q_count = 0
        elif dense != 0:
            # Whole rows that follow one another in the target, gathered as they do.
            place = to + offsets[columns]
            lead = place & (LINE_BITS - 1)
            filled = lead
            for q in range(q_count):
                row = stage + q * apart
                if per_byte == 1:
                    narrow(row, row, limit, bits)
                append(8 * packed + filled, 8 * row, limit * width, row + apart)
                filled += limit * width
                if filled + limit * width > 8 * STAGE:
                    place, filled = flush_bits(place, packed, lead, filled, streamed)
                    lead = 0
            move_bits(place, 8 * packed + lead, filled - lead, streamed)
            q_count = 0
        for q in range(q_count):
            row, begin = stage + q * apart, to + offsets[columns + q]
            if per_byte == 1:
                narrow(row, row, p_count, bits)
            # The lines that start in the tile's own part of the row, and the row's first bits.
            first, behind = begin + own * width, begin + last * width
            if own > 0:
                first += -first & (LINE_BITS - 1)
            if last < limit:
                behind = min(behind + (-behind & (LINE_BITS - 1)), begin + limit * width)
            if first < behind:
                from_stage = 8 * row + first - begin - own * width
                move_bits(first, from_stage, behind - first, streamed)
    fence()


@parallel_kernel
def bit_tiles_parallel(
    source: int,
    target: int,
    loops: Table,
    at: Table,
    count: int,
    shape: Table,
    offsets: Table,
    facts: Table,
    stage: int,
    stage_step: int,
    bits: Any,
    pieces: Any,
) -> None:
    """`bit_tiles`, one share of the tiles a row of `at`."""
    shares = at.shape[0]
    for share in prange(shares):
        low, high = count * share // shares, count * (share + 1) // shares
        own = stage + share * stage_step
        bit_tiles(
            source, target, loops, at[share], low, high,
            shape, offsets, facts, own, bits, pieces,
        )  # fmt: skip
