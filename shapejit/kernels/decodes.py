"""Weights decoded in runs: scales and codes are joined from their bits and converted in turn.

`steps` has a row for each (words of `constants`): numbers that lie side by side, or are
joined on the stage, are converted with scales and zero points in memory or on the
stage, and written to the stage; those of the last row are the result.
"""

from __future__ import annotations

from .constants import (
    HIGH,
    LOW,
    SCALE_STAGED,
    STEP_APART,
    STEP_BLOCK,
    STEP_CODES,
    STEP_CONVERT,
    STEP_INTO,
    STEP_JOIN,
    STEP_NBYTES,
    STEP_PER,
    STEP_SCALE,
    STEP_SCALE_APART,
    STEP_SOURCE,
    STEP_STAGED,
    STEP_UNIT,
    STEP_ZERO,
    STEP_ZERO_APART,
    STREAMED,
    TENSOR,
    ZERO_STAGED,
)
from .conversions import convert
from .copies import stream
from .jit import Numbers, Table, kernel
from .joins import join
from .shares import take


@kernel
def decode_step(steps: Table, k: int, begin: int, count: int, stage: int, into: int) -> None:
    """Take step `k` for the elements [begin, begin + count) of the result."""
    per, block = steps[k, STEP_PER], steps[k, STEP_BLOCK]
    first, some = begin // per, max(1, count // per)
    if steps[k, STEP_JOIN] != 0:
        codes, size, apart = stage + steps[k, STEP_CODES], steps[k, STEP_UNIT], steps[k, STEP_APART]
        source = steps[k, STEP_SOURCE] + first // size * apart
        join(steps[k, STEP_JOIN], source, codes, some // size, apart)
    else:
        codes = steps[k, STEP_SOURCE] + first * steps[k, STEP_NBYTES]
    scale = steps[k, STEP_SCALE] + first // block * steps[k, STEP_SCALE_APART]
    if steps[k, STEP_STAGED] & SCALE_STAGED != 0:
        scale += stage
    zero = steps[k, STEP_ZERO] + first // block * steps[k, STEP_ZERO_APART]
    if steps[k, STEP_STAGED] & ZERO_STAGED != 0:
        zero += stage
    convert(steps[k, STEP_CONVERT], codes, into, some, min(block, some), scale, 4, zero, 4, 0)


@kernel
def decode_runs(
    places: Table,
    work: Numbers,
    span: Numbers,
    stage: int,
    steps: Table,
    total: int,
    length: int,
    nbytes: int,
) -> None:
    """Decode `total` elements of `nbytes` bytes, `length` at a time."""
    last = steps.shape[0] - 1
    while take(work, span):
        target = places[1, span[TENSOR]]
        for unit in range(span[LOW], span[HIGH]):
            begin = unit * length
            count = min(length, total - begin)
            for k in range(last):
                decode_step(steps, k, begin, count, stage, stage + steps[k, STEP_INTO])
            into = target + begin * nbytes
            if work[STREAMED] != 0:
                made = stage + steps[last, STEP_INTO]
                decode_step(steps, last, begin, count, stage, made)
                stream(into, made, count * nbytes)
            else:
                decode_step(steps, last, begin, count, stage, into)
