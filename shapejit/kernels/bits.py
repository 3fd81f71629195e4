"""Elements narrower than a byte, at any bit stride and offset, packed or unpacked.

The one generic path for whatever cannot be moved in whole bytes. `loops` counts
bits; eight elements, which always fill whole bytes, are the unit of work.
"""

from __future__ import annotations

import numpy as np
from numba import prange
from numpy.typing import NDArray

from .copies import Table, advance, enter
from .jit import kernel, parallel_kernel
from .memory import load_byte, store_byte


@kernel
def bits(
    source: int,
    target: int,
    loops: Table,
    at: NDArray[np.int64],
    low: int,
    high: int,
    count: int,
    offset: int,
    width: int,
    unit: int,
    stage: int,
) -> None:
    """Write groups [low, high) of 8 elements of `width` bits, each in `unit` bits, of `count`.

    The bits beside an element in its unit, and behind the last element, are zero.
    """
    mask = (1 << width) - 1
    s, _ = enter(loops, at, 8 * low)
    s += offset
    for group in range(low, high):
        filled, stream, to = 0, 0, target + group * unit
        for _ in range(min(8, count - 8 * group)):
            address, shift = source + (s >> 3), s & 7
            code = int(load_byte(address)) >> shift
            if shift + width > 8:
                code |= int(load_byte(address + 1)) << (8 - shift)
            stream |= (code & mask) << filled
            filled += unit
            while filled >= 8:
                store_byte(to, np.uint8(stream & 255))
                to += 1
                stream >>= 8
                filled -= 8
            s, _ = advance(loops, at, s, 0)
        if filled > 0:
            store_byte(to, np.uint8(stream & 255))


@parallel_kernel
def bits_parallel(
    source: int,
    target: int,
    loops: Table,
    at: NDArray[np.int64],
    groups: int,
    count: int,
    offset: int,
    width: int,
    unit: int,
    stage: int,
    stage_step: int,
) -> None:
    """`bits`, one share of the groups a row of `at`."""
    shares = at.shape[0]
    for share in prange(shares):
        low, high = groups * share // shares, groups * (share + 1) // shares
        bits(source, target, loops, at[share], low, high, count, offset, width, unit, 0)
