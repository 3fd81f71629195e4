"""Quantised weights decoded run by run: first the scales of a run, then its codes.

`steps` has a row for each step: what reads units of codes (0: they are contiguous), the first one,
bytes from one unit to the next, numbers of a unit, elements of the result per number, what converts
them, numbers per scale; the scales and the zero points, and bytes from one to the next; which of
both are on the stage; where on the stage codes go, and results, those of the last row apart.
"""

from __future__ import annotations

from ..runtime.jobs import HIGH, LOW, TENSOR
from .calls import call
from .constants import SCALE_STAGED, ZERO_STAGED
from .jit import Address, Numbers, Table, kernel
from .memory import pointer
from .shares import take


@kernel
def decode_step(row: Numbers, begin: int, count: int, stage: Address, into: Address) -> None:
    """Run a step for the elements [begin, begin + count) of the result."""
    (read, place, spacing, unit, per, converts, block,
     scale, scale_apart, zero, zero_apart, staged, codes_at, _) = row  # fmt: skip
    first, some = begin // per, max(1, count // per)
    codes = pointer(place) + first // unit * spacing
    if read != 0:
        nowhere = pointer(0)
        call(read, (codes, stage + codes_at, nowhere, some // unit, spacing, 0, 0, 0))
        codes = stage + codes_at
    scales, zeros = pointer(scale), pointer(zero)
    if staged & SCALE_STAGED != 0:
        scales = stage + scale
    if staged & ZERO_STAGED != 0:
        zeros = stage + zero
    scales += first // block * scale_apart
    zeros += first // block * zero_apart
    call(converts, (codes, into, some, min(block, some), scales, 4, zeros, 4))


@kernel
def decode_runs(
    addresses: Table,
    work: Numbers,
    span: Numbers,
    stage: Address,
    steps: Table,
    total: int,
    length: int,
    nbytes: int,
) -> None:
    """Decode `total` elements of `nbytes` bytes, `length` at a time."""
    last = steps.shape[0] - 1
    while take(work, span):
        target = pointer(addresses[1, span[TENSOR]])
        for unit in range(span[LOW], span[HIGH]):
            begin = unit * length
            count = min(length, total - begin)
            for k in range(last):
                decode_step(steps[k], begin, count, stage, stage + steps[k, -1])
            decode_step(steps[last], begin, count, stage, target + begin * nbytes)
