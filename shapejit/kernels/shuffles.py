"""Kernels that copy whole tensors by the generated code of a Network."""

from __future__ import annotations

from ..runtime.cpu_caches import LINE
from ..runtime.jobs import HIGH, LOW, SPAN
from .calls import call
from .constants import MOST_BLOCKS
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
    offsets: Table,
    steps: Table,
    entry: int,
) -> None:
    """Permute blocks of elements: those of the last loop, at most MOST_BLOCKS per call.

    `steps` are the steps of that loop; the pieces of a block in the target, and the distances of
    prefetching. With a stage, where the pieces of a block have the second row of `offsets`, each
    follows that of the previous block: they make a run, whose whole lines are streamed.
    """
    at, table = span[SPAN:], address_of(offsets)
    last = loops.shape[0] - 1
    count, source_step, target_step = steps[0]
    pieces, source_ahead, target_ahead = steps[1]
    first, runs = offsets.shape[1] - pieces, 0
    if stage != 0:
        table += 8 * offsets.shape[1]
        target_ahead, runs = 0, pieces
    while take(work, span):
        source, target = ends(addresses, span)
        s, t = seek(loops, at, span[LOW])
        for _ in range(span[LOW], span[HIGH]):
            some, there = min(MOST_BLOCKS, count - at[last] * MOST_BLOCKS), target + t
            into = there
            if stage != 0:
                into = stage + (there & (LINE - 1))
            call(
                entry,
                (source + s, into, table, some, source_step, target_step,
                 source_ahead, target_ahead),
            )  # fmt: skip
            for k in range(first, first + runs):
                stream(there + offsets[0, k], into + offsets[1, k], some * target_step)
            s, t = step(loops, at, s, t)
