"""The planner: Layout -> Plan. It chooses the strategy, and whether to stream past the caches.

Results in fresh memory are never streamed: `engine.execution.Work.run` knows whether it is.

A Plan is a printable value: it has the strategy, the loops in the order in which they run, the two
sides of a tile, and whether lines are streamed. The engine runs it.
"""

from __future__ import annotations

from dataclasses import replace
from math import gcd

from ..kernels.constants import PIECE, STAGED_WHOLE
from ..runtime.cpu_caches import LINE, PAGE
from ..shapes.dims import merged
from ..shapes.layout import Layout
from . import thresholds
from .boxes import box_of, code_box_of, codes_pay, pays
from .loops import ArrayLoop, Loop, length_of, normal_form, split_run
from .plans import Plan
from .shuffles import MOST_MIXED, Shuffle, mixed_of, shuffle_of
from .small_plans import slower_whole
from .strategies import Strategy
from .tiles import Tile, bit_tile_of, tile_of

# Strategies that take up to three times as long as permuted blocks.
BY_MIXED_BLOCKS = (Strategy.BOXES, Strategy.RUN_TILES)
WIDER = 6, 4, 3, 2  # bits of an element narrower than a byte
MOST_INTERLEAVED = 1 << 16  # arrays, or their rows: a table has an offset for each


def plan(
    layout: Layout,
    unit: int = 0,
    into: Layout | None = None,
    count: int = 1,
    networks: bool = True,
) -> Plan:
    """The Plan that copies the elements of `layout` to row-major order, `unit` bits each.

    `unit` is `layout.bits` (or 0), or 8 to unpack elements narrower than a byte. The target may be
    a part of a larger output, at any bit: then `into` is its Layout, of the same shape and width
    and with row-major last dims. `count` is the number of tensors in one launch; with more than
    one NumPy never does it. Without `networks` no function is needed that has to be compiled for
    this Layout.

    >>> print(plan(Layout.row_major((512, 512), 32).permute((1, 0)), 32))
    tiles: blocks transposed in registers; 4 bytes at a time, 1048576 bytes
      column 512: source +4, target +2048 bytes
      row 512: source +2048, target +4 bytes
      one thread
    """
    unit = unit or layout.bits
    target = into or Layout.row_major(layout.shape, unit)
    made = _planned(layout, unit, target, count, networks)
    whole = layout.bits == unit and (layout.bits | layout.offset) % 8 == 0 and into is None
    most = min(thresholds.NO_PLAN_MAX_BYTES, STAGED_WHOLE)
    if count < 2 or not whole or not 0 < made.nbytes <= most:
        return made
    if layout.size > thresholds.SHORT and slower_whole(made):
        return made
    offset = layout.offset
    return Plan(Strategy.SMALL, made.nbytes, offset=offset, small=layout, seen=layout, into=target)


def biased(layout: Layout, into: Layout, bias: int) -> Plan | None:
    """A `plan` that adds `bias` to each code, modulo the codes' range; None if there is none."""
    total = layout.size * layout.bits // 8
    if total < thresholds.SHUFFLES_FROM or bias != 1 << (layout.bits - 1):
        return None
    found = shuffle_of(normal_form(layout, into), layout.bits, flips=True)
    return _in_blocks(layout, into, found, total)


def joined(layout: Layout, into: Layout, count: int, array_stride: int) -> Plan:
    """The Plan that joins arrays of one `layout`.

    The first array goes to `into`, each other `array_stride` bits further; that is 0 if targets are
    not evenly spaced. The addresses of the arrays are arguments of the run. Interleaved arrays have
    one target, that of the first.
    """
    return _interleaved(layout, into, count, array_stride) or _one_by_one(layout, into, count)


def _planned(layout: Layout, unit: int, target: Layout, copies: int, networks: bool = True) -> Plan:
    """The Plan for `copies` tensors, each copied on all threads."""
    nbytes = (layout.size * unit + 7) // 8
    if nbytes == 0:
        return Plan(Strategy.NOTHING, 0, seen=layout, into=target)
    total = nbytes * copies
    gaps = not target.contiguous
    normal = normal_form(layout, target)
    run, around = split_run(layout, unit, normal)
    strides = [s for loop in around for s in (loop.source, loop.target)]
    in_bits = any(s % 8 for s in (run, layout.offset, target.offset, *strides))
    scale = 1 if in_bits else 8
    loops = [Loop(size, source // scale, to // scale) for size, source, to in around]
    if in_bits:
        tile = bit_tile_of(loops, run, layout.bits, unit)
    else:
        tile = tile_of(loops, run // 8)
        if pays(tile, total):
            tile = box_of(loops, tile.width)
    by_numpy = copies == 1 and layout.bits >= 8 and not in_bits
    by_numpy = by_numpy and _numpy_is_faster(tile, loops, run, layout, total, gaps)
    permuted = networks and layout.bits == unit and total >= thresholds.SHUFFLES_FROM
    if permuted and unit < 8 and (in_bits or gaps):
        # Tiles with a short side take longer than blocks of any size; others up to a third.
        short_side = min(length_of(side, 1) for side in (tile.rows, tile.columns))
        least = PIECE if tile.strategy is Strategy.BIT_TILES and short_side >= PIECE else 0
        for find in (shuffle_of, mixed_of):
            shuffled = _in_blocks(layout, target, find(normal, unit), total)
            if shuffled and shuffled.width >= least:
                return shuffled
    elif permuted and not by_numpy and _may_mix(tile):
        shuffled = _in_blocks(layout, target, mixed_of(around, run), total)
        if shuffled and _long_pieces(shuffled, tile, total):
            return shuffled
    if in_bits:
        short = bool(loops) and layout.bits == unit < run < thresholds.RUN * unit
        # Single elements between gaps of the target would be written one by one.
        adjacent = short and normal[-2].target == run
        wider = _of_wider(layout, target, run, normal) if adjacent else None
        if wider:
            seen, into = wider
            made = _planned(seen, seen.bits, into, copies, networks)
            return replace(made, seen=layout, into=target)
        if codes_pay(tile, layout.bits):
            inner = [Loop(run // layout.bits, layout.bits, unit)] if run > layout.bits else []
            sources = (loop.source for loop in (*loops, *inner))
            always = tile.strategy is Strategy.CODE_BOXES
            # Elements on bytes are codes already; packing them ignores their high bits.
            packs = layout.bits == unit and not any(s % 8 for s in (layout.offset, *sources))
            width = 8 if packs else layout.bits
            tile = code_box_of([*loops, *inner], width, unit, always, networks) or tile
    return replace(by_tile(tile, layout, target, unit, total), by_numpy=by_numpy)


def _of_wider(
    layout: Layout, target: Layout, run: int, normal: list[Loop]
) -> tuple[Layout, Layout] | None:
    """Layouts of the same bits as fewer elements, each of several; None if there are none.

    Runs (bits) consist of them, and begin at multiples of their width. Slices and flips of pairs of
    1 and 2 bits take 1.2 to 4.0 x the time as boxes of codes.
    """
    sizes, *sides = zip(*normal[:-1], strict=True)
    common = gcd(run, layout.offset, target.offset, *sides[0], *sides[1])
    width = next((n for n in WIDER if common % n == n % layout.bits == 0), 0)
    if width <= layout.bits:
        return None
    source, to = (
        Layout.of((*sizes, run // width), (*side, width), whole.offset, width)
        for side, whole in zip(sides, (layout, target), strict=True)
    )
    return source, to


def _may_mix(tile: Tile) -> bool:
    """Whether permuted blocks may be faster; among tiles, if a side fits into a block.

    As tiles, such copies of 0.6 to 0.9 MiB take 1.4 x the time, at most 2.6. Searching for blocks
    takes 2 to 5 ms.
    """
    if tile.strategy is Strategy.TILES:
        sides = (length_of(side, tile.width) for side in (tile.rows, tile.columns))
        return min(sides) <= MOST_MIXED
    return tile.strategy in BY_MIXED_BLOCKS


def _long_pieces(shuffled: Plan, tile: Tile, total: int) -> bool:
    """Whether blocks have pieces that are long enough to be faster than a tile.

    380 random copies of .1 to 70 MiB take 1.02 to 1.09 times as long as by the faster way; if
    blocks are never chosen 1.7, and 1.4 above 25 MiB.
    """
    large = total >= thresholds.RUNS_STREAM_FROM
    apart = not (shuffled.shuffle.in_sequence and shuffled.shuffle.long)
    if apart and tile.strategy is Strategy.TILES:
        return False
    least = 2 * tile.width if large else tile.width
    if tile.strategy is Strategy.TILES or tile.step:  # transposed in registers, too
        # Blocks of two complex128 take 1.1 x the time of boxes in 64 MiB, at most 2; 0.5 in 8 MiB.
        least = max(2 * least if large else least, 3 * PIECE // 2 if large and apart else PIECE)
    return shuffled.width >= least


def by_tile(tile: Tile, layout: Layout, target: Layout, unit: int, total: int) -> Plan:
    """The Plan of a tile; `total` is the number of bytes moved."""
    row = tile.strategy.row
    offset = layout.offset + tile.shift
    gaps = not target.contiguous
    streams = not (gaps and row.collects) or tile.width > PAGE
    runs = tile.strategy in (Strategy.ONE_RUN, Strategy.INTERLEAVED_ROWS)
    return Plan(
        tile.strategy,
        (layout.size * unit + 7) // 8,
        tile.loops,
        tile.rows,
        tile.columns,
        tile.width,
        unit,
        tile.step,
        offset,
        target.offset + tile.target_shift,
        reach=-(-layout.span[1] // 8) - offset // 8,
        gaps=gaps,
        parallel=total >= thresholds.PARALLEL_FROM,
        streaming=streams
        and total >= (thresholds.RUNS_STREAM_FROM if runs else thresholds.STREAM_FROM),
        shuffle=tile.shuffle,
        seen=layout,
        into=target,
    )


def _one_by_one(layout: Layout, into: Layout, count: int) -> Plan:
    """The Plan of arrays that are written one after the other; NumPy's if all are small."""
    one = plan(layout, into=into)
    if count == 1 or (one.by_numpy and count * one.nbytes < numpy_below(one.width, True)):
        return one
    return plan(layout, into=into, count=count)


def _interleaved(layout: Layout, into: Layout, count: int, array_stride: int) -> Plan | None:
    """The Plan that interleaves all arrays in its rows; None if sequential copies are as fast."""
    bits, at = layout.bits, sum(stride > array_stride for stride in into.strides)
    strides = (bits, layout.offset, into.offset, array_stride, *layout.strides, *into.strides)
    if (
        count < 2
        or count > MOST_INTERLEAVED
        or array_stride <= 0
        or any(stride % 8 for stride in strides)
    ):
        return None
    shape = *into.shape[:at], count, *into.shape[at:]
    seen, target = (
        Layout.of(shape, (*x.strides[:at], step, *x.strides[at:]), x.offset, bits)
        for x, step in ((layout, 0), (into, array_stride))
    )
    sides = into.shape, layout.strides, into.strides
    outer, inner = (
        [Loop(*dim) for dim in merged(*(side[part] for side in sides))]
        for part in (slice(at), slice(at, None))
    )
    # As if one array followed the other, beyond the reach of a block.
    array = Loop(count, 8 * PAGE + layout.span[1] - layout.span[0], array_stride)
    run, around = split_run(layout, bits, [*outer, array, *inner])
    loops = [Loop(size, source // 8, to // 8) for size, source, to in around]
    loops[len(outer)] = ArrayLoop(count, 0, array_stride // 8)
    width, total = run // 8, count * layout.size * bits // 8
    if total < numpy_below(width, True):
        return None
    tile = _interleaved_tile(loops, width)
    if tile is None:
        return None
    made = None
    if tile.strategy is Strategy.INTERLEAVED_ROWS:
        made = _in_blocks(seen, target, mixed_of(around, run), total)
        parted = made and any(8 * loop.source >= array.source for loop in made.loops)
        if made and (parted or made.width < 2 * width):
            made = None
    made = made or by_tile(tile, seen, target, bits, total)
    return replace(made, array_stride=array_stride, seen=layout, into=into)


def _interleaved_tile(loops: list[Loop], width: int) -> Tile | None:
    """The tile that interleaves the elements of several arrays, if there is one.

    The loop over arrays is one of the rows, and not the first: see `tables.interleaved_offsets`.
    """
    found = tile_of(loops, width)
    if found.strategy is Strategy.TILES:
        if not any(isinstance(loop, ArrayLoop) for loop in found.rows):
            return None
        if isinstance(found.rows[0], ArrayLoop):
            # Some 24 bytes for each row of the target.
            small = length_of(found.rows, 1) <= MOST_INTERLEAVED
            small = small or length_of(found.columns, width) >= thresholds.RUN
            return found._replace(rows=(Loop(1, 0, 0), *found.rows)) if small else None
        return found
    *outer, last = loops
    if not outer or not isinstance(last, ArrayLoop) or last.target != width or width > PAGE:
        return None
    return Tile(Strategy.INTERLEAVED_ROWS, width, tuple(outer))


def _in_blocks(layout: Layout, target: Layout, found: Shuffle | None, total: int) -> Plan | None:
    """The Plan of permuted blocks that begin on bytes."""
    if found is None or (layout.offset + found.shift | target.offset) % 8:
        return None
    tile = Tile(Strategy.SHUFFLE, found.network.nbytes, found.loops, shift=found.shift)
    made = by_tile(tile, layout, target, layout.bits, total)
    run = found.in_sequence and len(found.targets) == 1 and total < thresholds.RUNS_STREAM_FROM
    return replace(made, shuffle=found, streaming=made.streaming and not run)


def numpy_below(width: int, gaps: bool = False) -> int:
    """The size in bytes below which NumPy copies runs of `width` bytes as fast as a compiled call.

    `gaps`: the target is a part of a larger array.
    """
    if width < thresholds.RUN:
        return (2 if gaps else 1) * thresholds.NUMPY_BELOW * min(width, PIECE)
    # What is a part of a larger array is rarely in a cache: threads share it sooner.
    most = thresholds.NUMPY_RUNS_BELOW
    return min(most, thresholds.PARALLEL_FROM) if gaps else most


def _numpy_is_faster(
    tile: Tile, loops: list[Loop], run: int, layout: Layout, total: int, gaps: bool
) -> bool:
    """Whether NumPy copies runs of `run` bits of one ndarray as fast as a kernel."""
    if not loops or total < numpy_below(run // 8, gaps):
        return bool(loops)
    # Single elements between gaps: NumPy takes 0.3 ns for each, a kernel 3 ns.
    single = tile.strategy is Strategy.ROWS and gaps and run == layout.bits <= 64
    return single and abs(loops[-1].source) <= LINE
