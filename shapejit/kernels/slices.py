"""Elements narrower than a byte as bytes that are permuted, and back.

A byte has one element of each of several slices of a box, which are alike: permuting bytes permutes
all slices. With one slice, bytes are codes.
"""

from __future__ import annotations

from typing import Any

from ..runtime.cpu_caches import LINE
from .bit_vectors import shift_words, unzip_rows, zip_rows
from .bits import load_bits
from .codes import pack, unpack
from .constants import COUNTS, PIECE, SLICE
from .jit import Address, BitAddress, kernel
from .memory import load_word, store_word

_LINE, _PIECE = COUNTS[8], COUNTS[2]  # tags: words of a row


@kernel
def read_rows(
    rows: Address, source: BitAddress, slices: Address, end: Address, bits: Any, words: Any
) -> None:
    """Copy the next `words` of 8 bytes of each slice to a line of `rows`."""
    for k in range(8 // len(bits)):
        row, into = source + load_word(slices + SLICE * k), rows + LINE * k
        if (row >> 3) + 8 * len(words) < end:
            shift_words(into, row >> 3, row & 7, words)
        else:
            for at in range(0, 8 * len(words), 4):  # up to `end`
                store_word(into + at, load_bits(row + 8 * at, end))


@kernel
def join(
    joined: Address,
    source: BitAddress,
    count: int,
    end: Address,
    slices: Address,
    rows: Address,
    bits: Any,
    many: Any,
) -> None:
    """Write the bytes of `count` adjacent elements of each slice; a few lines more may change.

    `slices` is the address of a table with the slices' offsets, `rows` that of scratch memory.
    """
    width, done = len(bits), 0
    if len(many) == 1:
        unpack(joined, source, count, end, bits)
        return
    while done + LINE * len(many) <= count:
        read_rows(rows, source + done * width, slices, end, bits, _LINE)
        zip_rows(joined + done, rows, bits, _LINE)
        done += LINE * len(many)
    while done < count:
        read_rows(rows, source + done * width, slices, end, bits, _PIECE)
        zip_rows(joined + done, rows, bits, _PIECE)
        done += PIECE * len(many)


@kernel
def part(target: Address, pitch: int, joined: Address, count: int, bits: Any, many: Any) -> None:
    """Write the elements of each slice, `pitch` bytes apart; up to a line more may change."""
    width, done = len(bits), 0
    if len(many) == 1:
        pack(target, joined, count, bits)
        return
    while done < count:
        unzip_rows(target + (done * width >> 3), pitch, joined + done, bits, _LINE)
        done += LINE * len(many)
