"""One copy: the elements of an array, whatever its strides, into row-major memory.

Whether a call of NumPy, a kernel that needs no Plan, or a Plan moves it is the
planner's to say.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays.tensor import Tensor
from ..kernels.constants import MAX_RANK
from ..kernels.small_plans import NEAR, SHIFT
from ..planning import planner, thresholds
from ..planning.plans import Plan
from ..planning.small_plans import slower_whole, small_plan
from ..runtime import result_memory
from ..runtime.launches import Addresses, address_of
from ..runtime.recent import Recent
from ..shapes.layout import Layout
from . import array_structs, execution
from .addresses import layout_of, place_of
from .patience import Kinds, by_numpy, forced
from .routes import keep
from .small_calls import Routes

Key = tuple[tuple[int, ...], tuple[int, ...], np.dtype[Any]]  # shape, strides (bytes), dtype

Copy = Callable[[NDArray[Any], NDArray[Any]], None]

WHOLE = array_structs.work_of(array_structs.PLAN_WHOLE)

_once: Recent[Key, bool] = Recent(1024)  # kinds of arrays that were met
routes = Routes()  # of `ascontiguous`
_whole: Copy | None = None  # the kernel that needs no Plan, once it is ready
_unready: Kinds = ()  # of kernels that small copies wait for


def copy(x: NDArray[Any] | Tensor, target: Any, fresh: bool) -> None:
    """Copy the elements of `x`, in row-major order, into `target`, which has as many.

    Both are ndarrays of one dtype, or Tensors, or a packed Tensor is unpacked into an
    ndarray of codes. `target` is row-major; `fresh` tells that it was never touched.
    """
    if x.size == 0:
        return
    if isinstance(x, np.ndarray):
        _copy_array(x, target, fresh)
        return
    if not x.dtype.packed and max(x.ndim, target.ndim) <= MAX_RANK:
        _copy_array(x.numpy(), target if isinstance(target, np.ndarray) else target.numpy(), fresh)
        return
    place, layout = place_of(x)
    unit = 8 * target.itemsize if isinstance(target, np.ndarray) else layout.bits
    made = planner.compiled(layout.at(place & 7), unit)
    execution.run(made, [place & ~7], [place_of(target)[0]], fresh)


def _copy_array(x: NDArray[Any], target: NDArray[Any], fresh: bool) -> None:
    nbytes = x.nbytes
    small = nbytes <= thresholds.SMALL_BELOW
    if nbytes >= thresholds.NUMPYS_OWN_BELOW and not is_numpys(x.dtype):
        run = _run(x)
        long = run >= thresholds.NUMPYS_RUN and nbytes < thresholds.NUMPYS_RUNS_BELOW
        if small and not long:
            whole = _whole or _copy_whole()
            if whole is not None and (nbytes < thresholds.WHOLE_BELOW or _best_whole(x)):
                whole(x, target)
                return
        if nbytes >= planner.numpys_below(run) and _copied_by_plan(x, target, fresh):
            return
    if small and _unready:
        with by_numpy(*_unready):
            _assign(x, target)
        return
    _assign(x, target)


def _assign(x: NDArray[Any], target: NDArray[Any]) -> None:
    """NumPy's copy: assignment is np.copyto without its 100 ns of dispatch."""
    (target if target.shape == x.shape else target.reshape(x.shape))[...] = x


def _run(x: NDArray[Any]) -> int:
    """The bytes that lie side by side, as far as the last dim tells."""
    dense = x.strides[-1:] == (x.itemsize,)
    return int(x.shape[-1]) * x.itemsize if dense else x.itemsize


def _copy_whole() -> Copy | None:
    """The kernel that needs no Plan, if it is ready."""
    global _whole, _unready
    _whole = array_structs.whole_copy()
    _unready = () if _whole else (WHOLE,)
    return _whole


def _best_whole(x: NDArray[Any]) -> bool:
    """Whether an array is copied without a Plan: any that is new, others if that is as fast."""
    made = _plan_of(x, True)
    return made is None or not slower_whole(made)


def _plan_of(x: NDArray[Any], later: bool) -> Plan | None:
    """The Plan for arrays of a kind; None if `later` for the first, which needs none."""
    key = x.shape, x.strides, x.dtype
    if later and key not in _once and _copy_once() is not None:
        _once.put(key, True)
        return None
    return planner.plan(layout_of(x))


def _copy_once() -> Copy | None:
    """The same for the first array of a kind; None where kernels of Plans are to be tried."""
    return None if forced() else _whole or _copy_whole()


def remember(key: object, x: NDArray[Any] | Tensor, out: Any) -> None:
    """Let later copies of arrays like `x`, which was just copied into `out`, follow a Route.

    A row-major `x` would be the result itself: nobody asks for a Route that makes another one.
    """
    if out is x or not x.size:
        return
    if isinstance(x, Tensor):
        layout = x.layout.at(x.layout.offset & 7)
        plan = planner.compiled(layout) if x.dtype.packed else planner.plan(layout)
        if x.contiguous and not x.layout.offset % 8:
            return
    elif is_numpys(x.dtype) or x.dtype is not out.dtype or _remembered_small(x, out):
        return
    else:
        if x.nbytes < planner.numpys_below(_run(x)) or not routes.met(x):
            return
        plan = planner.plan(layout_of(x))
    if not plan.by_numpy and plan.small is None and execution.by_kernels(plan):
        keep(key, execution.work_of(plan), x, out, True, False)


def _remembered_small(x: NDArray[Any], out: NDArray[Any]) -> bool:
    """Whether no Plan copies arrays like `x`: compiled calls are to do that, if they can."""
    global _unready
    long = _run(x) >= thresholds.LONG_RUN
    if x.nbytes > (thresholds.NUMPYS_RUNS_BELOW if long else thresholds.SMALL_BELOW):
        return False
    if not routes.met(x):
        return True
    if array_structs.kernel(array_structs.RUN_ROUTE) is None:
        _unready = (WHOLE,)
        return True
    layout = layout_of(x)
    plan = small_plan(layout) if long else whole_plan(layout)
    if plan is None:
        return False
    _unready = execution.unready_movers(plan, 0)
    if not _unready:
        new = not x.flags.c_contiguous and x.nbytes < result_memory.FROM
        routes.add(x, out, plan, layout.span, x.dtype if new else None)
    return True


def whole_plan(layout: Layout) -> Addresses | None:
    """The small plan that copies an array of whole bytes, if no other Plan is faster."""
    nbytes = layout.size * layout.bits // 8
    if nbytes >= thresholds.WHOLE_BELOW and slower_whole(planner.plan(layout)):
        return None
    plan = small_plan(layout)
    plan[[SHIFT, NEAR]] += layout.offset // 8
    return plan


def _copied_by_plan(x: NDArray[Any], target: NDArray[Any], fresh: bool) -> bool:
    """Whether the elements are copied, by the kernel of a Plan once that is ready.

    The first array of its kind that is not too large has none: a loader whose images all
    differ does not pay for plans that are of no use again.
    """
    once = x.nbytes <= thresholds.ONCE_BELOW
    made = _plan_of(x, once)
    if made is None:
        assert _whole is not None
        _whole(x, target)
        return True
    if made.by_numpy:
        return False
    if not execution.by_kernels(made):
        with by_numpy(execution.kind_of(made), *(_unready if once else ())):
            _assign(x, target)
        return True
    execution.run(made, [8 * address_of(x)], [8 * address_of(target)], fresh)
    return True


def is_numpys(dtype: np.dtype[Any]) -> bool:
    """Whether only NumPy can copy it: references need counting, and text may have no width."""
    return dtype.hasobject or dtype.itemsize == 0 or issubclass(dtype.type, np.character)
