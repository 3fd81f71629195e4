"""Copies of one array with any strides into row-major memory: NumPy, a small kernel or a Plan.

`choose` decides by size and strides which of these copies it, `numpy_gathers` and `numpy_tiles`
whether NumPy takes some of its indices or repeats it; the thresholds are the planner's.
"""

from __future__ import annotations

from functools import lru_cache, partial
from math import prod
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays.tensor import Tensor
from ..kernels.constants import MAX_RANK
from ..kernels.object_layouts import ROOM_WORDS
from ..kernels.small_plans import PLANE_MOVER
from ..planning import planner, thresholds
from ..planning.small_plans import small_plan
from ..runtime.cpu_caches import LINE
from ..runtime.kernels import address, called
from ..runtime.launches import address_of
from . import array_structs
from .addresses import bit_address_of, byte_of, layout_of
from .calls import keep
from .patience import NEVER, forced
from .routes import COPY_WHOLE, FOUND, NUMPY, Done, Route, compiled, copies, run
from .small_calls import KNOWN, Routes, small_route


def copy(
    x: NDArray[Any] | Tensor,
    target: Any,
    fresh: bool,
    key: object = None,
    asked: object = None,
    known: Routes = KNOWN,
) -> None:
    """Copy the elements of `x`, in row-major order, into the row-major `target` of the same size.

    Both are ndarrays of one dtype or Tensors; or `x` is a packed Tensor, and `target` an ndarray
    for its codes. A `fresh` target is newly allocated memory. Later calls with the same `key`, for
    arrays of the same kind, follow a Route; small ones follow one of `known` for what was `asked`,
    see `small_calls`.
    """
    if x.size == 0:
        return
    if isinstance(x, np.ndarray):
        _copy_array(x, target, fresh, key, asked, known)
        return
    begin, layout = byte_of(x)
    unit = 8 * target.itemsize if isinstance(target, np.ndarray) else layout.bits
    way = run(compiled(layout, unit), [begin], [bit_address_of(target)[0]], fresh)
    if key and (isinstance(target, np.ndarray) or not x.layout.contiguous_bytes):
        keep(key, Done(way), x, target, fresh)


def _copy_array(
    x: NDArray[Any],
    target: NDArray[Any],
    fresh: bool,
    key: object,
    asked: object,
    known: Routes,
) -> None:
    met = was_met(key or (x.dtype, x.shape, x.strides))
    route = choose(x, met or forced())
    way, move = None, None if route.by_kernels else assign
    if route is COPY_WHOLE and route.ready:
        scratch, mover = np.zeros(ROOM_WORDS, np.int64), address(PLANE_MOVER)
        called(array_structs.WHOLE_COPY)(x, target, scratch, mover)
    else:
        addresses = [8 * address_of(x)], [8 * address_of(target)]
        way = run(route, *addresses, fresh, instead=move and partial(move, x, target))
    if not met or not key or x.dtype is not target.dtype or is_numpys(x.dtype):
        return  # no more calls of this kind will come
    if way is not None:
        keep(key, Done(way, move), x, target, fresh)
    elif type(target) is np.ndarray:
        new = bool(asked or not x.flags.c_contiguous) and x.nbytes < thresholds.RESULT_MEMORY_FROM
        layout, made = layout_of(x), x.dtype if new else None
        small = small_route(x, target, small_plan(layout), made, layout, asked)
        if small is not None:
            known.put(x, asked, small)


_MET = SimpleNamespace(weight=128)  # in the cache of Routes: such an array was copied before


def was_met(kind: object) -> bool:
    """Whether this was asked before: only kinds of arrays that are met again are worth a Route."""
    mark = "met", hash(kind)
    known = mark in FOUND
    if not known:
        FOUND.put(mark, _MET)
    return known


def choose(x: NDArray[Any], met: bool, region: NDArray[Any] | None = None) -> Route:
    """The Route that copies an ndarray to row-major memory, or fills a `region` of it.

    COPY_WHOLE needs no Plan. A large array gets one, and so does one whose kind was `met` before: a
    data loader whose images all differ in shape does not pay for plans that are used once.
    """
    if is_numpys(x.dtype):
        return NUMPY
    nbytes = x.nbytes if region is None else region.nbytes
    if region is not None:
        # NumPy fills short rows faster, and repeats one element.
        small = nbytes < thresholds.NUMPY_BELOW or x.size == 1 or x.ndim > MAX_RANK
        if small or region.shape[-1] * x.itemsize < LINE:
            return NUMPY
    run = _run(x)
    if region is not None:
        if nbytes < planner.numpy_below(run, gaps=True):
            return NUMPY
        seen = np.broadcast_to(x, region.shape)
        return copies(layout_of(seen), into=layout_of(region))
    whole = array_structs.verified() and nbytes <= thresholds.PLAN_ON_FIRST_USE_FROM
    if whole and (nbytes < thresholds.SCALARS_BELOW or run >= thresholds.RUN or not met):
        return COPY_WHOLE
    route = copies(layout_of(x))
    whole = whole and nbytes <= thresholds.NO_PLAN_MAX_BYTES
    return COPY_WHOLE if whole and (route.kind is NEVER or not route.slower_whole) else route


def numpy_tiles(x: NDArray[Any], nbytes: int) -> bool:
    """Whether NumPy repeats an array as fast as kernels do; the result has `nbytes` bytes."""
    return x.flags.c_contiguous and nbytes < thresholds.NUMPY_BELOW


def numpy_gathers(x: NDArray[Any] | Tensor, axis: int, count: int) -> bool:
    """Whether NumPy takes `count` indices along a dim as fast as kernels do, or only NumPy can.

    It unpacks a Tensor before, and copies an array that is not row-major if that is no larger.
    """
    size = x.shape[axis]
    if isinstance(x, Tensor):
        return count >= size and prod(x.shape[axis:]) // size < 2 * thresholds.SHORT
    most, dense = thresholds.RUNS_STREAM_FROM, x.flags.c_contiguous
    if count < size and not dense:
        most = x.itemsize * thresholds.NUMPY_BELOW
    if x.nbytes // size * count < most or is_numpys(x.dtype):
        return True
    # A copy of a launch costs 0.3 us beside its bytes, an index 0.01 us of NumPy's.
    return dense and x.itemsize * prod(x.shape[axis:]) // size < thresholds.LONG_RUN


def assign(x: NDArray[Any], target: NDArray[Any]) -> None:
    """Copy by NumPy; assignment avoids the 100 ns of dispatch of np.copyto."""
    (target if target.shape == x.shape else target.reshape(x.shape))[...] = x


def _run(x: NDArray[Any]) -> int:
    """The bytes of a contiguous run along the last dims."""
    dense = x.strides[-1:] == (x.itemsize,)
    return int(x.shape[-1]) * x.itemsize if dense else x.itemsize


@lru_cache(maxsize=256)
def is_numpys(dtype: np.dtype[Any]) -> bool:
    """Whether only NumPy can copy the dtype: it has references, or may have no bytes."""
    return dtype.hasobject or dtype.itemsize == 0 or issubclass(dtype.type, np.character)
