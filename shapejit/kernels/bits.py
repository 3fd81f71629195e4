"""Elements narrower than a byte: runs and rows at any bit, and elements by way of codes.

Addresses of elements count bits: 8 times the address of a byte and more. So do the
strides of `loops`. `reach` are the bytes that may be read behind `source`.
"""

from __future__ import annotations

from typing import Any

from .bitmoves import (
    gathered,
    load_word,
    narrow_line,
    set_bits,
    shift_line,
    shift_piece,
    spread,
    store_word,
    stream_shifted,
    widen_line,
)
from .constants import (
    CODES_BLOCK,
    HIGH,
    LINE,
    LOW,
    PAGE,
    PIECE,
    SPAN,
    STAGE,
    STREAMED,
    TENSOR,
    WIDTHS,
)
from .copies import small_row, stream
from .jit import Numbers, Table, kernel
from .memory import (
    copy,
    interleave,
    load_byte,
    move_line,
    move_piece,
    pick,
    size_of,
    store_byte,
)
from .odometer import seek, step
from .shares import take

LINE_BITS = 8 * LINE
_BYTE, _LINE = WIDTHS[1], WIDTHS[4]  # codes, and as many pieces as a line holds
SHORT = 4 * LINE  # bytes that are stored at once, streamed or not: TTC 46 with int4 28 -> 20 ms
LONG = 8 * PAGE  # bits of a row that is moved by itself


@kernel
def load_bits(source: int, end: int) -> int:
    """At least 57 bits from a bit address on; nothing is read from address `end` on."""
    address = source >> 3
    word: int = 0
    if address + 8 <= end:
        word = load_word(address)
    else:
        for i in range(end - address):
            word |= int(load_byte(address + i)) << 8 * i
    return word >> (source & 7)


@kernel
def merge(address: int, low: int, high: int, source: int) -> None:
    """Let bits [low, high) of a byte be those from a bit address on."""
    come, shift = source >> 3, source & 7
    code = int(load_byte(come)) >> shift
    if shift + high - low > 8:
        code |= int(load_byte(come + 1)) << (8 - shift)
    set_bits(address, (1 << high) - (1 << low), code << low)


@kernel
def shift_word(target: int, source: int, shift: int) -> None:
    """Copy 8 bytes from `shift` bits, 1 to 7, behind an address."""
    low = load_word(source) >> shift & ~(-1 << (64 - shift))
    store_word(target, low | load_word(source + 1) << (8 - shift))


@kernel
def shift_few(target: int, source: int, shift: int, nbytes: int) -> None:
    """Copy less than a line from `shift` bits, 1 to 7, behind an address."""
    done = 0
    if nbytes >= PIECE:
        while done < nbytes - PIECE:
            shift_piece(target + done, source + done, shift)
            done += PIECE
        last = nbytes - PIECE
        shift_piece(target + last, source + last, shift)
    elif nbytes >= 8:
        shift_word(target, source, shift)
        shift_word(target + nbytes - 8, source + nbytes - 8, shift)
    else:
        while done < nbytes:
            both = int(load_byte(source + done)) | int(load_byte(source + done + 1)) << 8
            store_byte(target + done, both >> shift & 255)
            done += 1


@kernel
def shift_bytes(target: int, source: int, shift: int, nbytes: int, streamed: bool) -> None:
    """memcpy from `shift` bits, 0 to 7, behind an address."""
    if shift == 0:
        if LINE <= nbytes <= SHORT:
            small_row(target, source, nbytes, _LINE)
        elif streamed:
            stream(target, source, nbytes)
        else:
            copy(target, source, nbytes)
    elif nbytes < LINE:
        shift_few(target, source, shift, nbytes)
    else:
        done = -target & (LINE - 1)
        shift_few(target, source, shift, done)
        if streamed:
            while done + LINE <= nbytes:
                stream_shifted(target + done, source + done, shift)
                done += LINE
        else:
            while done + LINE <= nbytes:
                shift_line(target + done, source + done, shift)
                done += LINE
        shift_few(target + done, source + done, shift, nbytes - done)


@kernel
def move_bits(target: int, source: int, nbits: int, streamed: bool) -> None:
    """memcpy between bit addresses; the bits beside the target's keep what others write there."""
    end = target + nbits
    first, last = (target + 7) >> 3, end >> 3
    if target & 7 != 0:
        merge(target >> 3, target & 7, min(8, (target & 7) + nbits), source)
    if first < last:
        come = source + 8 * first - target
        shift_bytes(first, come >> 3, come & 7, last - first, streamed)
    if first <= last and end & 7 != 0:
        merge(last, 0, end & 7, source + 8 * last - target)


@kernel
def append(target: int, source: int, nbits: int, end: int) -> None:
    """Copy bits behind those on a stage; up to two words behind them may change."""
    while nbits > 0:
        take = min(nbits, 56)
        if nbits >= 2 * 8 * PIECE:
            take = -target & 7
        word = load_bits(source, end) & (1 << take) - 1
        at, filled = target >> 3, target & 7
        store_word(at, int(load_byte(at)) & (1 << filled) - 1 | word << filled)
        target, source, nbits = target + take, source + take, nbits - take
        if nbits >= 8 * PIECE and target & 7 == 0:
            to, come, shift = target >> 3, source >> 3, source & 7
            done = 0
            while done + PIECE <= nbits >> 3:
                if shift == 0:
                    move_piece(to + done, come + done)
                else:
                    shift_piece(to + done, come + done, shift)
                done += PIECE
            target, source, nbits = target + 8 * done, source + 8 * done, nbits - 8 * done


@kernel
def flush_bits(target: int, stage: int, lead: int, filled: int, streamed: bool) -> tuple[int, int]:
    """Move the whole lines staged in bits [lead, filled), whose first belongs at `target`.

    The stage stands to its lines as the target does. Returns where the next
    line belongs, and how many bits of it are staged already.
    """
    whole = filled & -LINE_BITS
    move_bits(target, 8 * stage + lead, whole - lead, streamed)
    move_line(stage, stage + (whole >> 3))
    return target + whole - lead, filled - whole


@kernel
def bit_run(places: Table, work: Numbers, span: Numbers, stage: int, nbits: int) -> None:
    """Copy one run; work is counted in pages of the target that it touches."""
    streamed = work[STREAMED] != 0
    while take(work, span):
        source, target = places[0, span[TENSOR]], places[1, span[TENSOR]]
        page = target & -8 * PAGE
        first = max(target, page + 8 * PAGE * span[LOW])
        end = min(target + nbits, page + 8 * PAGE * span[HIGH])
        if first < end:
            move_bits(first, source + first - target, end - first, streamed)


@kernel
def bit_rows(
    places: Table,
    work: Numbers,
    span: Numbers,
    stage: int,
    loops: Table,
    nbits: int,
    reach: int,
    apart: bool,
) -> None:
    """Copy rows; unless they are `apart`, short ones are gathered on the stage."""
    streamed = work[STREAMED] != 0
    at = span[SPAN:]
    while take(work, span):
        source, target = places[0, span[TENSOR]], places[1, span[TENSOR]]
        low, high = span[LOW], span[HIGH]
        end = (source >> 3) + reach
        s, t = seek(loops, at, low)
        s += source
        t += target
        if apart or nbits >= LONG:
            for _ in range(low, high):
                move_bits(t, s, nbits, streamed)
                s, t = step(loops, at, s, t)
        else:
            lead = t & (LINE_BITS - 1)
            filled = lead
            for _ in range(low, high):
                append(8 * stage + filled, s, nbits, end)
                filled += nbits
                if filled + nbits > 8 * STAGE:
                    t, filled = flush_bits(t, stage, lead, filled, streamed)
                    lead = 0
                s, _ = step(loops, at, s, 0)
            move_bits(t, 8 * stage + lead, filled - lead, streamed)


@kernel
def widen(codes: int, source: int, count: int, end: int, bits: Any) -> None:
    """Write the codes of `count` elements that lie side by side; up to 7 more may change."""
    width, done = len(bits), 0
    while done + LINE <= count:
        bit = source + done * width
        widen_line(codes + done, bit >> 3, bit & 7, bits)
        done += LINE
    while done < count:
        word = load_bits(source + done * width, end)
        store_word(codes + done, spread(word, width))
        done += 8


@kernel
def narrow(target: int, codes: int, count: int, bits: Any) -> None:
    """Pack codes onto a stage; up to 7 codes behind them are read, and a word may change."""
    width, done = len(bits), 0
    while done + LINE <= count:
        narrow_line(target + (done * width >> 3), codes + done, bits)
        done += LINE
    while done < count:
        word = gathered(load_word(codes + done), width)
        store_word(target + (done * width >> 3), word)
        done += 8


@kernel
def pick_codes(codes: int, apart: int, source: int, stride: int, count: int, bits: Any) -> None:
    """Write the codes of `count` elements, `apart` bytes from one to the next."""
    width = len(bits)
    mask = (1 << width) - 1
    for _ in range(count):
        address, shift = source >> 3, source & 7
        code = int(load_byte(address)) >> shift
        if 8 % width != 0 and shift + width > 8:
            code |= int(load_byte(address + 1)) << (8 - shift)
        store_byte(codes, code & mask)
        codes += apart
        source += stride


@kernel
def fill(
    codes: int,
    source: int,
    loops: Table,
    at: Table,
    first: int,
    count: int,
    end: int,
    bits: Any,
) -> None:
    """Write the codes of elements [first, first + count) of the loops."""
    last = loops.shape[0] - 1
    size, stride = loops[last, 0], loops[last, 1]
    s, _ = seek(loops, at, first)
    done = 0
    while done < count:
        take = min(count - done, size - at[last])
        if last > 0 and size < PIECE and at[last] == 0 and take == size:
            # Short runs, side by side: along the loop around them.
            runs = min((count - done) // size, loops[last - 1, 0] - at[last - 1])
            around = loops[last - 1, 1]
            for i in range(size):
                begin = source + s + i * stride
                pick_codes(codes + done + i, size, begin, around, runs, bits)
            done += runs * size
            at[last - 1] += runs - 1
            s += (runs - 1) * around
        else:
            if stride == len(bits):
                widen(codes + done, source + s, take, end, bits)
            else:
                pick_codes(codes + done, 1, source + s, stride, take, bits)
            done += take
        at[last] += take - 1
        s, _ = step(loops, at, s + (take - 1) * stride, 0)


@kernel
def fill_turns(
    codes: int,
    source: int,
    loops: Table,
    at: Table,
    first: int,
    count: int,
    end: int,
    runs: int,
    bits: Any,
    turns: Any,
) -> None:
    """`fill` where as many runs as `turns` is long, the last loop, take turns."""
    rows, last = len(turns), loops.shape[0] - 1
    size, width, apart = loops[last - 1, 0], len(bits), CODES_BLOCK // len(turns) + LINE
    for row in range(rows):
        store_word(runs + 8 * row, row * apart)
    table, runs = runs, runs + LINE
    s, _ = seek(loops, at, first)
    done = 0
    while done < count:
        take = min((count - done) // rows, size - at[last - 1])
        for row in range(rows):
            begin = source + s + row * loops[last, 1]
            widen(runs + row * apart, begin, take, end, bits)
        for i in range(0, take, LINE):
            interleave(runs + i, table, codes + done + i * rows, turns, _BYTE, _LINE)
        done += take * rows
        at[last - 1] += take - 1
        at[last] = rows - 1
        s, _ = step(loops, at, s + (take - 1) * width + (rows - 1) * loops[last, 1], 0)


@kernel
def fill_picks(
    codes: int,
    source: int,
    loops: Table,
    at: Table,
    first: int,
    count: int,
    end: int,
    runs: int,
    bits: Any,
    apart: Any,
    direction: Any,
) -> None:
    """`fill` where the elements of the last loop lie `apart`, as `pick` has it."""
    last, width, far = loops.shape[0] - 1, len(bits), len(apart)
    size = loops[last, 0]
    s, _ = seek(loops, at, first)
    done = 0
    while done < count:
        take = min(count - done, size - at[last])
        reach = (take - 1) * far
        if size_of(direction) == 2:
            # The last whole vector reads before the first element: a margin is there.
            begin = runs + LINE * (far + 1)
            widen(begin, source + s - reach * width, reach + 1, end, bits)
            for i in range(0, take, LINE):
                pick(begin + reach - i * far, codes + done + i, apart, direction, _BYTE, _LINE)
        else:
            widen(runs, source + s, reach + 1, end, bits)
            for i in range(0, take, LINE):
                pick(runs + i * far, codes + done + i, apart, direction, _BYTE, _LINE)
        done += take
        at[last] += take - 1
        s, _ = step(loops, at, s + (take - 1) * loops[last, 1], 0)


@kernel
def by_codes(
    places: Table,
    work: Numbers,
    span: Numbers,
    stage: int,
    loops: Table,
    reach: int,
    outer: int,
    count: int,
    block: int,
    unit: int,
    bits: Any,
    turns: Any,
    apart: Any,
    direction: Any,
) -> None:
    """Copy elements in blocks: a byte each on the stage, then packed unless `unit` is 8.

    The first `outer` loops walk blocks of rows of `count` elements, the others the
    elements of a row. One of `turns` and `apart` may be longer than 1, or `direction`
    two bytes: whole vectors then follow the elements.
    """
    streamed = work[STREAMED] != 0
    at = span[SPAN:]
    while take(work, span):
        source, target = places[0, span[TENSOR]], places[1, span[TENSOR]]
        low, high = span[LOW], span[HIGH]
        width, end = len(bits), (source >> 3) + reach
        around, within = loops[:outer], loops[outer:]
        around_at, within_at = at[:outer], at[outer : loops.shape[0]]
        begin, packed = source, stage + CODES_BLOCK + 4 * LINE
        runs = packed + CODES_BLOCK + 4 * LINE
        codes_at_hand = within.shape[0] == 1 and within[0, 1] == 8
        s, t = seek(around, around_at, low)
        for _ in range(low, high):
            first = around_at[outer - 1] * block
            rest = min(block, count - first)
            to, nbits = target + t + first * unit, rest * unit
            done = 0
            if codes_at_hand and unit != 8 and (begin + s) & 7 == 0:
                done = rest & -LINE
                narrow(packed, ((begin + s) >> 3) + first, done, bits)
                rest -= done
            if rest > 0:
                at_first = first + done
                if len(turns) > 1:
                    fill_turns(
                        stage, begin + s, within, within_at, at_first, rest, end, runs, bits, turns
                    )
                elif len(apart) > 1 or size_of(direction) == 2:
                    fill_picks(
                        stage,
                        begin + s,
                        within,
                        within_at,
                        at_first,
                        rest,
                        end,
                        runs,
                        bits,
                        apart,
                        direction,
                    )
                else:
                    fill(stage, begin + s, within, within_at, at_first, rest, end, bits)
                if unit != 8:
                    narrow(packed + (done * width >> 3), stage, rest, bits)
            if unit != 8:
                move_bits(to, 8 * packed, nbits, streamed)
            elif streamed:
                stream(to >> 3, stage, rest)
            else:
                copy(to >> 3, stage, rest)
            s, t = step(around, around_at, s, t)
