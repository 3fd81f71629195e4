"""Layouts of elements, scales and results -> CastPlan: how a copy that converts runs.

The result is cut into boxes that fit into a cache together with their inputs. A box is reordered to
the result's order, unless the source has this order already, and converted in runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, prod

from ..kernels.constants import PIECE
from ..runtime.cpu_caches import LINE
from ..shapes.dims import merged
from ..shapes.layout import Layout
from . import thresholds
from .box_tables import Box, dense
from .boxes import ordered, parts_of
from .cast_plans import CastPlan, Dim, Scales
from .loops import BoxLoop, Loop, in_boxes, in_order, length_of
from .planner import by_tile
from .plans import Plan
from .shuffles import shuffle_of
from .strategies import Strategy
from .tables import CONVERTED_FIRST
from .tiles import Tile, tile_of

MAX_RUN_ELEMENTS = 1 << 14  # elements of a run at most: their codes stay in an L1 cache
MIN_VECTOR_RUN = 16  # elements with one scale that are worth a loop of their own
BOX_ELEMENTS = 1 << 16
# Elements of a box of packed ones along target and source: few pages are used at a time, of which
# several lines are read.
SHUFFLED_RUNS = 2048, 512


def cast_plan(
    source: Layout,
    unit: int,
    into: Layout | None,
    scales: Scales | None,
    count: int,
    networks: bool = True,
) -> CastPlan:
    """The CastPlan for elements of Layout `source`, results of `unit` bits, and `count` tensors.

    Results are row-major, or have the Layout `into`, whose last dim is contiguous. Without
    `networks` no function is needed that has to be compiled for these Layouts.
    """
    target = into or Layout.row_major(source.shape, unit)
    bits = source.bits
    dims = _normal_form(source, target, scales)
    total = source.size * (unit + bits) // 8 * count
    found = _packed(dims, bits, unit, source.offset) if networks else None
    mixed = networks and total >= thresholds.SHUFFLES_FROM
    boxes, box = found or _boxes(dims, bits, unit, mixed)
    kind, run, block, steps = _run(box, scales)
    shift = box.shuffle.shift if box.shuffle and box.packed else 0
    nbytes = (source.size * unit + 7) // 8
    streaming = nbytes * count >= thresholds.STREAM_FROM
    length = prod(dim.size for dim in box.dims[len(box.dims) - run :])
    return CastPlan(
        bits,
        unit,
        nbytes,
        source.offset + shift,
        target.offset,
        boxes,
        box,
        run,
        kind,
        block,
        *steps,
        reach=-(-source.span[1] // 8) - source.offset // 8,
        parallel=total >= thresholds.PARALLEL_FROM,
        streaming=streaming and length * unit >= 8 * thresholds.LONG_RUN,
        has_zero=scales is not None and scales.zero is not None,
        float_bytes=scales.bits // 8 if scales else 0,
        tiles=None if scales else _tiles(dims, source, target, unit),
    )


def _tiles(dims: Sequence[Dim], source: Layout, target: Layout, unit: int) -> Plan | None:
    """The plan of tiles that are transposed and converted, if a copy would use tiles.

    Elements that become narrower are converted before they are transposed, and merged to elements
    of the source's width: float32 to bfloat16 2.0 -> 1.3 x memcpy, to float8 2.6 -> 1.85 (4096 x
    4096, Zen 3).
    """
    whole = all(dim.source % 8 == 0 for dim in dims)
    if (source.bits | source.offset | unit | target.offset) % 8 or not whole:
        return None
    width, made = source.bits // 8, unit // 8
    loops = [Loop(dim.size, dim.source // 8, dim.target // unit * width) for dim in dims]
    if not loops or loops[-1].source == width:
        return None
    tile = tile_of(loops, width)
    if tile.strategy is not Strategy.TILES:
        return None
    outer, rows, columns = (
        tuple(Loop(n, step, to // width * made) for n, step, to in part)
        for part in (tile.loops, tile.rows, tile.columns)
    )
    shift = tile.target_shift // width * made
    count, most = length_of(rows, 1), 2 * CONVERTED_FIRST[0]
    if made < width and count * made >= PIECE and (count >= most or count * made % width == 0):
        width = made
    tile = Tile(tile.strategy, width, outer, rows, columns, made, tile.shift, shift)
    return by_tile(tile, source, target, unit, 0)


def _normal_form(source: Layout, target: Layout, scales: Scales | None) -> list[Dim]:
    """The dims in the order of the target, merged where evenly spaced on all sides."""
    none = (0,) * source.ndim
    scale = scales.scale.strides if scales else none
    zero = scales.zero.strides if scales and scales.zero else none
    sides = [[s // 8 for s in side] for side in (scale, zero)]
    dims = merged(source.shape, source.strides, target.strides, *sides)
    return [Dim(*dim) for dim in dims]


def _parts(dims: Sequence[Dim], bits: int, unit: int) -> list[int]:
    """The size of a box along each dim: one run if the source is in order."""
    width = max(bits, unit, 8) // 8
    read = width if bits >= 8 else 1  # packed ones are unpacked to a byte each
    loops = [Loop(dim.size, dim.source * read // bits, dim.target * width // unit) for dim in dims]
    goals = (MAX_RUN_ELEMENTS * width, width) if in_order(dims) else None
    *parts, last = parts_of(loops, width, goals) or [1]
    # Runs are as long as possible, even, and whole bytes of packed elements.
    last = max(last, min(MAX_RUN_ELEMENTS, BOX_ELEMENTS // prod(parts)))
    for dim in dims[-1:]:
        even = dim.size / -(-dim.size // last)
        parts.append(min(dim.size, ceil(even / LINE) * LINE))
    return parts


def _boxes(
    dims: Sequence[Dim], bits: int, unit: int, networks: bool
) -> tuple[tuple[BoxLoop, ...], Box]:
    """The loops over boxes, and how one is put in order, if it is not in the source."""
    boxes, inner = in_boxes(dims, _parts(dims, bits, unit))
    inner = inner or [Dim(1, bits, unit, 0, 0)]
    return boxes, ordered(inner, bits, unit, networks, thresholds.SHORT)


def _packed(
    dims: Sequence[Dim], bits: int, unit: int, offset: int
) -> tuple[tuple[BoxLoop, ...], Box] | None:
    """Boxes of packed elements that a network puts in order; None if they are, or there is none."""
    if bits >= 8 or in_order(dims):
        return None
    loops = [Loop(dim.size, dim.source // bits, dim.target // unit) for dim in dims]
    parts = parts_of(loops, 1, SHUFFLED_RUNS)
    # Whole bytes, and powers of two, as blocks are.
    powers = (1 << (max(n, 8 // bits) - 1).bit_length() for n in parts)
    parts = [min(dim.size, n) for n, dim in zip(powers, dims, strict=True)]
    boxes, inner = in_boxes(dims, parts)
    # There are gaps after rows, so that they use all sets of a cache.
    sizes = [dim.size for dim in inner]
    last = len(inner) - dense(sizes, [dim.target for dim in inner], unit, SHUFFLED_RUNS[0])
    apart = *sizes[:last], prod(sizes[last:]) + 8 * LINE // bits
    staged = [
        *Layout.row_major(apart, bits).strides[:-1],
        *Layout.row_major(sizes[last:], bits).strides,
    ]
    sides = zip(inner, staged, strict=True)
    found = shuffle_of([Loop(dim.size, dim.source, at) for dim, at in sides], bits, cached=True)
    begins = (n * box.source for box in boxes for n in (box.part, box.most))
    if found is None or any(at % 8 for at in (*begins, offset + found.shift)):
        return None
    calls = sorted(found.loops, key=lambda loop: -abs(loop.source))  # along the source
    shuffle = found._replace(loops=tuple(calls))
    return boxes, Box(tuple(inner), bits, unit, tuple(staged), packed=True, shuffle=shuffle)


def _run(box: Box, scales: Scales | None) -> tuple[str, int, int, tuple[int, int]]:
    """How scales are read; the dims of a run; elements per scale; the steps between scales."""
    most = box.run(MAX_RUN_ELEMENTS)
    longest = box.dims[len(box.dims) - most :]
    if scales is None:
        return "", most, prod(dim.size for dim in longest), (0, 0)
    size = scales.bits // 8
    for first in range(most):
        run = longest[first:]
        if first and prod(dim.size for dim in run) < thresholds.SHORT:
            break
        # Dims along which scales move evenly are one: then a loop follows them.
        rows, same = merged(*([dim[side] for dim in run] for side in (0, 3, 4))), 1
        if rows and not any(rows[-1][1:]):
            same = rows.pop()[0]
        _, *steps = rows[0] if rows else (0, 0, 0)
        step = steps[0], steps[1]
        if len(rows) < 2 and (same >= MIN_VECTOR_RUN or not rows):
            return "blocks", len(run), same, step
        if len(rows) == 1 and same == 1 and step == (size, size if scales.zero else 0):
            return "each", len(run), 1, step
    return "repeated", most, 1, (0, 0)
