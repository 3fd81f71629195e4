"""Small calls: compiled code finds the Route of an array by its struct, and runs it.

A Route is for one kind of ndarray (dtype, shape, strides) and one request. It has the small plan or
the kernel that runs, and the kind of the result. Compiled code finds it, allocates the result if no
`out` is given, and runs it. It holds the GIL, so no lock is needed; Routes for large arrays release
the GIL, but run once at a time.

A request is None (a copy), a target shape (a tuple of ints), the name of a dtype (an interned str),
or an object that stands for a Program.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from itertools import accumulate
from operator import methodcaller
from time import perf_counter
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from ..kernels.object_layouts import (
    ADDRESSES_AT,
    ASKED,
    CONVERTED,
    ENTRY,
    FIRST_ROUTE,
    INT,
    MOVER,
    NBYTES,
    NDARRAY,
    NEW_ARRAY,
    NONE,
    OUT_KIND,
    PLAN_AT,
    REACH_HIGH,
    REACH_LOW,
    RESULT_DTYPE,
    ROUTE_WORDS,
    RUNNING,
    SHIFT,
    SLOT_COUNT,
    SOURCE_BEGIN,
    SWITCH,
    TARGET_BEGIN,
    TUPLE,
    UNHELD,
    WORK_WORDS,
    X_KIND,
)
from ..kernels.small_plans import PLANE_MOVER, SCRATCH_WORDS
from ..planning import thresholds
from ..runtime.jobs import OWNER, SHARES, SPAN, TOTAL, UNITS, WORK
from ..runtime.kernels import WORDS, address, called
from ..runtime.launches import Addresses, stage_memory
from ..runtime.system import register_at_fork
from ..shapes.layout import Layout
from ..shapes.request import are_sizes
from . import array_structs
from .array_structs import SMALL_CALLS
from .execution import Work
from .patience import NEVER, SWITCH as NUMPY_FORCED, Kind, by_numpy
from .routes import FOUND

SLOTS = 1024
ROUTE_BYTES = 2048  # of one Route, about
NEW_FROM_DESCR = 94  # the index of PyArray_NewFromDescr in NumPy's C API


class Routes:
    """Routes that compiled code finds by the struct of the source and by the request.

    `table` is the argument of compiled code: a hash table, in which a Route is in the slot of its
    hash or in the one beside it, and is dropped when later Routes take both.
    """

    def __init__(self, slots: int = SLOTS) -> None:
        self.table: Addresses = np.array([*_constants(), slots, *(0,) * slots], np.int64)
        self._kept: dict[int, SmallRoute] = {}  # whose addresses are in it

    def put(self, x: NDArray[Any], asked: object, route: SmallRoute) -> None:
        """Let compiled code find a Route for arrays like `x`."""
        own = called(array_structs.SLOT_OF)(x, asked, self.table)
        slot = own ^ 1 if own in self._kept and own ^ 1 not in self._kept else own
        self.table[FIRST_ROUTE // 8 + slot] = _address(route.words)
        self._kept[slot] = route

    def clear(self) -> None:
        """Forget all Routes."""
        self.table[FIRST_ROUTE // 8 :] = 0
        self._kept.clear()


def run(x: Any, out: Any, asked: Any, table: Addresses, otherwise: Otherwise) -> Any:
    """The result of the Route for the arguments in a table, or that of `otherwise`, if not None.

    Until the first Route is made it is this function: NumPy makes new small arrays, unless kernels
    that do it are ready, or it is time to look for them.
    """
    make, kind = None, SMALL_CALLS
    if out is None and type(x) is np.ndarray and x.nbytes < thresholds.SCALARS_BELOW:
        if asked is not None and type(asked) is not tuple:
            make, kind = FOUND.get((x.dtype, asked), _NOTHING)
        elif not kind.ready and not x.flags.c_contiguous:  # else it may have a view
            if asked is None:
                make = np.ndarray.copy
            elif table is TABLE and are_sizes(asked):
                make = methodcaller("reshape", asked)
    if make is not None and not kind.ready and kind.taken < kind.next_look:
        start = perf_counter()
        try:  # a sixth of the time of `suppress`
            made = make(x)
            kind.taken += perf_counter() - start
            return made
        except ValueError:  # it has no such shape
            pass
    return None if otherwise is None else otherwise(x, out, asked)


# What makes a new array by NumPy, and the kind of work that it is. Those of casts and Programs are
# in `FOUND`, by the dtype of the array and what is asked; they raise ValueError for other shapes.
Maker = tuple[Callable[[Any], Any] | None, Kind]
Otherwise = Callable[[Any, Any, Any], Any] | None
_NOTHING: Maker = None, NEVER


def run_found(x: Any, out: Any, words: Addresses, table: Addresses) -> Any:
    """The same with the Route of these words; `table` is any."""
    return None


def _begin() -> None:
    global run, run_found
    run, run_found = called(array_structs.RUN_ROUTE), called(array_structs.RUN_FOUND)


@cache
def _constants() -> tuple[int, ...]:
    """The first words of a table, see `object_layouts`; all 0 if the JIT is off."""
    if not array_structs.verified():
        return (0,) * (SLOT_COUNT // 8)
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    functions = pointer(np._core._multiarray_umath._ARRAY_API, None)  # type: ignore[attr-defined]  # not in NumPy's stubs
    words = {
        SWITCH: _address(NUMPY_FORCED),
        NONE: id(None),
        NDARRAY: id(np.ndarray),
        TUPLE: id(tuple),
        INT: id(int),
        NEW_ARRAY: ctypes.c_void_p.from_address(functions + 8 * NEW_FROM_DESCR).value,
    }
    return tuple(words[at] or 0 for at in range(0, SLOT_COUNT, 8))


class SmallRoute(NamedTuple):
    """A Route in the form that compiled code reads: its words, and the objects they refer to."""

    words: Addresses
    kept: tuple[object, ...]


def small_route(
    x: NDArray[Any],
    out: NDArray[Any],
    work: Work | Addresses,
    made: np.dtype[Any] | None,
    layout: Layout,
    asked: object = None,
    source: int = 0,
    unheld: bool = False,
) -> SmallRoute | None:
    """The Route from `x` to `out` for what is `asked`; None if its kernel is not ready.

    It is a small plan or the Work of kernels that are ready, which one thread runs without
    streaming. `made` is the dtype of new results, None if an `out` must be given. The elements are
    at `layout`, counted from the first byte of `x`; the offsets of a Work count from `source` bits
    after that. An `unheld` Route, of a Work, releases the GIL: only `run_found` may run it.
    """
    with by_numpy(SMALL_CALLS):  # or its kernels may never be loaded
        if array_structs.kernel(array_structs.RUN_ROUTE) is None:
            return None
        kinds = [array_structs.kind_of(a.dtype, a.shape, a.strides) for a in (x, out)]
        wanted = (len(asked), *asked) if type(asked) is tuple else (-1, id(asked))
        kept: tuple[object, ...] = (x.dtype, out.dtype, made, asked)
        if isinstance(work, Work):
            plan, room = work.launch.begin[1], 2 + 2 * (WORK + SPAN + work.depth)
            kept = *kept, work.launch
        else:
            plan, room = work, SCRATCH_WORDS
        parts = *kinds, np.array(wanted, np.int64), plan
        *begins, size = accumulate((ROUTE_WORDS, *map(len, parts), room))
        memory = np.zeros(size, np.int64)
        begin, reach = _address(memory), layout.span
        for at, part in zip(begins, parts, strict=False):
            memory[at : at + len(part)] = part
        x_at, out_at, asked_at, plan_at, addresses_at = (begin + 8 * at for at in begins)
        words = {
            X_KIND: x_at, OUT_KIND: out_at, ASKED: asked_at,
            RESULT_DTYPE: 0 if made is None else id(made),
            REACH_LOW: reach[0] >> 3, REACH_HIGH: (reach[1] + 7) >> 3, NBYTES: out.nbytes,
            PLAN_AT: plan_at, MOVER: address(PLANE_MOVER), ADDRESSES_AT: addresses_at,
        }  # fmt: skip
        if isinstance(work, Work):
            shift = 3 if work.launch.bits else 0
            stage, stage_at = None, 0
            if work.launch.staged:
                own = stage_memory if unheld else _stage_of
                stage, stage_at = own(work.launch.stage)
            kept = *kept, stage
            span = SPAN + work.depth
            words |= {
                ENTRY: address(work.launch.entry), SHIFT: shift, WORK_WORDS: WORK + span,
                SOURCE_BEGIN: source + work.source >> 3 - shift,
                TARGET_BEGIN: work.target >> 3 - shift, UNHELD: int(unheld),
            }  # fmt: skip
            works_at = addresses_at + 16
            starts = addresses_at, 2, 1, works_at, WORK, works_at + 8 * WORK, span, stage_at
            memory[begins[3] : begins[3] + WORDS] = starts
            first = memory[begins[4] + 2 + WORK + span :]  # as work and span are at first
            first[[UNITS, TOTAL]], first[[SHARES, WORK + OWNER]] = work.units, 1
            if work.converts is not None:
                function, count = work.converts
                words |= {
                    ENTRY: address(function), CONVERTED: count,
                    SOURCE_BEGIN: source + work.source >> 3, TARGET_BEGIN: work.target >> 3,
                }  # fmt: skip
        for at, word in words.items():
            memory[at // 8] = word
        if unheld:
            _unheld[begin] = memory
        _begin()
        return SmallRoute(memory, kept)


_unheld: WeakValueDictionary[int, Addresses] = WeakValueDictionary()  # by their addresses


def _after_fork() -> None:
    """Let Routes run in the child that threads of the parent were running."""
    for words in list(_unheld.values()):
        words[RUNNING // 8] = 0


register_at_fork(after_in_child=_after_fork)

_stage: tuple[NDArray[np.uint8], int, int] | None = None  # its memory, address and bytes


def _stage_of(nbytes: int) -> tuple[NDArray[np.uint8], int]:
    """The address of a stage of at least `size` bytes. All Routes share it: one runs at a time."""
    global _stage
    if _stage is None or _stage[2] < nbytes:
        _stage = *stage_memory(nbytes), nbytes
    return _stage[:2]


def _address(array: Addresses) -> int:
    return int(array.ctypes.data)


KNOWN = Routes()  # of all operations
TABLE = KNOWN.table
COPIES = Routes()  # of `reshape` with copy=True or `out`: arrays may have such views, too
