"""Offsets of the fields of Python's and NumPy's structs; the tables of kernels that read them.

The structs are those of an ndarray and its dtype (NumPy: PyArrayObject_fields and PyArray_Descr,
ndarraytypes.h), a tuple (Python: PyTupleObject) and an int. Importing this module does not import
numba.
"""

from __future__ import annotations

import sys

from .constants import MAX_RANK
from .small_plans import HEAD, SCRATCH_WORDS

# Bytes from the start of an object to a field.
TYPE, LENGTH, ITEMS = 8, 16, 24  # of any object; of a tuple (of a list ITEMS is a pointer)
DIGITS = 24  # of an int, whose LENGTH has its sign: since Python 3.12 in three bits of its own
SIGN_BITS = 3 if sys.version_info >= (3, 12) else 0
DATA, RANK, SHAPE, STRIDES, BASE, DESCR, FLAGS = 16, 24, 32, 40, 48, 56, 64
DTYPE_FLAGS, ITEMSIZE = 32, 40  # of a dtype

CONTIGUOUS_WRITEABLE = 0x0001 | 0x0400  # NPY_ARRAY_C_CONTIGUOUS and NPY_ARRAY_WRITEABLE
HAS_OBJECTS = 0x01  # NPY_ITEM_REFCOUNT

OTHER = -1  # what `read_shapes` returns if it finds another object
BATCH_DIMS = 6  # merged dims of a tensor that a batch copies by a small plan, of so many words:
BATCH_PLAN = HEAD + 3 * (BATCH_DIMS - 2)
# Where the words of the scratch of a copy begin, after the kind of its result: the sizes, strides
# and target strides of the source, its small plan, and the positions of loops. What the caller of
# `small_joins.join` writes once: the most bytes, and the address of the plane mover.
ROOM_SIZES = 3 + 2 * MAX_RANK
ROOM_STRIDES, ROOM_GAPS, ROOM_PLAN = (ROOM_SIZES + k * MAX_RANK for k in (1, 2, 3))
ROOM_POSITIONS = ROOM_PLAN + HEAD + 3 * MAX_RANK
ROOM_WORDS = ROOM_POSITIONS + SCRATCH_WORDS
JOIN_MOST, JOIN_MOVER, JOIN_WORDS = (ROOM_WORDS + k for k in range(3))
# Bytes from the start of a Route, as `array_structs.run_route` reads it. The kinds of both arrays;
# what is asked for: how many ints, and these, or -1 and an object; the dtype of a new result, or 0
# if none is made; the bytes that the source reaches around its first element, those of the result;
# a kernel's address, or 0 for a small plan; the kernel's table, or the plan, and the plane mover;
# the addresses of both, `work`, `span` and what these are at first, or scratch of a small plan;
# what is added to shifted addresses; the words of `work` and `span`; whether others may have the
# GIL while the kernel runs (by Python's launch, flips of 0.5 to 1.5 MiB take 1.1 to 1.35 times as
# long), and whether it runs; how many elements the function at ENTRY converts in one run, or 0
# (without such calls casts of tiny arrays take 1.2 to 2.5 times as long).
(
    X_KIND, OUT_KIND, ASKED, RESULT_DTYPE, REACH_LOW, REACH_HIGH, NBYTES, ENTRY, PLAN_AT, MOVER,
    ADDRESSES_AT, SHIFT, SOURCE_BEGIN, TARGET_BEGIN, WORK_WORDS, UNHELD, RUNNING, CONVERTED,
) = range(0, 144, 8)  # fmt: skip
ROUTE_WORDS = 18
# The same of a table of Routes: not 0 at this address switches all off; Python's None, the types of
# ndarrays, tuples and ints; PyArray_NewFromDescr; how many slots there are, each of which has a
# Route's address or 0.
SWITCH, NONE, NDARRAY, TUPLE, INT, NEW_ARRAY, SLOT_COUNT, FIRST_ROUTE = range(0, 64, 8)
