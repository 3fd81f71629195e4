"""Many small tensors in one launch, as parcels.

`sources` and `targets` are addresses of first elements. Tensors are dealt to
the threads by their bytes, whole; what is larger goes by the kernels of a Plan.
"""

from __future__ import annotations

from numba import prange

from .copies import Numbers, Table, flush, stream
from .jit import kernel, parallel_kernel
from .memory import LINE, fence
from .parcels import NEAR, NEAR_BYTES, ask, put

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
