"""Small calls: compiled code finds the Route of an array by its struct, and runs it.

For an ndarray of one kind (dtype, shape, strides) a Route holds the small plan or the kernel that
runs, and the kind of the result. Compiled code finds it by the array's struct, allocates the result
if no `out` is given, and runs. It holds the GIL, so no lock is needed.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
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
    MOVER,
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
from ..kernels.small_plans import PLANE_MOVER
from ..runtime.jobs import SPAN, WORK
from ..runtime.kernels import WORDS, address, table_of
from ..runtime.launches import Addresses, stage_memory
from . import array_structs
from .addresses import layout_of
from .array_structs import SMALL_CALLS
from .execution import Work
from .patience import SWITCH as NUMPY_FORCED, by_numpy

SLOTS = 256  # for the Routes of one operation
ROUTE_BYTES = 2048  # of one Route, about
MET_BYTES = 100  # of one hash in a set, about
PYARRAY_EMPTY = 184  # the index of that function in NumPy's C API
POSITIONS = MAX_RANK + 8  # words that a small plan's loops need


class Routes:
    """The Routes of one operation, each found by the struct of its source.

    `table` is the argument of compiled code: a hash table, in which a Route is in the slot of its
    hash or in the one beside it, and is dropped when later Routes take both.
    """

    def __init__(self, slots: int = SLOTS) -> None:
        self.table = np.zeros(FIRST_ROUTE + slots, np.int64)
        self.table[:FIRST_ROUTE] = (*_constants(), slots)
        self._met: set[int] = set()  # hashes of the kinds of arrays seen, at most one per slot
        self._kept: dict[int, tuple[object, ...]] = {}  # what addresses in it are of

    @property
    def weight(self) -> int:
        """A bound on the bytes of all Routes."""
        return ROUTE_BYTES * (1 + len(self._kept)) + MET_BYTES * len(self._met)

    def met(self, x: NDArray[Any]) -> bool:
        """Whether an array of this kind was seen before; only then is a Route worth making."""
        mark = hash((x.shape, x.strides, x.dtype))
        if mark in self._met:
            return True
        if len(self._met) >= self.table[ROUTES]:
            self._met.clear()
        self._met.add(mark)
        return False

    def learn(
        self,
        x: NDArray[Any],
        out: NDArray[Any],
        find: Callable[[], Work | Addresses | None],
        made: np.dtype[Any] | None,
    ) -> None:
        """Let compiled code process arrays like `x` as `x` became `out`, if it can.

        That is by a small plan, or by the Work of kernels that are ready, if one thread runs it
        without streaming. `made` is the dtype of new results, None if an `out` must be given.
        """
        if type(x) is not np.ndarray or type(out) is not np.ndarray:
            return
        with by_numpy(SMALL_CALLS):  # or its kernels may never be loaded
            slot_of = array_structs.kernel(array_structs.SLOT_OF)
            work = find() if slot_of else None
            if slot_of is None or work is None:
                return
            route, kept = _route(x, out, work, made)
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
    """The result of the Route for `x` and `out` in a table; None if there is none.

    Used in place of the compiled function until the first Route is made.
    """
    return None


def _begin() -> None:
    global run
    run = array_structs.kernel(array_structs.RUN_ROUTE) or run


@cache
def _constants() -> tuple[int, ...]:
    """The first words of a table, see `object_layouts`; all 0 if the JIT is off."""
    if not array_structs.verified():
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
    x: NDArray[Any], out: NDArray[Any], work: Work | Addresses, made: np.dtype[Any] | None
) -> tuple[Addresses, tuple[object, ...]]:
    """The words of a Route, and the objects whose addresses are in them."""
    kinds = [array_structs.kind_of(a.dtype, a.shape, a.strides) for a in (x, out)]
    kept: tuple[object, ...] = (x.dtype, out.dtype, made)
    if isinstance(work, Work):
        plan, room = table_of(work.launch.arguments), 2 + WORK + SPAN + work.depth
        kept = *kept, work.launch
    else:
        plan, room = work, POSITIONS
    *begins, size = accumulate((ROUTE_WORDS, *map(len, kinds), len(plan), room))
    memory = np.zeros(size, np.int64)
    begin, reach = _address(memory), layout_of(x).span
    for at, part in zip(begins, (*kinds, plan), strict=False):
        memory[at : at + len(part)] = part
    x_at, out_at, plan_at, places_at = (begin + 8 * at for at in begins)
    words = {
        X_KIND: x_at, OUT_KIND: out_at, RESULT_DTYPE: 0 if made is None else id(made),
        REACH_LOW: reach[0] >> 3, REACH_HIGH: (reach[1] + 7) >> 3, NBYTES: out.nbytes,
        PLAN_AT: plan_at, MOVER: address(PLANE_MOVER), PLACES_AT: places_at,
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
    """The address of a stage of at least `size` bytes. All Routes share it: one runs at a time."""
    global _stage
    if _stage is None or _stage[2] < nbytes:
        _stage = *stage_memory(nbytes), nbytes
    return _stage[:2]


def _address(array: Addresses) -> int:
    return int(array.ctypes.data)
