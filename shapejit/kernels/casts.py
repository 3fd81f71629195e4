"""Copies that convert: boxes of elements are fetched, converted run by run, and stored.

A box is a part of the target that fits into a cache with its source; `loops` over boxes are those
of `odometer.box_at`. `runs` has a row per run of a box: where it begins on the stage or in the
source, in the target, in the scales and in the zero points. Source and target count bits,
everything else bytes.

`cast` has all other numbers: the first scale and zero point; the places on the stage of fetched
elements, of permuted ones that are still packed, of repeated scales and zero points, of converted
elements, and of packed ones; the functions that convert, permute, unpack and pack (0: none), and
move planes of small plans; the calls that permute a box, the blocks of each, and the steps between
these; elements of a run, and with one scale; the steps between scales and zero points; bytes that
elements reach, bits of one in the source, bits of a run in the target.
"""

from __future__ import annotations

from ..runtime.jobs import HIGH, LOW, SPAN, STREAMED
from .bits import move_bits
from .calls import call
from .codes import fill
from .jit import Address, Numbers, Table, kernel
from .memory import address_of, pointer, store_address
from .odometer import box_at, seek, step
from .shares import bit_ends, take
from .small import put, put_alone
from .small_plans import AHEAD, END, NEAR, NEAR_BYTES


@kernel
def reordered(
    source: Address,
    ahead: Address,
    to: Address,
    room: int,
    fetch: Numbers,
    scratch: Address,
    mover: int,
) -> Address:
    """Put the bytes of a box on the stage at `to` by the small plan `fetch`.

    Lines of the next box, which begins at `ahead`, are prefetched.
    """
    near = ahead + fetch[NEAR]
    store_address(scratch + 8 * AHEAD, near)
    if fetch[NEAR_BYTES] > 0 and ahead != source:
        near += room
    store_address(scratch + 8 * END, near)
    put(source, to, address_of(fetch), scratch, mover)
    return to


@kernel
def repeated(numbers: Address, to: Address, plan: Address, scratch: Address, mover: int) -> Address:
    """Repeat the scales or zero points of a box, one per element, by a small plan."""
    put_alone(numbers, to, plan, scratch, mover)
    return to


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
    cast: Numbers,
) -> None:
    """Convert elements run by run; packed ones are unpacked before, or packed afterwards.

    Packed elements are unpacked run by run, or along the `inner` loops. The function of a network
    may permute runs first: then these are loops over its calls, and `fetch` has the offsets of its
    pieces. All others are fetched as bytes. The function that converts writes results that are not
    packed into the target, and streams them.
    """
    (first_scale, first_zero, fetched_at, permuted_at, scales_at, zeros_at, made_at, packed_at,
     converts, permutes, fills, unpacks, packs, mover, calls, blocks, from_step, to_step,
     count, block, scale_step, zero_step, reach, width, run_bits) = cast  # fmt: skip
    position, place = span[SPAN:], address_of(span) + 8 * SPAN
    spot, made, packed = stage + fetched_at, stage + made_at, stage + packed_at
    while take(work, span):
        source, target = bit_ends(addresses, span)
        end = (source >> 3) + reach
        for unit in range(span[LOW], span[HIGH]):
            s, t, scale, zero = box_at(loops, unit)
            begin = source + s >> 3
            scales, zeros = pointer(first_scale) + scale, pointer(first_zero) + zero
            codes, last = source + s, end
            if permutes != 0:
                from_call, to_call = seek(inner, position, 0)
                permuted, last = stage + permuted_at, stage + scales_at
                for _ in range(calls):
                    call(
                        permutes,
                        (begin + from_call, permuted + to_call, address_of(fetch),
                         blocks, from_step, to_step, inner[-1, 1], 0),
                    )  # fmt: skip
                    from_call, to_call = step(inner, position, from_call, to_call)
                codes = 8 * permuted
            elif fills != 0:
                some = count * len(runs)
                fill(spot, codes, inner, position, 0, some, end, width, 0, fills, 0, place)
                begin = spot
            elif len(fetch) > 0:
                ahead = source + box_at(loops, min(unit + 1, span[HIGH] - 1))[0] >> 3
                room = permuted_at - fetched_at
                begin = reordered(begin, ahead, spot, room, fetch, place, mover)
            if len(scale_plans) > 0:
                plans, half = address_of(scale_plans), scale_plans[0]
                scales = repeated(scales, stage + scales_at, plans + 8, place, mover)
                if half > 0:
                    zeros = repeated(zeros, stage + zeros_at, plans + 8 * half, place, mover)
            for r in range(len(runs)):
                run_source, run_target, run_scale, run_zero = runs[r]
                into = target + t + run_target
                results = into >> 3 if packs == 0 else made
                found = spot
                if unpacks == 0:
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
