"""Runs a Plan for one tensor or for many, on as many threads as are free."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from math import prod
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from . import planner, workers
from .boxes import box_sides
from .cast_planner import CastPlan
from .compilation import load
from .kernels.constants import (
    COUNT,
    DENSE_PIECES,
    MAX_RANK,
    OWNER,
    PAGE,
    PIECE,
    SHARES,
    SIGNAL,
    SPAN,
    STAGE_BYTES,
    TOTAL,
    WORK,
)
from .kernels.numbers import Conversion
from .planner import Plan
from .tiling import IN_BITS, IN_BOXES, Loop, Strategy, factor_of

_stages = threading.local()

Addresses = NDArray[np.int64]

EACH = 256  # what a tensor of a batch costs beside its bytes, in bytes
SHARE = 64 * 1024  # bytes that a thread takes at a time; of 64 to 512 KiB the fastest
PER_THREAD = 16  # shares of a thread, at most: more would cost more than they even out

_ran: set[object] = set()  # keys of launches whose kernels are compiled


def run(
    plan: Plan,
    sources: Sequence[int] | Addresses,
    targets: Sequence[int] | Addresses,
    fresh: bool = False,
) -> None:
    """Copy each tensor to the target of the same index, all of them in one launch.

    Places are bit addresses (8 times those of bytes) that the offsets of the plan's
    Layouts count from. A `fresh` target was never touched: the kernel's zeros are
    still in the caches when the elements come, so that streaming past them would
    cost. Whoever calls keeps the memory alive, and has checked it.
    """
    if plan.strategy is Strategy.NOTHING:
        return
    if plan.strategy is Strategy.SMALL:
        _run_small(plan, sources, targets, fresh)
        return
    launch = _launch_of(plan, fresh)
    places = np.array([sources, targets], np.int64)
    places += [[plan.offset], [plan.target_offset]]
    if plan.strategy not in IN_BITS:
        places >>= 3
    units = plan.count * places.shape[1]
    shares = plan.nbytes * places.shape[1] // SHARE if plan.parallel else 1
    _run(launch, places, plan.count, units, shares, len(plan.table))


def address_of(x: NDArray[Any]) -> int:
    """The address of the first element (bytes)."""
    return int(x.__array_interface__["data"][0])


def _run(
    launch: Launch, places: Addresses, count: int, units: int, shares: int, depth: int
) -> None:
    """Run a kernel, `count` units of work per tensor in so many shares, `depth` loops deep."""
    work = np.zeros(WORK, np.int64)
    work[COUNT], work[TOTAL] = count, units
    arguments = launch.arguments

    def run_shares(owner: bool) -> None:
        span = np.zeros(SPAN + depth, np.int64)
        span[OWNER] = owner
        if not launch.stage:
            launch.kernel(places, work, span, 0, *arguments)
            return
        stage = _taken_stage(launch.stage)
        begin = -(-address_of(stage) // PAGE) * PAGE + PAGE
        launch.kernel(places, work, span, begin, *arguments)
        _stages.free = stage

    # Compiled by one thread, which owns the job, before others may join in.
    threads = workers.threads() if shares > 1 and launch.key in _ran else 1
    work[SHARES] = max(1, min(units, shares, PER_THREAD * threads)) if threads > 1 else 1
    if threads > 1:
        own = workers.workers()
        work[SIGNAL] = own.signal
        own.run(run_shares, min(threads, shares))
    else:
        run_shares(True)
        _ran.add(launch.key)


def _taken_stage(nbytes: int) -> NDArray[np.uint8]:
    """Memory for a stage of whole pages; a page before it is free: short blocks reach back.

    It is this thread's own until it is given back. A nested call, as of a signal's
    handler, takes memory of its own.
    """
    stage: NDArray[np.uint8] | None = _stages.__dict__.pop("free", None)
    if stage is None or stage.size < nbytes + 2 * PAGE:
        stage = np.empty(nbytes + 2 * PAGE, np.uint8)
    return stage


class Launch(NamedTuple):
    """A kernel and what it takes beside places and work; `stage` bytes for each thread.

    `key` stands for the kernel and the types that it is compiled for.
    """

    kernel: Callable[..., None]
    arguments: tuple[Any, ...]
    stage: int
    key: tuple[object, ...]


def _launch_of(plan: Plan, fresh: bool) -> Launch:
    """The kernel of a plan and its arguments, found once."""
    name = "fresh" if fresh else "warm"
    if name not in plan.kept:
        bits, boxes = plan.strategy in IN_BITS, plan.strategy in IN_BOXES
        make = _bit_launch if bits else _box_launch if boxes else _byte_launch
        made = {name: make(plan, plan.streaming and name == "warm") for name in KINDS}
        plan.kept.update(made)
    launch: Launch = plan.kept[name]
    return launch


KINDS = ("warm", "fresh")


def _byte_launch(plan: Plan, streaming: bool) -> Launch:
    """What moves whole bytes; it takes a stage only to stream."""
    modules = ("copies", "gathers", "memory", "scatters", "tiles")
    copies, gathers, memory, scatters, tiles = map(load, modules)
    width = memory.WIDTHS[min(16, 1 << (plan.width.bit_length() - 1))]
    module: ModuleType = gathers
    stage = STAGE_BYTES
    arguments: tuple[Any, ...] = (plan.table, plan.sides.tile, plan.sides.offsets)
    tags: tuple[Any, ...] = (width,)
    match plan.strategy:
        case Strategy.ONE_RUN:
            module, name, arguments, stage, tags = copies, "run", (plan.nbytes,), 1, ()
        case Strategy.ROWS:
            module, name, arguments = copies, "rows", (plan.table, plan.width)
        case Strategy.TILES:
            module, name, stage = tiles, "tiles", plan.sides.stage_bytes
            tags = (width, _pieces(plan.sides.tile[0, 0] * plan.width))
        case Strategy.RUN_TILES:
            module, name, stage = tiles, "run_tiles", plan.sides.stage_bytes
            tags = (plan.width, plan.reach, width)
        case Strategy.SCATTER:
            module, name, stage = scatters, "scatter", plan.sides.stage_bytes
            tags = (plan.width, width)
        case Strategy.INTERLEAVE:
            name = "interleave_rows"
            tags = (memory.COUNTS[plan.step], width, _even_pieces(plan.columns, plan.width))
        case Strategy.PICK:
            name = "pick_rows"
            back = memory.WIDTHS[2 if plan.step < 0 else 1]
            steps = memory.COUNTS[abs(plan.step)]
            tags = (steps, back, width, _even_pieces(plan.rows, plan.width))
        case Strategy.TURN:
            name = "turn_rows"
            tags = (memory.COUNTS[plan.step], memory.WIDTHS[plan.width // plan.step])
        case _:
            name = "gather"
    return _launch(module, name, arguments, stage if streaming else 0, tags)


def _box_launch(plan: Plan, streaming: bool) -> Launch:
    """What fills a stage box by box, and streams it or not."""
    boxes, memory = map(load, ("boxes", "memory"))
    width = memory.WIDTHS[min(16, 1 << (plan.width.bit_length() - 1))]
    picks = plan.strategy is Strategy.PICK_BOXES
    lanes = 0 if picks else min(plan.step, memory.VECTOR // PIECE)
    sides = plan.kept.get("box")
    if sides is None:
        sides = plan.kept["box"] = box_sides(plan.rows, plan.columns, plan.width, lanes)
    tile, offsets, stage = sides
    arguments: tuple[Any, ...] = (plan.table, tile, offsets, streaming)
    if picks:
        back = memory.WIDTHS[2 if plan.step < 0 else 1]
        tags = (memory.COUNTS[abs(plan.step)], back, width, _even_pieces(plan.rows, plan.width))
        return _launch(boxes, "pick_boxes", arguments, stage, tags)
    arguments = (*arguments, plan.width, plan.reach)
    return _launch(boxes, "boxes", arguments, stage, (width, memory.WIDTHS[max(1, lanes)]))


def _bit_launch(plan: Plan, streaming: bool) -> Launch:
    """What moves elements across bytes; a stage is where that happens."""
    bit_tiles, bits, memory = map(load, ("bit_tiles", "bits", "memory"))
    module: ModuleType = bits
    factor = factor_of(plan.width)
    arguments: tuple[Any, ...]
    tags: tuple[Any, ...] = ()
    match plan.strategy:
        case Strategy.BIT_RUN:
            name, stage, arguments = "bit_run", 0, (plan.width, streaming)
        case Strategy.BIT_ROWS:
            name, stage = "bit_rows", STAGE_BYTES
            arguments = (plan.table, plan.width, plan.reach, streaming, plan.gaps)
        case Strategy.BIT_TILES:
            module, name, stage = bit_tiles, "bit_tiles", plan.sides.stage_bytes
            arguments = (plan.table, plan.sides.tile, plan.sides.offsets, streaming)
            row = max(PIECE, int(plan.sides.tile[0, 0]) // factor)
            whole = plan.sides.tile[2, 0] == DENSE_PIECES
            pieces = _pieces(row & -row if whole else row)
            tags = (memory.COUNTS[plan.width], pieces)
        case _:
            name, stage = "by_codes", bits.CODES_BYTES
            per_row = prod(loop.size for loop in plan.rows)
            outer = len(plan.loops) + 1
            arguments = (plan.table, plan.reach, streaming, outer, per_row, plan.block, plan.unit)
            picks = plan.step if plan.strategy is Strategy.BIT_PICK else 1
            turns = plan.step if plan.strategy is Strategy.BIT_INTERLEAVE else 1
            back = memory.WIDTHS[2 if picks < 0 else 1]
            steps = memory.COUNTS[abs(picks)]
            tags = (memory.COUNTS[plan.width], memory.COUNTS[turns], steps, back)
    return _launch(module, name, arguments, stage, tags)


def _launch(
    module: ModuleType,
    name: str,
    arguments: tuple[Any, ...],
    stage: int,
    tags: tuple[Any, ...],
) -> Launch:
    kernel = getattr(module, name)
    lengths = (len(tag) for tag in tags if isinstance(tag, tuple))
    whole_pages = -(-stage // PAGE) * PAGE + PAGE * bool(stage)
    return Launch(kernel, (*arguments, *tags), whole_pages, (kernel, *map(type, tags), *lengths))


def _pieces(nbytes: int) -> Any:
    """The tag of as many 16-byte pieces as a vector holds and `nbytes` fill."""
    memory = load("memory")
    pieces = min(memory.VECTOR, int(nbytes)) // PIECE
    return memory.WIDTHS[1 << (pieces.bit_length() - 1)]


def _even_pieces(dims: tuple[Loop, ...], width: int) -> Any:
    """The same for vectors that must not run over the last dim's end, if there are more."""
    nbytes = dims[-1].size * width
    return _pieces(nbytes if len(dims) == 1 else nbytes & -nbytes)


def _run_small(
    plan: Plan,
    sources: Sequence[int] | Addresses,
    targets: Sequence[int] | Addresses,
    fresh: bool,
) -> None:
    table = plan.kept.get("small")
    if table is None:
        table = plan.kept["small"] = small_plan_of(plan)
    nbytes = np.array([plan.nbytes])
    begins = (np.asarray(sources) + plan.offset) >> 3, np.asarray(targets) >> 3
    copy_each(*begins, nbytes, table, np.zeros(1, np.int64), fresh)


def small_plan_of(plan: Plan) -> Addresses:
    """The words of a small plan (see `kernels.parcels`), from the first element."""
    layout = plan.small
    assert layout is not None
    strides = [stride // 8 for stride in layout.strides]
    return _small_plan([*zip(layout.shape, strides, strict=True)], layout.bits // 8)


def copy_each(
    sources: Addresses,
    targets: Addresses,
    nbytes: Addresses,
    plans: Addresses,
    starts: Addresses,
    fresh: bool = False,
) -> None:
    """Copy a tensor from each source to its target by small plans, in one launch.

    Tensor k is `nbytes[k]` bytes by `plans[starts[k]:]`; all are the same if there is
    one of each. Places are byte addresses of first elements. As in `run`, nothing is
    checked here.
    """
    batches = load("batches")
    count = len(sources)
    if count == 0:
        return
    cost = np.cumsum((nbytes if len(nbytes) == count else np.repeat(nbytes, count)) + EACH)
    total = int(cost[-1])
    stage = batches.STAGE_BYTES if total >= planner.STREAM_FROM and not fresh else 0
    shares = total // SHARE if total >= planner.PARALLEL_FROM // 4 else 1
    units = max(1, min(count, shares, PER_THREAD * 8))
    bounds = np.searchsorted(cost, total * np.arange(units + 1) // units)
    bounds[-1] = count
    places = np.array([sources, targets], np.int64)
    launch = _launch(batches, "copy_each", (nbytes, plans, starts, bounds), stage, ())
    _run(launch, places, units, units, units, MAX_RANK + 8)


def run_cast(
    plan: CastPlan,
    conversion: Conversion,
    sources: Sequence[int] | Addresses,
    targets: Sequence[int] | Addresses,
    operands: tuple[int, int] = (0, 0),
    fresh: bool = False,
) -> None:
    """`run` of a copy that converts; `operands` are the addresses of scales and zero points."""
    casts, conversions, memory = map(load, ("casts", "conversions", "memory"))
    entry = conversions.entry(conversion)
    places = np.array([sources, targets], np.int64)
    places += [[plan.offset], [plan.target_offset]]
    streaming = plan.streaming and not fresh
    repeated = _repeating(plan) if plan.scales == "repeated" else np.zeros(0, np.int64)
    fetch = np.zeros(0, np.int64)
    if plan.fetch in ("bytes", "phases"):
        dims = [(dim.size, dim.source // 8) for dim in plan.fetched]
        fetch = _small_plan(dims, max(8, plan.source_bits) // 8)
    nbits = plan.run_length * plan.unit
    common = (plan.table, plan.runs, plan.spots[:-1], fetch, repeated)
    scales = (plan.run_length, plan.block, nbits // 8, operands[0], plan.scale_step)
    zeros = (operands[1], plan.zero_step, streaming)
    stage = int(plan.spots[-1])
    if plan.unit >= 8 and plan.fetch not in ("codes", "bits"):
        arguments = (*common, entry, *scales, *zeros)
        launch = _launch(casts, "cast_boxes", arguments, stage, ())
    else:
        inner = np.array([dim[:3] for dim in plan.inner], np.int64)
        unpacks = {"codes": 1, "bits": 2}.get(plan.fetch, 0)
        scales = (*scales[:2], nbits, *scales[3:])
        bits = [memory.COUNTS[n if n < 8 else 1] for n in (plan.source_bits, plan.unit)]
        arguments = (*common, inner, entry, *scales, *zeros, plan.reach, *bits, unpacks)
        launch = _launch(casts, "cast_packed", (*arguments, plan.unit < 8), stage, ())
        launch = launch._replace(key=(*launch.key, plan.source_bits, plan.unit))
    units = plan.count * places.shape[1]
    moved = plan.nbytes * (plan.unit + plan.source_bits) // plan.unit
    shares = moved * places.shape[1] // SHARE if plan.parallel else 1
    _run(launch, places, plan.count, units, shares, MAX_RANK + 8)


def _repeating(plan: CastPlan) -> Addresses:
    """The small plans that write scales and zero points side by side, where the second begins."""
    scale = _small_plan([(dim.size, dim.scale) for dim in plan.inner], plan.float_bytes)
    zero = _small_plan([(dim.size, dim.zero) for dim in plan.inner], plan.float_bytes)
    begin = 1 + len(scale) if plan.has_zero else 0
    return np.array([begin, *scale, *(zero if plan.has_zero else ())], np.int64)


def _small_plan(dims: Sequence[tuple[int, int]], itemsize: int) -> Addresses:
    """The words of a small plan for dims of (size, stride in bytes)."""
    parcels = load("parcels")
    rank = len(dims)
    sizes = np.array([size for size, _ in dims], np.int64)
    strides = np.array([stride for _, stride in dims], np.int64)
    table = np.empty(parcels.HEAD + 3 * rank, np.int64)
    kept = parcels.merged(sizes, strides, rank)
    arguments = sizes, strides, kept, itemsize, table, 0
    return table[: parcels.parcel(*arguments)]


def memcpy(source: NDArray[Any], target: NDArray[Any], threads: int) -> None:
    """Plain memcpy of contiguous memory on so many threads: the measure of every copy."""
    copies = load("copies")
    places = np.array([[address_of(source)], [address_of(target)]], np.int64)
    pages = -(-source.nbytes // PAGE)
    launch = _launch(copies, "run", (source.nbytes,), 0, ())
    _run(launch, places, pages, pages, threads if threads > 1 else 1, 0)
