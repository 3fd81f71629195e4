"""Elements narrower than a byte in any other order: each becomes a byte on the stage in between.

The arguments are those of `bits`.
"""

from __future__ import annotations

from typing import Any

from ..runtime.cpu_caches import LINE
from ..runtime.jobs import HIGH, LOW, SPAN, STREAMED
from .bit_vectors import pack_line, spread, unpack_line
from .bits import load_bits, move_bits
from .calls import call
from .constants import CODES_BLOCK, PIECE
from .copies import write_run
from .jit import Address, BitAddress, Numbers, Table, kernel
from .memory import address_of, load_byte, load_word, store_byte, store_word
from .odometer import seek, step
from .shares import bit_ends, take

CODES_APART = CODES_BLOCK + 4 * LINE  # from codes to the packed block, and to temporary runs


@kernel
def unpack(codes: Address, source: BitAddress, count: int, end: Address, bits: Any) -> int:
    """Write the codes of `count` contiguous elements; up to 7 more may change.

    Returns the number of codes written.
    """
    width, done = len(bits), 0
    begin, shift = source >> 3, source & 7
    while done + LINE <= count:
        unpack_line(codes + done, begin + (done * width >> 3), shift, bits)
        done += LINE
    while done < count:
        word = load_bits(source + done * width, end)
        store_word(codes + done, spread(word, bits))
        done += 8
    return done


@kernel
def pack(target: Address, codes: Address, count: int, bits: Any) -> int:
    """Pack codes on a stage; up to a line after them is read, and as much may change.

    Returns the number of codes read.
    """
    width, done = len(bits), 0
    while done < count:
        pack_line(target + (done * width >> 3), codes + done, bits)
        done += LINE
    return done


@kernel
def pick_codes(
    codes: Address, apart: int, source: BitAddress, stride: int, count: int, width: int
) -> None:
    """Write the codes of `count` elements whose distance is `apart` bytes."""
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
    far: int,
    unpacks: int,
    entry: int,
    table: Address,
) -> None:
    """Write the codes of elements [first, first + count) of the loops.

    If the last loop interleaves runs, or its elements are `far` (not 0) apart, the network at
    `entry` permutes runs of codes on the stage; `table` has the offsets of its pieces.
    """
    last = loops.shape[0] - 1
    size, stride = loops[last, 0], loops[last, 1]
    runs = codes + 2 * CODES_APART + LINE
    s, _ = seek(loops, at, first)
    done = 0
    while done < count:
        begin, into = source + s, codes + done
        some = min(count - done, size - at[last])
        if last > 0 and size < PIECE and some == size:
            # Short adjacent runs: along the loop around them.
            times = min((count - done) // size, loops[last - 1, 0] - at[last - 1])
            around = loops[last - 1, 1]
            if entry != 0 and far == 0:
                for row in range(size):
                    run = runs + load_word(table + 8 * row)
                    call(unpacks, (run, begin + row * stride, times, end))
                blocks = (times + LINE - 1) // LINE
                call(entry, (runs, into, table, blocks, LINE, LINE * size, 0, 0))
            else:
                for i in range(size):
                    pick_codes(into + i, size, begin + i * stride, around, times, width)
            done += times * size
            at[last - 1] += times - 1
            s += (times - 1) * around
        else:
            if far != 0:
                # The last block reads before the first element, where there is a margin.
                lowest, picked = begin, runs
                if far < 0:
                    lowest, picked = begin + (some - 1) * stride, runs - LINE * far
                call(unpacks, (picked, lowest, (some - 1) * abs(far) + 1, end))
                if far < 0:
                    picked += (LINE - some) * far
                blocks = (some + LINE - 1) // LINE
                call(entry, (picked, into, table, blocks, LINE * far, LINE, 0, 0))
            elif stride == width:
                call(unpacks, (into, begin, some, end))
            else:
                pick_codes(into, 1, begin, stride, some, width)
            done += some
        at[last] += some - 1
        s, _ = step(loops, at, s + (some - 1) * stride, 0)


@kernel
def by_codes(
    addresses: Table,
    work: Numbers,
    span: Numbers,
    stage: Address,
    around: Table,
    inner: Table,
    sizes: Numbers,
    offsets: Numbers,
    unpacks: int,
    packs: int,
    entry: int,
) -> None:
    """Copy elements in blocks: one byte each on the stage, then packed unless `unit` is 8.

    The loops `around` go over blocks of rows, `inner` within a row. `sizes`: bytes of the source,
    elements of a row and of a block, bits of an element in source and target, and the distance of
    the elements of a row if a network picks them. `unpacks`, `packs` and `entry` are addresses of
    functions: see `fill`.
    """
    reach, count, block, width, unit, far = sizes
    streamed, packed, table = work[STREAMED] != 0, stage + CODES_APART, address_of(offsets)
    outer = len(around)
    around_at, at = span[SPAN : SPAN + outer], span[SPAN + outer :]
    are_codes = unit != 8 and inner.shape[0] == 1 and inner[0, 1] == 8
    while take(work, span):
        source, target = bit_ends(addresses, span)
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
                fill(stage, src, inner, at, begin, rest, end, width, far, unpacks, entry, table)
                if unit != 8:
                    call(packs, (packed + (ready * width >> 3), stage, rest))
            if unit != 8:
                move_bits(dst, 8 * packed, some * unit, streamed)
            else:
                write_run(dst >> 3, stage, some, streamed)
            s, t = step(around, around_at, s, t)
