"""Many tensors in one launch: small ones as parcels, large ones by the kernels of a plan.

`sources` and `targets` are addresses of first elements. Work is dealt to the
threads by bytes: parcels whole, plans down to their units of work.
"""

from __future__ import annotations

from typing import Any

from numba import prange

from .copies import Table, flush, rows, run, stream
from .gathers import gather, interleave_rows, pick_rows, turn_rows
from .jit import kernel, parallel_kernel
from .memory import LINE, fence
from .parcels import MAX_RANK as MAX_RANK
from .parcels import NEAR, NEAR_BYTES, Numbers, ask, put
from .scatters import scatter
from .tiles import run_tiles, tiles

FULL = 8192  # bytes on a stage that are worth streaming: they are still in L1
STAGED = 128 * 1024  # bytes of the largest tensor that passes through the stage: it is still in L2
STAGE_BYTES = FULL + STAGED + 2 * LINE


@kernel
def deliver(
    sources: Numbers,
    targets: Numbers,
    nbytes: Numbers,
    parcels: Numbers,
    starts: Numbers,
    low: int,
    high: int,
    position: Numbers,
    stage: int,
) -> None:
    """Copy tensors [low, high): parcel `parcels[starts[k]:]`, or the first for all if only one.

    With a stage, what lies side by side in the targets gathers there, so that
    whole lines are streamed past the caches.
    """
    alike = len(starts) == 1
    next_line = lead = filled = 0
    for k in range(low, high):
        at = starts[0] if alike else starts[k]
        ahead = end = 0
        if k + 1 < high:
            following = at if alike else starts[k + 1]
            ahead = sources[k + 1] + parcels[following + NEAR]
            end = ahead + parcels[following + NEAR_BYTES]
        size = nbytes[0] if alike else nbytes[k]
        if stage == 0 or size > STAGED:
            ahead = put(sources[k], targets[k], parcels, at, position, ahead, end)
            ask(ahead, end, end - ahead)
            continue
        if targets[k] != next_line + filled - lead:
            stream(next_line, stage + lead, filled - lead)
            next_line = targets[k]
            lead = filled = next_line & (LINE - 1)
        ahead = put(sources[k], stage + filled, parcels, at, position, ahead, end)
        ask(ahead, end, end - ahead)
        filled += size
        if filled >= FULL:
            next_line, filled = flush(next_line, stage, lead, filled)
            lead = 0
    stream(next_line, stage + lead, filled - lead)
    fence()


@parallel_kernel
def deliver_parallel(
    sources: Numbers,
    targets: Numbers,
    nbytes: Numbers,
    parcels: Numbers,
    starts: Numbers,
    bounds: Numbers,
    positions: Table,
    stage: int,
    stage_step: int,
) -> None:
    """`deliver`, tensors from `bounds[share]` to the next bound a share."""
    for share in prange(len(bounds) - 1):
        low, high, own = bounds[share], bounds[share + 1], stage + share * stage_step
        position = positions[share]
        deliver(sources, targets, nbytes, parcels, starts, low, high, position, own)


@kernel
def part(done: int, high: int, count: int) -> tuple[int, int, int]:
    """Of units [done, high), `count` a tensor: the tensor of the first, and its units."""
    tensor = done // count
    before = tensor * count
    return tensor, done - before, min(high - before, count)


@parallel_kernel
def run_each(
    sources: Numbers,
    targets: Numbers,
    loops: Table,
    at: Table,
    count: int,
    nbytes: int,
    stage: int,
    stage_step: int,
) -> None:
    """`copies.run` of every tensor."""
    shares, total = at.shape[0], count * len(sources)
    for share in prange(shares):
        done, high = total * share // shares, total * (share + 1) // shares
        while done < high:
            k, first, last = part(done, high, count)
            run(sources[k], targets[k], loops, at[share], first, last, nbytes, stage)
            done += last - first


@parallel_kernel
def rows_each(
    sources: Numbers,
    targets: Numbers,
    loops: Table,
    at: Table,
    count: int,
    nbytes: int,
    stage: int,
    stage_step: int,
    width: Any,
) -> None:
    """`copies.rows` of every tensor."""
    shares, total = at.shape[0], count * len(sources)
    for share in prange(shares):
        done, high = total * share // shares, total * (share + 1) // shares
        own = stage + share * stage_step
        while done < high:
            k, first, last = part(done, high, count)
            rows(sources[k], targets[k], loops, at[share], first, last, nbytes, own, width)
            done += last - first


@parallel_kernel
def tiles_each(
    sources: Numbers,
    targets: Numbers,
    loops: Table,
    at: Table,
    count: int,
    shape: Table,
    offsets: Numbers,
    stage: int,
    stage_step: int,
    width: Any,
    pieces: Any,
) -> None:
    """`tiles.tiles` of every tensor."""
    shares, total = at.shape[0], count * len(sources)
    for share in prange(shares):
        done, high = total * share // shares, total * (share + 1) // shares
        own, here = stage + share * stage_step, at[share]
        while done < high:
            k, first, last = part(done, high, count)
            come, to = sources[k], targets[k]
            tiles(come, to, loops, here, first, last, shape, offsets, own, width, pieces)
            done += last - first


@parallel_kernel
def run_tiles_each(
    sources: Numbers,
    targets: Numbers,
    loops: Table,
    at: Table,
    count: int,
    shape: Table,
    offsets: Numbers,
    stage: int,
    stage_step: int,
    nbytes: int,
    reach: int,
    width: Any,
) -> None:
    """`tiles.run_tiles` of every tensor."""
    shares, total = at.shape[0], count * len(sources)
    for share in prange(shares):
        done, high = total * share // shares, total * (share + 1) // shares
        own, here = stage + share * stage_step, at[share]
        while done < high:
            k, first, last = part(done, high, count)
            come, to = sources[k], targets[k]
            run_tiles(come, to, loops, here, first, last, shape, offsets, own, nbytes, reach, width)
            done += last - first


@parallel_kernel
def scatter_each(
    sources: Numbers,
    targets: Numbers,
    loops: Table,
    at: Table,
    count: int,
    shape: Table,
    offsets: Numbers,
    stage: int,
    stage_step: int,
    nbytes: int,
    width: Any,
) -> None:
    """`scatters.scatter` of every tensor."""
    shares, total = at.shape[0], count * len(sources)
    for share in prange(shares):
        done, high = total * share // shares, total * (share + 1) // shares
        own, here = stage + share * stage_step, at[share]
        while done < high:
            k, first, last = part(done, high, count)
            come, to = sources[k], targets[k]
            scatter(come, to, loops, here, first, last, shape, offsets, own, nbytes, width)
            done += last - first


@parallel_kernel
def interleave_rows_each(
    sources: Numbers,
    targets: Numbers,
    loops: Table,
    at: Table,
    count: int,
    shape: Table,
    offsets: Numbers,
    stage: int,
    stage_step: int,
    factor: Any,
    width: Any,
    pieces: Any,
) -> None:
    """`gathers.interleave_rows` of every tensor."""
    shares, total = at.shape[0], count * len(sources)
    for share in prange(shares):
        done, high = total * share // shares, total * (share + 1) // shares
        own, here = stage + share * stage_step, at[share]
        while done < high:
            k, first, last = part(done, high, count)
            come, to, tags = sources[k], targets[k], (factor, width, pieces)
            interleave_rows(come, to, loops, here, first, last, shape, offsets, own, *tags)
            done += last - first


@parallel_kernel
def pick_rows_each(
    sources: Numbers,
    targets: Numbers,
    loops: Table,
    at: Table,
    count: int,
    shape: Table,
    offsets: Numbers,
    stage: int,
    stage_step: int,
    step: Any,
    back: Any,
    width: Any,
    pieces: Any,
) -> None:
    """`gathers.pick_rows` of every tensor."""
    shares, total = at.shape[0], count * len(sources)
    for share in prange(shares):
        done, high = total * share // shares, total * (share + 1) // shares
        own, here = stage + share * stage_step, at[share]
        while done < high:
            k, first, last = part(done, high, count)
            come, to, tags = sources[k], targets[k], (step, back, width, pieces)
            pick_rows(come, to, loops, here, first, last, shape, offsets, own, *tags)
            done += last - first


@parallel_kernel
def turn_rows_each(
    sources: Numbers,
    targets: Numbers,
    loops: Table,
    at: Table,
    count: int,
    shape: Table,
    offsets: Numbers,
    stage: int,
    stage_step: int,
    group: Any,
    width: Any,
) -> None:
    """`gathers.turn_rows` of every tensor."""
    shares, total = at.shape[0], count * len(sources)
    for share in prange(shares):
        done, high = total * share // shares, total * (share + 1) // shares
        own, here = stage + share * stage_step, at[share]
        while done < high:
            k, first, last = part(done, high, count)
            come, to = sources[k], targets[k]
            turn_rows(come, to, loops, here, first, last, shape, offsets, own, group, width)
            done += last - first


@parallel_kernel
def gather_each(
    sources: Numbers,
    targets: Numbers,
    loops: Table,
    at: Table,
    count: int,
    shape: Table,
    offsets: Numbers,
    stage: int,
    stage_step: int,
    width: Any,
) -> None:
    """`gathers.gather` of every tensor."""
    shares, total = at.shape[0], count * len(sources)
    for share in prange(shares):
        done, high = total * share // shares, total * (share + 1) // shares
        own, here = stage + share * stage_step, at[share]
        while done < high:
            k, first, last = part(done, high, count)
            gather(sources[k], targets[k], loops, here, first, last, shape, offsets, own, width)
            done += last - first
