"""Many small tensors in one launch, by small plans.

`sources` and `targets` are addresses of first elements. Threads take whole tensors, distributed by
their bytes; larger tensors are copied by the kernels of a Plan.
"""

from __future__ import annotations

from ..runtime.cpu_caches import LINE
from ..runtime.jobs import HIGH, LOW, SPAN
from .constants import FULL, STAGED_WHOLE
from .copies import stream
from .jit import Address, Numbers, Table, kernel
from .memory import address_of, load_address, pointer, store_address
from .shares import take
from .small import prefetch_lines, put
from .small_plans import AHEAD, END, NEAR, NEAR_BYTES


@kernel
def copy_each(
    addresses: Table,
    work: Numbers,
    span: Numbers,
    stage: Address,
    nbytes: Numbers,
    plans: Numbers,
    starts: Numbers,
    bounds: Numbers,
    mover: int,
) -> None:
    """Copy each tensor by its own small plan; one for all if `starts` has one entry.

    A unit of work is the tensors [bounds[i], bounds[i + 1]): tensor k is `nbytes[k]`
    bytes by the plan at `plans[starts[k]:]`. With a stage, adjacent targets are collected
    there, so that whole lines are streamed past the caches.
    """
    each = min(1, len(starts) - 1)  # from one tensor's plan to the next one's
    scratch = address_of(span) + 8 * SPAN
    while take(work, span):
        high = bounds[span[HIGH]]
        first, held = pointer(0), 0  # where the bytes on the stage go, and their number
        for k in range(bounds[span[LOW]], high):
            following = min(k + 1, high - 1)
            at, later = starts[each * k], starts[each * following]
            ahead = pointer(addresses[0, following]) + plans[later + NEAR]
            room = plans[later + NEAR_BYTES]
            store_address(scratch + 8 * AHEAD, ahead)
            store_address(scratch + 8 * END, ahead + room)
            plan = address_of(plans) + 8 * at
            size = nbytes[each * k]
            source, target = pointer(addresses[0, k]), pointer(addresses[1, k])
            staged = stage != 0 and size <= STAGED_WHOLE
            if staged:
                if target != first + held or held >= FULL:
                    stream(first, stage + (first & (LINE - 1)), held)
                    first, held = target, 0
                target = stage + ((first & (LINE - 1)) + held)
            put(source, target, plan, scratch, mover)
            prefetch_lines(load_address(scratch + 8 * AHEAD), ahead + room, room)
            if staged:
                held += size
        stream(first, stage + (first & (LINE - 1)), held)
