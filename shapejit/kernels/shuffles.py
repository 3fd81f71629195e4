"""Copies by networks (see `networks`): kernels that call the function of a network."""

from __future__ import annotations

from ..runtime.jobs import HIGH, LOW, SPAN, STREAMED, TENSOR
from .copies import write_run
from .jit import Numbers, Table, kernel
from .llvm import Address, Builder, Value, emits
from .memory import address_of, pointer
from .odometer import seek, step
from .shares import take
from .unit_generator import SIGNATURE

# The table of a box, and its columns.
CALLS, BLOCKS, GROUPS, ROWS = range(4)
COUNT, FROM, TO = range(3)


@emits()
def shuffle(
    builder: Builder,
    entry: Value,
    src: Address,
    dst: Address,
    table: Address,
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
    stage: Address,
    loops: Table,
    offsets: Numbers,
    steps: Table,
    entry: int,
    most: int,
) -> None:
    """Permute blocks of elements: those of the last loop, at most `most` per call.

    `steps` are the steps of that loop, and the distance of prefetching.
    """
    at, table = span[SPAN:], address_of(offsets)
    last = loops.shape[0] - 1
    count, source_step, target_step = steps[0]
    _, source_ahead, target_ahead = steps[1]
    while take(work, span):
        source, target = pointer(places[0, span[TENSOR]]), pointer(places[1, span[TENSOR]])
        s, t = seek(loops, at, span[LOW])
        for _ in range(span[LOW], span[HIGH]):
            some = min(most, count - at[last] * most)
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
    stage: Address,
    loops: Table,
    offsets: Numbers,
    box: Table,
    entry: int,
    nbytes: int,
) -> None:
    """Permute boxes of blocks on the stage, from which they are written by rows of `nbytes`.

    The rows of `box` are loops (count, steps from and to): calls, the blocks of each, from the
    source to the stage; groups of rows, and rows, from the stage to the target, where the offsets
    of rows begin at the index that stands in place of a step.
    """
    table = address_of(offsets)
    calls, call_source, call_stage = box[CALLS, COUNT], box[CALLS, FROM], box[CALLS, TO]
    blocks, block_source, block_stage = box[BLOCKS, COUNT], box[BLOCKS, FROM], box[BLOCKS, TO]
    groups, group_stage, group_target = box[GROUPS, COUNT], box[GROUPS, FROM], box[GROUPS, TO]
    rows, pitch, first = box[ROWS, COUNT], box[ROWS, FROM], box[ROWS, TO]
    streamed = work[STREAMED] != 0
    at = span[SPAN:]
    while take(work, span):
        source, target = pointer(places[0, span[TENSOR]]), pointer(places[1, span[TENSOR]])
        s, t = seek(loops, at, span[LOW])
        for _ in range(span[LOW], span[HIGH]):
            for i in range(calls):
                begin, into = source + (s + i * call_source), stage + i * call_stage
                shuffle(
                    entry, begin, into, table, blocks, block_source, block_stage, call_source, 0
                )
            for k in range(groups):
                for row in range(rows):
                    begin = stage + k * group_stage + row * pitch
                    into = target + (t + k * group_target + offsets[first + row])
                    write_run(into, begin, nbytes, streamed)
            s, t = step(loops, at, s, t)
