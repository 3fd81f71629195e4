"""Copies by networks: see `networks`. A network becomes one function of machine code."""

from __future__ import annotations

from typing import Any

from ..runtime.cpu_caches import LINE
from ..runtime.jobs import HIGH, LOW, SPAN, STREAMED, TENSOR
from .copies import small_row, stream
from .jit import Numbers, Table, kernel
from .llvm import Builder, Value, emits
from .memory import address_of, copy, prefetch
from .network_code import SIGNATURE
from .odometer import seek, step
from .shares import take


@emits()
def shuffle(
    builder: Builder,
    entry: Value,
    src: Value,
    dst: Value,
    table: Value,
    count: Value,
    src_step: Value,
    dst_step: Value,
    src_ahead: Value,
    dst_ahead: Value,
) -> None:
    """Permute `count` blocks from address to address by the function at `entry`."""
    function = builder.inttoptr(entry, SIGNATURE.as_pointer())
    builder.call(function, [src, dst, table, count, src_step, dst_step, src_ahead, dst_ahead])


@kernel
def shuffle_blocks(
    places: Table,
    work: Numbers,
    span: Numbers,
    stage: int,
    loops: Table,
    offsets: Numbers,
    entry: int,
    count: int,
    most: int,
    source_step: int,
    target_step: int,
    source_ahead: int,
    target_ahead: int,
) -> None:
    """Permute blocks of elements: of `count` side by side in the last loop, `most` at a time."""
    at = span[SPAN:]
    last = loops.shape[0] - 1
    while take(work, span):
        source, target = places[0, span[TENSOR]], places[1, span[TENSOR]]
        s, t = seek(loops, at, span[LOW])
        for _ in range(span[LOW], span[HIGH]):
            some = min(most, count - at[last] * most)
            table = address_of(offsets)
            shuffle(
                entry,
                source + s,
                target + t,
                table,
                some,
                source_step,
                target_step,
                source_ahead,
                target_ahead,
            )
            s, t = step(loops, at, s, t)


@kernel
def shuffle_boxes(
    places: Table,
    work: Numbers,
    span: Numbers,
    stage: int,
    loops: Table,
    offsets: Numbers,
    entry: int,
    along: int,
    along_source: int,
    along_stage: int,
    count: int,
    source_step: int,
    stage_step: int,
    reads: int,
    rows: int,
    pitch: int,
    apart: int,
    target_step: int,
    pieces: int,
    piece: int,
    piece_target: int,
    width: Any,
) -> None:
    """Permute boxes of blocks by way of the stage, which they leave row by row.

    A box is `along` calls for `count` blocks each. The stage has `apart` groups of `rows` rows,
    `pitch` bytes from one to the next, each of so many pieces; a group is `target_step` bytes
    behind the last one in the target, a piece `piece_target`.
    """
    at, table = span[SPAN:], address_of(offsets)
    together = piece_target == piece
    streamed = work[STREAMED] != 0 and together
    while take(work, span):
        source, target = places[0, span[TENSOR]], places[1, span[TENSOR]]
        s, t = seek(loops, at, span[LOW])
        for _ in range(span[LOW], span[HIGH]):
            for i in range(along):
                begin, into = source + s + i * along_source, stage + i * along_stage
                shuffle(entry, begin, into, table, count, source_step, stage_step, along_source, 0)
            for k in range(apart):
                for row in range(rows):
                    begin = stage + (k * rows + row) * pitch
                    into = target + t + k * target_step + offsets[reads + rows + row]
                    if streamed:
                        stream(into, begin, pieces * piece)
                    elif together:
                        copy(into, begin, pieces * piece)
                    else:
                        # The lines of the next row; behind the last one is some other line.
                        ahead = into + offsets[reads + rows + (row + 1) % rows]
                        ahead -= offsets[reads + rows + row]
                        for line in range(0, pieces * piece_target, LINE):
                            prefetch(ahead + line)
                        for i in range(pieces):
                            small_row(into + i * piece_target, begin + i * piece, piece, width)
            s, t = step(loops, at, s, t)
