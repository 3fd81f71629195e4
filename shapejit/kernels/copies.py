"""Runs and rows; the streaming that all kernels share.

All kernels that copy tensors begin with the same arguments: `addresses[0]` are those of the first
elements of the source tensors, `addresses[1]` of the target tensors (in bytes; in bits in `bits`
and `bit_tiles`); `work` and `span` are those of `shares`; `loops` is the planner's table of outer
loops, one row (size, source stride, target stride) per loop, outermost first. Units of work are
iterations of all loops together. `stage` is the address of the thread's scratch memory (aligned to
a line) for bytes that are then streamed; 0 means plain stores.
"""

from __future__ import annotations

from typing import Any

from ..runtime.cpu_caches import LINE, PAGE
from ..runtime.jobs import HIGH, LOW, SPAN
from .constants import CALLED, PIECE, STAGE, WIDTHS
from .jit import Address, BitAddress, Numbers, Table, inlined, kernel
from .memory import (
    FOUR_LINES,
    copy,
    move,
    move_line,
    move_lines,
    move_piece,
    pointer,
    prefetch,
    size_of,
    stream_line,
    stream_lines,
)
from .odometer import seek, step
from .shares import ends, take

ROW_PREFETCH_DISTANCE = (
    2048  # bytes from the row that is copied to the one that is prefetched: 1.5 -> 1.3 x limit
)
PREFETCHED_ROW_MIN_BYTES = (
    2 * LINE
)  # bytes of a row from which on it is prefetched; 8 lines: up to 2 x the time
_BYTE_TAG, _FOUR, _PIECE = WIDTHS[1], WIDTHS[4], WIDTHS[PIECE]


@inlined
def stream_whole(target: Address, source: Address, done: int, nbytes: int) -> int:
    """Stream the whole lines in bytes [done, nbytes), and return where they end."""
    while done + FOUR_LINES <= nbytes:
        stream_lines(target + done, source + done)
        done += FOUR_LINES
    while done + LINE <= nbytes:
        stream_line(target + done, source + done)
        done += LINE
    return done


@kernel
def stream(target: Address, source: Address, nbytes: int) -> None:
    """memcpy that writes whole lines of the target by nontemporal stores."""
    done = min(-target & (LINE - 1), nbytes)
    if done > 0:
        copy(target, source, done)
    done = stream_whole(target, source, done, nbytes)
    if done < nbytes:
        copy(target + done, source + done, nbytes - done)


@kernel
def lines_of(
    target: Address | BitAddress, low: int, high: int, end: int, line: int
) -> tuple[int, int]:
    """The range of the lines that start in [low, high) of a row that ends at `end`.

    The range with the start of the row includes the part before its first line.
    """
    first = low
    if low > 0:
        first += -(target + low) & (line - 1)
    return first, min(high + (-(target + high) & (line - 1)), end)


@inlined
def move_ends(target: Address, source: Address, nbytes: int, width: Any) -> None:
    """memcpy of one to four elements of this width, which overlap in the middle."""
    size = size_of(width)
    move(target, source, width)
    if nbytes > 2 * size:
        move(target + size, source + size, width)
        move(target + nbytes - 2 * size, source + nbytes - 2 * size, width)
    move(target + nbytes - size, source + nbytes - size, width)


@kernel
def move_long(target: Address, source: Address, nbytes: int) -> None:
    """memcpy of a line or more; the last move overlaps the previous one.

    That of libc moves 2 KiB and more by `rep movsb`, which on Zen 3 takes up to 30 times as long if
    the target begins up to a line after the source in their pages.
    """
    move_line(target, source)
    done = LINE - (target & (LINE - 1))
    while done + FOUR_LINES <= nbytes:
        move_lines(target + done, source + done)
        done += FOUR_LINES
    while done < nbytes - LINE:
        move_line(target + done, source + done)
        done += LINE
    move_line(target + nbytes - LINE, source + nbytes - LINE)


@inlined
def move_run(target: Address, source: Address, nbytes: int) -> None:
    """memcpy, without a call for short runs: single lines of 64 bytes take 0.8 of the time."""
    if nbytes > CALLED:
        move_long(target, source, nbytes)
    elif nbytes >= LINE:
        done = 0
        while done < nbytes - LINE:
            move_line(target + done, source + done)
            done += LINE
        move_line(target + nbytes - LINE, source + nbytes - LINE)
    elif nbytes >= PIECE:
        move_ends(target, source, nbytes, _PIECE)
    elif nbytes >= 4:
        move_ends(target, source, nbytes, _FOUR)
    else:
        for i in range(nbytes):
            move(target + i, source + i, _BYTE_TAG)


@kernel
def write_run(target: Address, source: Address, nbytes: int, streamed: bool) -> None:
    """memcpy, with nontemporal stores or not."""
    if streamed:
        stream(target, source, nbytes)
    else:
        move_run(target, source, nbytes)


@kernel
def rows(
    addresses: Table,
    work: Numbers,
    span: Numbers,
    stage: Address,
    loops: Table,
    nbytes: int,
    reach: int,
    turns: Any,
) -> None:
    """Copy rows of `nbytes`; two bytes of `turns` interleave the rows of all sources in one target.

    `reach` bytes of a source may be read. With a stage, rows shorter than the stage are collected
    there, so that only whole lines are streamed; they must be adjacent in the target.
    """
    at, interleaved = span[SPAN:], size_of(turns) == 2
    sources = addresses.shape[1] if interleaved else 1
    staged = stage != 0 and nbytes <= PAGE
    # The hardware prefetcher finds scattered long rows too late.
    far = loops[loops.shape[0] - 1, 1] * -(-ROW_PREFETCH_DISTANCE // nbytes)
    prefetched = nbytes if nbytes >= PREFETCHED_ROW_MIN_BYTES else 0
    while take(work, span):
        s, t = seek(loops, at, span[LOW])
        begin, target = ends(addresses, span)
        first, held = target + t, 0  # where the bytes on the stage go, and their number
        for _ in range(span[LOW], span[HIGH]):
            # Whole pieces: stores run over the end of a short row; the next one overwrites that.
            whole = nbytes < PIECE and s + PIECE <= reach
            for k in range(sources):
                source, place = begin + s, target + (t + k * nbytes)
                if interleaved:
                    source = pointer(addresses[0, k]) + s
                if staged:
                    for line in range(0, prefetched, LINE):
                        prefetch(source + far + line)
                    if held + nbytes > STAGE:
                        stream(first, stage + (first & (LINE - 1)), held)
                        first, held = first + held, 0
                    into = stage + ((first & (LINE - 1)) + held)
                    if whole:
                        move_piece(into, source)
                    else:
                        move_run(into, source, nbytes)
                    held += nbytes
                else:
                    write_run(place, source, nbytes, stage != 0)
            s, t = step(loops, at, s, t)
        if staged:
            stream(first, stage + (first & (LINE - 1)), held)
