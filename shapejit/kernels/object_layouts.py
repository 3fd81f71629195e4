"""Where the fields of Python's and NumPy's objects lie, and what kernels that read them are given.

NumPy keeps the layout of an ndarray's header (PyArrayObject_fields, ndarraytypes.h), and Python
those of a tuple (PyTupleObject) and of an int. Importing this module does not import numba.
"""

from __future__ import annotations

import sys

from .constants import MAX_RANK
from .small_plans import HEAD

# Bytes from the start of an object to a field.
TYPE, LENGTH, ITEMS = 8, 16, 24  # of any object; of a tuple (of a list ITEMS is a pointer)
DIGITS = 24  # of an int, whose LENGTH has its sign: since Python 3.12 in three bits of its own
SIGN_BITS = 3 if sys.version_info >= (3, 12) else 0
DATA, RANK, SHAPE, STRIDES, BASE, DESCR, FLAGS = 16, 24, 32, 40, 48, 56, 64

CONTIGUOUS_WRITEABLE = 0x0001 | 0x0400  # NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_WRITEABLE

OTHER = -1  # the group of whatever is no plain ndarray
GROUPS = 32  # dtypes of one batch
PLAN = 2 + 2 * MAX_RANK  # where `headers.plan_whole` writes the small plan
WHOLE_WORDS = PLAN + HEAD + 3 * MAX_RANK
# Words of the key of a fast call: where the kinds of both arrays and the small plan begin;
# the bytes that the source reaches around its first element, those of the result; the
# address of the movers; then the positions of the loops.
X_AT, OUT_AT, PLAN_AT, REACH_LOW, REACH_HIGH, NBYTES, MOVERS_AT, POSITION = range(8)
AHEAD = 12  # objects ahead that are asked for: they lie wherever malloc put them
