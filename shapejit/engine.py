"""Runs a Plan: serial or parallel, safe with threads and after a fork."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from math import prod
from types import ModuleType
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from . import planner
from .boxes import box_sides
from .kernels import MAX_RANK
from .planner import Plan
from .tiling import DENSE_PIECES, IN_BITS, IN_BOXES, PAGE, PIECE, Loop, Strategy, factor_of

# One parallel region at a time: numba's workqueue layer aborts the process when
# two threads enter at once. Whoever finds it taken runs the serial kernel.
_region = threading.Lock()

# Held while numba is imported and while a kernel is compiled or loaded, and around a
# fork: a child that inherits numba's locks from a thread it does not have would hang.
_cold = threading.RLock()
_warm: set[object] = set()

_stages = threading.local()

Addresses = NDArray[np.int64]
Result = TypeVar("Result")

MANY = 8  # tensors that are worth a parallel region, although one thread will do
EACH = 256  # what a tensor of a batch costs beside its bytes, in bytes
_forked = False


def _after_fork() -> None:
    """OpenMP ends a forked child that enters a parallel region: children stay serial."""
    global _forked
    _forked = True
    _cold.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_cold.acquire, after_in_parent=_cold.release, after_in_child=_after_fork
    )


def run(plan: Plan, source: NDArray[Any], target: NDArray[Any], fresh: bool = False) -> None:
    """Fill `target`, contiguous memory of exactly the plan's bytes, from `source`.

    A `fresh` target was never touched: the kernel's zeros are still in the caches
    when the elements come, so that streaming past them would cost.
    The plan's strides and offset count from the first element of `source`: the
    strided ndarray itself, or the bytes of a Tensor's buffer.
    """
    if plan.strategy is not Strategy.NOTHING:
        _launch(plan, (address_of(source),), (address_of(target),), fresh)
        if plan.padding:
            target.reshape(-1).view(np.uint8)[-1] &= 0xFF >> plan.padding


def address_of(x: NDArray[Any]) -> int:
    """The address of the first element."""
    return int(x.__array_interface__["data"][0])


def _launch(
    plan: Plan,
    sources: Sequence[int] | Addresses,
    targets: Sequence[int] | Addresses,
    fresh: bool,
) -> None:
    """Run the compiled loop, in parallel if the plan says so and the threads are free."""
    work = _work_of(plan, fresh)
    if (plan.parallel or len(sources) >= MANY) and _enter():
        try:
            places = [np.asarray(each, np.int64) for each in (sources, targets)]
            first(_key(work.parallel, work), _parallel, plan, work, *places)
        finally:
            _region.release()
    else:
        key = _key(work.serial, work)
        for source, target in zip(map(int, sources), map(int, targets), strict=True):
            first(key, _serial, plan, work, source, target)


def _work_of(plan: Plan, fresh: bool) -> _Work:
    """The kernels of a plan and their arguments, found once."""
    if not plan.kept:
        with _cold:
            plan.kept.update(_prepared(plan))
    work: _Work = plan.kept["fresh" if fresh else "warm"]
    return work


def first(key: object, kernel: Callable[..., Result], *arguments: Any) -> Result:
    """Call a kernel, alone if it has not run under this key yet."""
    if key in _warm:
        return kernel(*arguments)
    with _cold:
        result = kernel(*arguments)
        _warm.add(key)
        return result


def _key(kernel: Callable[..., None], work: _Work) -> tuple[object, ...]:
    """A kernel and the types that it is compiled for."""
    return (kernel, *map(type, work.tags), *work.counts)


def _parallel(plan: Plan, work: _Work, sources: Addresses, targets: Addresses) -> None:
    threads = _threads() if plan.parallel else 1
    # A row of scratch for each thread, a cache line apart.
    at = np.empty((threads, len(plan.table) + 8), np.int64)
    own = _stage(work.stage, threads) if work.stage else 0
    places = sources + plan.offset, targets + plan.target_offset
    facts = (*work.facts, own, work.stage, *work.tags)
    work.parallel(*places, plan.table, at, plan.count, *facts)


def _serial(plan: Plan, work: _Work, source: int, target: int) -> None:
    at = np.empty(len(plan.table), np.int64)
    own = _stage(work.stage, 1) if work.stage else 0
    places = source + plan.offset, target + plan.target_offset
    work.serial(*places, plan.table, at, 0, plan.count, *work.facts, own, *work.tags)


class _Work(NamedTuple):
    """What a kernel takes beside addresses, loops and shares; `stage` bytes for each thread.

    `counts` are the lengths of the tuples among the tags: types of their own.
    """

    serial: Callable[..., None]
    parallel: Callable[..., None]
    facts: tuple[Any, ...]
    stage: int
    tags: tuple[Any, ...]
    counts: tuple[int, ...]


def _prepared(plan: Plan) -> dict[str, _Work]:
    """The kernels of a plan and their arguments, found once: for touched and for fresh targets."""
    if plan.strategy in IN_BITS:
        works = {"warm": _bit_work(plan, plan.streaming), "fresh": _bit_work(plan, False)}
    else:
        works = {"warm": _byte_work(plan, plan.streaming), "fresh": _byte_work(plan, False)}
    return {name: work._replace(stage=_whole_pages(work.stage)) for name, work in works.items()}


def _byte_work(plan: Plan, streaming: bool) -> _Work:
    """What moves whole bytes; it takes a stage only to stream."""
    from .kernels import boxes, copies, gathers, memory, scatters, tiles

    width = memory.WIDTHS[min(16, 1 << (plan.width.bit_length() - 1))]
    module: ModuleType = gathers
    stage = copies.STAGE_BYTES
    lanes = 0
    if plan.strategy is Strategy.BOXES:
        lanes = min(plan.step, memory.VECTOR // PIECE)
    made = (
        plan.sides
        if plan.strategy not in IN_BOXES
        else box_sides(plan.rows, plan.columns, plan.width, lanes)
    )
    facts: tuple[Any, ...] = (made.tile, made.offsets)
    tags: tuple[Any, ...] = (width,)
    match plan.strategy:
        case Strategy.ONE_RUN:
            module, name, facts, stage, tags = copies, "run", (plan.nbytes,), 1, ()
        case Strategy.ROWS:
            module, name, facts = copies, "rows", (plan.width,)
        case Strategy.TILES:
            module, name, stage = tiles, "tiles", made.stage_bytes
            tags = (width, _pieces(made.tile[0, 0] * plan.width))
        case Strategy.RUN_TILES:
            module, name, stage = tiles, "run_tiles", made.stage_bytes
            tags = (plan.width, plan.reach, width)
        case Strategy.SCATTER:
            module, name, stage = scatters, "scatter", made.stage_bytes
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
        case Strategy.BOXES:
            module, name = boxes, "boxes"
            pieces = memory.WIDTHS[max(1, lanes)]
            tags = (plan.width, plan.reach, int(streaming), width, pieces)
            stage, streaming = made.stage_bytes, True
        case Strategy.PICK_BOXES:
            module, name = boxes, "pick_boxes"
            back = memory.WIDTHS[2 if plan.step < 0 else 1]
            steps, pieces = memory.COUNTS[abs(plan.step)], _even_pieces(plan.rows, plan.width)
            tags = (int(streaming), steps, back, width, pieces)
            stage, streaming = made.stage_bytes, True
        case _:
            name = "gather"
    return _work(module, name, facts, stage if streaming else 0, tags)


def _bit_work(plan: Plan, streaming: bool) -> _Work:
    """What moves elements across bytes; a stage is where that happens."""
    from .kernels import bit_tiles, bits, copies, memory

    module: ModuleType = bits
    bit_facts = (plan.width, plan.bit_offset, plan.target_bit, int(streaming), plan.reach)
    facts: tuple[Any, ...] = (np.array(bit_facts, np.int64),)
    factor = factor_of(plan.width)
    stage = 0
    tags: tuple[Any, ...] = ()
    match plan.strategy:
        case Strategy.BIT_RUN:
            name = "bit_run"
        case Strategy.BIT_ROWS:
            name, stage, facts = "bit_rows", copies.STAGE_BYTES, (*facts, int(plan.gaps))
        case Strategy.BIT_TILES:
            module, name, stage = bit_tiles, "bit_tiles", plan.sides.stage_bytes
            facts = (plan.sides.tile, plan.sides.offsets, *facts)
            row = max(PIECE, int(plan.sides.tile[0, 0]) // factor)
            whole = plan.sides.tile[2, 0] == DENSE_PIECES
            pieces = _pieces(row & -row if whole else row)
            tags = (memory.COUNTS[plan.width], pieces)
        case _:
            name, stage = "by_codes", bits.CODES_BYTES
            per_row = prod(loop.size for loop in plan.rows)
            facts = (*facts, len(plan.loops) + 1, per_row, plan.block, plan.unit)
            picks = plan.step if plan.strategy is Strategy.BIT_PICK else 1
            turns = plan.step if plan.strategy is Strategy.BIT_INTERLEAVE else 1
            back = memory.WIDTHS[2 if picks < 0 else 1]
            steps = memory.COUNTS[abs(picks)]
            tags = (memory.COUNTS[plan.width], memory.COUNTS[turns], steps, back)
    return _work(module, name, facts, stage, tags)


def _work(
    module: ModuleType, name: str, facts: tuple[Any, ...], stage: int, tags: tuple[Any, ...]
) -> _Work:
    serial, parallel = getattr(module, name), getattr(module, f"{name}_parallel")
    counts = tuple(len(tag) for tag in tags if isinstance(tag, tuple))
    return _Work(serial, parallel, facts, stage, tags, counts)


def _whole_pages(nbytes: int) -> int:
    """So many bytes on pages of their own, with one for blocks that reach back."""
    return -(-nbytes // PAGE) * PAGE + PAGE * bool(nbytes)


def _pieces(nbytes: int) -> Any:
    """The tag of as many 16-byte pieces as a vector holds and `nbytes` fill."""
    from .kernels import memory

    pieces = min(memory.VECTOR, int(nbytes)) // PIECE
    return memory.WIDTHS[1 << (pieces.bit_length() - 1)]


def _even_pieces(dims: tuple[Loop, ...], width: int) -> Any:
    """The same for vectors that must not run over the last dim's end, if there are more."""
    nbytes = dims[-1].size * width
    return _pieces(nbytes if len(dims) == 1 else nbytes & -nbytes)


def _threads() -> int:
    import numba

    return int(numba.get_num_threads())


def _stage(step: int, count: int) -> int:
    """The address, on a page, of `count` stages of `step` bytes; this thread's own memory.

    A page before them is free: short blocks reach back.
    """
    have = getattr(_stages, "memory", None)
    if have is None or have.size < step * count + 2 * PAGE:
        have = _stages.memory = np.empty(step * count + 2 * PAGE, np.uint8)
    return -(-address_of(have) // PAGE) * PAGE + PAGE


def run_each(plan: Plan, sources: Addresses, targets: Addresses, fresh: bool = False) -> None:
    """`run` from every one of `sources` to the target of the same index, in one launch.

    Whoever calls keeps the memory at these addresses alive, and checked it.
    """
    if plan.strategy is Strategy.NOTHING:
        return
    _launch(plan, sources, targets, fresh)
    if plan.padding:
        with alone():
            from .kernels import bits
        last = plan.target_offset + plan.nbytes - 1
        facts = targets, last, 0xFF & ~(0xFF >> plan.padding)
        first(bits.clear_padding, bits.clear_padding, *facts)


def deliver(
    sources: Addresses,
    targets: Addresses,
    nbytes: Addresses,
    parcels: Addresses,
    starts: Addresses,
    fresh: bool = False,
) -> None:
    """Copy a tensor from each source to its target as `kernels.parcels` say, in one launch.

    Tensor k is `nbytes[k]` bytes by parcel `parcels[starts[k]:]`; all are the same
    if there is one of each. As in `run_each`, nothing is checked here.
    """
    batches = _batches()
    count = len(sources)
    work = np.cumsum((nbytes if len(nbytes) == count else np.repeat(nbytes, count)) + EACH)
    total = int(work[-1]) if count else 0
    stage = batches.STAGE_BYTES if total >= planner.STREAM_FROM and not fresh else 0
    step = -(-stage // PAGE) * PAGE
    with region(total >= planner.PARALLEL_FROM // 4) as threads:
        own = _stage(step, threads) if stage else 0
        bounds = np.searchsorted(work, total * np.arange(threads + 1) // threads)
        bounds[-1] = count
        facts = sources, targets, nbytes, parcels, starts
        positions = np.empty((threads, MAX_RANK + 8), np.int64)
        if threads > 1:
            kernel: Callable[..., None] = batches.deliver_parallel
            first(kernel, kernel, *facts, bounds, positions, own, step)
        else:
            first(batches.deliver, batches.deliver, *facts, 0, count, positions[0], own)


@contextmanager
def region(wanted: bool) -> Iterator[int]:
    """How many threads a kernel may take within; one if more are not wanted, or are taken."""
    if not (wanted and _enter()):
        yield 1
        return
    try:
        yield _threads()
    finally:
        _region.release()


def alone() -> AbstractContextManager[object]:
    """Where numba may be imported and kernels compiled: see `_cold`."""
    return _cold


def _batches() -> ModuleType:
    with alone():
        from .kernels import batches
    return batches


def _enter() -> bool:
    """Whether a parallel region may begin; whoever is told so releases `_region` in the end."""
    return not _forked and _region.acquire(blocking=False)


def memcpy(source: NDArray[Any], target: NDArray[Any], threads: int) -> None:
    """Plain memcpy of contiguous memory on so many threads: the measure of every copy."""
    from .kernels import copies

    loops, at = np.empty((0, 3), np.int64), np.empty((threads, 1), np.int64)
    pages = -(-source.nbytes // PAGE)
    come, to = (np.array([address_of(x)], np.int64) for x in (source, target))
    copies.run_parallel(come, to, loops, at, pages, source.nbytes, 0, 0)
