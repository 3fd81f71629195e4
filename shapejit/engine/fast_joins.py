"""concat and stack of ndarrays in one call to a kernel that reads their structs, or to NumPy."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from itertools import repeat
from time import perf_counter
from typing import Any

import numpy as np

from ..dtypes.promotion import AnyDtype, beyond_numpy, promoted
from ..errors import DTypeError
from ..kernels.object_layouts import JOIN_MOST, JOIN_MOVER, JOIN_WORDS
from ..kernels.small_plans import PLANE_MOVER
from ..planning import thresholds
from ..runtime.kernels import address
from ..runtime.ndarrays import concatenate, may_share_memory, stack
from . import array_structs
from .array_structs import JOIN
from .copying import is_numpys
from .small_calls import TABLE

KIND = array_structs.work_of(JOIN)

SCRATCH = np.zeros(JOIN_WORDS, np.int64)  # the last arguments of `run` are this and TABLE
# Bytes that one thread joins, holding the GIL: a Plan joins more.
SCRATCH[JOIN_MOST] = thresholds.PLAN_ON_FIRST_USE_FROM - 1


def by_numpy(parts: Any, out: Any, axis: Any, new: bool, *_: Any) -> Any:
    """Join small ndarrays by NumPy, if no kernel does; None for others, and if anything is wrong.

    It is `run` until the kernel is ready, for which it looks.
    """
    ready = KIND.ready
    if run is by_numpy and (ready or KIND.taken >= KIND.next_look) and _becomes_ready():
        return run(parts, out, axis, new, SCRATCH, TABLE)
    if type(parts) is not tuple or type(axis) is not int:
        return None
    kinds: Any = [x.dtype for x in parts if type(x) is np.ndarray]
    count = len(kinds)
    if not count == len(parts) > 0 or parts[0].nbytes * count >= thresholds.RUNS_STREAM_FROM:
        return None
    kind = kinds[0]
    if kinds.count(kind) < count:
        kind = _numpy_dtype(frozenset(kinds))
    elif ready and not is_numpys(kind):
        return None
    if kind is None or not (out is None or _may_fill(out, kind, parts)):
        return None
    asked, start = kind if out is None else None, perf_counter()
    try:
        join = stack if new else concatenate
        made = join(parts, axis, out, dtype=asked, casting="unsafe")
    except (ValueError, IndexError, OverflowError):  # other shapes, or too many dims
        return None
    if not ready:
        KIND.taken += perf_counter() - start
    return made if out is not None or made.flags.c_contiguous else made.copy()


# Joins a tuple of ndarrays along a dim of theirs, or a new one; None if that takes another way, and
# for whatever is wrong. The kernel takes those of one dtype.
run: Callable[..., Any] = by_numpy


def _becomes_ready() -> bool:
    """Whether the kernel is ready now."""
    global run
    found = array_structs.kernel(JOIN)
    if found is None:
        return False
    SCRATCH[JOIN_MOVER] = address(PLANE_MOVER)
    run = found  # last: other threads may call it at once
    return True


def _may_fill(out: Any, kind: np.dtype[Any], parts: tuple[Any, ...]) -> bool:
    """Whether NumPy may join ndarrays into `out`: it writes parts before it checks later ones."""
    if type(out) is not np.ndarray or out.dtype is not kind or not out.flags.carray:
        return False
    return not any(map(may_share_memory, parts, repeat(out)))


@lru_cache(maxsize=256)
def _numpy_dtype(kinds: frozenset[np.dtype[Any]]) -> np.dtype[Any] | None:
    """The dtype to which NumPy casts several as `cast` does; None if there is none."""
    with suppress(DTypeError):
        kind: Any = promoted((*kinds,), "concat")
        if isinstance(kind, np.dtype) and all(numpy_casts(x, kind) for x in kinds):
            return kind
    return None


def numpy_casts(source: AnyDtype, target: AnyDtype) -> bool:
    """Whether NumPy's cast gives the bits of `cast`.

    Of dtypes that NumPy lacks, it does so only from bfloat16 to float32, which is a shift.
    Signalling NaNs of float16 would get other bits.
    """
    others = beyond_numpy(source) or beyond_numpy(target) or source == np.float16
    own = source == target or not others
    return own or (source.name, target.name) == ("bfloat16", "float32")
