"""Copies that convert: boxes of elements are fetched, converted run by run, and stored.

A box is a part of the target that fits into a cache with its source. `loops` walks the
boxes, one row (size, then the steps in source, target, scales and zero points, then how
far the last step goes back in each). `runs` holds, one row per run of a box, where it
begins: on the stage or in the source, in the target, in the scales, in the zero points
(words of `constants`), and how far up in their bytes its codes are. Source and target
count bits, everything else bytes. `spots` are the places on the stage: of the fetched
elements, of scales and zero points that were repeated there, of converted elements, and
of packed ones.
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
from .jit import Numbers, Table, inlined, kernel
from .memory import address_of
from .shares import take
from .small import put
from .small_plans import NEAR, NEAR_BYTES


@kernel
def box_at(loops: Table, index: int) -> tuple[int, int, int, int]:
    """Where box `index` begins: in source, target (bits), scales and zero points (bytes)."""
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
    source: int,
    unit: int,
    high: int,
    stage: int,
    loops: Table,
    spots: Numbers,
    fetch: Numbers,
    position: int,
    mover: int,
) -> int:
    """Where the bytes of box `unit` begin: in the source, or put in order on the stage.

    Lines of the next box, below `high`, are asked for meanwhile. `source` counts bits.
    """
    begin = (source + box_at(loops, unit)[0]) >> 3
    if len(fetch) > 0:
        ahead = begin
        if unit + 1 < high:
            ahead = (source + box_at(loops, unit + 1)[0]) >> 3
        to = stage + spots[FETCHED]
        plan = address_of(fetch)
        apart = ahead - begin
        ahead += fetch[NEAR]
        end = ahead
        if fetch[NEAR_BYTES] > 0 and apart != 0:
            end += spots[SCALES] - spots[FETCHED]
            apart = 0
        put(begin, to, plan, position, ahead, end, apart, mover)
        begin = stage + spots[FETCHED]
    return begin


@kernel
def repeat_scales(
    stage: int,
    spots: Numbers,
    scale: int,
    zero: int,
    plans: Numbers,
    position: int,
    mover: int,
) -> tuple[int, int]:
    """Write the scales and zero points of a box side by side, where `plans` says how."""
    if len(plans) > 0:
        place, half = address_of(plans), plans[0]
        put(scale, stage + spots[SCALES], place + 8, position, 0, 0, 0, mover)
        scale = stage + spots[SCALES]
        if half > 0:
            put(zero, stage + spots[ZEROS], place + 8 * half, position, 0, 0, 0, mover)
            zero = stage + spots[ZEROS]
    return scale, zero


@inlined
def convert_run(
    entry: int, src: int, dst: int, count: int, runs: Table, r: int, steps: tuple[int, ...]
) -> None:
    """Convert a run; `steps`: elements per scale, and where scales and zero points lie."""
    block, scale, scale_step, zero, zero_step = steps
    scale, zero = scale + runs[r, RUN_SCALE], zero + runs[r, RUN_ZERO]
    shift = runs[r, RUN_SHIFT]
    convert(entry, src, dst, count, block, scale, scale_step, zero, zero_step, shift)


@kernel
def cast_boxes(
    places: Table,
    work: Numbers,
    span: Numbers,
    stage: int,
    loops: Table,
    runs: Table,
    spots: Numbers,
    fetch: Numbers,
    scale_plans: Numbers,
    entry: int,
    mover: int,
    count: int,
    block: int,
    scales: int,
    scale_step: int,
    zeros: int,
    zero_step: int,
) -> None:
    """Convert elements of whole bytes, in runs of `count`; `entry` streams what is to be."""
    place = address_of(span) + 8 * SPAN
    while take(work, span):
        source, target = places[0, span[TENSOR]], places[1, span[TENSOR]] >> 3
        for unit in range(span[LOW], span[HIGH]):
            _, t, scale, zero = box_at(loops, unit)
            begin = fetched(source, unit, span[HIGH], stage, loops, spots, fetch, place, mover)
            scale, zero = repeat_scales(
                stage, spots, scales + scale, zeros + zero, scale_plans, place, mover
            )
            for r in range(len(runs)):
                into = target + ((t + runs[r, RUN_TARGET]) >> 3)
                steps = block, scale, scale_step, zero, zero_step
                convert_run(entry, begin + runs[r, RUN_SOURCE], into, count, runs, r, steps)


@kernel
def cast_packed(
    places: Table,
    work: Numbers,
    span: Numbers,
    stage: int,
    loops: Table,
    runs: Table,
    spots: Numbers,
    fetch: Numbers,
    scale_plans: Numbers,
    entry: int,
    mover: int,
    count: int,
    block: int,
    scales: int,
    scale_step: int,
    zeros: int,
    zero_step: int,
    inner: Table,
    reach: int,
    source_bits: int,
    fetches: int,
    unpacks: int,
    packs: int,
    nbits: int,
) -> None:
    """`cast_boxes` where source or target have several elements per byte.

    `fetches` tells how codes are fetched: `RUN_BY_RUN`, `ONE_BY_ONE` along the `inner`
    loops, or 0: as bytes. `unpacks` is called for that, and `packs` for what is packed,
    unless it is 0: then a run has `nbits` in the target.
    """
    position = span[SPAN:]
    place = address_of(span) + 8 * SPAN
    while take(work, span):
        source, target = places[0, span[TENSOR]], places[1, span[TENSOR]]
        end = (source >> 3) + reach
        for unit in range(span[LOW], span[HIGH]):
            s, t, scale, zero = box_at(loops, unit)
            begin = fetched(source, unit, span[HIGH], stage, loops, spots, fetch, place, mover)
            if fetches == ONE_BY_ONE:
                begin, some = stage + spots[FETCHED], count * len(runs)
                fill(begin, source + s, inner, position, 0, some, end, source_bits, unpacks)
            scale, zero = repeat_scales(
                stage, spots, scales + scale, zeros + zero, scale_plans, place, mover
            )
            for r in range(len(runs)):
                codes = begin + runs[r, RUN_SOURCE]
                if fetches == RUN_BY_RUN:
                    codes = stage + spots[FETCHED]
                    call(unpacks, (codes, source + s + runs[r, RUN_SOURCE], count, end))
                into = target + t + runs[r, RUN_TARGET]
                made = stage + spots[CONVERTED] if packs != 0 else into >> 3
                steps = block, scale, scale_step, zero, zero_step
                convert_run(entry, codes, made, count, runs, r, steps)
                if packs != 0:
                    call(packs, (stage + spots[PACKED], made, count))
                    move_bits(into, 8 * (stage + spots[PACKED]), nbits, work[STREAMED] != 0)
