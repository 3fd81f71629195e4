"""Copies by networks (see `networks`): kernels that call the function of a network."""

from __future__ import annotations

from ..runtime.cpu_caches import LINE
from ..runtime.jobs import HIGH, LOW, SPAN, TENSOR
from .copies import stream
from .jit import Numbers, Table, kernel
from .llvm import Address, Builder, Value, emits
from .memory import address_of, pointer
from .odometer import seek, step
from .shares import take
from .unit_generator import SIGNATURE


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
    addresses: Table,
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

    `steps` are the steps of that loop, and the distance of prefetching. With a stage, the blocks of
    a call follow one another in the target, whose whole lines are streamed.
    """
    at, table = span[SPAN:], address_of(offsets)
    last = loops.shape[0] - 1
    count, source_step, target_step = steps[0]
    _, source_ahead, target_ahead = steps[1]
    while take(work, span):
        source, target = pointer(addresses[0, span[TENSOR]]), pointer(addresses[1, span[TENSOR]])
        s, t = seek(loops, at, span[LOW])
        for _ in range(span[LOW], span[HIGH]):
            some, there = min(most, count - at[last] * most), target + t
            into, ahead = there, target_ahead
            if stage != 0:
                into, ahead = stage + (there & (LINE - 1)), 0
            shuffle(
                entry, source + s, into, table, some, source_step, target_step, source_ahead, ahead
            )
            if stage != 0:
                stream(there, into, some * target_step)
            s, t = step(loops, at, s, t)
