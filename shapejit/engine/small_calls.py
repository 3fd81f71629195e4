"""Small calls that go from Python straight to compiled code, which knows their Routes.

A Route says what is done to an ndarray of one kind (dtype, shape, strides): which small plan or
which kernel runs, and what the result is. Compiled code finds it by the array's own struct, makes
the result if none is given, and runs, holding the GIL, so that no lock is needed.
"""

from __future__ import annotations

import ctypes
from functools import cache
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..kernels.constants import MAX_RANK
from ..kernels.object_layouts import (
    DEPTH,
    EMPTY,
    ENTRY,
    FIRST_ROUTE,
    INCREF,
    MOVERS,
    NBYTES,
    NDARRAY,
    NONE,
    OUT_KIND,
    PLACES_AT,
    PLAN_AT,
    REACH_HIGH,
    REACH_LOW,
    RESULT_DTYPE,
    ROUTE_WORDS,
    ROUTES,
    SHIFT,
    SOURCE_BEGIN,
    SWITCH,
    TARGET_BEGIN,
    UNITS_OF_WORK,
    X_KIND,
)
from ..planning import small_plans
from ..runtime.jobs import SPAN, WORK
from ..runtime.kernels import WORDS, address, table_of
from ..runtime.launches import Addresses, stage_memory
from ..runtime.recent import Recent
from . import array_structs
from .execution import Work
from .patience import SWITCH as NUMPY_FORCED

SLOTS = 256  # of the Routes of one operation
PYARRAY_EMPTY = 184  # the index of that function in NumPy's C API
POSITIONS = MAX_RANK + 8  # words that a small plan's loops need
# What kernels of this module do: whoever makes Routes does it meanwhile, `by_numpy`.
SMALL_CALLS = array_structs.work_of(array_structs.SLOT_OF)


class Routes:
    """The Routes of one operation, each found by the struct of its source.

    `table` is what compiled code takes. A Route lies in its own slot or in that beside it, and
    goes when both are taken by others.
    """

    def __init__(self, slots: int = SLOTS) -> None:
        self.table = np.zeros(FIRST_ROUTE + slots, np.int64)
        self.table[:FIRST_ROUTE] = (*_constants(), slots)
        self._met: Recent[object, bool] = Recent(slots)
        self._kept: dict[int, tuple[object, ...]] = {}  # what compiled code has the addresses of

    def met(self, x: NDArray[Any]) -> bool:
        """Whether an array like this one came before: whose arrays all differ makes no Routes."""
        key = x.shape, x.strides, x.dtype
        if key in self._met:
            return True
        self._met.put(key, True)
        return False

    def add(
        self,
        x: NDArray[Any],
        out: NDArray[Any],
        work: Work | Addresses,
        reach: tuple[int, int],
        made: np.dtype[Any] | None,
    ) -> None:
        """From now on, compiled code does this to arrays like `x`, with results like `out`.

        The work is a small plan, or done by one thread that does not stream. `reach` are the bits
        that `x` reaches around its first element. `made` is the dtype of new
        results, None if an out= must be given. All kernels of the work are ready.
        """
        slot_of = array_structs.kernel(array_structs.SLOT_OF)
        if slot_of is None or type(x) is not np.ndarray or type(out) is not np.ndarray:
            return
        route, kept = _route(x, out, work, reach, made)
        own = slot_of(x, int(self.table[ROUTES]))
        slot = own ^ 1 if own in self._kept and own ^ 1 not in self._kept else own
        self.table[FIRST_ROUTE + slot] = _address(route)
        self._kept[slot] = route, *kept
        _begin()

    def clear(self) -> None:
        """Forget all Routes."""
        self.table[FIRST_ROUTE:] = 0
        self._kept.clear()


def run(x: Any, out: Any, table: Addresses) -> Any:
    """The result of the Route for `x` in a table, as `out` or new; None if there is none for both.

    This stands for the compiled function until there is a first Route.
    """
    return None


def _begin() -> None:
    global run
    run = array_structs.kernel(array_structs.RUN_ROUTE) or run


@cache
def _constants() -> tuple[int, ...]:
    """The first words of a table: see `object_layouts`. All are 0 where nothing is compiled."""
    if not array_structs.trusted():
        return (0,) * ROUTES
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    functions = pointer(np._core._multiarray_umath._ARRAY_API, None)  # type: ignore[attr-defined]  # not in NumPy's stubs
    words = {
        SWITCH: _address(NUMPY_FORCED),
        NONE: id(None),
        NDARRAY: id(np.ndarray),
        INCREF: ctypes.cast(ctypes.pythonapi.Py_IncRef, ctypes.c_void_p).value,
        EMPTY: ctypes.c_void_p.from_address(functions + 8 * PYARRAY_EMPTY).value,
    }
    return tuple(words[at] or 0 for at in range(ROUTES))


def _route(
    x: NDArray[Any],
    out: NDArray[Any],
    work: Work | Addresses,
    reach: tuple[int, int],
    made: np.dtype[Any] | None,
) -> tuple[Addresses, tuple[object, ...]]:
    """The words of a Route, and what has to live as long as they do."""
    kinds = [array_structs.kind_of(a.dtype, a.shape, a.strides) for a in (x, out)]
    kept: tuple[object, ...] = (x.dtype, out.dtype, made)
    if isinstance(work, Work):
        plan, room = table_of(work.launch.arguments), 2 + WORK + SPAN + work.depth
        kept = *kept, work.launch
    else:
        plan, room = work, POSITIONS
    *begins, size = accumulate((ROUTE_WORDS, *map(len, kinds), len(plan), room))
    memory = np.zeros(size, np.int64)
    begin = _address(memory)
    for at, part in zip(begins, (*kinds, plan), strict=False):
        memory[at : at + len(part)] = part
    x_at, out_at, plan_at, places_at = (begin + 8 * at for at in begins)
    words = {
        X_KIND: x_at, OUT_KIND: out_at, RESULT_DTYPE: 0 if made is None else id(made),
        REACH_LOW: reach[0] >> 3, REACH_HIGH: (reach[1] + 7) >> 3, NBYTES: out.nbytes,
        PLAN_AT: plan_at, MOVERS: small_plans.MOVERS_AT, PLACES_AT: places_at,
    }  # fmt: skip
    if isinstance(work, Work):
        shift = 3 if work.launch.bits else 0
        stage, stage_at = _stage_of(work.launch.stage) if work.launch.staged else (None, 0)
        kept = *kept, stage
        span = SPAN + work.depth
        words |= {
            ENTRY: address(work.launch.entry), SHIFT: shift, UNITS_OF_WORK: work.units,
            SOURCE_BEGIN: work.source >> 3 - shift, TARGET_BEGIN: work.target >> 3 - shift,
            DEPTH: span,
        }  # fmt: skip
        works_at = places_at + 16
        starts = places_at, 2, 1, works_at, WORK, works_at + 8 * WORK, span, stage_at
        memory[begins[2] : begins[2] + WORDS] = starts
    for at, word in words.items():
        memory[at // 8] = word
    return memory, kept


_stage: tuple[NDArray[np.uint8], int, int] | None = None  # its memory, address and bytes


def _stage_of(nbytes: int) -> tuple[NDArray[np.uint8], int]:
    """A stage of at least so many bytes, which all Routes share: one runs at a time."""
    global _stage
    if _stage is None or _stage[2] < nbytes:
        _stage = *stage_memory(nbytes), nbytes
    return _stage[:2]


def _address(array: Addresses) -> int:
    return int(array.ctypes.data)
