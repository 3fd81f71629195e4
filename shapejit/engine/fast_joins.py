"""concat and stack of small arrays in one call of a kernel, which checks the ndarrays itself."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import repeat
from math import prod
from typing import Any, Literal, NamedTuple

import numpy as np

from ..kernels.constants import MAX_RANK, PIECE
from ..planning import thresholds
from ..runtime.cpu_caches import LINE
from ..runtime.kernel_names import Call
from ..runtime.kernels import called
from ..runtime.launches import Addresses
from ..runtime.result_memory import FROM
from . import array_structs
from .copying import is_numpys
from .outputs import new_array
from .patience import now, spent
from .routes import FOUND

JOIN_ALIKE = Call("small_joins.join_alike", ("o", "o", "i", "a", "a", "i", "i"), "b", held=True)

_KIND = array_structs.work_of(JOIN_ALIKE)


class FastJoin(NamedTuple):
    """What `small_joins.join_alike` takes for ndarrays of one kind, and the result's shape."""

    shape: tuple[int, ...]
    kind: Addresses
    whole: Addresses
    rows: int
    run: int  # bytes of a row
    dtype: np.dtype[Any]  # the kernel knows it by its address


def join(arrays: Any, axis: Any, new: bool, out: Any) -> Any:
    """Join small contiguous ndarrays, all like the first, along `axis`: a `new` dim, or their own.

    Until the kernel is ready NumPy joins small ndarrays of one dtype, then those of a few bytes
    that are not all alike; always those of several dtypes of its own. Returns None for any other
    arrays, and if anything is wrong.
    """
    if type(arrays) not in (list, tuple) or type(axis) is not int:
        return None
    parts = tuple(arrays)
    if len(parts) < 2 or type(parts[0]) is not np.ndarray or type(parts[-1]) is not np.ndarray:
        return None
    first = parts[0]
    if not (out is None or type(out) is np.ndarray):
        return None
    if first.dtype is not parts[-1].dtype:
        return _by_numpy(parts, axis, new, out, FROM, "same_kind") if out is None else None
    if not (
        _KIND.ready or (array_structs.verified() and _KIND.kernels_ready(lambda: (JOIN_ALIKE,)))
    ):
        start = now()
        made = _by_numpy(parts, axis, new, out, thresholds.PLAN_ON_FIRST_USE_FROM)
        spent(start, _KIND)
        return made
    key = "join", first.dtype, first.shape, first.strides, len(parts), axis, new
    how: FastJoin | Literal[False] | None = FOUND.get(key)
    if how is None:
        how = _of(first, len(parts), axis, new) or False
        FOUND.put(key, how)
    if how:
        target = out
        if out is None and how.rows * how.run * len(parts) < FROM:
            target = np.empty(how.shape, how.dtype)  # a quarter of the time of `new_array`
        elif out is None:
            target, _ = new_array(how.dtype, how.shape)
        call = parts, target, len(parts), how.kind, how.whole, how.rows, how.run
        return target if _join_alike()(*call) else None
    # A launch each takes ten times as long.
    return None if out is not None else _by_numpy(parts, axis, new, out, thresholds.NUMPY_BELOW)


@cache
def _join_alike() -> Callable[..., Any]:
    return called(JOIN_ALIKE)


def _by_numpy(
    parts: tuple[np.ndarray[Any, Any], ...],
    axis: int,
    new: bool,
    out: Any,
    below: int,
    casting: Literal["no", "same_kind"] = "no",
) -> Any:
    """The same by NumPy's function; None if anything is wrong, or from `below` bytes on.

    `casting` other than "no" promotes dtypes, those of NumPy's own.
    """
    if {*map(type, parts)} != {np.ndarray} or sum([x.nbytes for x in parts]) >= below:
        return None
    if casting != "no" and any(x.dtype.isbuiltin != 1 for x in parts):
        return None
    if out is not None:
        # NumPy writes parts before it looks at the dtype of later ones.
        if not out.flags.carray or any(x.dtype is not out.dtype for x in parts):
            return None
        if any(map(np.may_share_memory, parts, repeat(out))):
            return None
    try:  # a fifth of the time of `suppress`
        whole = (np.stack if new else np.concatenate)(parts, axis, out, casting=casting)
    except (ValueError, IndexError, TypeError):  # other shapes or dtypes, or too many dims
        return None
    return whole if whole.flags.c_contiguous else whole.copy()


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
    shape = whole_shape(first.shape, count, axis % ndim, new)
    rows = prod(shape[: axis % ndim])
    # What a run costs at least, in bytes: less where those of several arrays share a line.
    each = PIECE if count * first.nbytes // rows < LINE else thresholds.RUN
    if rows * count * each > thresholds.PLAN_ON_FIRST_USE_FROM or not array_structs.verified():
        return None
    kind = array_structs.kind_of(first.dtype, first.shape, first.strides)
    strides = np.empty(shape, np.dtype((np.void, first.itemsize))).strides
    whole = array_structs.kind_of(first.dtype, shape, strides)
    return FastJoin(shape, kind, whole, rows, first.nbytes // rows, first.dtype)


def whole_shape(part: tuple[int, ...], count: int, at: int, new: bool) -> tuple[int, ...]:
    """The shape of `count` parts of one shape, joined along dim `at`."""
    size = count if new else count * part[at]
    return (*part[:at], size, *part[at + 1 - new :])
