"""Packed elements to codes, a byte each, and back: what `boxes` and `bit_tiles` call."""

from __future__ import annotations

from typing import Any

from ..runtime.cpu_caches import LINE
from .bit_vectors import pack_line, spread, unpack_line
from .bits import load_bits
from .jit import Address, BitAddress, kernel
from .memory import store_word


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
