"""Kernels that copy whole tensors by the generated code of a Network."""

from __future__ import annotations

from ..runtime.cpu_caches import LINE
from ..runtime.jobs import HIGH, LOW, SPAN
from .calls import call
from .copies import stream
from .jit import Numbers, Table, kernel
from .llvm import Address
from .memory import address_of
from .odometer import seek, step
from .shares import ends, take


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
        source, target = ends(addresses, span)
        s, t = seek(loops, at, span[LOW])
        for _ in range(span[LOW], span[HIGH]):
            some, there = min(most, count - at[last] * most), target + t
            into, ahead = there, target_ahead
            if stage != 0:
                into, ahead = stage + (there & (LINE - 1)), 0
            call(
                entry,
                (source + s, into, table, some, source_step, target_step, source_ahead, ahead),
            )
            if stage != 0:
                stream(there, into, some * target_step)
            s, t = step(loops, at, s, t)
