"""Copies that convert: boxes of elements are fetched, converted run by run, and stored.

A box is a part of the target that fits into a cache with its source. `loops` has a row per loop
over boxes: its size, its steps in source, target, scales and zero points, then the distances by
which the last step goes back in each. `runs` has a row per run of a box (words of `constants`):
where it begins on the stage or in the source, in the target, in the scales and in the zero points,
and the shift of its codes within their bytes. Source and target count bits, everything else bytes.
`cast` has all other numbers, first the places on the stage: of fetched elements, of repeated scales
and zero points, of converted elements, and of packed ones.
"""

from __future__ import annotations

from ..runtime.jobs import HIGH, LOW, SPAN, STREAMED, TENSOR
from .bits import move_bits
from .calls import call
from .codes import fill
from .constants import (
    BACK,
    BOX_SCALE,
    BOX_SIZE,
    BOX_SOURCE,
    BOX_TARGET,
    BOX_ZERO,
    CAST_BITS,
    CAST_BLOCK,
    CAST_CONVERT,
    CAST_COUNT,
    CAST_FETCHES,
    CAST_MOVER,
    CAST_PACK,
    CAST_REACH,
    CAST_RUN_BITS,
    CAST_SCALE,
    CAST_SCALE_STEP,
    CAST_UNPACK,
    CAST_ZERO,
    CAST_ZERO_STEP,
    CONVERTED,
    FETCHED,
    ONE_BY_ONE,
    PACKED,
    RUN_BY_RUN,
    RUN_SCALE,
    RUN_SHIFT,
    RUN_SOURCE,
    RUN_TARGET,
    RUN_ZERO,
    SCALES,
    ZEROS,
)
from .conversions import convert
from .jit import Address, BitAddress, Numbers, Table, kernel
from .memory import address_of, bit_pointer, pointer
from .shares import take
from .small import put
from .small_plans import NEAR, NEAR_BYTES


@kernel
def box_at(loops: Table, index: int) -> tuple[int, int, int, int]:
    """The start of box `index` in source, target (bits), scales and zero points (bytes)."""
    source = target = scale = zero = 0
    for k in range(loops.shape[0] - 1, -1, -1):
        size = loops[k, BOX_SIZE]
        at = index % size
        index //= size
        source += at * loops[k, BOX_SOURCE]
        target += at * loops[k, BOX_TARGET]
        scale += at * loops[k, BOX_SCALE]
        zero += at * loops[k, BOX_ZERO]
        if at == size - 1:
            source -= loops[k, BACK + BOX_SOURCE]
            target -= loops[k, BACK + BOX_TARGET]
            scale -= loops[k, BACK + BOX_SCALE]
            zero -= loops[k, BACK + BOX_ZERO]
    return source, target, scale, zero


@kernel
def fetched(
    source: BitAddress,
    unit: int,
    high: int,
    stage: Address,
    loops: Table,
    fetch: Numbers,
    cast: Numbers,
    position: Address,
) -> Address:
    """The start of the bytes of box `unit`: in the source, or reordered on the stage.

    Lines of the next box, below `high`, are prefetched. `source` counts bits.
    """
    begin = source + box_at(loops, unit)[0] >> 3
    if len(fetch) > 0:
        ahead = begin
        if unit + 1 < high:
            ahead = source + box_at(loops, unit + 1)[0] >> 3
        to = stage + cast[FETCHED]
        plan = address_of(fetch)
        apart = ahead - begin
        ahead += fetch[NEAR]
        end = ahead
        if fetch[NEAR_BYTES] > 0 and apart != 0:
            end += cast[SCALES] - cast[FETCHED]
            apart = 0
        put(begin, to, plan, position, ahead, end, apart, cast[CAST_MOVER])
        begin = stage + cast[FETCHED]
    return begin


@kernel
def repeat_scales(
    stage: Address, scale: Address, zero: Address, plans: Numbers, cast: Numbers, position: Address
) -> tuple[Address, Address]:
    """Repeat the scales and zero points of a box, one per element, by the small plans `plans`."""
    if len(plans) > 0:
        place, half, mover = address_of(plans), plans[0], cast[CAST_MOVER]
        nowhere = pointer(0)
        put(scale, stage + cast[SCALES], place + 8, position, nowhere, nowhere, 0, mover)
        scale = stage + cast[SCALES]
        if half > 0:
            plan = place + 8 * half
            put(zero, stage + cast[ZEROS], plan, position, nowhere, nowhere, 0, mover)
            zero = stage + cast[ZEROS]
    return scale, zero


@kernel
def cast_boxes(
    places: Table,
    work: Numbers,
    span: Numbers,
    stage: Address,
    loops: Table,
    runs: Table,
    inner: Table,
    fetch: Numbers,
    scale_plans: Numbers,
    cast: Numbers,
) -> None:
    """Convert elements run by run; packed ones are unpacked before, or packed afterwards.

    Packed elements are fetched `RUN_BY_RUN`, or `ONE_BY_ONE` along the `inner` loops; all others as
    bytes. Results that are not packed are converted into the target, and streamed by the function
    that converts them.
    """
    position, place = span[SPAN:], address_of(span) + 8 * SPAN
    count, block, fetches = cast[CAST_COUNT], cast[CAST_BLOCK], cast[CAST_FETCHES]
    packs, unpacks, width = cast[CAST_PACK], cast[CAST_UNPACK], cast[CAST_BITS]
    scales, zeros = pointer(cast[CAST_SCALE]), pointer(cast[CAST_ZERO])
    spot, made, packed = stage + cast[FETCHED], stage + cast[CONVERTED], stage + cast[PACKED]
    while take(work, span):
        source, target = bit_pointer(places[0, span[TENSOR]]), bit_pointer(places[1, span[TENSOR]])
        end = (source >> 3) + cast[CAST_REACH]
        for unit in range(span[LOW], span[HIGH]):
            s, t, scale, zero = box_at(loops, unit)
            begin = fetched(source, unit, span[HIGH], stage, loops, fetch, cast, place)
            if fetches == ONE_BY_ONE:
                begin, some = spot, count * len(runs)
                fill(begin, source + s, inner, position, 0, some, end, width, unpacks)
            scale_at, zero_at = repeat_scales(
                stage, scales + scale, zeros + zero, scale_plans, cast, place
            )
            for r in range(len(runs)):
                codes = begin + runs[r, RUN_SOURCE]
                if fetches == RUN_BY_RUN:
                    codes = spot
                    call(unpacks, (codes, source + s + runs[r, RUN_SOURCE], count, end))
                into = target + t + runs[r, RUN_TARGET]
                results = into >> 3 if packs == 0 else made
                convert(
                    cast[CAST_CONVERT], codes, results, count, block,
                    scale_at + runs[r, RUN_SCALE], cast[CAST_SCALE_STEP],
                    zero_at + runs[r, RUN_ZERO], cast[CAST_ZERO_STEP], runs[r, RUN_SHIFT],
                )  # fmt: skip
                if packs != 0:
                    call(packs, (packed, made, count))
                    move_bits(into, 8 * packed, cast[CAST_RUN_BITS], work[STREAMED] != 0)
