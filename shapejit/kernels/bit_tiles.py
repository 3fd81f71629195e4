"""Transpositions of elements narrower than a byte, in tiles at any bit of source and target.

As `tiles`, but `tile` and `offsets` count elements and bits. A block of rows passes through a
buffer, a few lines of each row at a time. If a byte holds several elements, these are exchanged
within groups of rows, which leaves a transposition of bytes. Elements of 3 and 6 bits are converted
to codes, a byte each. Columns are staged, and moved from there to their bits.
"""

from __future__ import annotations

from typing import Any

from ..runtime.cpu_caches import LINE
from ..runtime.jobs import HIGH, LOW, SPAN, STREAMED, TENSOR
from .bit_vectors import exchange, shift_words, unpack_words
from .bits import LINE_BITS, append, flush_bits, merge_ends, move_bits, move_whole
from .codes import pack
from .constants import (
    BIT_COLUMNS,
    BLOCK,
    BUFFER_AT,
    COLUMN_GROUP,
    COLUMNS,
    COUNT,
    COUNTS,
    DENSE,
    DENSE_PIECES,
    MADE_AT,
    MOST_AHEAD,
    PIECE,
    PITCH,
    ROWS,
    STAGE,
    STAGED,
    START,
    WIDTHS,
)
from .copies import lines_of
from .jit import Address, BitAddress, Numbers, Table, kernel
from .memory import (
    address_of,
    bit_pointer,
    load_word,
    move_line,
    move_piece,
    prefetch,
    prefetch_to_write,
    size_of,
)
from .odometer import seek, step
from .shares import take
from .tiles import tile_at
from .vectors import transpose_even

BUFFER_PITCH = BIT_COLUMNS  # bytes of a row in the buffer, with a byte per element
PREFETCHED_BITS = 16 * LINE_BITS  # of rows: the distance of prefetching
NEAR = 4  # distance in rows of prefetching for the buffer
_BYTE_TAG, _PIECE, _LINE = WIDTHS[1], COUNTS[2], COUNTS[8]  # tags: an element, words of 8 bytes


@kernel
def read_part(into: Address, row: BitAddress, bits: Any, words: Any) -> None:
    """Copy `words` of 8 bytes of a row, or of 8 codes, to the buffer."""
    src, shift = row >> 3, row & 7
    if 8 % len(bits) != 0:
        unpack_words(into, src, shift, bits, words)
    elif shift != 0:
        shift_words(into, src, shift, words)
    elif len(words) == 2:
        move_piece(into, src)
    else:
        move_line(into, src)


@kernel
def read_rows(
    buffer: Address,
    source: BitAddress,
    rows_at: Address,
    rows: int,
    count: int,
    next_source: BitAddress,
    next_at: Address,
    bits: Any,
) -> None:
    """Copy `count` elements of each of `rows` to the buffer; the last piece reaches back.

    `rows_at` is the address of the rows' offsets. Lines of the following rows, at the end those of
    the next block, are prefetched.
    """
    width = len(bits)
    together = 8 // width if 8 % width == 0 else 1
    step, pitch = PIECE * together, BUFFER_PITCH // together
    whole = count // step * step
    ahead = min(max(NEAR, PREFETCHED_BITS // (count * width)), MOST_AHEAD)
    for r in range(rows):
        if r + ahead < rows:
            near = source + load_word(rows_at + 8 * (r + ahead))
        else:
            near = next_source + load_word(next_at + 8 * (r + ahead - rows))
        into = buffer + r % together * LINE * pitch + r // together * pitch
        row = source + load_word(rows_at + 8 * r)
        last = count * width >> 3
        for line in range(0, last, LINE):
            prefetch((near >> 3) + line)
        prefetch((near >> 3) + last)
        if count == BIT_COLUMNS:
            for q in range(0, BIT_COLUMNS, LINE * together):
                read_part(into + q // together, row + q * width, bits, _LINE)
        else:
            for q in range(0, whole, step):
                read_part(into + q // together, row + q * width, bits, _PIECE)
            if whole < count:
                read_part(into + whole // together, row + (count - step) * width, bits, _PIECE)


@kernel
def transpose_bits(
    buffer: Address, stage: Address, pitch: int, rows: int, count: int, bits: Any, pieces: Any
) -> None:
    """Transpose `count` columns of the rows in the buffer to the stage, `pitch` bytes apart."""
    width = len(bits)
    together = 8 // width if 8 % width == 0 else 1
    between, each = BUFFER_PITCH // together, PIECE * together
    if together > 1:
        for done in range(0, (rows + together - 1) // together * between, LINE):
            exchange(buffer + done, LINE * between, bits)
    for c in range(together):
        for k in range(0, count, each):
            q = min(k, count - each)
            src = buffer + c * LINE * between + k // together
            dst = stage + (q + c) * pitch
            transpose_even(src, between, dst, together * pitch, _BYTE_TAG, pieces)


@kernel
def drain_dense(
    dst: BitAddress,
    stage: Address,
    packed: Address,
    pitch: int,
    count: int,
    limit: int,
    streamed: bool,
    bits: Any,
) -> None:
    """Move `count` whole rows of `limit` elements that are adjacent in the target.

    They are packed at `packed` first.
    """
    width = len(bits)
    line_offset = dst & (LINE_BITS - 1)
    staged_bits = line_offset
    for q in range(count):
        row = stage + q * pitch
        if 8 % width != 0:
            pack(row, row, limit, bits)
        if (staged_bits | limit * width) & 7 == 0:
            for done in range(0, limit * width >> 3, PIECE):
                move_piece(packed + (staged_bits >> 3) + done, row + done)
        else:
            append(8 * packed + staged_bits, 8 * row, limit * width, row + pitch + 2 * LINE)
        staged_bits += limit * width
        if staged_bits + limit * width > 8 * STAGE:
            dst, staged_bits = flush_bits(dst, packed, line_offset, staged_bits, streamed)
            line_offset = 0
    move_bits(dst, 8 * packed + line_offset, staged_bits - line_offset, streamed)


@kernel
def drain_rows(
    dst: BitAddress,
    stage: Address,
    places: Address,
    pitch: int,
    count: int,
    own: int,
    end: int,
    rows: int,
    limit: int,
    streamed: bool,
    bits: Any,
) -> None:
    """Move `count` columns, with offsets at `places`: rows of `limit` elements.

    Moves the lines of each that start in elements [own, end), and its first bits; `rows` elements
    from `own` on are on the stage. Atomic operations wait for all stores before them, so they come
    first.
    """
    width, begin = len(bits), 1
    if own == 0 or own + rows == limit:  # a line of the last tile but one may hold the row's end
        begin = 0
    for turn in range(begin, 2):
        for q in range(count):
            row, place = stage + q * pitch, dst + load_word(places + 8 * q)
            if 8 % width != 0 and turn == begin:
                pack(row, row, rows, bits)
            first, behind = lines_of(place, own * width, end * width, limit * width, LINE_BITS)
            if first < behind:
                source = 8 * row + (first - own * width)
                if turn == 0:
                    merge_ends(place + first, source, behind - first)
                else:
                    move_whole(place + first, source, behind - first, streamed)


@kernel
def drain_bits(
    dst: BitAddress,
    stage: Address,
    tile: Table,
    offsets: Numbers,
    columns: int,
    count: int,
    own: int,
    rows: int,
    streamed: bool,
    bits: Any,
) -> None:
    """Move `count` columns of a tile, with offsets at `columns`, to the target.

    Whole rows that are adjacent are moved together.
    """
    width, pitch, limit = len(bits), tile[STAGED, PITCH], tile[ROWS, COUNT]
    if tile[STAGED, DENSE] != 0:
        packed, group = stage + tile[STAGED, MADE_AT], tile[STAGED, COLUMN_GROUP]
        first = columns - tile[COLUMNS, START]
        q = 0
        while q < count:
            some = min(count - q, group - (first + q) % group)
            place, begin = dst + offsets[columns + q], stage + q * pitch
            if tile[STAGED, DENSE] == DENSE_PIECES:
                move_bits(place, 8 * begin, some * limit * width, streamed)
            else:
                drain_dense(place, begin, packed, pitch, some, limit, streamed, bits)
            q += some
    else:
        end = min(own + tile[ROWS, BLOCK], limit)
        at = address_of(offsets) + 8 * columns
        drain_rows(dst, stage, at, pitch, count, own, end, rows, limit, streamed, bits)


@kernel
def prefetch_ends(
    dst: BitAddress,
    tile: Table,
    offsets: Numbers,
    columns: int,
    count: int,
    own: int,
    rows: int,
    bits: Any,
) -> None:
    """Prefetch lines of the target that a tile's columns share with other columns.

    The atomic operations of `drain_bits`, which change their bytes, would wait for them.
    """
    group, first, limit = 1, 0, tile[ROWS, COUNT]
    if tile[STAGED, DENSE] != 0:
        group, first = tile[STAGED, COLUMN_GROUP], columns - tile[COLUMNS, START]
    elif own > 0 and own + rows < limit:
        return
    q = 0
    while q < count:
        some = min(count - q, group - (first + q) % group)
        place = dst + offsets[columns + q]
        prefetch_to_write(place >> 3)
        prefetch_to_write((place + some * limit * len(bits)) >> 3)
        q += some


@kernel
def bit_tiles(
    addresses: Table,
    work: Numbers,
    span: Numbers,
    stage: Address,
    loops: Table,
    tile: Table,
    offsets: Numbers,
    bits: Any,
    pieces: Any,
) -> None:
    """Transpose tiles of elements; the length of the tuple `bits` is their width."""
    width = len(bits)
    together = 8 // width if 8 % width == 0 else 1
    step_p, steps = together * PIECE * size_of(pieces), (0, PIECE * together)
    over = (LINE_BITS + width - 1) // width
    table, buffer = address_of(offsets), stage + tile[STAGED, BUFFER_AT]
    streamed = work[STREAMED] != 0
    at = span[SPAN:]
    while take(work, span):
        source, target = (
            bit_pointer(addresses[0, span[TENSOR]]),
            bit_pointer(addresses[1, span[TENSOR]]),
        )
        s, t = seek(loops, at, span[LOW])
        then = tile_at(at, tile, loops, over, steps, width, -1)
        ahead, rows_ahead = source + (s + then[4]), table + 8 * then[5]
        for _ in range(span[LOW], span[HIGH]):
            own, _, p_count, q_count, _, _, into, columns = then
            src, rows, dst = ahead, rows_ahead, target + (t + into)
            s, t = step(loops, at, s, t)
            then = tile_at(at, tile, loops, over, steps, width, -1)
            ahead, rows_ahead = source + (s + then[4]), table + 8 * then[5]
            prefetch_ends(dst, tile, offsets, columns, q_count, own, p_count, bits)
            for p in range(0, p_count, step_p):
                count, first = min(step_p, p_count - p), rows + 8 * p
                # The next block of rows, which may belong to the next tile.
                near, near_rows = ahead, rows_ahead
                if p + step_p < p_count:
                    near, near_rows = src, first + 8 * step_p
                read_rows(buffer, src, first, count, q_count, near, near_rows, bits)
                place = stage + p // together
                transpose_bits(buffer, place, tile[STAGED, PITCH], count, q_count, bits, pieces)
            drain_bits(dst, stage, tile, offsets, columns, q_count, own, p_count, streamed, bits)
