"""Elements gathered one by one.

The arguments are those of `copies` and `tiles`; the last of `loops` walks the blocks of rows.
"""

from __future__ import annotations

from typing import Any

from ..runtime.jobs import SPAN
from .constants import BLOCK, COUNT, ROWS
from .jit import Address, Numbers, Table, kernel
from .memory import move, size_of
from .odometer import advance, begins, offset_at


@kernel
def gather(
    places: Table,
    work: Numbers,
    span: Numbers,
    stage: Address,
    loops: Table,
    tile: Table,
    offsets: Numbers,
    width: Any,
) -> None:
    """Copy blocks of rows that are adjacent in the target."""
    size, at, last = size_of(width), span[SPAN:], loops.shape[0] - 1
    while advance(work, span, loops):
        source, target = begins(places, span)
        first = at[last] * tile[ROWS, BLOCK]
        src, row = offset_at(tile, ROWS, first)
        begin, into = source + src, target + first * size
        for p in range(min(tile[ROWS, BLOCK], tile[ROWS, COUNT] - first)):
            move(into + p * size, begin + offsets[row + p], width)
