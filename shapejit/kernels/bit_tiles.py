"""Transpositions of elements narrower than a byte, in tiles at any bit of source and target.

As `tiles`, but `tile` and `offsets` count elements and bits. A block of rows passes through a
buffer, where rows of few columns take a word each. If a byte holds several elements, these are
exchanged within groups of rows, which leaves a transposition of bytes. Elements of 3 and 6 bits are
converted to codes, a byte each. Columns are staged, and moved from there to their bits; short ones
that are adjacent in the target are joined first.
"""

from __future__ import annotations

from typing import Any

from ..runtime.cpu_caches import LINE
from ..runtime.jobs import HIGH, LOW, SPAN, STREAMED
from .bit_vectors import (
    exchange,
    exchange_neighbours,
    join_eight,
    shift_words,
    split_eight,
)
from .bits import (
    LINE_BITS,
    drain_lines,
    drain_stage,
    load_bits,
    merge_ends,
    move_bits,
    move_whole,
)
from .calls import call
from .constants import (
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
    STEP,
    WIDTHS,
    WORD_BITS,
    WORDS,
    per_byte,
)
from .copies import lines_of
from .jit import Address, BitAddress, Numbers, Table, inlined, kernel
from .memory import (
    address_of,
    load_byte,
    load_word,
    move_half,
    move_line,
    move_piece,
    prefetch,
    size_of,
    store_byte,
    store_word,
)
from .odometer import seek, step
from .shares import bit_ends, take
from .tiles import tile_at
from .vectors import transpose_even

PREFETCHED_BITS = 32 * LINE_BITS  # of rows: the distance of prefetching
PIECE_BITS = 8 * PIECE
CLOSE = 4 * LINE_BITS  # the most bits from row to row of which eight are read together
NEAR = 4  # distance in rows of prefetching for the buffer
_BYTE_TAG = WIDTHS[1]
_ONE, _TWO, _FOUR, _EIGHT = (COUNTS[n] for n in (1, 2, 4, 8))  # tags: a number of words

elements_of_byte = inlined(per_byte)


@kernel
def read_part(into: Address, part: BitAddress, words: Any) -> None:
    """Copy `words` of 8 bytes, 2 or 8, of a row to the buffer."""
    if part & 7 != 0:
        shift_words(into, part >> 3, part & 7, words)
    elif len(words) == 2:
        move_piece(into, part >> 3)
    else:
        move_line(into, part >> 3)


@inlined
def read_row(into: Address, row: BitAddress, nbits: int) -> None:
    """Copy a row of `nbits` to the buffer, in pieces of which the last one reaches back."""
    if nbits & (LINE_BITS - 1) == 0:
        for at in range(0, nbits, LINE_BITS):
            read_part(into + (at >> 3), row + at, _EIGHT)
    else:
        for at in range(0, nbits, PIECE_BITS):
            read_part(into + (at >> 3), row + min(at, nbits - PIECE_BITS), _TWO)


@kernel
def read_words(
    buffer: Address,
    source: BitAddress,
    rows_at: Address,
    rows: int,
    begin: int,
    run: int,
    end: Address,
) -> None:
    """Copy a word of each row to the buffer, and up to 7 more words; a row has at most 57 bits.

    Rows follow one another at even distances, `run` at a time; `begin` is the first one. No memory
    at or after address `end` is read.
    """
    done, some = 0, run - begin % run
    while done < rows:
        some = min(some, rows - done)
        row = source + load_word(rows_at + 8 * done)
        spacing = load_word(rows_at + 8 * done + 8) - load_word(rows_at + 8 * done)
        last = row + max(0, (some - 1) * spacing)
        close = some >= 8 and spacing > 0 and spacing <= CLOSE
        if close and (last + 7 * CLOSE >> 3) + 8 <= end:
            for r in range(0, some, 8):
                first = row + r * spacing
                split_eight(buffer + 8 * r, first >> 3, first & 7, spacing)
        elif (last >> 3) + 8 <= end:
            for r in range(some):
                store_word(buffer + 8 * r, load_word(row >> 3) >> (row & 7))
                row += spacing
        else:
            for r in range(some):
                store_word(buffer + 8 * r, load_bits(row + r * spacing, end))
        buffer += 8 * some
        done, some = done + some, run


@kernel
def read_rows(
    buffer: Address,
    source: BitAddress,
    rows_at: Address,
    rows: int,
    count: int,
    groups: int,
    between: int,
    width: int,
    unpacks: int,
    end: Address,
) -> None:
    """Copy `count` elements of each of `rows` to the buffer, `between` bytes apart there.

    `rows_at` is the address of the rows' offsets; `groups` are the rows of a block that share a
    place within bytes. Lines of the following rows are prefetched.
    """
    together, nbits = elements_of_byte(width), count * width
    ahead = min(max(NEAR, PREFETCHED_BITS // nbits), MOST_AHEAD)
    last = nbits >> 3
    for first in range(0, rows, together):
        into = buffer
        for r in range(first, min(first + together, rows)):
            near = source + load_word(rows_at + 8 * (r + ahead)) >> 3
            for line in range(0, last, LINE):
                prefetch(near + line)
            prefetch(near + last)
            row = source + load_word(rows_at + 8 * r)
            if unpacks != 0:
                call(unpacks, (into, row, count, end))
            else:
                read_row(into, row, nbits)
            into += groups * between
        buffer += between


@inlined
def buffer_pitch(count: int, width: int) -> int:
    """The bytes of a row in the buffer, whole pieces."""
    nbits = count * width if 8 % width == 0 else 8 * count
    return (nbits + PIECE_BITS - 1) // PIECE_BITS * PIECE


@kernel
def exchange_rows(buffer: Address, apart: int, nbytes: int, width: int) -> None:
    """Transpose elements between rows: element c of row r of a group becomes element r of row c.

    A group has as many rows as a byte holds elements, `apart` bytes apart.
    """
    far, distance = width, 1
    while far < 8:
        for k in range(8 // width):
            if k & distance == 0:
                first = buffer + k * apart
                second = first + distance * apart
                for done in range(0, nbytes, LINE):
                    exchange(first + done, second + done, far)
        far, distance = 2 * far, 2 * distance


@kernel
def exchange_words(buffer: Address, rows: int, width: int) -> None:
    """As `exchange_rows`, for groups of adjacent words."""
    for done in range(0, 8 * rows, LINE):
        line, far = buffer + done, width
        exchange_neighbours(line, far, _ONE)
        if far < 4:
            exchange_neighbours(line, 2 * far, _TWO)
        if far < 2:
            exchange_neighbours(line, 4 * far, _FOUR)


@kernel
def transpose(
    buffer: Address,
    between: int,
    stage: Address,
    pitch: int,
    rows: int,
    count: int,
    groups: int,
    together: int,
    pieces: Any,
) -> None:
    """Transpose `count` columns of the rows in the buffer to the stage, `pitch` bytes apart.

    Vectors hold a part of one column, or several short columns that follow one another.
    """
    vector, each, spacing = PIECE * size_of(pieces), PIECE * together, together * pitch
    if between < PIECE:
        for row in range(0, (rows + together - 1) // together, vector):
            for k in range(0, together, 2):
                src, dst = buffer + (row * together + k) * 8, stage + (k * pitch + row)
                transpose_even(src, 8 * together, dst, spacing, pitch, _BYTE_TAG, pieces)
        return
    for begin in range(0, together * groups, vector):
        row = begin % groups
        if row * together < rows:
            for piece in range(0, between, PIECE):
                q = min(piece * together, count - each)
                src = buffer + begin * between + (piece if together > 1 else q)
                dst = stage + ((q + begin // groups) * pitch + row)
                transpose_even(src, between, dst, spacing, 8 * spacing, _BYTE_TAG, pieces)


@kernel
def join_words(
    packed: Address, done: int, row: Address, pitch: int, count: int, nbits: int
) -> None:
    """Append `nbits` bits, at most `WORD_BITS`, of each of `count` rows to `done` bits.

    Words are written: up to a line after these bits may change, and the word before the rows.
    """
    mask, kept = (1 << nbits) - 1, int(load_byte(packed + (done >> 3))) & ((1 << (done & 7)) - 1)
    if pitch == 8 and nbits >= 8:  # eight at a time take 0.65 of the time
        store_word(row - 8, kept << (nbits - (done & 7)))
        for k in range(0, count, 8):
            into = done + k * nbits
            join_eight(packed + (into >> 3), into & 7, row + 8 * k, nbits, mask)
        return
    for _ in range(count):
        kept |= (load_word(row) & mask) << (done & 7)
        store_word(packed + (done >> 3), kept)
        kept >>= (done & 7) + nbits & -8
        done += nbits
        row += pitch


@kernel
def join_rows(packed: Address, done: int, row: Address, pitch: int, count: int, nbits: int) -> None:
    """As `join_words`, for longer rows; up to a line after them may change."""
    kept = int(load_byte(packed + (done >> 3))) & ((1 << (done & 7)) - 1)
    for _ in range(count):
        place, shift = packed + (done >> 3), done & 7
        # Most rows are no longer than half a line.
        if shift == 0:
            move_half(place, row)
            for at in range(LINE // 2, (nbits + 7) >> 3, LINE // 2):
                move_half(place + at, row + at)
        else:
            shift_words(place, row - 1, 8 - shift, _FOUR)
            for at in range(LINE // 2, (nbits + shift + 7) >> 3, LINE // 2):
                shift_words(place + at, row + (at - 1), 8 - shift, _FOUR)
            store_word(place, load_word(row) << shift | kept)
        done += nbits
        left = done & 7
        last = nbits - left
        kept = load_word(row + (last >> 3)) >> (last & 7) & ((1 << left) - 1)
        row += pitch
    store_byte(packed + (done >> 3), kept)


@kernel
def drain_dense(
    dst: BitAddress,
    stage: Address,
    packed: Address,
    count: int,
    pitch: int,
    nbits: int,
    streamed: bool,
) -> None:
    """Move `count` rows of `nbits`, which are adjacent in the target; they are joined first."""
    staged_bits, first = dst & (LINE_BITS - 1), 0
    while first < count:
        some = min(count - first, max(1, (8 * STAGE - staged_bits) // nbits))
        row = stage + first * pitch
        if nbits <= WORD_BITS:
            join_words(packed, staged_bits, row, pitch, some, nbits)
        else:
            join_rows(packed, staged_bits, row, pitch, some, nbits)
        staged_bits, first = staged_bits + some * nbits, first + some
        if first < count and staged_bits + nbits > 8 * STAGE:
            dst, staged_bits = drain_lines(dst, packed, staged_bits, streamed)
    drain_stage(dst, packed, staged_bits, streamed)


@kernel
def drain_rows(
    dst: BitAddress,
    stage: Address,
    places: Address,
    pitch: int,
    count: int,
    own: int,
    end: int,
    limit: int,
    width: int,
    streamed: bool,
) -> None:
    """Move `count` columns, with offsets at `places`: rows of `limit` elements.

    Moves the lines of each that start in elements [own, end), and its first bits; elements from
    `own` on are on the stage. Atomic operations wait for all stores before them, so they come
    first. A line of the last tile but one may hold the row's end.
    """
    for turn in range(2):
        for q in range(count):
            place = dst + load_word(places + 8 * q)
            first, behind = lines_of(place, own * width, end * width, limit * width, LINE_BITS)
            if first < behind:
                source = 8 * (stage + q * pitch) + (first - own * width)
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
    pitch: int,
    streamed: bool,
    packs: int,
) -> None:
    """Move `count` columns of a tile, with offsets at `columns`, to the target.

    Whole rows that are adjacent are moved together.
    """
    width, limit = tile[COLUMNS, STEP], tile[ROWS, COUNT]
    if packs != 0:
        for q in range(count):
            call(packs, (stage + q * pitch, stage + q * pitch, rows))
    if tile[STAGED, DENSE] == 0:
        end = min(own + tile[ROWS, BLOCK], limit)
        places = address_of(offsets) + 8 * columns
        drain_rows(dst, stage, places, pitch, count, own, end, limit, width, streamed)
        return
    group, first, q = tile[STAGED, COLUMN_GROUP], columns - tile[COLUMNS, START], 0
    while q < count:
        some = min(count - q, group - (first + q) % group)
        place, row = dst + offsets[columns + q], stage + q * pitch
        if tile[STAGED, DENSE] == DENSE_PIECES:
            move_bits(place, 8 * row, some * limit * width, streamed)
        else:
            packed = stage + tile[STAGED, MADE_AT]
            drain_dense(place, row, packed, some, pitch, limit * width, streamed)
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
    reach: int,
    unpacks: int,
    packs: int,
    transposes: int,
    vector: int,
) -> None:
    """Transpose tiles of elements; `reach` is the number of bytes of the source that may be read.

    The function at `transposes` is a `transpose` by vectors of so many bytes; `unpacks` and `packs`
    (or 0) are those of elements that cross byte boundaries.
    """
    width, limit, pitch = tile[COLUMNS, STEP], tile[ROWS, COUNT], tile[STAGED, PITCH]
    together, words = elements_of_byte(width), tile[STAGED, WORDS]
    groups, step_p, steps = vector, together * vector, (0, PIECE * together)
    if words > 0:
        # A load waits for several recent stores to its bytes.
        groups, step_p, steps = 8 * vector, 8 * step_p, (0, 1)
    elif together > 1 and limit <= step_p:
        groups = 8  # see `join_words`
        while groups * together < limit:
            groups *= 2
        pitch = groups
    over = (LINE_BITS + width - 1) // width
    stage += LINE  # what lies before the first column is read
    table, buffer = address_of(offsets), stage + tile[STAGED, BUFFER_AT]
    streamed = work[STREAMED] != 0
    at = span[SPAN:]
    while take(work, span):
        source, target = bit_ends(addresses, span)
        end = (source >> 3) + reach
        s, t = seek(loops, at, span[LOW])
        for _ in range(span[LOW], span[HIGH]):
            own, low, p_count, q_count, begin, row, into, columns = tile_at(
                at, tile, loops, over, steps, width, -1
            )
            src, rows, dst = source + (s + begin), table + 8 * row, target + (t + into)
            between = 8 if words > 0 else buffer_pitch(q_count, width)
            for p in range(0, p_count, step_p):
                count, first = min(step_p, p_count - p), rows + 8 * p
                if words > 0:
                    read_words(buffer, src, first, count, low + p, words, end)
                    exchange_words(buffer, count, width)
                else:
                    read_rows(
                        buffer,
                        src,
                        first,
                        count,
                        q_count,
                        groups,
                        between,
                        width,
                        unpacks,
                        end,
                    )
                    if together > 1:
                        used = (count + together - 1) // together * between
                        exchange_rows(buffer, groups * between, used, width)
                place = stage + p // together
                call(
                    transposes,
                    (buffer, between, place, pitch, count, q_count, groups, together),
                )
            drain_bits(
                dst, stage, tile, offsets, columns, q_count, own, p_count, pitch, streamed, packs
            )
            s, t = step(loops, at, s, t)
