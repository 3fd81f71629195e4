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
# Bytes from which a call pays: of memcpy for a run, of a network for its blocks (8 blocks, whatever
# their bytes: 1.3 x the time, at most 3).
CALLED = 8 * LINE
MOST_BLOCKS = 512  # that one call of a network's function permutes
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
# A width that is no power of two is a count, too.
COUNTS: dict[int, tuple[int, ...]] = {n: (0,) * n for n in range(1, PIECE + 1)}


TAGS: dict[str, Any] = {
    **{width_tag(width): value for width, value in WIDTHS.items()},
    **{count_tag(count): value for count, value in COUNTS.items()},
}
"""What kernels get for a tag."""


def padded(width: int) -> int:
    """The bytes that an element has in a block of registers: a power of two."""
    return 1 << (width - 1).bit_length()


def per_piece(width: int) -> int:
    """The elements of each row of a block: 16 bytes, or less if they are padded."""
    return PIECE // padded(width)


def coders(width: int) -> tuple[Function, Function]:
    """The names of the functions that unpack and pack elements of `width` bits."""
    tags = (count_tag(width),)
    return Function("codes.unpack", 4, tags), Function("codes.pack", 3, tags)


# The table of a tile. ROWS and COLUMNS: how many there are, where their offsets start,
# how many one step of the outermost dim has, that step's stride in the other buffer, how
# many a block takes, and the spacing of columns in the source.
ROWS, COLUMNS, STAGED = range(3)
COUNT, START, INNER, STRIDE, BLOCK, STEP = range(6)
MADE_BYTES = STEP  # of ROWS: the bytes of an element in the target
# STAGED: whether the stage holds one run, where the columns' offsets on it start, how far
# apart they are, in tiles of bytes whether lines are aligned (see `planning.tables`), where the
# buffer is behind the stage, and in tiles of bits the packed rows.
DENSE, _, PITCH, LINE_ALIGNED, BUFFER_AT, MADE_AT = range(6)
WORDS = LINE_ALIGNED  # in tiles of bits: rows at even distances, if a word holds one; or 0
ONE_VECTOR, ANY_VECTORS = 1, 2  # LINE_ALIGNED: lines that are stored straight to the target
DENSE_PIECES = 2  # as DENSE: and rows are whole pieces
COLUMN_GROUP = START  # of STAGED, in tiles of bits: how many columns follow one another, if DENSE

# The table of a box: (COUNT, START) of the offsets of its rows, which come first, and columns in
# the source, columns on the stage, first rows of blocks, pieces of columns in the source, elements
# of these on the stage, lines of the source; of the runs that are unpacked first: the offset of
# each in bits, that of its codes, and their number; of runs on the stage, in the target, in scales
# and zero points. The last row has the bytes that are moved at a time without blocks, and those
# that whole pieces read of a box.
PLACES, BLOCKS, PIECES, PIECE_PLACES, LINES, READS = range(2, 8)
RUNS, RUN_TARGETS, RUN_SCALES, RUN_ZEROS, MOVED = range(8, 13)
NBYTES, REACH = range(2)

# Blocks of elements narrower than a byte.
BIT_COLUMNS = 512  # elements of a tile along the source
NARROW_BITS = 256  # rows of fewer bits are read by words
WORD_BITS = 56  # that a word holds of a row, wherever it begins in a byte
MOST_AHEAD = 32  # rows of the source that are prefetched

# The verdicts on a tensor of a batch, see `shapes.resolve_all`.
VIEW, COPY, REFUSED, APART = range(4)

STEP_ON_STAGE = SCALE_STAGED, ZERO_STAGED = 1, 2  # which operands of a step of `decodes` are there

# Of `batches`.
FULL = 8192  # bytes on a stage that are worth streaming: they are still in L1
STAGED_WHOLE = 128 * 1024  # of the largest tensor that passes through the stage: still in L2
BATCH_STAGE_BYTES = FULL + STAGED_WHOLE + 2 * LINE


def per_byte(width: int) -> int:
    """The number of elements of `width` bits in a byte; 1 if they cross byte boundaries."""
    return 8 // width if 8 % width == 0 else 1
