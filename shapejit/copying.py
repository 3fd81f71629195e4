"""One copy: the elements of an array, whatever its strides, into row-major memory.

Whether a call of NumPy, a kernel that needs no Plan, or a Plan moves it is the
planner's to say.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import engine
from .compilation import load
from .kernels.constants import MAX_RANK, PIECE
from .launches import address_of
from .places import headers, layout_of, place_of
from .planning import planner
from .planning.plans import Plan
from .recent import Recent
from .tensor import Tensor

Key = tuple[tuple[int, ...], tuple[int, ...], np.dtype[Any]]  # shape, strides (bytes), dtype

_plans: Recent[Key, Plan] = planner.recent_plans()
_once: Recent[Key, bool] = Recent(1024)  # kinds of arrays that were met, and not planned yet


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
    engine.run(made, [place & ~7], [place_of(target)[0]], fresh)


def _copy_array(x: NDArray[Any], target: NDArray[Any], fresh: bool) -> None:
    nbytes = x.nbytes
    ours = not (nbytes < planner.NUMPYS_OWN_BELOW or _long_runs(x) or is_numpys(x.dtype))
    kernels = headers(1) if ours else None
    if kernels is not None and nbytes <= planner.SMALL_BELOW:
        kernels.copy_whole(x, target)
        return
    # numba is not imported for the sake of small copies.
    if kernels is not None or (ours and nbytes >= planner.NUMPY_BELOW * min(x.itemsize, PIECE)):
        made = _plan_of(x)
        if made is None:
            load("headers").copy_whole(x, target)
            return
        if not made.by_numpy:
            engine.run(made, [8 * address_of(x)], [8 * address_of(target)], fresh)
            return
    # Assignment is np.copyto without its 100 ns of dispatch.
    (target if target.shape == x.shape else target.reshape(x.shape))[...] = x


def _long_runs(x: NDArray[Any]) -> bool:
    """Whether a plan would be NumPy's copy, seen without one."""
    if x.nbytes >= planner.NUMPYS_RUNS_BELOW or x.strides[-1:] != (x.itemsize,):
        return False
    return int(x.shape[-1]) * x.itemsize >= planner.NUMPYS_RUN


def _plan_of(x: NDArray[Any]) -> Plan | None:
    """The Plan for arrays like `x`; None for the first one of its kind, which is not too large.

    A loader whose images all differ does not pay for plans that are of no use again.
    """
    key = x.shape, x.strides, x.dtype
    made = _plans.get(key)
    if made is None:
        if x.nbytes <= planner.ONCE_BELOW and key not in _once and headers(1) is not None:
            _once.put(key, True)
            return None
        made = planner.plan(layout_of(x))
        _plans.put(key, made)
    return made


def is_numpys(dtype: np.dtype[Any]) -> bool:
    """Whether only NumPy can copy it: references need counting, and text may have no width."""
    return dtype.hasobject or dtype.itemsize == 0 or issubclass(dtype.type, np.character)
