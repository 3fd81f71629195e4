"""The tables that kernels read: loops, and the offsets of a tile's rows and columns."""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..kernels.constants import (
    ANY_VECTORS,
    BIT_COLUMNS,
    BLOCK,
    BUFFER_AT,
    COLUMNS,
    COUNT,
    DENSE_PIECES,
    MOST_AHEAD,
    NARROW_BITS,
    ONE_VECTOR,
    PIECE,
    ROWS,
    STAGED,
    START,
    STEP,
    WORD_BITS,
    per_byte,
)
from ..runtime.cpu_caches import LINE, PAGE, l2
from .loops import ArrayLoop, Loop, length_of

# Bytes of a tile along the target (rows) and along the source (columns), by the width of an
# element that is transposed in registers: several lines of each, for DRAM pages and hardware
# prefetchers, but with the stage no more than a core's L2 cache (see `tile_bytes`). Rows are
# longer, since they are written: 512 x 2048 bytes of float32 1.7 -> 1.55 x the time of a copy.
ROW_BYTES = {1: 1024, 2: 1024, 4: 2048, 8: 2048, 16: 512}
COLUMN_BYTES = {1: 512, 2: 512, 4: 1024, 8: 1024, 16: 2048}
RUN_TILE = 1024, 2048  # the same for runs
CONVERTED = 256, 256  # elements along target and source of a tile that is converted
CONVERTED_FIRST = 256, 512  # the same, if it is converted first: runs of the source are longer

# The same for packed elements: bytes of a row on the stage (BIT_COLUMNS elements along the source).
# Fewer if elements have a byte each there: uint3 19 -> 16 x memcpy.
BIT_ROW = 1024

STREAMS = PAGE // LINE  # places that are met in turn, one line of a page on the stage for each
SCATTERED = 16 * 1024  # bytes of runs that go to one place before others go elsewhere

Dims = tuple[Loop, ...]
Offsets = NDArray[np.int64]


class Sides(NamedTuple):
    """The two sides of a tile, as kernels read them: see `kernels.constants`.

    `offsets` holds those of the rows, of the columns and of the stage; `stage` is the
    memory (bytes) that a thread needs.
    """

    tile: NDArray[np.int64]
    offsets: Offsets
    stage: int


def tile_bytes(width: int) -> tuple[int, int]:
    """The bytes of a tile along target and source; with a small L2 cache fewer columns."""
    room = l2() // 2 // ROW_BYTES[width] * width
    return ROW_BYTES[width], min(COLUMN_BYTES[width], room)


def byte_sides(rows: Dims, columns: Dims, width: int, unit: int = 0) -> Sides:
    """The tables of a tile of whole bytes; with a `unit` elements are converted to that width."""
    limits = tile_bytes(width) if width in ROW_BYTES else RUN_TILE
    first = unit > 0 and columns[-1].source != width
    if unit:
        row, column = CONVERTED_FIRST if first else CONVERTED
        limits = row * width, column * width
    made = _sides(rows, columns, width, limits, unit)
    return _with_made_rows(made, width) if first else made


def _with_made_rows(sides: Sides, width: int) -> Sides:
    """The sides of a tile that is converted to elements of `width` bytes before it is transposed.

    These have a stage of their own, where the offsets of rows follow those of columns on the other.
    Rows are merged there, see `kernels.tiles`.
    """
    tile, offsets, stage = sides
    pitch = -(-tile[COLUMNS, BLOCK] * tile[COLUMNS, STEP] // LINE) * LINE + LINE
    rows = tile[ROWS, BLOCK] + 3 * LINE // width + 2  # as far as blocks of rows reach
    rows = rows * width // tile[COLUMNS, STEP] + 2
    tile[STAGED, BUFFER_AT] = stage = -(-stage // LINE) * LINE
    staged = np.arange(rows, dtype=np.int64) * pitch
    return Sides(tile, np.concatenate([offsets, staged]), int(stage + rows * pitch + 2 * LINE))


def scattered_sides(rows: Dims, columns: Dims, width: int) -> Sides:
    """As `byte_sides`, for runs in the source's order, which need no stage.

    Heads split from positions: 1.4 -> 0.7 x memcpy.
    """
    made = _sides(rows, columns, width, (SCATTERED, length_of(columns, width)))
    return made._replace(stage=1)


def _sides(rows: Dims, columns: Dims, width: int, limits: tuple[int, int], unit: int = 0) -> Sides:
    """The tables of a tile whose blocks are `limits` bytes long; see `byte_sides`."""
    unit = unit or width
    margin = 3 * LINE // min(width, unit) + 2
    row_block, column_block = (-(-nbytes // width) for nbytes in limits)
    by_row, came = _side([(n, s) for n, s, _ in rows], row_block, margin, unit)
    by_column, to = _side([(n, t) for n, _, t in columns], column_block, margin, columns[-1].source)
    by_column[START] = len(came)
    # One line before and one after: rows reach back and run over, see kernels.tiles.
    over = max(LINE, LINE * width // unit)
    pitch = -(-by_row[BLOCK] * width // LINE) * LINE + over + max(LINE, width)
    row = by_row[COUNT] * unit if by_row[BLOCK] == by_row[COUNT] else 0  # bytes, if it is whole
    dense = len(columns) == 1 and columns[0].target == row
    if dense:
        pitch = by_row[COUNT] * width
    staged = np.arange(by_column[BLOCK], dtype=np.int64) * pitch
    straight = 0 if columns[-1].target == row else line_aligned(columns, by_row[COUNT], unit)
    words = [int(dense), len(came) + len(to), pitch, straight, 0, 0]
    tile = np.array([by_row, by_column, words], np.int64)
    return Sides(tile, np.concatenate([came, to, staged]), pitch * by_column[BLOCK] + 2 * LINE)


def bit_sides(rows: Dims, columns: Dims, width: int) -> Sides:
    """The tables of a tile of elements of `width` bits: counts in elements, offsets in bits."""
    factor = per_byte(width)
    over = -(-8 * LINE // width)
    margin = over + factor * LINE + MOST_AHEAD
    count = length_of(rows, 1)
    row_block = _even(count, BIT_ROW * factor, factor * LINE)
    by_row, came = _side([(n, s) for n, s, _ in rows], row_block, margin, 0)
    words = by_words(length_of(columns, 1), width)
    column_block = BIT_COLUMNS
    if words:
        nbits = length_of(columns, width)
        column_block = -(-length_of(columns, 1) // -(-nbits // WORD_BITS))
    by_column, to = _side([(n, t) for n, _, t in columns], column_block, margin, width)
    by_column[START] = len(came)
    # The bytes of a block of rows on the stage, in whole vectors: of each row that a word may have.
    # A line between columns.
    steps = -(-min(by_row[BLOCK] + over, count) // (factor * LINE))
    pitch = (steps + 1) * LINE
    # If rows are whole, the columns of the last dim may be adjacent in the target.
    row = count * width
    dense = int(by_row[BLOCK] == count and columns[-1].target == row)
    if dense and factor > 1 and not words and row % (8 * PIECE) == 0:
        # Whole pieces: the rows are adjacent on the stage already.
        dense, pitch = DENSE_PIECES, row // 8
    # Words have columns that are not used. A block of rows passes through a buffer with a byte per
    # code.
    buffer = -(-pitch * max(by_column[BLOCK], 8 * factor) // PAGE) * PAGE
    packed = buffer + LINE * BIT_COLUMNS
    staged = [dense, columns[-1].size, pitch, words and rows[-1].size, buffer, packed]
    tile = np.array([by_row, by_column, staged], np.int64)
    return Sides(tile, np.concatenate([came, to]), packed + 8 * PAGE + LINE)


def by_words(columns: int, width: int) -> bool:
    """Whether rows have so few columns that a word holds one, or a part of it."""
    return 8 % width == 0 and columns * width < NARROW_BITS


def _even(count: int, most: int, step: int) -> int:
    """The size of blocks of equal size, in whole steps; a small remainder is added to a block."""
    blocks = -(-count // most) if 4 * count > 5 * most else 1
    return min(count, -(-count // (blocks * step)) * step)


def _side(
    dims: Sequence[tuple[int, int]], block: int, margin: int, step: int
) -> tuple[list[int], Offsets]:
    """The side of dims of (size, stride): its row of the table, and its offsets.

    Offsets repeat, plus a stride, with every step of the outermost dim. So they are those of one
    step, a block and a margin, however large that dim is.
    """
    (size, stride), *inner = dims
    within = offsets_of(inner)
    count = size * len(within)
    block = min(block, count)
    steps = (block + margin) // len(within) + 2
    row = [count, 0, len(within), stride, block, step]
    return row, offsets_of([(steps, stride), *inner])


def line_aligned(columns: Dims, count: int, width: int) -> int:
    """Which vectors store the lines of a block of rows straight to the target; 0: none do.

    They can if all columns begin at the same byte of a line, and hold several lines: `count`
    elements. By the stage, transposed workloads take 1.3 x the time, at most 1.8 (Zen 3). But
    columns that are whole in a block and adjacent in the target are written faster from the stage:
    75 x 96 x 75 x 96 float32 3.5 -> 2.1 of a copy's time. So are lines of several vectors if 16 of
    them are written at a time, those of bytes, or if those of neighbouring columns share few sets
    of an L1 cache: with AVX2 16-bit 81 x 8 x 176 x 4 x 46 by (0, 4, 3, 2, 1) 2.7 -> 1.0 x memcpy,
    32-bit 4 x 12 x 240 x 910 by (3, 1, 0, 2) 1.6 -> 1.0.
    """
    alike = all(column.target % LINE == 0 for column in columns)
    if not alike or PIECE % width or count * width < 2 * LINE:
        return 0
    few = gcd(columns[-1].target, PAGE) > width * LINE
    return ONE_VECTOR if few or width == 1 else ANY_VECTORS


def interleaved_offsets(sides: Sides, rows: Dims, places: Offsets) -> Offsets:
    """The offsets of sides with an ArrayLoop among the rows: array k is at `places[k]`.

    It is not the outermost of several loops, so the table holds all of its steps.
    """
    at = next(i for i, loop in enumerate(rows) if isinstance(loop, ArrayLoop))
    made = sides.offsets.copy()
    by_row = made[: sides.tile[COLUMNS, START]]
    k = np.arange(len(by_row)) // length_of(rows[at + 1 :], 1) % rows[at].size
    by_row += places[k]
    return made


def offsets_of(dims: Sequence[tuple[int, int]]) -> Offsets:
    """The offsets of all elements of dims of (size, stride), the last one fastest."""
    made = np.zeros(1, np.int64)
    for size, stride in dims:
        made = (made[:, None] + np.arange(size) * stride).reshape(-1)
    return made


def blocks(by: NDArray[np.int64]) -> int:
    """The blocks that a side of a tile, a row of its table, is cut into."""
    return int(-(-by[COUNT] // by[BLOCK]))
