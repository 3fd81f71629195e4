"""Run the plans of weights that are decoded: see `kernels.decodes`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..engine.execution import conversion_code
from ..planning import thresholds
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
