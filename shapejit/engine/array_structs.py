"""Calls of `kernels.array_structs`, after a check that objects have the expected structs.

`verified` compares the structs of a few objects with their Python attributes before any kernel
relies on them.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..kernels.object_layouts import (
    BASE,
    CONTIGUOUS_WRITEABLE,
    DATA,
    DESCR,
    DIGITS,
    DTYPE_FLAGS,
    FLAGS,
    ITEMS,
    ITEMSIZE,
    LENGTH,
    RANK,
    SHAPE,
    SIGN_BITS,
    STRIDES,
    TYPE,
)
from ..kernels.small_plans import PLANE_MOVER
from ..runtime.kernel_names import Call, Function
from ..runtime.kernels import called, compiled
from ..runtime.launches import Addresses
from .patience import Kind, kind_named

READ_ALIKE = Call("array_structs.read_alike", ("o", "i", "a", "i", "a"), "i", held=True)
READ_SHAPES = Call("array_structs.read_shapes", ("o", "i", "a", "a", "a"), "i", held=True)
RUN_ROUTE = Call("array_structs.run_route", (*"ooooo", "v"), "o", held=True)
RUN_FOUND = Call("array_structs.run_found", ("o", "o", "o", "o"), "o", held=True)
SLOT_OF = Call("array_structs.slot_of", ("o", "o", "o"), "i", held=True)
WHOLE_COPY = Call("small_joins.copy_whole", ("o", "o", "a", "i"), "", held=True)
LOCATE = Call("maps.locate", ("o", "o", "i", *"aaat"), "i", held=True)
RESOLVE_ALL = Call("shapes.resolve_all", (*"ooo", *"aaai", *"atta"), "i", held=True)
JOIN = Call("small_joins.join", ("o", "o", "o", "i", "a", "o"), "o", held=True)

# Kernels that are used together are one kind of work.
SMALL_NAMES = (WHOLE_COPY, RUN_ROUTE, RUN_FOUND, SLOT_OF, PLANE_MOVER)
_GROUPS: tuple[tuple[Call | Function, ...], ...] = (
    SMALL_NAMES,
    (JOIN, PLANE_MOVER),
    (READ_ALIKE, LOCATE),
)
_USED_TOGETHER = {name: group for group in _GROUPS for name in group if name != PLANE_MOVER}


@cache
def work_of(call: Call) -> Kind:
    """The kind of work of a kernel; NumPy does it (`by_numpy`) until the kernel is ready."""
    return kind_named("array_structs", _USED_TOGETHER.get(call, (call,))[0].kernel)


# The work of the kernels of small calls; NumPy does it (`by_numpy`) until they are ready.
SMALL_CALLS = work_of(WHOLE_COPY)


def kernel(call: Call) -> Callable[..., Any] | None:
    """A kernel that reads structs of objects, if it is ready and their layout is verified."""
    kind = work_of(call)
    ready = kind.ready or (
        verified() and kind.kernels_ready(lambda: _USED_TOGETHER.get(call, (call,)))
    )
    return called(call) if ready else None


def read_ints(rows: tuple[Any, ...]) -> tuple[Addresses, Addresses] | None:
    """The ints of tuples and lists, concatenated; where each row begins, and where the last ends.

    None if there is any other object, an int of more than 30 bits, or if no kernel is ready.
    """
    read = kernel(READ_SHAPES)
    if read is None:
        return None
    kinds = np.array([id(tuple), id(list), id(int)], np.int64)
    starts, tokens = np.empty(len(rows) + 1, np.int64), np.empty(8 * len(rows), np.int64)
    call = rows, len(rows), kinds, starts
    total = read(*call, tokens)
    if total > len(tokens):
        tokens = np.empty(total, np.int64)
        if read(*call, tokens) != total:  # a list has changed since
            return None
    return None if total < 0 else (tokens[:total], starts)


def kind_of(dtype: np.dtype[Any], shape: tuple[int, ...], strides: tuple[int, ...]) -> Addresses:
    """Type, dtype, rank, shape and strides of an ndarray, for `is_like`.

    It contains the address of the dtype: the caller keeps that alive.
    """
    return np.array([id(np.ndarray), id(dtype), len(shape), *shape, *strides], np.int64)


@cache
def verified() -> bool:
    """Whether this interpreter's objects have the layout that this module assumes."""
    if not compiled() or sys.implementation.name != "cpython" or sys.maxsize != 2**63 - 1:
        return False
    # sysconfig has this too, but its first use takes 1 ms.
    if "free-threading" in sys.version or (tuple.__basicsize__, tuple.__itemsize__) != (
        ITEMS,
        8,
    ):
        return False
    arrays = _samples()
    # No pointer is followed before the fields around it were found to be as expected.
    return (
        np.ndarray.__basicsize__ >= FLAGS + 4
        and all(map(_header_fits, arrays))
        and all(map(_dims_fit, arrays))
        and _items_fit(arrays)
        and all(map(_int_fits, (0, 1, -1, 4, -7, 1 << 29, 1 << 30, -(1 << 30))))
    )


def _samples() -> tuple[NDArray[Any], ...]:
    """One array of every kind of struct."""
    a = np.arange(60, dtype=np.int16).reshape(3, 4, 5)
    readonly = np.zeros(3)
    readonly.flags.writeable = False
    return (
        a,
        a.T,
        a[::-1, :, ::-2],
        a[1:, None],
        np.zeros(()),
        np.zeros((0, 7)),
        readonly,
        np.zeros(2, object),
    )


def _header_fits(x: NDArray[Any]) -> bool:
    base, dtype = 0 if x.base is None else id(x.base), x.dtype
    flags = bool(x.flags.c_contiguous) * 0x0001 | bool(x.flags.writeable) * 0x0400
    pointers = {TYPE: id(type(x)), DATA: x.ctypes.data, BASE: base, DESCR: id(dtype)}
    return (
        all(_field(x, at) == pointer for at, pointer in pointers.items())
        and _field(x, RANK, 4) == x.ndim
        and (_field(dtype, DTYPE_FLAGS), _field(dtype, ITEMSIZE)) == (dtype.flags, dtype.itemsize)
        and _field(x, FLAGS, 4) & CONTIGUOUS_WRITEABLE == flags
    )


def _dims_fit(x: NDArray[Any]) -> bool:
    shape, strides = (_words(_field(x, at), x.ndim) for at in (SHAPE, STRIDES))
    return (shape, strides) == (list(x.shape), list(x.strides))


def _items_fit(items: tuple[Any, ...]) -> bool:
    """Whether a tuple and a list of these items have the expected structs."""
    row, want = list(items), list(map(id, items))
    lengths = _field(items, LENGTH), _field(row, LENGTH)
    return (
        lengths == (len(want), len(want))
        and _words(id(items) + ITEMS, len(want)) == want
        and _words(_field(row, ITEMS), len(want)) == want
    )


def _int_fits(value: int) -> bool:
    digits = 1 + (abs(value) >= 1 << 30) if value else 0
    sign = (value > 0) - (value < 0)
    length = sign * digits if SIGN_BITS == 0 else digits << SIGN_BITS | 1 - sign
    low = abs(value) & (1 << 30) - 1
    return _words(id(value) + LENGTH, 1) == [length] and _field(value, DIGITS, 4) == low


def _field(x: object, at: int, nbytes: int = 8) -> int:
    return int.from_bytes(ctypes.string_at(id(x) + at, nbytes), "little")


def _words(address: int, count: int) -> list[int]:
    return list((ctypes.c_int64 * count).from_address(address)) if count else []
