"""Tiles of elements narrower than a byte, at any bit of source and target.

As `tiles`, whose `tile` and `offsets` are here in elements and bits. A block of rows
passes through a buffer, a few lines of each row at a time; with several elements per
byte these are exchanged within groups of rows, so that what is left is a transposition
of bytes. Elements of 3 and 6 bits travel as codes, a byte each. Columns are staged, and
moved to their bits from there.
"""

from __future__ import annotations

from typing import Any

from .bitmoves import exchange, load_word, shift_line, shift_piece, widen_line, widen_piece
from .bits import LINE_BITS, append, flush_bits, move_bits, narrow
from .constants import (
    BIT_COLUMNS,
    BLOCK,
    BUFFER_AT,
    COLUMNS,
    COUNT,
    DENSE,
    DENSE_PIECES,
    HIGH,
    LINE,
    LOW,
    MOST_AHEAD,
    PACKED_AT,
    PIECE,
    PITCH,
    ROWS,
    SPAN,
    STAGE,
    STAGED,
    STREAMED,
    TENSOR,
    WIDTHS,
)
from .jit import Numbers, Table, kernel
from .memory import move_line, move_piece, prefetch, size_of, transpose_even
from .odometer import offset_at, seek, step
from .shares import take
from .tiles import NEAR, block_of

BUFFER_PITCH = BIT_COLUMNS  # bytes of a row in the buffer, of elements that have a byte each
AHEAD = 16 * LINE_BITS  # of rows, asked for before they are needed
_BYTE = WIDTHS[1]


@kernel
def take_block(into: int, row: int, bits: Any) -> None:
    """Put the elements of a whole block of columns of a row into the buffer."""
    width = len(bits)
    come, shift = row >> 3, row & 7
    if 8 % width != 0:
        for line in range(0, BUFFER_PITCH, LINE):
            widen_line(into + line, come + line * width // 8, shift, bits)
    elif shift == 0:
        for line in range(0, BUFFER_PITCH * width // 8, LINE):
            move_line(into + line, come + line)
    else:
        for line in range(0, BUFFER_PITCH * width // 8, LINE):
            shift_line(into + line, come + line, shift)


@kernel
def take_piece(into: int, row: int, bits: Any) -> None:
    """Put 16 bytes of a row, or 16 codes, into the buffer."""
    if 8 % len(bits) != 0:
        widen_piece(into, row >> 3, row & 7, bits)
    elif row & 7 == 0:
        move_piece(into, row >> 3)
    else:
        shift_piece(into, row >> 3, row & 7)


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
    together = 8 // width if 8 % width == 0 else 1
    step, pitch = PIECE * together, BUFFER_PITCH // together
    whole = count // step * step
    ahead = min(max(NEAR, AHEAD // (count * width)), MOST_AHEAD)
    for r in range(rows):
        if r + ahead < rows:
            near = source + load_word(rows_at + 8 * (r + ahead))
        else:
            near = next_source + load_word(next_at + 8 * (r + ahead - rows))
        into = buffer + r % together * LINE * pitch + r // together * pitch
        row = source + load_word(rows_at + 8 * r)
        if count == BIT_COLUMNS:
            for line in range(0, BIT_COLUMNS * width // 8, LINE):
                prefetch((near >> 3) + line)
            take_block(into, row, bits)
        else:
            last = count * width >> 3
            for line in range(0, last, LINE):
                prefetch((near >> 3) + line)
            prefetch((near >> 3) + last)
            for q in range(0, whole, step):
                take_piece(into + q // together, row + q * width, bits)
            if whole < count:
                take_piece(into + whole // together, row + (count - step) * width, bits)


@kernel
def bit_tiles(
    places: Table,
    work: Numbers,
    span: Numbers,
    stage: int,
    loops: Table,
    tile: Table,
    offsets: Numbers,
    bits: Any,
    pieces: Any,
) -> None:
    """Transpose tiles of elements of as many bits as `bits` is long."""
    width = len(bits)
    vector = PIECE * size_of(pieces)
    together = 8 // width if 8 % width == 0 else 1
    step_p, step_q = together * vector, PIECE * together
    over = (LINE_BITS + width - 1) // width
    pitch = BUFFER_PITCH // together
    apart, dense = tile[STAGED, PITCH], tile[STAGED, DENSE]
    table = offsets.ctypes.data
    buffer, packed = stage + tile[STAGED, BUFFER_AT], stage + tile[STAGED, PACKED_AT]
    streamed = work[STREAMED] != 0
    at = span[SPAN:]
    while take(work, span):
        source, target = places[0, span[TENSOR]], places[1, span[TENSOR]]
        low, high = span[LOW], span[HIGH]
        s, t = seek(loops, at, low)
        s += source
        t += target
        p_own, p_low, p_high, q_low, q_high = block_of(at, tile, loops, over, 0, step_q)
        for _ in range(low, high):
            come, p_rest = offset_at(tile, ROWS, p_low)
            to, columns = offset_at(tile, COLUMNS, q_low)
            come += s + q_low * width
            to += t
            p_count, q_count, own = p_high - p_low, q_high - q_low, p_own
            s, t = step(loops, at, s, t)
            p_own, p_low, p_high, q_low, q_high = block_of(at, tile, loops, over, 0, step_q)
            for p in range(0, p_count, step_p):
                rows = min(step_p, p_count - p)
                # What comes next: the next block of rows, which may be the next tile's.
                ahead, rows_ahead = come, p_rest + p + step_p
                if p + step_p >= p_count:
                    ahead, rows_ahead = offset_at(tile, ROWS, p_low)
                    ahead += s + q_low * width
                rows_at, ahead_at = table + 8 * (p_rest + p), table + 8 * rows_ahead
                take_rows(buffer, come, rows_at, rows, q_count, ahead, ahead_at, bits)
                if together > 1:
                    for done in range(0, (rows + together - 1) // together * pitch, LINE):
                        exchange(buffer + done, LINE * pitch, bits)
                for c in range(together):
                    for k in range(0, q_count, step_q):
                        q = min(k, q_count - step_q)
                        piece = buffer + c * LINE * pitch + k // together
                        place = stage + (q + c) * apart + p // together
                        transpose_even(piece, pitch, place, together * apart, _BYTE, pieces)
            limit = tile[ROWS, COUNT]
            last = min(own + tile[ROWS, BLOCK], limit)
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
                    if together == 1:
                        narrow(row, row, limit, bits)
                    if (filled | limit * width) & 7 == 0:
                        for done in range(0, limit * width >> 3, PIECE):
                            move_piece(packed + (filled >> 3) + done, row + done)
                    else:
                        append(8 * packed + filled, 8 * row, limit * width, row + apart)
                    filled += limit * width
                    if filled + limit * width > 8 * STAGE:
                        place, filled = flush_bits(place, packed, lead, filled, streamed)
                        lead = 0
                move_bits(place, 8 * packed + lead, filled - lead, streamed)
                q_count = 0
            for q in range(q_count):
                row, begin = stage + q * apart, to + offsets[columns + q]
                if together == 1:
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
