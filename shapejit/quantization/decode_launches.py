"""Run the plans of weights that are decoded, by runs or by boxes: see `kernels.decodes`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..engine.execution import conversion_code
from ..planning import thresholds
from ..planning.decode_boxes import BoxPlan
from ..planning.decode_plans import DecodePlan
from ..runtime.kernel_names import Code, Name
from ..runtime.kernels import address
from ..runtime.launches import SHARE, Addresses, Launch, launch_of, run_launch


def decode_names(plan: DecodePlan) -> tuple[Name, ...]:
    """All kernels that `run_decode` takes."""
    return _decode_launch(plan, np.empty((0, 0), np.int64), 0, *_decode_codes(plan)).names


Codes = Sequence[Code | None]


def _decode_codes(plan: DecodePlan) -> tuple[Codes, Codes]:
    """The functions that read the units of each step, if any, and convert its numbers."""
    units = [
        step.source.units and Code("unit_generator", step.source.units.unit) for step in plan.steps
    ]
    *before, last = (step.conversion for step in plan.steps)
    streamed = plan.total * plan.itemsize >= thresholds.STREAM_FROM
    return units, [*map(conversion_code, before), conversion_code(last, streamed)]


def _decode_launch(
    plan: DecodePlan, table: Addresses, stage: int, units: Codes, converts: Codes
) -> Launch:
    """The kernel that decodes by a plan."""
    arguments = table, plan.total, plan.length, plan.itemsize
    others = tuple(filter(None, (*units, *converts)))
    return launch_of("decodes.decode_runs", arguments, stage, staged=True, others=others)


def run_decode(plan: DecodePlan, target: int) -> None:
    """Decode a weight, row-major, to an address; the caller keeps all memory alive."""
    units, converts = _decode_codes(plan)
    addresses = ([address(code) if code else 0 for code in codes] for codes in (units, converts))
    launch = _decode_launch(plan, *plan.table(*addresses), units, converts)
    places, nbytes = np.array([[0], [target]], np.int64), plan.total * plan.itemsize
    count = -(-plan.total // plan.length)
    shares = nbytes // SHARE if nbytes >= thresholds.PARALLEL_FROM else 1
    streamed = nbytes >= thresholds.STREAM_FROM
    run_launch(launch, streamed, places, count, count, shares, 0)


Rows = tuple[int, int]  # the address of the first number, and the bytes from one row to the next


def run_boxes(plan: BoxPlan, source: int, target: int, operands: Sequence[Rows]) -> None:
    """Decode a weight, row-major, from one address to another; memory is kept as in `run`.

    `operands` are the scales, and the zero points if there are any: in float32, one for each block
    of the result.
    """
    launch, streamed, units, nbytes = _box_launch(plan, operands)
    shares = nbytes // SHARE if nbytes >= thresholds.PARALLEL_FROM else 1
    places = np.array([[source + plan.offset], [target]], np.int64)
    depth = len(plan.table) + len(plan.inner)
    run_launch(launch, streamed, places, units, units, shares, depth)


def box_names(plan: BoxPlan) -> tuple[Name, ...]:
    """All kernels that `run_boxes` takes."""
    return _box_launch(plan, ())[0].names


def _box_launch(plan: BoxPlan, operands: Sequence[Rows]) -> tuple[Launch, bool, int, int]:
    """The kernel that decodes boxes, whether it streams, its units of work, and bytes."""
    made, units, nbytes = plan.shuffle, int(plan.table[:, 0].prod()), plan.conversion.target.nbytes
    total = units * plan.rows * plan.run * nbytes
    streamed = total >= thresholds.STREAM_FROM
    network, reader = (
        Code("network_generator", made.network),
        Code("unit_generator", plan.units.unit),
    )
    convert, none = conversion_code(plan.conversion, streamed), (0, 0)
    box = (
        address(network), *made.loops[-1], plan.codes, plan.rows, plan.run, plan.columns,
        plan.pitch, address(reader), plan.units.unit.size, plan.units.step, address(convert),
        *plan.block, nbytes,
    )  # fmt: skip
    offsets, scales = made.sources + made.targets, [*operands, none, none][:2]
    tables = (np.array(table, np.int64) for table in (offsets, scales, box))
    arguments, others = (plan.table, plan.inner, *tables), (network, reader, convert)
    launch = launch_of("decodes.decode_boxes", arguments, plan.stage, staged=True, others=others)
    return launch, streamed, units, total
