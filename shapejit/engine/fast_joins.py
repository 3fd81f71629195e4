"""concat and stack of small arrays in one call of a kernel, which checks the ndarrays itself."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from math import prod
from typing import Any, Literal, NamedTuple

import numpy as np

from ..kernels.constants import MAX_RANK, PIECE
from ..planning import thresholds
from ..runtime.cpu_caches import LINE
from ..runtime.kernel_names import Call
from ..runtime.kernels import called
from ..runtime.launches import Addresses
from . import array_structs
from .copying import is_numpys
from .outputs import new_array
from .routes import FOUND

JOIN_ALIKE = Call("small_joins.join_alike", ("o", "o", "i", "a", "a", "i", "i"), "b", held=True)

KIND = array_structs.work_of(JOIN_ALIKE)


class FastJoin(NamedTuple):
    """What `small_joins.join_alike` takes for ndarrays of one kind, and the result's shape."""

    shape: tuple[int, ...]
    kind: Addresses
    whole: Addresses
    rows: int
    run: int  # bytes of a row
    dtype: np.dtype[Any]  # the kernel knows it by its address


def join(parts: tuple[Any, ...], axis: int, new: bool, out: Any) -> Any:
    """Join small contiguous ndarrays, all like the first, along `axis`: a `new` dim, or their own.

    None for any other arrays, if anything is wrong, and until the kernel is ready.
    """
    first = parts[0]
    if type(first) is not np.ndarray or not ready():
        return None
    key = "join", first.dtype, first.shape, first.strides, len(parts), axis, new
    how: FastJoin | Literal[False] | None = FOUND.get(key)
    if how is None:
        how = _of(first, len(parts), axis, new) or False
        FOUND.put(key, how)
    if not how:
        return None
    target = out
    if out is None and how.rows * how.run * len(parts) < thresholds.RESULT_MEMORY_FROM:
        target = np.empty(how.shape, how.dtype)  # a quarter of the time of `new_array`
    elif out is None:
        target, _ = new_array(how.dtype, how.shape)
    call = parts, target, len(parts), how.kind, how.whole, how.rows, how.run
    return target if _join_alike()(*call) else None


def ready() -> bool:
    """Whether the kernel is."""
    return KIND.ready or array_structs.kernel(JOIN_ALIKE) is not None


@cache
def _join_alike() -> Callable[..., Any]:
    return called(JOIN_ALIKE)


def _of(first: np.ndarray[Any, Any], count: int, axis: int, new: bool) -> FastJoin | None:
    """How `count` arrays like the first are joined; None if they are large, or not contiguous."""
    ndim = first.ndim + new
    if not -ndim <= axis < ndim or ndim > MAX_RANK or is_numpys(first.dtype):
        return None
    if (
        not 0 < count * first.nbytes < thresholds.PLAN_ON_FIRST_USE_FROM
        or not first.flags.c_contiguous
    ):
        return None
    at = axis % ndim
    size = count if new else count * first.shape[at]
    shape = (*first.shape[:at], size, *first.shape[at + 1 - new :])
    rows = prod(shape[:at])
    # What a run costs at least, in bytes: less where those of several arrays share a line.
    each = PIECE if count * first.nbytes // rows < LINE else thresholds.RUN
    if rows * count * each > thresholds.PLAN_ON_FIRST_USE_FROM or not array_structs.verified():
        return None
    kind = array_structs.kind_of(first.dtype, first.shape, first.strides)
    strides = np.empty(shape, np.dtype((np.void, first.itemsize))).strides
    whole = array_structs.kind_of(first.dtype, shape, strides)
    return FastJoin(shape, kind, whole, rows, first.nbytes // rows, first.dtype)
