"""Copies of one array with any strides into row-major memory: NumPy, a small kernel or a Plan.

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
from .patience import forced, numpys
from .routes import Route, StandIn, compiled, copies, keep, run
from .small_calls import Routes

NUMPY, WHOLE = "numpy", "whole"

routes = Routes()  # of `ascontiguous`


def copy(
    x: NDArray[Any] | Tensor, target: Any, fresh: bool, key: object = None, known: Routes = routes
) -> None:
    """Copy the elements of `x`, in row-major order, into the row-major `target` of the same size.

    Both are ndarrays of one dtype or Tensors; or `x` is a packed Tensor, and `target` an ndarray
    for its codes. A `fresh` target is newly allocated memory. Later calls with the same `key`, for
    arrays of the same kind, follow a Route; small ones follow one of `known`.
    """
    if x.size == 0:
        return
    if isinstance(x, np.ndarray):
        _copy_array(x, target, fresh, key, known)
        return
    if not x.dtype.packed and max(x.ndim, target.ndim) <= MAX_RANK:
        _copy_array(x.numpy(), target if isinstance(target, np.ndarray) else target.numpy(), fresh)
        route = copies(x.layout.within_byte(x.offset)) if key else None
        way = route.work if route and route.ready else None
    else:
        place, layout = place_of(x)
        unit = 8 * target.itemsize if isinstance(target, np.ndarray) else layout.bits
        route = compiled(layout.within_byte(place), unit)
        way = run(route, [place & ~7], [place_of(target)[0]], fresh)
    if key and route and not x.layout.contiguous_bytes:
        keep(key, way or StandIn.of(route), x, target, True, False)


def choose(x: NDArray[Any], met: bool) -> Route | str:
    """What copies arrays like `x`: NUMPY, the kernel that needs no Plan (WHOLE), or a Route.

    A Plan is made for a large array, or for one whose kind was `met` before: a data loader whose
    images all differ in shape does not pay for plans that are used once.
    """
    nbytes, run = x.nbytes, _run(x)
    if nbytes < thresholds.NUMPYS_OWN_BELOW or is_numpys(x.dtype):
        return NUMPY
    if run >= thresholds.RUN and nbytes < thresholds.NUMPYS_RUNS_BELOW:
        return NUMPY
    whole = array_structs.verified() and nbytes <= thresholds.PLAN_ON_FIRST_USE_FROM
    if whole and (nbytes < thresholds.SCALAR_MAX_BYTES or not met):
        return WHOLE
    route = copies(layout_of(x))
    if whole and nbytes <= thresholds.NO_PLAN_MAX_BYTES and not route.slower_whole:
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
    likes = met and key and x.dtype is target.dtype  # more calls of this kind will come
    way = choose(x, met or forced())
    if isinstance(way, Route):
        places = [8 * address_of(x)], [8 * address_of(target)]
        work = run(way, *places, fresh, instead=partial(assign, x, target))
        if likes:
            keep(key, work or StandIn.of(way)._replace(move=assign), x, target, True, False)
        return
    learns = x.nbytes <= thresholds.NO_PLAN_MAX_BYTES or _run(x) >= thresholds.LONG_RUN
    learns = learns and array_structs.verified() and not is_numpys(x.dtype)
    ready = (learns or way is WHOLE) and array_structs.small_calls_ready()
    if way is WHOLE and ready:
        array_structs.copy_whole(x, target)
    elif learns or way is WHOLE:
        numpys(array_structs.SMALL_CALLS, assign, x, target)
    else:
        assign(x, target)
    if not likes or is_numpys(x.dtype):
        return
    if not (learns and ready):
        keep(key, UNTIL_SMALL if learns else ALWAYS, x, target, True, False)
        return
    new = not x.flags.c_contiguous and x.nbytes < result_memory.FROM
    known.learn(x, target, lambda: small_plan(layout_of(x)), x.dtype if new else None)


def assign(x: NDArray[Any], target: NDArray[Any], _: int = 0) -> None:
    """Copy by NumPy; assignment avoids the 100 ns of dispatch of np.copyto."""
    (target if target.shape == x.shape else target.reshape(x.shape))[...] = x


# NumPy's copies until small calls are compiled, and for good.
UNTIL_SMALL = StandIn(array_structs.SMALL_CALLS, array_structs.small_calls_ready, assign)
ALWAYS = StandIn((), lambda: False, assign)


def _run(x: NDArray[Any]) -> int:
    """The bytes of a contiguous run along the last dim."""
    dense = x.strides[-1:] == (x.itemsize,)
    return int(x.shape[-1]) * x.itemsize if dense else x.itemsize


def whole_plan(layout: Layout) -> Addresses | None:
    """The small plan of an array of whole bytes; None if a full Plan is faster."""
    nbytes = layout.size * layout.bits // 8
    if nbytes >= thresholds.SCALAR_MAX_BYTES and copies(layout).slower_whole:
        return None
    plan = small_plan(layout)
    plan[[SHIFT, NEAR]] += layout.offset // 8
    return plan


@lru_cache(maxsize=256)
def is_numpys(dtype: np.dtype[Any]) -> bool:
    """Whether only NumPy can copy the dtype: objects are counted, strings may have no bytes."""
    return dtype.hasobject or dtype.itemsize == 0 or issubclass(dtype.type, np.character)
