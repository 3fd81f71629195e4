"""Transpositions of elements narrower than a byte, in tiles at any bit of source and target.

As `tiles`, but `tile` and `offsets` count elements and bits. A block of rows passes through a
buffer, a few lines of each row at a time. If a byte holds several elements, these are exchanged
within groups of rows, which leaves a transposition of bytes. Elements of 3 and 6 bits are converted
to codes, a byte each. Columns are staged, and moved from there to their bits.

Rows of few columns are read by words instead, each to a lane of 2, 4 or 8 bytes; their bytes are
transposed first, and elements exchanged on the stage. Short columns, which are adjacent on the
stage, are joined: several in a word, if they fit, and then words.
"""

from __future__ import annotations

from typing import Any

from ..runtime.cpu_caches import LINE
from ..runtime.jobs import HIGH, LOW, SPAN, STREAMED, TENSOR
from .bit_vectors import (
    close_up,
    exchange,
    join_eight,
    open_up,
    shift_words,
    split_eight,
    unpack_words,
)
from .bits import LINE_BITS, flush_bits, load_bits, merge_ends, move_bits, move_whole
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
    FARTHEST,
    LANE,
    MADE_AT,
    MOST_AHEAD,
    PIECE,
    PITCH,
    ROWS,
    RUN_ROWS,
    STAGE,
    STAGED,
    START,
    WIDTHS,
)
from .copies import lines_of
from .jit import Address, BitAddress, Numbers, Table, inlined, kernel
from .memory import (
    address_of,
    bit_pointer,
    load_byte,
    load_word,
    move_half,
    move_line,
    move_piece,
    prefetch,
    prefetch_to_write,
    size_of,
    store_byte,
    store_word,
)
from .odometer import seek, step
from .shares import take
from .tiles import tile_at
from .vectors import transpose_even

BUFFER_PITCH = BIT_COLUMNS  # bytes of a row in the buffer, with a byte per element
PREFETCHED_BITS = 16 * LINE_BITS  # of rows: the distance of prefetching
NEAR = 4  # distance in rows of prefetching for the buffer
_BYTE_TAG, _PIECE, _LINE = WIDTHS[1], COUNTS[2], COUNTS[8]  # tags: an element, words of 8 bytes
_TWO, _FOUR, _EIGHT = WIDTHS[2], WIDTHS[4], WIDTHS[8]  # tags: bytes of a lane
_HALF = COUNTS[4]  # a tag: words of half a line
SHIFTED_BITS = 57  # that remain of a word wherever it begins in a byte
MOST_POSITIVE = (1 << 63) - 1
LANES_AHEAD = 64  # distance in rows of prefetching for lanes
EVEN_ROWS = 16  # rows that follow one another at even distances
MOST_SPACING = 4 * LINE_BITS  # of such rows, which hardware prefetches
LANE_VECTORS = 8  # of lanes: a load waits for several recent stores to its bytes


@inlined
def per_byte(width: int) -> int:
    """The number of elements in a byte; 1 if they cross byte boundaries."""
    return 8 // width if 8 % width == 0 else 1


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
    groups: int,
    bits: Any,
) -> None:
    """Copy `count` elements of each of `rows` to the buffer; the last piece reaches back.

    `rows_at` is the address of the rows' offsets; `groups` are the rows of a block that share a
    place within bytes. Lines of the following rows, at the end those of the next block, are
    prefetched.
    """
    width, together = len(bits), per_byte(len(bits))
    step, pitch = PIECE * together, BUFFER_PITCH // together
    whole = count // step * step
    ahead = min(max(NEAR, PREFETCHED_BITS // (count * width)), MOST_AHEAD)
    for r in range(rows):
        if r + ahead < rows:
            near = source + load_word(rows_at + 8 * (r + ahead))
        else:
            near = next_source + load_word(next_at + 8 * (r + ahead - rows))
        into = buffer + (r % together * groups + r // together) * pitch
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
    buffer: Address,
    stage: Address,
    pitch: int,
    rows: int,
    count: int,
    groups: int,
    bits: Any,
    pieces: Any,
) -> None:
    """Transpose `count` columns of the rows in the buffer to the stage, `pitch` bytes apart."""
    together, vector = per_byte(len(bits)), PIECE * size_of(pieces)
    between, each = BUFFER_PITCH // together, PIECE * together
    if together > 1:
        for done in range(0, (rows + together - 1) // together * between, LINE):
            exchange(buffer + done, groups * between, bits)
    # Vectors hold a part of one column, or several short columns that follow one another.
    apart = pitch if groups == vector else vector
    for c in range(together * groups // vector):
        for k in range(0, count, each):
            q = min(k, count - each)
            src = buffer + c * vector * between + k // together
            dst = stage + (q * pitch + c * apart)
            transpose_even(src, between, dst, together * pitch, _BYTE_TAG, pieces)


@kernel
def read_single_lanes(
    buffer: Address,
    source: BitAddress,
    rows_at: Address,
    rows: int,
    lane: int,
    farthest: int,
    end: Address,
) -> None:
    """As `read_lanes`, row by row; the farthest row is `farthest` bits after `source`.

    Lines of the rows that follow in the table of offsets are prefetched.
    """
    if (source + farthest >> 3) + 8 <= end:
        for r in range(rows):
            prefetch(source + load_word(rows_at + 8 * (r + LANES_AHEAD)) >> 3)
            row = source + load_word(rows_at + 8 * r)
            store_word(buffer + r * lane, load_word(row >> 3) >> (row & 7))
    else:
        for r in range(rows):
            store_word(buffer + r * lane, load_bits(source + load_word(rows_at + 8 * r), end))


@kernel
def read_even_lanes(
    buffer: Address, source: BitAddress, spacing: int, rows: int, lane: int
) -> None:
    """As `read_lanes`, of rows at multiples of `spacing` bits; as if there were up to 31 more."""
    each = 8 // lane if 8 // lane * spacing <= SHIFTED_BITS else 1
    src, first = source >> 3, source & 7
    for r in range(0, rows, 8 * each):
        split_eight(buffer + r * lane, each * lane, src, first, each * spacing)
        src += each * spacing
    if each > 1:
        for done in range(0, rows * lane, LINE):
            if lane == 2:
                open_up(buffer + done, spacing, _TWO)
            else:
                open_up(buffer + done, spacing, _FOUR)


@kernel
def read_lanes(
    buffer: Address,
    source: BitAddress,
    rows_at: Address,
    begin: int,
    rows: int,
    tile: Table,
    end: Address,
) -> None:
    """Copy the few elements of each of `rows`, from row `begin` of a tile on, to the buffer.

    See `read_rows`. A row takes LANE bytes there. More bits than those of a row are copied, but
    none of memory at or after address `end` is read.
    """
    lane, run, farthest = tile[STAGED, LANE], tile[COLUMNS, RUN_ROWS], tile[ROWS, FARTHEST]
    done = 0
    while done < rows:
        some, first, into = rows - done, rows_at + 8 * done, buffer + done * lane
        if run >= EVEN_ROWS:
            some = min(some, run - (begin + done) % run)
            spacing, row = load_word(first + 8) - load_word(first), source + load_word(first)
            safe = (row + (some + 31) * spacing >> 3) + 8 <= end
            if some >= EVEN_ROWS and spacing > 0 and spacing <= MOST_SPACING and safe:
                read_even_lanes(into, row, spacing, some, lane)
                done += some
                continue
        read_single_lanes(into, source, first, some, lane, farthest, end)
        done += some


@kernel
def transpose_lanes(
    buffer: Address, stage: Address, pitch: int, count: int, lane: int, bits: Any, pieces: Any
) -> None:
    """Transpose the bytes of `count` lanes to the stage."""
    row = per_byte(len(bits)) * lane
    vector = PIECE * size_of(pieces)
    for i in range(0, (count + per_byte(len(bits)) - 1) // per_byte(len(bits)), vector):
        for m in range(0, row, PIECE):
            src, dst = buffer + (i * row + m), stage + (i + m * pitch)
            transpose_even(src, row, dst, pitch, _BYTE_TAG, pieces)


@kernel
def exchange_lanes(stage: Address, pitch: int, lane: int, rows: int, count: int, bits: Any) -> None:
    """Exchange elements of columns on the stage, as `transpose_lanes` left them."""
    together = per_byte(len(bits))
    for k in range((count + together - 1) // together):
        for done in range(0, (rows + together - 1) // together, LINE):
            exchange(stage + (k * pitch + done), lane * pitch, bits)


@inlined
def column_at(stage: Address, q: int, pitch: int, lane: int, together: int) -> Address:
    """The place of a column on the stage."""
    if lane != 0:
        q = q % together * lane + q // together
    return stage + q * pitch


@kernel
def join_words(
    packed: Address, done: int, row: Address, pitch: int, count: int, nbits: int
) -> None:
    """Append `nbits` bits, at most 64, of each of `count` rows to `done` bits.

    All bits of the words that are written change.
    """
    mask = (1 << (nbits - 1) << 1) - 1
    word = load_word(packed + (done >> 6 << 3)) & ((1 << (done & 63)) - 1)
    for _ in range(count):
        more, first = load_word(row) & mask, done & 63
        word |= more << first
        store_word(packed + (done >> 6 << 3), word)
        if first + nbits >= 64:
            word = (more >> 1 & MOST_POSITIVE) >> (63 - first)
        done += nbits
        row += pitch
    store_word(packed + (done >> 6 << 3), word)


@kernel
def join_rows(packed: Address, done: int, row: Address, pitch: int, count: int, nbits: int) -> None:
    """As `join_words`, for rows of more than 64 bits; up to a line after them may change."""
    kept = int(load_byte(packed + (done >> 3))) & ((1 << (done & 7)) - 1)
    for _ in range(count):
        place, shift = packed + (done >> 3), done & 7
        # Most rows are no longer than half a line.
        if shift == 0:
            move_half(place, row)
            for at in range(LINE // 2, (nbits + 7) >> 3, LINE // 2):
                move_half(place + at, row + at)
        else:
            shift_words(place, row - 1, 8 - shift, _HALF)
            for at in range(LINE // 2, (nbits + shift + 7) >> 3, LINE // 2):
                shift_words(place + at, row + (at - 1), 8 - shift, _HALF)
            store_word(place, load_word(row) << shift | kept)
        done += nbits
        left = done & 7
        last = nbits - left
        kept = load_word(row + (last >> 3)) >> (last & 7) & ((1 << left) - 1)
        row += pitch
    store_byte(packed + (done >> 3), kept)


@kernel
def join_lanes(
    packed: Address, done: int, row: Address, pitch: int, count: int, nbits: int
) -> None:
    """As `join_words`, of adjacent rows of `pitch` bytes, 2, 4 or 8, whose words are joined first.

    These have at most `SHIFTED_BITS` bits.
    """
    for at in range(0, count * pitch, LINE):
        if pitch == 2:
            close_up(row + at, nbits, _TWO)
        elif pitch == 4:
            close_up(row + at, nbits, _FOUR)
        else:
            close_up(row + at, nbits, _EIGHT)
    nbits *= 8 // pitch
    into, first = packed + (done >> 3), done & 7
    store_word(row - 8, (int(load_byte(into)) & ((1 << first) - 1)) << (nbits - first))
    for at in range(0, count * pitch, LINE):
        join_eight(into, first, row + at, nbits)
        into += nbits


@kernel
def drain_dense(
    dst: BitAddress,
    stage: Address,
    tile: Table,
    first: int,
    count: int,
    whole: bool,
    pitch: int,
    streamed: bool,
    bits: Any,
) -> None:
    """Move `count` whole rows from `first` on, which are adjacent in the target.

    They are joined first; `whole` if these are all rows on the stage.
    """
    width, together = len(bits), per_byte(len(bits))
    packed, limit, lane = stage + tile[STAGED, MADE_AT], tile[ROWS, COUNT], tile[STAGED, LANE]
    nbits, apart, last = limit * width, pitch, first + count
    if lane != 0:
        apart = lane * pitch
    line_offset = dst & (LINE_BITS - 1)
    staged_bits = line_offset
    if 8 % width != 0:
        for q in range(first, last):
            pack(stage + q * pitch, stage + q * pitch, limit, bits)
    if whole and pitch <= 8 and 8 // pitch * nbits <= SHIFTED_BITS:
        join_lanes(packed, staged_bits, stage, pitch, count, nbits)
        staged_bits, first = staged_bits + count * nbits, last
    while first < last:
        some = min(last - first, max(1, (8 * STAGE - staged_bits) // nbits))
        if lane != 0:
            some = min(some, together - first % together)
        row = column_at(stage, first, pitch, lane, together)
        if nbits <= 64:
            join_words(packed, staged_bits, row, apart, some, nbits)
        else:
            join_rows(packed, staged_bits, row, apart, some, nbits)
        staged_bits, first = staged_bits + some * nbits, first + some
        if first < last and staged_bits + nbits > 8 * STAGE:
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
    lane: int,
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
            row = column_at(stage, q, pitch, lane, per_byte(width))
            place = dst + load_word(places + 8 * q)
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
    pitch: int,
    streamed: bool,
    bits: Any,
) -> None:
    """Move `count` columns of a tile, with offsets at `columns`, to the target.

    Whole rows that are adjacent are moved together.
    """
    width, limit = len(bits), tile[ROWS, COUNT]
    if tile[STAGED, DENSE] != 0:
        group = tile[STAGED, COLUMN_GROUP]
        first = columns - tile[COLUMNS, START]
        q = 0
        while q < count:
            some = min(count - q, group - (first + q) % group)
            place = dst + offsets[columns + q]
            if tile[STAGED, DENSE] == DENSE_PIECES:
                move_bits(place, 8 * (stage + q * pitch), some * limit * width, streamed)
            else:
                drain_dense(place, stage, tile, q, some, some == count, pitch, streamed, bits)
            q += some
    else:
        end = min(own + tile[ROWS, BLOCK], limit)
        at, lane = address_of(offsets) + 8 * columns, tile[STAGED, LANE]
        drain_rows(dst, stage, at, pitch, count, own, end, rows, limit, lane, streamed, bits)


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
    reach: int,
    bits: Any,
    pieces: Any,
) -> None:
    """Transpose tiles of elements; the length of the tuple `bits` is their width.

    `reach` is the number of bytes of the source that may be read.
    """
    width, vector = len(bits), PIECE * size_of(pieces)
    together = per_byte(width)
    step_p, limit, lane = together * vector, tile[ROWS, COUNT], tile[STAGED, LANE]
    if lane != 0:
        step_p *= LANE_VECTORS
    steps = 0, PIECE * together if lane == 0 else 1
    groups, pitch = vector, tile[STAGED, PITCH]
    if together > 1 and lane == 0 and limit <= step_p:
        groups = vector // together
        while groups * together < limit:
            groups *= 2
        pitch = groups
    over = (LINE_BITS + width - 1) // width
    stage += LINE  # what lies before the first column is read
    table, buffer = address_of(offsets), stage + tile[STAGED, BUFFER_AT]
    streamed = work[STREAMED] != 0
    at = span[SPAN:]
    while take(work, span):
        source, target = (
            bit_pointer(addresses[0, span[TENSOR]]),
            bit_pointer(addresses[1, span[TENSOR]]),
        )
        end = (source >> 3) + reach
        s, t = seek(loops, at, span[LOW])
        then = tile_at(at, tile, loops, over, steps, width, -1)
        ahead, rows_ahead = source + (s + then[4]), table + 8 * then[5]
        for _ in range(span[LOW], span[HIGH]):
            own, low, p_count, q_count, _, _, into, columns = then
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
                place = stage + p // together
                if lane != 0:
                    read_lanes(buffer, src, first, low + p, count, tile, end)
                    transpose_lanes(buffer, place, pitch, count, lane, bits, pieces)
                else:
                    read_rows(buffer, src, first, count, q_count, near, near_rows, groups, bits)
                    transpose_bits(buffer, place, pitch, count, q_count, groups, bits, pieces)
            if lane != 0:
                exchange_lanes(stage, pitch, lane, p_count, q_count, bits)
            drain_bits(
                dst, stage, tile, offsets, columns, q_count, own, p_count, pitch, streamed, bits
            )
