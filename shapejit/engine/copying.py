"""One copy: the elements of an array, whatever its strides, into row-major memory.

`choose` decides by size and strides whether NumPy copies it, a kernel that needs no Plan, or a
Plan; the thresholds are the planner's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import elements
from ..arrays.tensor import Tensor
from ..kernels.constants import MAX_RANK
from ..kernels.small_plans import NEAR, SHIFT
from ..planning import planner, thresholds
from ..planning.plans import Plan
from ..planning.small_plans import slower_whole, small_plan
from ..runtime import result_memory
from ..runtime.launches import Addresses, address_of
from ..shapes.layout import Layout
from . import array_structs, execution
from .addresses import layout_of, place_of
from .patience import Kinds, by_numpy, forced
from .routes import keep
from .small_calls import Routes

Copy = Callable[[NDArray[Any], NDArray[Any]], None]

NUMPY, WHOLE = "numpy", "whole"
COMPILED = array_structs.work_of(array_structs.PLAN_WHOLE)

routes = Routes()  # of `ascontiguous`
_whole: Copy | None = None  # the kernel that needs no Plan, once it is ready
_unready: Kinds = ()  # of kernels that small copies wait for


def copy(
    x: NDArray[Any] | Tensor, target: Any, fresh: bool, key: object = None, known: Routes = routes
) -> None:
    """Copy the elements of `x`, in row-major order, into `target`, which has as many.

    Both are ndarrays of one dtype, or Tensors, or a packed Tensor is unpacked into an
    ndarray of codes. `target` is row-major; `fresh` tells that it was never touched. Later calls
    with the `key`, for arrays and results of one kind, follow a Route, small ones one of `known`.
    """
    if x.size == 0:
        return
    if isinstance(x, np.ndarray):
        _copy_array(x, target, fresh, key, known)
        return
    if not x.dtype.packed and max(x.ndim, target.ndim) <= MAX_RANK:
        _copy_array(x.numpy(), target if isinstance(target, np.ndarray) else target.numpy(), fresh)
        plan = planner.plan(x.layout.at(x.layout.offset & 7)) if key else None
    else:
        place, layout = place_of(x)
        unit = 8 * target.itemsize if isinstance(target, np.ndarray) else layout.bits
        plan = planner.compiled(layout.at(place & 7), unit)
        execution.run(plan, [place & ~7], [place_of(target)[0]], fresh)
    if key and plan and not (x.contiguous and not x.layout.offset % 8):
        _keep(key, plan, x, target)


def choose(x: NDArray[Any], met: bool | None) -> Plan | str:
    """Who copies arrays like `x`: NUMPY, the kernel that needs no Plan (WHOLE), or a Plan.

    An array that was not `met` before and is not too large has no Plan: a loader whose images all
    differ does not pay for plans that are of no use again. None: that is to be found out.
    """
    nbytes, run = x.nbytes, _run(x)
    if nbytes < thresholds.NUMPYS_OWN_BELOW or is_numpys(x.dtype):
        return NUMPY
    if run >= thresholds.NUMPYS_RUN and nbytes < thresholds.NUMPYS_RUNS_BELOW:
        return NUMPY
    if nbytes <= thresholds.ONCE_BELOW and (_whole or _copy_whole()) is not None:
        if nbytes < thresholds.WHOLE_BELOW:
            return WHOLE
        if not forced() and not (routes.met(x) if met is None else met):
            return WHOLE
        plan = planner.plan(layout_of(x))
        whole = nbytes <= thresholds.SMALL_BELOW and not slower_whole(plan)
        return WHOLE if whole else plan
    return NUMPY if nbytes < planner.numpys_below(run) else planner.plan(layout_of(x))


def _copy_array(
    x: NDArray[Any],
    target: NDArray[Any],
    fresh: bool,
    key: object = None,
    known: Routes = routes,
) -> None:
    met = known.met(x) if key else None
    way = choose(x, met)
    plan = way if isinstance(way, Plan) and not way.by_numpy else None
    unready = _unready if x.nbytes <= thresholds.ONCE_BELOW else ()
    if way is WHOLE and _whole is not None:
        _whole(x, target)
    elif plan and execution.by_kernels(plan):
        execution.run(plan, [8 * address_of(x)], [8 * address_of(target)], fresh)
    elif plan or unready:
        with by_numpy(*(execution.kind_of(plan),) if plan else (), *unready):
            _assign(x, target)
    else:
        _assign(x, target)
    if met and not is_numpys(x.dtype) and x.dtype is target.dtype:
        _remember(key, way, x, target, known)


def _assign(x: NDArray[Any], target: NDArray[Any]) -> None:
    """NumPy's copy: assignment is np.copyto without its 100 ns of dispatch."""
    elements.assign(target if target.shape == x.shape else target.reshape(x.shape), x)


def _run(x: NDArray[Any]) -> int:
    """The bytes that lie side by side, as far as the last dim tells."""
    dense = x.strides[-1:] == (x.itemsize,)
    return int(x.shape[-1]) * x.itemsize if dense else x.itemsize


def _copy_whole() -> Copy | None:
    """The kernel that needs no Plan, if it is ready."""
    global _whole, _unready
    _whole = array_structs.whole_copy()
    _unready = () if _whole else (COMPILED,)
    return _whole


def _remember(
    key: object, way: Plan | str, x: NDArray[Any], out: NDArray[Any], known: Routes
) -> None:
    """Let later copies of arrays like `x`, which was just copied into `out`, follow a Route.

    Compiled calls are to do that, unless a Plan is faster.
    """
    global _unready
    ready = (_whole or _copy_whole()) is not None
    small = x.nbytes <= thresholds.SMALL_BELOW
    if isinstance(way, Plan):
        if ready or not small:
            _keep(key, way, x, out)
    elif ready and (small or _run(x) >= thresholds.LONG_RUN):
        layout = layout_of(x)
        plan = small_plan(layout)
        _unready = execution.unready_movers(plan, 0)
        if not _unready:
            new = not x.flags.c_contiguous and x.nbytes < result_memory.FROM
            known.add(x, out, plan, layout.span, x.dtype if new else None)


def _keep(key: object, plan: Plan, x: NDArray[Any] | Tensor, out: Any) -> None:
    if not plan.by_numpy and plan.small is None and execution.by_kernels(plan):
        keep(key, execution.work_of(plan), x, out, True, False)


def whole_plan(layout: Layout) -> Addresses | None:
    """The small plan that copies an array of whole bytes, if no other Plan is faster."""
    nbytes = layout.size * layout.bits // 8
    if nbytes >= thresholds.WHOLE_BELOW and slower_whole(planner.plan(layout)):
        return None
    plan = small_plan(layout)
    plan[[SHIFT, NEAR]] += layout.offset // 8
    return plan


def is_numpys(dtype: np.dtype[Any]) -> bool:
    """Whether only NumPy can copy it: references need counting, and text may have no width."""
    return dtype.hasobject or dtype.itemsize == 0 or issubclass(dtype.type, np.character)
