"""One copy: the elements of an array, whatever its strides, into row-major memory.

`choose` decides by size and strides whether NumPy copies it, a kernel that needs no Plan, or a
Plan; the thresholds are the planner's.
"""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays.tensor import Tensor
from ..kernels.constants import MAX_RANK
from ..kernels.small_plans import NEAR, SHIFT
from ..planning import thresholds
from ..planning.small_plans import small_plan
from ..runtime import result_memory
from ..runtime.launches import Addresses, address_of
from ..shapes.layout import Layout
from . import array_structs
from .addresses import layout_of, place_of
from .patience import by_numpy, forced
from .routes import Route, compiled, copies, keep, run
from .small_calls import Routes

NUMPY, WHOLE = "numpy", "whole"

routes = Routes()  # of `ascontiguous`


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
        route = copies(x.layout.at(x.layout.offset & 7)) if key else None
    else:
        place, layout = place_of(x)
        unit = 8 * target.itemsize if isinstance(target, np.ndarray) else layout.bits
        route = compiled(layout.at(place & 7), unit)
        run(route, [place & ~7], [place_of(target)[0]], fresh)
    if key and route and route.ready and not x.layout.contiguous_bytes:
        keep(key, route.work, x, target, True, False)


def choose(x: NDArray[Any], met: bool) -> Route | str:
    """Who copies arrays like `x`: NUMPY, the kernel that needs no Plan (WHOLE), or that of a Route.

    An array that was not `met` before and is not too large has no Plan: a loader whose images all
    differ does not pay for plans that are of no use again.
    """
    nbytes, run = x.nbytes, _run(x)
    if nbytes < thresholds.NUMPYS_OWN_BELOW or is_numpys(x.dtype):
        return NUMPY
    if run >= thresholds.RUN and nbytes < thresholds.NUMPYS_RUNS_BELOW:
        return NUMPY
    whole = array_structs.trusted() and nbytes <= thresholds.ONCE_BELOW
    if whole and (nbytes < thresholds.WHOLE_BELOW or not met):
        return WHOLE
    route = copies(layout_of(x))
    if whole and nbytes <= thresholds.SMALL_BELOW and not route.slower_whole:
        return WHOLE
    return NUMPY if route.by_numpy else route


def _copy_array(
    x: NDArray[Any],
    target: NDArray[Any],
    fresh: bool,
    key: object = None,
    known: Routes = routes,
) -> None:
    met = known.met(x)
    likes = met and key and x.dtype is target.dtype  # there will be more calls of this kind
    way = choose(x, met or forced())
    if isinstance(way, Route):
        places = [8 * address_of(x)], [8 * address_of(target)]
        work = run(way, *places, fresh, instead=partial(_assign, x, target))
        if likes and work:
            keep(key, work, x, target, True, False)
        return
    if way is NUMPY:
        _assign(x, target)
    elif not array_structs.copy_whole(x, target):
        with by_numpy(array_structs.SMALL_CALLS):
            _assign(x, target)
        return
    small = x.nbytes <= thresholds.SMALL_BELOW or _run(x) >= thresholds.LONG_RUN
    if likes and small and not is_numpys(x.dtype):
        new = not x.flags.c_contiguous and x.nbytes < result_memory.FROM
        known.learn(x, target, lambda: small_plan(layout_of(x)), x.dtype if new else None)


def _assign(x: NDArray[Any], target: NDArray[Any]) -> None:
    """NumPy's copy: assignment is np.copyto without its 100 ns of dispatch."""
    (target if target.shape == x.shape else target.reshape(x.shape))[...] = x


def _run(x: NDArray[Any]) -> int:
    """The bytes that lie side by side, as far as the last dim tells."""
    dense = x.strides[-1:] == (x.itemsize,)
    return int(x.shape[-1]) * x.itemsize if dense else x.itemsize


def whole_plan(layout: Layout) -> Addresses | None:
    """The small plan that copies an array of whole bytes, if no other Plan is faster."""
    nbytes = layout.size * layout.bits // 8
    if nbytes >= thresholds.WHOLE_BELOW and copies(layout).slower_whole:
        return None
    plan = small_plan(layout)
    plan[[SHIFT, NEAR]] += layout.offset // 8
    return plan


@lru_cache(maxsize=256)
def is_numpys(dtype: np.dtype[Any]) -> bool:
    """Whether only NumPy can copy it: references need counting, and text may have no width."""
    return dtype.hasobject or dtype.itemsize == 0 or issubclass(dtype.type, np.character)
