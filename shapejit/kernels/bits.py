"""Elements narrower than a byte that stay in order: runs and rows at any bit.

Addresses of elements count bits (8 times the address of a byte, plus bits within it), and so do the
strides of `loops`. `reach` is the number of bytes after `source` that may be read.
"""

from __future__ import annotations

from ..runtime.cpu_caches import LINE, PAGE
from ..runtime.jobs import HIGH, LOW, SPAN, STREAMED
from .bit_vectors import set_bits, shift_words, stream_shifted
from .constants import CALLED, COUNTS, STAGE
from .copies import write_run
from .jit import Address, BitAddress, Numbers, Table, kernel
from .memory import (
    load_byte,
    load_word,
    move_line,
    store_byte,
    store_word,
)
from .odometer import seek, step
from .shares import bit_ends, take

LINE_BITS = 8 * LINE
_WORD, _PIECE, _LINE = COUNTS[1], COUNTS[2], COUNTS[8]  # tags: words of 8 bytes
TOGETHER = 32  # rows
LONG_ROW_BITS = 8 * PAGE  # bits of a row that is moved by itself


@kernel
def load_bits(source: BitAddress, end: Address) -> int:
    """At least 57 bits from a bit address on; memory at or after address `end` is not read."""
    address = source >> 3
    word: int = 0
    if address + 8 <= end:
        word = load_word(address)
    else:
        for i in range(end - address):
            word |= int(load_byte(address + i)) << 8 * i
    return word >> (source & 7)


@kernel
def merge_byte(address: Address, low: int, high: int, source: BitAddress) -> None:
    """Set bits [low, high) of a byte to those from a bit address on."""
    src, shift = source >> 3, source & 7
    code = int(load_byte(src)) >> shift
    if shift + high - low > 8:
        code |= int(load_byte(src + 1)) << (8 - shift)
    set_bits(address, (1 << high) - (1 << low), code << low)


@kernel
def shift_few(target: Address, source: Address, shift: int, nbytes: int) -> None:
    """Copy less than a line, from `shift` bits (1 to 7) after an address."""
    if nbytes >= 8:
        for at in range(0, nbytes, 8):
            done = min(at, nbytes - 8)
            shift_words(target + done, source + done, shift, _WORD)
        return
    for at in range(nbytes):
        both = int(load_byte(source + at)) | int(load_byte(source + at + 1)) << 8
        store_byte(target + at, both >> shift & 255)


@kernel
def shift_bytes(target: Address, source: Address, shift: int, nbytes: int, streamed: bool) -> None:
    """memcpy from `shift` bits (0 to 7) after an address."""
    if shift == 0:
        write_run(target, source, nbytes, streamed and nbytes > CALLED)
    elif nbytes < LINE:
        shift_few(target, source, shift, nbytes)
    else:
        done = -target & (LINE - 1)
        shift_few(target, source, shift, done)
        while done + LINE <= nbytes:
            if streamed:
                stream_shifted(target + done, source + done, shift)
            else:
                shift_words(target + done, source + done, shift, _LINE)
            done += LINE
        shift_few(target + done, source + done, shift, nbytes - done)


@kernel
def merge_ends(target: BitAddress, source: BitAddress, nbits: int) -> None:
    """Set the bits that `move_bits` writes to bytes which other threads may write to."""
    first, end = target & 7, target + nbits
    last = end & 7
    if first != 0:
        merge_byte(target >> 3, first, min(8, first + nbits), source)
    if last != 0 and (target + 7) >> 3 <= end >> 3:
        merge_byte(end >> 3, 0, last, source + (nbits - last))


@kernel
def move_whole(target: BitAddress, source: BitAddress, nbits: int, streamed: bool) -> None:
    """Move the whole bytes of `move_bits`."""
    first, last = (target + 7) >> 3, target + nbits >> 3
    if first < last:
        src = source + (-target & 7)
        shift_bytes(first, src >> 3, src & 7, last - first, streamed)


@kernel
def move_bits(target: BitAddress, source: BitAddress, nbits: int, streamed: bool) -> None:
    """memcpy between bit addresses; other threads may write the bits around the target."""
    merge_ends(target, source, nbits)
    move_whole(target, source, nbits, streamed)


@kernel
def append(target: BitAddress, source: BitAddress, nbits: int, end: Address) -> None:
    """Append bits to those on a stage; up to a line after them may change.

    Where a page begins, or less than a line is left before `end`, words are read within bounds.
    """
    while nbits > 0:
        at, staged_bits = target >> 3, target & 7
        kept, begin = int(load_byte(at)) & (1 << staged_bits) - 1, source - staged_bits
        if (source >> 3) & (PAGE - 1) != 0 and (begin >> 3) + LINE < end:
            shift_words(at, begin >> 3, begin & 7, _LINE)
            store_byte(at, kept | int(load_byte(at)) & -(1 << staged_bits) & 255)
            some = LINE_BITS - staged_bits
        else:
            store_word(at, kept | load_bits(source, end) << staged_bits)
            some = 56
        target, source, nbits = target + some, source + some, nbits - some


@kernel
def drain_stage(target: BitAddress, stage: Address, staged_bits: int, streamed: bool) -> BitAddress:
    """Move the bits of a stage up to `staged_bits` to `target`; return where the next ones go.

    Stage and target are congruent modulo a line, so the first bit is that of the target's line.
    """
    line_offset = target & (LINE_BITS - 1)
    move_bits(target, 8 * stage + line_offset, staged_bits - line_offset, streamed)
    return target + (staged_bits - line_offset)


@kernel
def drain_lines(
    target: BitAddress, stage: Address, staged_bits: int, streamed: bool
) -> tuple[BitAddress, int]:
    """`drain_stage` of the whole lines; the bits after them are now the first of the stage.

    Returns where they go, and their number.
    """
    whole = staged_bits & -LINE_BITS
    target = drain_stage(target, stage, whole, streamed)
    move_line(stage, stage + (whole >> 3))
    return target, staged_bits - whole


@kernel
def bit_run(addresses: Table, work: Numbers, span: Numbers, stage: Address, nbits: int) -> None:
    """Copy one run; a unit of work is a page of the target."""
    streamed = work[STREAMED] != 0
    while take(work, span):
        source, target = bit_ends(addresses, span)
        before = target & (8 * PAGE - 1)
        first = max(0, 8 * PAGE * span[LOW] - before)
        end = min(nbits, 8 * PAGE * span[HIGH] - before)
        if first < end:
            move_bits(target + first, source + first, end - first, streamed)


@kernel
def bit_rows(
    addresses: Table,
    work: Numbers,
    span: Numbers,
    stage: Address,
    loops: Table,
    nbits: int,
    reach: int,
    apart: int,
) -> None:
    """Copy rows; short ones are gathered on the stage unless they are `apart`."""
    streamed = work[STREAMED] != 0
    at = span[SPAN:]
    while take(work, span):
        source, target = bit_ends(addresses, span)
        low, high = span[LOW], span[HIGH]
        end = (source >> 3) + reach
        if apart != 0 or nbits >= LONG_ROW_BITS:
            # Atomic operations wait for all stores before them: those of several rows come first.
            for first in range(low, high, TOGETHER):
                for turn in range(2):
                    s, t = seek(loops, at, first)
                    for _ in range(first, min(first + TOGETHER, high)):
                        if turn == 0:
                            merge_ends(target + t, source + s, nbits)
                        else:
                            move_whole(target + t, source + s, nbits, streamed)
                        s, t = step(loops, at, s, t)
        else:
            s, t = seek(loops, at, low)
            target += t
            staged_bits = target & (LINE_BITS - 1)
            for _ in range(low, high):
                append(8 * stage + staged_bits, source + s, nbits, end)
                staged_bits += nbits
                if staged_bits + nbits > 8 * STAGE:
                    target, staged_bits = drain_lines(target, stage, staged_bits, streamed)
                s, _ = step(loops, at, s, 0)
            drain_stage(target, stage, staged_bits, streamed)
