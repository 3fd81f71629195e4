"""Constants of kernels, and the words of the tables that they read.

Importing this module does not import numba.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..runtime.cpu_caches import LINE, PAGE
from ..runtime.kernel_names import Function, count_tag, width_tag

MAX_RANK = 64  # dims of an ndarray

PIECE = 16  # bytes of a piece of a block: one lane of a vector
STAGE = 4 * PAGE  # bytes that are collected before they are streamed; half an L1 cache
STAGE_BYTES = 2 * STAGE  # with the largest block that may still be added

# A width is passed as the type of a scalar: numba compiles a kernel once for each type, and a
# kernel never reads the value. The number of 16-byte pieces in a vector is passed the same way,
# and a small count as the length of a tuple.
WIDTHS: dict[int, Any] = {
    1: np.uint8(0),
    2: np.uint16(0),
    4: np.uint32(0),
    8: np.uint64(0),
    16: 0j,
}
COUNTS: dict[int, tuple[int, ...]] = {n: (0,) * n for n in range(1, PIECE + 1)}


TAGS: dict[str, Any] = {
    **{width_tag(width): value for width, value in WIDTHS.items()},
    **{count_tag(count): value for count, value in COUNTS.items()},
}
"""What kernels get for a tag."""


def coders(width: int) -> tuple[Function, Function]:
    """The names of the functions that unpack and pack elements of `width` bits."""
    tags = (count_tag(width),)
    return Function("codes.unpack", 4, tags), Function("codes.pack", 3, tags)


# The table of a tile. ROWS and COLUMNS: how many there are, where their offsets start,
# how many one step of the outermost dim has, that step's stride in the other buffer, how
# many a block takes, and how far apart columns lie in the source.
ROWS, COLUMNS, STAGED = range(3)
COUNT, START, INNER, STRIDE, BLOCK, STEP = range(6)
UNIT = STEP  # of ROWS: the bytes of an element in the target
# STAGED: whether the stage holds one run, where the columns' offsets on it start, how far
# apart they are, whether rows pass through a buffer, and where that and the packed rows
# lie behind the stage.
DENSE, _, PITCH, BOUNCED, BUFFER_AT, MADE_AT = range(6)
LINE_ALIGNED = MADE_AT  # of STAGED, in tiles of bytes: whether all columns begin alike in a line
DENSE_PIECES = 2  # as DENSE: and rows are whole pieces
GROUP = START  # of STAGED, in tiles of bits: how many columns follow one another, if DENSE

# The table of a box: (COUNT, START) of the offsets of its rows and columns in the source,
# columns on the stage, first rows of blocks, pieces of columns in the source, elements of
# these on the stage, runs on the stage and in the target, lines of the source.
PLACES, BLOCKS, PIECES, PIECE_PLACES, RUNS, RUN_TARGETS, LINES, RUN = range(2, 10)
NBYTES, REACH = range(2)  # RUN: its bytes, and those that whole pieces read of a box

# Blocks of elements narrower than a byte.
BIT_COLUMNS = 512  # elements of a tile along the source
MOST_AHEAD = 16  # rows of the source that are prefetched
CODES_BLOCK = 4096  # elements that are codes at a time, in an L1 cache
CODES_BYTES = 6 * CODES_BLOCK + 32 * LINE  # codes, the packed block, up to four times as many

# The verdicts on a tensor of a batch, see `shapes.resolve_all`.
VIEW, COPY, REFUSED, APART = range(4)

# Columns of the tables of `casts`: of its loops, whose last step goes back by the columns from
# `BACK` on, and of its runs. Its numbers: where things stand on its stage; the functions that
# convert, unpack and pack (0: none), and move planes of small plans; elements of a run, and with
# one scale; where scales and zero points begin, and the steps between; bytes that elements reach,
# bits of one in the source, bits of a run in the target, how packed ones are fetched.
BOX_SIZE, BOX_SOURCE, BOX_TARGET, BOX_SCALE, BOX_ZERO = range(5)
BACK = 4
RUN_SOURCE, RUN_TARGET, RUN_SCALE, RUN_ZERO, RUN_SHIFT = range(5)
FETCHED, SCALES, ZEROS, CONVERTED, PACKED = range(5)
CAST_CONVERT, CAST_UNPACK, CAST_PACK, CAST_MOVER, CAST_COUNT, CAST_BLOCK = range(5, 11)
CAST_SCALE, CAST_SCALE_STEP, CAST_ZERO, CAST_ZERO_STEP = range(11, 15)
CAST_REACH, CAST_BITS, CAST_RUN_BITS, CAST_FETCHES = range(15, 19)
STREAMED_PARTS = 4  # of a run, read and streamed in turn: float32 to bfloat16 1.4 -> 1.1 x memcpy
RUN_BY_RUN, ONE_BY_ONE = 1, 2  # how packed elements become codes, unless they are bytes

# Columns of the table of `decodes`: what reads codes (0: they lie side by side), where they
# lie, bytes from one unit to the next, numbers of a unit, bytes of a number, elements of
# the result per number, what converts them, numbers per scale, where scales and zero points
# lie and how far apart, which of both on the stage, and where on it codes and results go.
STEP_READ, STEP_SOURCE, STEP_APART, STEP_UNIT, STEP_NBYTES, STEP_PER, STEP_CONVERT = range(7)
STEP_BLOCK, STEP_SCALE, STEP_SCALE_APART, STEP_ZERO, STEP_ZERO_APART = range(7, 12)
STEP_STAGED, STEP_CODES, STEP_INTO = range(12, 15)
STEP_COLUMNS = 15
STEP_ON_STAGE = SCALE_STAGED, ZERO_STAGED = 1, 2
# Of its boxes: the function of a network, how often a call repeats it, and the steps between;
# where a run's codes stand on the stage, and operands; rows of a box, elements of one, columns
# of the result, bytes from row to row on the stage; what reads codes, elements of a unit, bytes
# to the next one; what converts them; rows and columns with one scale; bytes of a result.
BOX_SHUFFLE, BOX_REPEATS, BOX_APART, BOX_FAR, BOX_CODES, BOX_FLOATS = range(6)
BOX_ROWS, BOX_RUN, BOX_COLUMNS, BOX_PITCH, BOX_READ, BOX_UNIT, BOX_UNIT_APART = range(6, 13)
BOX_CONVERT, BOX_TALL, BOX_WIDE, BOX_NBYTES = range(13, 17)

# Words of `encodes`: rows and columns of a weight, the rows of its bands, the columns of a segment,
# segments of a band; bytes from one band to the next, and from one segment, in the source, in
# codes, in scales; bytes from one row to the next in source and target.
WEIGHT_ROWS, WEIGHT_COLUMNS, BAND_ROWS, SEGMENT_COLUMNS, SEGMENTS = range(5)
BAND_SOURCE, BAND_TARGET, BAND_SCALES = range(5, 8)
SEGMENT_SOURCE, SEGMENT_TARGET, SEGMENT_SCALES = range(8, 11)
SOURCE_PITCH, TARGET_PITCH = range(11, 13)

# Of `batches`.
FULL = 8192  # bytes on a stage that are worth streaming: they are still in L1
STAGED_WHOLE = 128 * 1024  # of the largest tensor that passes through the stage: still in L2
BATCH_STAGE_BYTES = FULL + STAGED_WHOLE + 2 * LINE


def per_byte(width: int) -> int:
    """The number of elements of `width` bits in a byte; 1 if they cross bytes."""
    return 8 // width if 8 % width == 0 else 1
