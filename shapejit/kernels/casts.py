"""Copies that convert: boxes of elements are fetched, converted run by run, and stored.

A box is a part of the target that fits into a cache with its source; `loops` over boxes are those
of `odometer.box_at`. `runs` has a row per run of a box: where it begins on the stage or in the
source, in the target, in the scales and in the zero points. Source and target count bits,
everything else bytes.
"""

from __future__ import annotations

from ..runtime.jobs import HIGH, LOW, SPAN, STREAMED
from .bits import move_bits
from .calls import call
from .jit import Address, Numbers, Table, kernel
from .memory import address_of, pointer
from .odometer import box_at
from .shares import bit_ends, take
from .small import put


@kernel
def cast_boxes(
    addresses: Table,
    work: Numbers,
    span: Numbers,
    stage: Address,
    loops: Table,
    runs: Table,
    inner: Table,
    fetch: Numbers,
    scale_plans: Numbers,
    places: Numbers,
    functions: Numbers,
    sizes: Numbers,
) -> None:
    """Convert elements run by run; packed ones are unpacked before, or packed afterwards.

    The function of a network may permute a box of packed elements: then `fetch` has the offsets of
    its pieces, `inner` a row for each call: its offsets on both sides, and the number of blocks.
    Otherwise `fetch` is the small plan that puts a box in order, if any. Packed elements are
    unpacked in the source's order before: `inner` has runs of them, with their offsets in bits,
    those of their codes, and their numbers. All others are unpacked run by run. The function that
    converts writes results that are not packed into the target, and streams them.

    `places` on the stage: of elements in order, of those that were permuted or unpacked before, of
    repeated scales and zero points, of converted elements, and of packed ones. `functions` convert,
    permute, unpack and pack (0: none); the last one moves planes of small plans. `sizes`: the first
    scale and zero point; elements with one scale, and the steps between scales and zero points;
    elements of a run, and its bits in the target; bytes that elements reach; the steps between the
    blocks that a call permutes, and to those whose lines it prefetches.
    """
    fetched_at, before_at, scales_at, zeros_at, made_at, packed_at = places
    converts, permutes, unpacks, packs, mover = functions
    (first_scale, first_zero, block, scale_step, zero_step, count, run_bits, reach,
     source_step, target_step, ahead) = sizes  # fmt: skip
    place = address_of(span) + 8 * SPAN
    spot, before = stage + fetched_at, stage + before_at
    made, packed = stage + made_at, stage + packed_at
    ordered = permutes == 0 and len(fetch) > 0
    while take(work, span):
        source, target = bit_ends(addresses, span)
        end = (source >> 3) + reach
        for unit in range(span[LOW], span[HIGH]):
            s, t, scale, zero = box_at(loops, unit)
            begin = source + s >> 3
            scales, zeros = pointer(first_scale) + scale, pointer(first_zero) + zero
            codes, last = source + s, end
            if permutes != 0:
                for r in range(len(inner)):
                    at, to, some = inner[r]
                    call(
                        permutes,
                        (begin + at, before + to, address_of(fetch),
                         some, source_step, target_step, ahead, 0),
                    )  # fmt: skip
                codes, last = 8 * before, stage + scales_at
            elif ordered:
                if unpacks != 0:
                    for r in range(len(inner)):
                        at, to, some = inner[r]
                        call(unpacks, (before + to, codes + at, some, end))
                    begin = before
                put(begin, spot, address_of(fetch), place, mover)
                begin = spot
            if len(scale_plans) > 0:
                plans, half = address_of(scale_plans), scale_plans[0]
                put(scales, stage + scales_at, plans + 8, place, mover)
                scales = stage + scales_at
                if half > 0:
                    put(zeros, stage + zeros_at, plans + 8 * half, place, mover)
                    zeros = stage + zeros_at
            for r in range(len(runs)):
                run_source, run_target, run_scale, run_zero = runs[r]
                into = target + t + run_target
                results = into >> 3 if packs == 0 else made
                found = spot
                if unpacks == 0 or ordered:
                    found = begin + (run_source >> 3)
                else:
                    call(unpacks, (spot, codes + run_source, count, last))
                call(
                    converts,
                    (found, results, count, block,
                     scales + run_scale, scale_step, zeros + run_zero, zero_step),
                )  # fmt: skip
                if packs != 0:
                    call(packs, (packed, made, count))
                    move_bits(into, 8 * packed, run_bits, work[STREAMED] != 0)
