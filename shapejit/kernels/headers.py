"""Thousands of ndarrays at once: their headers are read where they lie, with the GIL held.

Asking an ndarray for its address, shape and strides through Python costs 2 us; its
header is a struct whose layout NumPy keeps (PyArrayObject_fields, ndarraytypes.h)
and so is a tuple's (PyTupleObject). `trusted` compares a few of both with what
Python says before anything here is believed.
"""

from __future__ import annotations

import ctypes
import sys
import sysconfig
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .constants import MAX_RANK
from .jit import COMPILED, Numbers, held_kernel, kernel
from .memory import load_half as half, load_word as word, prefetch
from .small import HEAD, MOVER, merge_dims, movers, put, ready, write_plan

# Bytes from the start of an object to a field.
TYPE, LENGTH, ITEMS = 8, 16, 24  # of any object; of a tuple (of a list ITEMS is a pointer)
DIGITS = 24  # of an int, whose LENGTH has its sign: since Python 3.12 in three bits of its own
SIGN_BITS = 3 if sys.version_info >= (3, 12) else 0
DATA, RANK, SHAPE, STRIDES, BASE, DESCR, FLAGS = 16, 24, 32, 40, 48, 56, 64

CONTIGUOUS_WRITEABLE = 0x0001 | 0x0400  # NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_WRITEABLE

OTHER = -1  # the group of whatever is no plain ndarray
GROUPS = 32  # dtypes of one batch
PLAN = 2 + 2 * MAX_RANK  # where `plan_whole` writes the small plan
WHOLE_WORDS = PLAN + HEAD + 3 * MAX_RANK
MOVERS = int(movers.ctypes.data)
# Words of the key of a fast call: where the kinds of both arrays and the small plan begin;
# the bytes that the source reaches around its first element, those of the result; the
# address of the movers; then the positions of the loops.
X_AT, OUT_AT, PLAN_AT, REACH_LOW, REACH_HIGH, NBYTES, MOVERS_AT, POSITION = range(8)
AHEAD = 12  # objects ahead that are asked for: they lie wherever malloc put them


@held_kernel
def is_small(x: int) -> bool:
    """Whether the int `x` has one digit at most."""
    return bool(word(x + LENGTH) >> SIGN_BITS <= 1 and word(x + LENGTH) >= -1)


@held_kernel
def small(x: int) -> int:
    """The value of an int of one digit at most."""
    digit, sign = int(half(x + DIGITS)), int(word(x + LENGTH))
    if SIGN_BITS == 0:
        return sign * digit
    return digit * (1 - (sign & 3)) if sign >> SIGN_BITS else 0


@held_kernel
def is_like(x: int, kind: Numbers, at: int, flags: int) -> bool:
    """Whether `x` is an ndarray of this `kind` (from `at` on): see `kind_of`.

    Strides of size-1 dims may be any; `flags` must all be set.
    """
    rank = kind[at + 2]
    if word(x + TYPE) != kind[at] or word(x + DESCR) != kind[at + 1] or half(x + RANK) != rank:
        return False
    shape, strides = word(x + SHAPE), word(x + STRIDES)
    for k in range(rank):
        size = word(shape + 8 * k)
        if size != kind[at + 3 + k]:
            return False
        if size != 1 and word(strides + 8 * k) != kind[at + 3 + rank + k]:
            return False
    return bool(half(x + FLAGS) & flags == flags)


@held_kernel
def read_alike(items: int, count: int, kind: Numbers, flags: int, addresses: Numbers) -> int:
    """Write the addresses of the elements of a tuple of like ndarrays; return how many are.

    `items` is the tuple's own address.
    """
    for i in range(count):
        x = word(items + ITEMS + 8 * i)
        if not is_like(x, kind, 0, flags):
            return i
        addresses[i] = word(x + DATA)
    return count


@held_kernel
def fill(x: int, out: int, key: Numbers) -> bool:
    """Copy ndarray `x` into `out` if both are of the kinds of the key and lie apart.

    One array takes half the time of several to get here: see `fast_call_key`.
    """
    if not is_like(x, key, key[X_AT], 0) or not is_like(
        out, key, key[OUT_AT], CONTIGUOUS_WRITEABLE
    ):
        return False
    source, target = word(x + DATA), word(out + DATA)
    if source + key[REACH_LOW] < target + key[NBYTES] and target < source + key[REACH_HIGH]:
        return False
    place = key.ctypes.data
    put(source, target, place + 8 * key[PLAN_AT], place + 8 * POSITION, 0, 0, 0, key[MOVERS_AT])
    return True


@held_kernel
def plan_whole(x: int, out: int, itemsize: int, table: Numbers) -> None:
    """Write how ndarray `x`, whatever its strides, goes into `out`, for `copy_planned`.

    Nothing is kept: shapes that never come again cost no more than others.
    """
    rank = half(x + RANK)
    shape, steps = word(x + SHAPE), word(x + STRIDES)
    # Where the positions of the loops will be, which begin at 0.
    sizes, strides = table[2 : 2 + rank], table[2 + MAX_RANK : 2 + MAX_RANK + rank]
    for k in range(rank):
        sizes[k], strides[k] = word(shape + 8 * k), word(steps + 8 * k)
    kept = merge_dims(sizes, (strides,), rank)
    table[0], table[1] = word(x + DATA), word(out + DATA)
    write_plan(sizes, strides, kept, itemsize, table, PLAN)


@kernel
def copy_planned(table: Numbers, movers: int) -> bool:
    """Copy an array by one thread, as `plan_whole` wrote; False: its mover is not `ready`."""
    place = table.ctypes.data
    if word(movers + 8 * table[PLAN + MOVER]) == 0:
        return False
    put(table[0], table[1], place + 8 * PLAN, place + 8 * 2, 0, 0, 0, movers)
    return True


def copy_whole(x: NDArray[Any], out: NDArray[Any]) -> None:
    """Copy an ndarray into a C-contiguous one of as many elements, by one thread."""
    table = np.empty(WHOLE_WORDS, np.int64)
    plan_whole(id(x), id(out), x.itemsize, table)
    if not copy_planned(table, MOVERS):
        ready(table, PLAN)
        copy_planned(table, MOVERS)


def fast_call_key(
    x: Numbers, out: Numbers, plan: Numbers, low: int, high: int, nbytes: int
) -> Numbers:
    """All that `fill` has to know: its words, room for the positions of loops, and three tables.

    `x` and `out` are the kinds of both arrays, `plan` is a small plan, [low, high) are the
    bytes that `x` reaches around its first element, `nbytes` those of the result.
    """
    first = POSITION + MAX_RANK + 8
    key = np.zeros(first, np.int64)
    key[X_AT], key[OUT_AT], key[PLAN_AT] = first, first + len(x), first + len(x) + len(out)
    key[REACH_LOW], key[REACH_HIGH], key[NBYTES], key[MOVERS_AT] = low, high, nbytes, MOVERS
    return np.concatenate([key, x, out, plan])


@held_kernel
def survey(
    items: int,
    count: int,
    ndarray: int,
    groups: Numbers,
    descrs: Numbers,
    firsts: Numbers,
    places: Numbers,
) -> tuple[int, int]:
    """Sort the plain ndarrays of a tuple by their dtype's address; return (dtypes, words).

    `groups[i]` becomes the index in `descrs` of item i's dtype, or OTHER; `firsts` is
    the index of the first item of each. There is room for item i's small plan
    from `places[i]` on, in so many words.
    """
    found = words = 0
    for i in range(count):
        if i + AHEAD < count:
            prefetch(word(items + ITEMS + 8 * (i + AHEAD)) + DESCR)
        x = word(items + ITEMS + 8 * i)
        groups[i], places[i] = OTHER, words
        if word(x + TYPE) != ndarray:
            continue
        descr, group = word(x + DESCR), 0
        while group < found and descrs[group] != descr:
            group += 1
        if group == found:
            if found == len(descrs):
                continue
            descrs[group], firsts[group] = descr, i
            found += 1
        groups[i] = group
        words += HEAD + 3 * max(half(x + RANK) - 2, 0)
    return found, words


@held_kernel
def read_shapes(rows: int, count: int, kinds: Numbers, starts: Numbers, tokens: Numbers) -> int:
    """Read a tuple of tuples or lists of ints; return how many tokens there are, or OTHER.

    `rows` is its address and `kinds` the addresses of the types tuple, list and int.
    `starts` becomes where each row begins, and behind the last one. Called first
    without tokens, then with room for them. OTHER: something else is among them.
    """
    total = 0
    for i in range(count):
        if i + AHEAD < count:
            prefetch(word(rows + ITEMS + 8 * (i + AHEAD)) + LENGTH)
        row = word(rows + ITEMS + 8 * i)
        length, values = word(row + LENGTH), row + ITEMS
        if word(row + TYPE) == kinds[1]:
            values = word(row + ITEMS) if length else 0
        elif word(row + TYPE) != kinds[0]:
            return OTHER
        starts[i] = total
        if len(tokens):
            if total + length > len(tokens):
                return OTHER  # a list that has grown since
            for k in range(length):
                value = word(values + 8 * k)
                if word(value + TYPE) != kinds[2] or not is_small(value):
                    return OTHER
                tokens[total + k] = small(value)
        total += length
    starts[count] = total
    return total


@cache
def trusted() -> bool:
    """Whether objects lie in this interpreter's memory as this module says."""
    if not COMPILED or sys.implementation.name != "cpython" or sys.maxsize != 2**63 - 1:
        return False
    if sysconfig.get_config_var("Py_GIL_DISABLED") or (tuple.__basicsize__, tuple.__itemsize__) != (
        ITEMS,
        8,
    ):
        return False
    arrays = _samples()
    # Nothing is followed before the fields around the pointers are where they should be.
    return (
        np.ndarray.__basicsize__ >= FLAGS + 4
        and all(map(_header_fits, arrays))
        and all(map(_dims_fit, arrays))
        and _items_fit(arrays)
        and all(map(_int_fits, (0, 1, -1, 4, -7, 1 << 29, 1 << 30, -(1 << 30))))
    )


def _samples() -> tuple[NDArray[Any], ...]:
    """Arrays of every kind that the header tells apart."""
    a = np.arange(60, dtype=np.int16).reshape(3, 4, 5)
    locked = np.zeros(3)
    locked.flags.writeable = False
    return (
        a,
        a.T,
        a[::-1, :, ::-2],
        a[1:, None],
        np.zeros(()),
        np.zeros((0, 7)),
        locked,
    )


def _header_fits(x: NDArray[Any]) -> bool:
    flags = bool(x.flags.c_contiguous) * 0x0001 | bool(x.flags.writeable) * 0x0400
    return (
        _field(x, TYPE) == id(type(x))
        and _field(x, DATA) == x.__array_interface__["data"][0]
        and _field(x, RANK, 4) == x.ndim
        and _field(x, BASE) == (0 if x.base is None else id(x.base))
        and _field(x, DESCR) == id(x.dtype)
        and _field(x, FLAGS, 4) & CONTIGUOUS_WRITEABLE == flags
    )


def _dims_fit(x: NDArray[Any]) -> bool:
    shape, strides = (_words(_field(x, at), x.ndim) for at in (SHAPE, STRIDES))
    return (shape, strides) == (list(x.shape), list(x.strides))


def _items_fit(items: tuple[Any, ...]) -> bool:
    """Whether a tuple and a list of these items lie as they should."""
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


def read_ints(rows: tuple[Any, ...]) -> tuple[Numbers, Numbers] | None:
    """The ints of tuples and lists, one row after the other, and where each begins, and the end.

    None if there is anything else, or an int of more than 30 bits.
    """
    kinds = np.array([id(tuple), id(list), id(int)], np.int64)
    starts, none = np.empty(len(rows) + 1, np.int64), np.empty(0, np.int64)
    call = id(rows), len(rows), kinds, starts
    total = read_shapes(*call, none)
    if total < 0:
        return None
    tokens = np.empty(total, np.int64)
    if total and read_shapes(*call, tokens) != total:
        return None
    return tokens, starts


def kind_of(dtype: np.dtype[Any], shape: tuple[int, ...], strides: tuple[int, ...]) -> Numbers:
    """Type, dtype, rank, shape and strides of an ndarray, for `is_like`.

    Whoever uses it keeps `dtype` alive: it stands there by its address.
    """
    return np.array([id(np.ndarray), id(dtype), len(shape), *shape, *strides], np.int64)
