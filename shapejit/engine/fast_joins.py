"""concat and stack of ndarrays in one call to a kernel that reads their structs, or to NumPy."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from itertools import repeat
from operator import attrgetter
from threading import RLock
from time import perf_counter
from typing import Any

import numpy as np

from ..dtypes.promotion import AnyDtype, beyond_numpy, promoted
from ..errors import DTypeError
from ..kernels.constants import MAX_RANK
from ..kernels.object_layouts import JOIN_MOST, JOIN_MOVER, JOIN_PAIRS, JOIN_SHORT, JOIN_WORDS
from ..kernels.small_plans import PLANE_MOVER
from ..planning import thresholds
from ..runtime.kernel_names import Call
from ..runtime.kernels import address, called
from ..runtime.ndarrays import concatenate, may_share_memory
from ..runtime.system import PerProcess
from . import array_structs
from .copying import is_numpys
from .small_calls import TABLE

JOIN = Call("small_joins.join", ("o", "o", "o", "i", "a", "o"), "o", held=True)
PAIR_SLOT = Call("small_joins.pair_slot", ("i", "i"), "i", held=True)
_KERNELS = JOIN, PAIR_SLOT, PLANE_MOVER
KIND = array_structs.work_of(JOIN)

_dtype_of = attrgetter("dtype")
_scratch = np.zeros(JOIN_WORDS, np.int64)
# Bytes that one thread joins, in all and in short runs: more are streamed, or rearranged by a Plan.
# It holds the GIL, for about 1 ms at most.
_scratch[JOIN_MOST] = thresholds.RUNS_STREAM_FROM - 1
_scratch[JOIN_SHORT] = thresholds.PLAN_ON_FIRST_USE_FROM - 1
_pairs: dict[int, tuple[np.dtype[Any], ...]] = {}  # whose addresses are in it, by their slots
_changing = PerProcess(RLock)
STATE = _scratch, TABLE  # the last arguments of `run`


def join(tensors: Any, out: Any, axis: Any, new: bool, *_: Any) -> Any:
    """Join ndarrays along a `new` dim or one of theirs; None if this module cannot join them.

    A kernel joins arrays of one dtype, and of two dtypes that NumPy casts as `cast` does; NumPy
    joins small ones of other dtypes, and all while the kernel is not ready. Returns None for
    invalid arguments, too.
    """
    if type(tensors) not in (list, tuple) or type(axis) is not int or abs(axis) > MAX_RANK:
        return None
    parts = tuple(tensors)
    if run is not _not_yet or (KIND.taken >= KIND.next_look and _becomes_ready()):
        made = called(JOIN)(parts, out, axis, new, *STATE)
        return _by_numpy(parts, axis, new, out) if made is None else made
    start = perf_counter()
    made = _by_numpy(parts, axis, new, out)
    if made is not None:
        KIND.taken += perf_counter() - start
    return made


def _not_yet(*_: Any) -> None:
    """Join nothing, while the kernel is not ready."""


run: Callable[..., Any] = _not_yet  # until the kernel is ready, which takes tuples only


def _becomes_ready() -> bool:
    """Whether the kernel is ready now."""
    global run
    if not array_structs.verified() or not KIND.kernels_ready(lambda: _KERNELS):
        return False
    _scratch[JOIN_MOVER] = address(PLANE_MOVER)
    run = called(JOIN)  # last: other threads may call it at once
    return True


def _by_numpy(
    parts: tuple[Any, ...], axis: int, new: bool, out: Any, may_be_alike: bool = True
) -> Any:
    """Small ndarrays joined by NumPy; None for others, and for invalid arguments."""
    if not parts or [*map(type, parts)].count(np.ndarray) < len(parts):
        return None
    some = parts[0].nbytes + parts[-1].nbytes
    if not some or some * len(parts) >= 2 * thresholds.RUNS_STREAM_FROM:
        return None
    # NumPy finds other dtypes in a tenth of the time, but has filled some of `out` then.
    kind, casting = parts[0].dtype, "no"
    middle, last = parts[len(parts) // 2].dtype, parts[-1].dtype
    alike = may_be_alike and middle is kind and last is kind
    if KIND.ready or out is not None or not alike:
        kinds = tuple(dict.fromkeys(map(_dtype_of, parts)))
        if len(kinds) > 1:
            kind, casting = _numpy_dtype(kinds), "unsafe"
            if KIND.ready and kind is not None and len(kinds) == 2 and not is_numpys(kind):
                _keep_pair(*kinds, kind)
        elif KIND.ready and not is_numpys(kind):
            return None  # what the kernel does not join is large, or wrong
    if kind is None or not (out is None or _may_fill(out, kind, parts)):
        return None
    join: Any = np.stack if new else concatenate
    try:  # a fifth of the time of `suppress`
        made = join(parts, axis, out, dtype=kind if out is None else None, casting=casting)
    except TypeError:  # another dtype between them
        return _by_numpy(parts, axis, new, out, False) if casting == "no" else None
    except (ValueError, IndexError):  # other shapes, or too many dims
        return None
    return made if made.flags.c_contiguous else made.copy()


def _keep_pair(*kinds: np.dtype[Any]) -> None:
    """Let the kernel join arrays of two dtypes, of which it knows the first two in a tuple."""
    one, other, _ = addresses = [*map(id, kinds)]
    slot = called(PAIR_SLOT)(one, other)
    begin = JOIN_PAIRS + 3 * slot
    with _changing.value:
        _scratch[begin] = 0  # the kernel finds no dtype that is freed now
        _pairs[slot] = kinds
        _scratch[begin : begin + 3] = addresses


def _may_fill(out: Any, kind: np.dtype[Any], parts: tuple[Any, ...]) -> bool:
    """Whether NumPy may join ndarrays into `out`: it writes parts before it checks later ones."""
    fits = type(out) is np.ndarray and out.dtype is kind and out.flags.carray
    return fits and not any(map(may_share_memory, parts, repeat(out)))


@lru_cache(maxsize=256)
def _numpy_dtype(kinds: tuple[np.dtype[Any], ...]) -> np.dtype[Any] | None:
    """The dtype to which NumPy casts several as `cast` does; None if there is none."""
    with suppress(DTypeError):
        kind: Any = promoted(kinds, "concat")
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
