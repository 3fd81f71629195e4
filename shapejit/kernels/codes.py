"""Elements narrower than a byte, copied by way of codes: a byte each on the stage.

The arguments are those of `bits`.
"""

from __future__ import annotations

from typing import Any

from ..runtime.cpu_caches import LINE
from ..runtime.jobs import HIGH, LOW, SPAN, STREAMED, TENSOR
from .bit_vectors import gathered, pack_line, spread, unpack_words
from .bits import load_bits, move_bits
from .calls import call
from .constants import CODES_BLOCK, COUNTS, PIECE, WIDTHS
from .copies import stream
from .jit import Address, BitAddress, Numbers, Table, kernel
from .memory import bit_pointer, copy, load_byte, load_word, size_of, store_byte, store_word
from .odometer import seek, step
from .shares import take
from .vectors import interleave, pick

CODES_APART = CODES_BLOCK + 4 * LINE  # from codes to the packed block, and to temporary runs
_BYTE, _LINE = WIDTHS[1], WIDTHS[4]  # codes, and the pieces of a line
_WORDS = COUNTS[8]  # of a line


@kernel
def unpack(codes: Address, source: BitAddress, count: int, end: Address, bits: Any) -> int:
    """Write the codes of `count` contiguous elements; up to 7 more may change.

    Returns the number of codes written.
    """
    width, done = len(bits), 0
    while done + LINE <= count:
        bit = source + done * width
        unpack_words(codes + done, bit >> 3, bit & 7, bits, _WORDS)
        done += LINE
    while done < count:
        word = load_bits(source + done * width, end)
        store_word(codes + done, spread(word, width))
        done += 8
    return done


@kernel
def pack(target: Address, codes: Address, count: int, bits: Any) -> int:
    """Pack codes on a stage; up to 7 codes after them are read, and a word may change.

    Returns the number of codes read.
    """
    width, done = len(bits), 0
    while done + LINE <= count:
        pack_line(target + (done * width >> 3), codes + done, bits)
        done += LINE
    while done < count:
        word = gathered(load_word(codes + done), width)
        store_word(target + (done * width >> 3), word)
        done += 8
    return done


@kernel
def pick_codes(
    codes: Address, apart: int, source: BitAddress, stride: int, count: int, width: int
) -> None:
    """Write the codes of `count` elements, `apart` bytes from one to the next."""
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
    codes: Address,
    source: BitAddress,
    loops: Table,
    at: Table,
    first: int,
    count: int,
    end: Address,
    width: int,
    unpacks: int,
) -> None:
    """Write the codes of elements [first, first + count) of the loops."""
    last = loops.shape[0] - 1
    size, stride = loops[last, 0], loops[last, 1]
    s, _ = seek(loops, at, first)
    done = 0
    while done < count:
        some = min(count - done, size - at[last])
        if last > 0 and size < PIECE and at[last] == 0 and some == size:
            # Short adjacent runs: along the loop around them.
            runs = min((count - done) // size, loops[last - 1, 0] - at[last - 1])
            around = loops[last - 1, 1]
            for i in range(size):
                begin = source + s + i * stride
                pick_codes(codes + done + i, size, begin, around, runs, width)
            done += runs * size
            at[last - 1] += runs - 1
            s += (runs - 1) * around
        else:
            if stride == width:
                call(unpacks, (codes + done, source + s, some, end))
            else:
                pick_codes(codes + done, 1, source + s, stride, some, width)
            done += some
        at[last] += some - 1
        s, _ = step(loops, at, s + (some - 1) * stride, 0)


@kernel
def fill_turns(
    codes: Address,
    source: BitAddress,
    loops: Table,
    at: Table,
    first: int,
    count: int,
    end: Address,
    runs: Address,
    width: int,
    unpacks: int,
    turns: Any,
) -> None:
    """`fill` if the last loop interleaves runs; their number is the length of `turns`."""
    rows, last = len(turns), loops.shape[0] - 1
    size, apart = loops[last - 1, 0], CODES_BLOCK // len(turns) + LINE
    for row in range(rows):
        store_word(runs + 8 * row, row * apart)
    table, runs = runs, runs + LINE
    s, _ = seek(loops, at, first)
    done = 0
    while done < count:
        some = min((count - done) // rows, size - at[last - 1])
        for row in range(rows):
            begin = source + s + row * loops[last, 1]
            call(unpacks, (runs + row * apart, begin, some, end))
        for i in range(0, some, LINE):
            interleave(runs + i, table, codes + done + i * rows, turns, _BYTE, _LINE)
        done += some * rows
        at[last - 1] += some - 1
        at[last] = rows - 1
        s, _ = step(loops, at, s + (some - 1) * width + (rows - 1) * loops[last, 1], 0)


@kernel
def fill_picks(
    codes: Address,
    source: BitAddress,
    loops: Table,
    at: Table,
    first: int,
    count: int,
    end: Address,
    runs: Address,
    width: int,
    unpacks: int,
    apart: Any,
    direction: Any,
) -> None:
    """`fill` if the elements of the last loop are `apart` from one another, as in `pick`."""
    last, far = loops.shape[0] - 1, len(apart)
    size = loops[last, 0]
    s, _ = seek(loops, at, first)
    done = 0
    while done < count:
        some = min(count - done, size - at[last])
        reach = (some - 1) * far
        if size_of(direction) == 2:
            # The last whole vector reads before the first element, where there is a margin.
            begin = runs + LINE * (far + 1)
            call(unpacks, (begin, source + s - reach * width, reach + 1, end))
            for i in range(0, some, LINE):
                pick(begin + reach - i * far, codes + done + i, apart, direction, _BYTE, _LINE)
        else:
            call(unpacks, (runs, source + s, reach + 1, end))
            for i in range(0, some, LINE):
                pick(runs + i * far, codes + done + i, apart, direction, _BYTE, _LINE)
        done += some
        at[last] += some - 1
        s, _ = step(loops, at, s + (some - 1) * loops[last, 1], 0)


@kernel
def fill_any(
    codes: Address,
    source: BitAddress,
    loops: Table,
    at: Table,
    first: int,
    count: int,
    end: Address,
    width: int,
    unpacks: int,
    turns: Any,
    apart: Any,
    direction: Any,
) -> None:
    """`fill`, by whole vectors if elements are interleaved, or every n-th ones."""
    runs = codes + 2 * CODES_APART
    if len(turns) > 1:
        fill_turns(codes, source, loops, at, first, count, end, runs, width, unpacks, turns)
    elif len(apart) > 1 or size_of(direction) == 2:
        fill_picks(
            codes, source, loops, at, first, count, end, runs, width, unpacks, apart, direction
        )
    else:
        fill(codes, source, loops, at, first, count, end, width, unpacks)


@kernel
def by_codes(
    places: Table,
    work: Numbers,
    span: Numbers,
    stage: Address,
    loops: Table,
    sizes: Numbers,
    unpacks: int,
    packs: int,
    turns: Any,
    apart: Any,
    direction: Any,
) -> None:
    """Copy elements in blocks: a byte each on the stage, then packed unless `unit` is 8.

    `sizes`: bytes of the source, number of loops over blocks of rows (the others are within a row),
    elements of a row and of a block, bits of an element in source and target. One of `turns` and
    `apart` may be longer than 1, or `direction` two bytes: then whole vectors follow the elements.
    `unpacks` and `packs` are addresses of functions.
    """
    reach, outer, count, block, width, unit = sizes
    streamed, packed = work[STREAMED] != 0, stage + CODES_APART
    around, inner = loops[:outer], loops[outer:]
    around_at, at = span[SPAN : SPAN + outer], span[SPAN + outer :]
    are_codes = unit != 8 and inner.shape[0] == 1 and inner[0, 1] == 8
    while take(work, span):
        source, target = bit_pointer(places[0, span[TENSOR]]), bit_pointer(places[1, span[TENSOR]])
        end = (source >> 3) + reach
        s, t = seek(around, around_at, span[LOW])
        for _ in range(span[LOW], span[HIGH]):
            first, src = around_at[outer - 1] * block, source + s
            some = min(block, count - first)
            dst, ready = target + (t + first * unit), 0
            if are_codes and src & 7 == 0:
                ready = some & -LINE
                call(packs, (packed, (src >> 3) + first, ready))
            if ready < some:
                begin, rest = first + ready, some - ready
                fill_any(
                    stage, src, inner, at, begin, rest, end, width, unpacks, turns, apart, direction
                )
                if unit != 8:
                    call(packs, (packed + (ready * width >> 3), stage, rest))
            if unit != 8:
                move_bits(dst, 8 * packed, some * unit, streamed)
            elif streamed:
                stream(dst >> 3, stage, some)
            else:
                copy(dst >> 3, stage, some)
            s, t = step(around, around_at, s, t)
