"""Runs a Plan for one tensor or for many, on as many threads as are free."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..kernels.constants import BATCH_STAGE_BYTES, PIECE
from ..kernels.numbers import Conversion
from ..kernels.small_plans import PLANE_MOVER, SCRATCH_WORDS
from ..planning import thresholds
from ..planning.cast_plans import CastPlan
from ..planning.plans import Plan
from ..planning.small_plans import small_plan_of
from ..planning.tables import interleaved_offsets
from ..runtime import kernels
from ..runtime.cpu_caches import LINE
from ..runtime.kernel_names import Code
from ..runtime.launches import (
    PER_THREAD,
    SHARE,
    Addresses,
    Launch,
    launch_of,
    run_launch,
)
from .patience import Kind, kind_named, unready

Where = Sequence[int] | Addresses

WORK_BYTES = 6 * 1024  # of a Work and its plan, beside their tables
COPY_EACH = kind_named("copy_each")
EACH = 256  # the cost of a tensor of a batch beside its bytes, in bytes


@dataclass(frozen=True, eq=False, slots=True)
class Work:
    """A kernel with its arguments, which copies or converts tensors of one Layout.

    `streaming`: it writes past the caches, unless memory is fresh. `source` and `target` are the
    bits to the first element, `nbytes` the bytes moved per tensor if several threads may share it.
    `kind` is the kind of work of `patience`. If one run converts all elements, `converts` has the
    function for that and their number.
    """

    launch: Launch
    streaming: bool
    source: int
    target: int
    units: int
    nbytes: int
    depth: int
    kind: Kind
    together: bool = False  # the units are those of all tensors
    converts: tuple[Code, int] | None = None

    @property
    def weight(self) -> int:
        """The bytes that it needs, about."""
        tables = (x.nbytes for x in self.launch.arguments if isinstance(x, np.ndarray))
        return WORK_BYTES + sum(tables)

    def run(self, addresses: Addresses, tensors: int, fresh: bool) -> None:
        """Run the kernel for as many tensors, at these addresses of sources and targets."""
        streamed, units = self.streaming and not fresh, self.units
        shares = units
        if not self.together:
            units, shares = units * tensors, max(1, self.nbytes * tensors // SHARE)
        run_launch(self.launch, streamed, addresses, self.units, units, shares, self.depth)

    def with_operands(self, scale: int, zero: int) -> Work:
        """The Work with scales and zero points at these addresses: see `_boxes`."""
        *others, sizes, functions = self.launch.arguments
        sizes = sizes.copy()
        sizes[:2] = scale, zero
        return replace(self, launch=self.launch.given(*others, sizes, functions))

    def addresses(self, sources: Where, targets: Where) -> Addresses:
        """The kernel's first bit or byte address in each source and target, a column per tensor."""
        shift = 0 if self.launch.bits else 3
        if len(sources) == 1:  # in Python's numbers, a tenth of NumPy's time
            source, target = sources[0] + self.source, targets[0] + self.target
            return np.array([[source >> shift], [target >> shift]], np.int64)
        first = np.array([[self.source], [self.target]])
        return first + np.array([sources, targets], np.int64) >> shift


def work_of(plan: Plan) -> Work:
    """The kernel of a plan, and its arguments."""
    row, vector = plan.row, kernels.vector()
    tables, stage = row.tables(plan, vector)
    arguments = *tables, *row.takes(plan, vector)
    return Work(
        launch_of(row.kernel, arguments, stage, row.staged, row.bits or row.bit_addresses),
        plan.streaming,
        plan.offset,
        plan.target_offset,
        plan.count,
        plan.nbytes if plan.parallel else 0,
        len(plan.table) + len(plan.rows),
        kind_of(plan),
    )


def interleaved_work(work: Work, plan: Plan, sources: Where) -> Work:
    """The Work of a plan that interleaves the rows of several sources."""
    distances = (np.array(sources, np.int64) - sources[0]) >> 3
    arguments = list(work.launch.arguments)
    if plan.shuffle:
        pieces = len(plan.shuffle.sources)
        offsets = arguments[1] = arguments[1].copy()
        first = offsets[0, : pieces // len(distances)]
        offsets[:, :pieces] = np.add.outer(distances, first).ravel()
    elif plan.rows:
        arguments[2] = interleaved_offsets(plan.sides, plan.rows, distances)
    return replace(work, launch=work.launch.given(*arguments))


def kind_of(plan: Plan) -> Kind:
    """The kind of work of a plan: all that its kernels are compiled for."""
    if plan.small is not None:
        return COPY_EACH
    tags = (a for a in plan.row.takes(plan, LINE) if not isinstance(a, int | np.ndarray))
    return kind_named("copy", plan.row.kernel, *tags)


def small_work(plan: Plan, tensors: int, fresh: bool) -> Work:
    """The Work that copies `count` tensors by the small plan of a plan."""
    table, start = small_plan_of(plan), np.zeros(1, np.int64)
    return _each(tensors, np.array([plan.nbytes]), table, start, fresh)


def copy_each(
    sources: Addresses,
    targets: Addresses,
    nbytes: Addresses,
    plans: Addresses,
    starts: Addresses,
    fresh: bool = False,
) -> None:
    """Copy a tensor from each source to its target by small plans, in one launch.

    Tensor k has `nbytes[k]` bytes and the plan `plans[starts[k]:]`; one entry of each means that
    all tensors are alike. Addresses are those of first bytes. As in `run`, nothing is checked.
    """
    if len(sources):
        made = _each(len(sources), nbytes, plans, starts, fresh)
        made.run(np.array([sources, targets], np.int64), len(sources), fresh)


def unready_copies() -> tuple[Kind, ...]:
    """The kind of work of `copy_each` if its kernels are not ready."""
    if COPY_EACH.ready:
        return ()
    one = np.zeros(1, np.int64)
    return unready(COPY_EACH, lambda: _each(1, one, one, one, True).launch.names)


def _each(
    tensors: int,
    nbytes: Addresses,
    plans: Addresses,
    starts: Addresses,
    fresh: bool,
) -> Work:
    """The Work of small tensors, divided into units of about equal duration."""
    cost = np.cumsum(np.broadcast_to(nbytes + EACH, tensors))
    total = int(cost[-1])
    streamed = total >= thresholds.STREAM_FROM and not fresh
    shares = total // SHARE if total >= thresholds.PARALLEL_FROM // 4 else 1
    units = max(1, min(tensors, shares, PER_THREAD * 8))
    bounds = np.searchsorted(cost, total * np.arange(units + 1) // units)
    bounds[-1] = tensors
    arguments = nbytes, plans, starts, bounds, PLANE_MOVER
    launch = launch_of("batches.copy_each", arguments, BATCH_STAGE_BYTES)
    return Work(launch, streamed, 0, 0, units, 0, SCRATCH_WORDS, COPY_EACH, together=True)


def cast_work(plan: CastPlan, conversion: Conversion, fresh: bool) -> Work:
    """The kernel of a plan that converts, and its arguments; see `Work.with_operands`."""
    streamed = plan.streaming and not fresh
    by, entry = plan.tiles or plan, _entry(plan, conversion, fresh)
    moved = plan.nbytes * (plan.unit + plan.source_bits) // plan.unit
    launch = _tiles(plan.tiles, entry) if plan.tiles else _boxes(plan, entry)
    return Work(
        launch,
        streamed,
        by.offset,
        by.target_offset,
        by.count,
        moved if plan.parallel else 0,
        SCRATCH_WORDS,
        cast_kind(plan, conversion, fresh),
        converts=(entry, plan.run_length) if plan.one_run and not plan.tiles else None,
    )


def cast_kind(plan: CastPlan, conversion: Conversion, fresh: bool) -> Kind:
    """The kind of work of a plan that converts; found without LLVM, whose import takes 25 ms."""
    entry = _entry(plan, conversion, fresh)
    if plan.tiles is None:
        return kind_named("cast", plan.functions(LINE // PIECE, entry))
    _, *tags = plan.tiles.row.takes(plan.tiles, LINE)
    return kind_named("cast", plan.tiles.row.kernel, entry, *tags)


def _entry(plan: CastPlan, conversion: Conversion, fresh: bool) -> Code:
    """The function that converts a run of a plan, or rows that tiles merge."""
    merged = plan.tiles is not None and 8 * plan.tiles.width < plan.source_bits
    streams = plan.streaming and not fresh and plan.unit >= 8
    return conversion_code(conversion, streams and not merged)


def _tiles(plan: Plan, entry: Code) -> Launch:
    """The kernel that transposes tiles, and converts them by the function `entry`."""
    vector = kernels.vector()
    tables, stage = plan.row.tables(plan, vector)
    _, *tags = plan.row.takes(plan, vector)
    return launch_of(plan.row.kernel, (*tables, entry, *tags), stage, staged=True)


def _boxes(plan: CastPlan, entry: Code) -> Launch:
    """The kernel that converts boxes."""
    lanes = kernels.vector() // PIECE
    tables, stage = plan.steps(lanes)
    arguments = plan.table, *tables, plan.functions(lanes, entry)
    return launch_of("boxes.boxes", arguments, stage, staged=True, bits=True)


def conversion_code(conversion: Conversion, streamed: bool = False) -> Code:
    """The function of a conversion: see `kernels.conversions`."""
    return Code("conversions", (conversion, streamed))
