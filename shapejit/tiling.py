"""Which loop moves the bytes of a copy, and which dims its tiles are made of."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .kernels.constants import (
    BIT_COLUMNS,
    CODES_BLOCK,
    DENSE_PIECES,
    LINE,
    MOST_AHEAD,
    PAGE,
    PIECE,
)

# Bytes of a tile along the target (rows) and along the source (columns), by the width of
# what moves whole: several lines of each, so that DRAM pages and the hardware prefetchers
# are used well, and with the stage no more than a core's L2 cache. Columns of narrow
# elements are many; runs (0) are cheap to stage.
ROW_BYTES = {0: 1024, 1: 1024, 2: 1024, 4: 512, 8: 512, 16: 512}
COLUMN_BYTES = {0: 2048, 1: 512, 2: 1024, 4: 2048, 8: 2048, 16: 2048}

# The same for elements of bits: bits along the target (BIT_COLUMNS elements along the source).
BIT_ROW = 8 * 1024
BIT_ROWS_LEAST = 8  # elements of a row; fewer would leave most of a vector empty
CODES_LEAST = 32  # elements, some apart, that vectors of codes follow; fewer go one by one

GATHER_BYTES = 2048  # bytes of a block that is gathered element by element
STREAMS = 64  # places that are read in turn and still prefetched: heads merge 8.9 -> 6.2 ms
DEALT = 16 * 1024  # bytes of runs that SCATTER puts in one place before it may go elsewhere
RUN = 1024  # bytes of a run that is long enough to be copied in any order

# Rows that take turns, and steps between elements, that whole vectors can follow.
TURNS = (2, 3, 4)
STEPS = (-4, -3, -2, -1, 2, 3, 4)

# A block of rows of elements this narrow is 32 or 64 lines. Where more of them fall on one
# set of an L1 cache (sets a page apart) than it has ways, they push one another out before
# their last 16 bytes are used: the rows then pass through a buffer, which takes each line
# once. 512 x 512 x 512 uint8 reversed: 1.6 -> 1.3 x memcpy; elsewhere the detour costs 10 %.
BOUNCE = 2
WAYS = 16


class Strategy(Enum):
    """Which loop moves the bytes."""

    NOTHING = "nothing: there are no elements"
    ONE_RUN = "one run: the elements lie side by side"
    ROWS = "rows: runs that lie side by side in source and target"
    TILES = "tiles: blocks transposed in registers"
    RUN_TILES = "tiles of runs: short runs in another order"
    SCATTER = "scatter: runs in the source's order, dealt to a few places"
    INTERLEAVE = "interleave: a few rows take turns"
    PICK = "pick: elements a few apart, or backwards"
    TURN = "turn: short groups, each in the other order"
    GATHER = "gather: element by element into whole lines"
    BOXES = "boxes: whole lines of both sides, permuted within a cache"
    PICK_BOXES = "boxes of elements a few apart, or backwards"
    BIT_RUN = "one run of bits: the elements lie side by side, between bytes"
    BIT_ROWS = "rows of bits: runs that begin between bytes"
    BIT_TILES = "tiles of bits: packed blocks transposed in registers"
    CODES = "codes: a byte an element on the way, then packed"
    BIT_INTERLEAVE = "codes of a few rows that take turns"
    BIT_PICK = "codes of elements a few apart, or backwards"
    SMALL = "small: whole tensors, each by one thread"
    NUMPY = "NumPy's copy: too small for a compiled call to pay"


IN_BOXES = (Strategy.BOXES, Strategy.PICK_BOXES)
STREAMED_ANYWHERE = (Strategy.TILES, Strategy.RUN_TILES, Strategy.SCATTER, *IN_BOXES)
BY_CODES = (Strategy.CODES, Strategy.BIT_INTERLEAVE, Strategy.BIT_PICK)
IN_BITS = (Strategy.BIT_RUN, Strategy.BIT_ROWS, Strategy.BIT_TILES, *BY_CODES)


class Loop(NamedTuple):
    """One dim of the normal form: its size and both strides, in bytes, or bits where they count."""

    size: int
    source: int
    target: int


class Sides(NamedTuple):
    """The two sides of a tile, as `kernels.tiles` and `kernels.bit_tiles` read them.

    `tile` holds a row of facts each for rows, columns, stage and bounce buffer;
    `offsets` those of all sides, one after the other; `stage_bytes` is what one
    thread needs.
    """

    tile: NDArray[np.int64]
    offsets: NDArray[np.int64]
    stage_bytes: int


def sides(
    strategy: Strategy, rows: tuple[Loop, ...], columns: tuple[Loop, ...], width: int
) -> Sides:
    """The tables of a tile of whole bytes."""
    kind = kind_of(width)
    margin = 3 * LINE // width + 2
    dealt = strategy is Strategy.SCATTER
    row_bytes = DEALT if dealt else ROW_BYTES[kind]
    column_bytes = STREAMS * RUN if dealt else COLUMN_BYTES[kind]
    row_block, column_block = (-(-nbytes // width) for nbytes in (row_bytes, column_bytes))
    row_facts, row_offsets = side([(n, s) for n, s, _ in rows], row_block, margin)
    # Columns that take turns are dense in the target: what varies is the source.
    turns = strategy is Strategy.INTERLEAVE
    places = [(n, s if turns else t) for n, s, t in columns]
    column_facts, column_offsets = side(places, column_block, margin)
    # A line before and behind: rows reach back and run over, see kernels.tiles.
    pitch = -(-row_facts[3] * width // LINE) * LINE + LINE + max(LINE, width)
    whole = row_facts[0] * width
    dense = _dense(columns, whole) and row_facts[3] == row_facts[0]
    if dense:
        pitch = whole
    staged = np.arange(column_facts[3], dtype=np.int64) * pitch
    apart = column_facts[3] * width + LINE
    behind = -(-(pitch * column_facts[3] + 2 * LINE) // PAGE) * PAGE
    step = columns[-1].source if columns else 0
    starts = np.cumsum([0, len(row_offsets), len(column_offsets)]).tolist()
    tile = (
        (*row_facts, starts[0], 0),
        (*column_facts, starts[1], step),
        (int(dense), 0, pitch, 0, starts[2], 0),
        (int(_bounced(row_offsets, width)), behind, apart, 0, 0, 0),
    )
    offsets = np.concatenate([row_offsets, column_offsets, staged])
    stage_bytes = behind + LINE * apart
    if dealt:
        # A line for each column; heads apart from positions: 1.4 -> 0.7 x memcpy.
        stage_bytes = LINE * prod(loop.size for loop in columns)
    return Sides(np.array(tile, np.int64), offsets, stage_bytes)


def bit_sides(rows: tuple[Loop, ...], columns: tuple[Loop, ...], width: int) -> Sides:
    """The tables of a tile of elements of `width` bits: counts in elements, offsets in bits."""
    factor = factor_of(width)
    over = -(-8 * LINE // width)
    margin = over + factor * LINE + MOST_AHEAD
    row_facts, row_offsets = side([(n, s) for n, s, _ in rows], BIT_ROW // width, margin)
    places = [(n, t) for n, _, t in columns]
    column_facts, column_offsets = side(places, BIT_COLUMNS, margin)
    # What a block of rows leaves on the stage, in whole vectors, and a line between columns.
    steps = -(-min(row_facts[3] + over, row_facts[0]) // (factor * LINE))
    pitch = steps * LINE + LINE
    dense = int(_dense(columns, row_facts[0] * width) and row_facts[3] == row_facts[0])
    if dense and factor > 1 and row_facts[0] * width % (8 * PIECE) == 0:
        # Whole pieces: the rows follow one another on the stage already.
        dense, pitch = DENSE_PIECES, row_facts[0] * width // 8
    bounce = -(-pitch * column_facts[3] // PAGE) * PAGE
    # A block of rows passes through a buffer of as many bytes as it has elements of codes.
    linear = bounce + LINE * BIT_COLUMNS
    starts = [0, len(row_offsets)]
    tile = (
        (*row_facts, starts[0], 0),
        (*column_facts, starts[1], 0),
        (dense, 0, pitch, 0, 0, 0),
        (0, bounce, linear, 0, 0, 0),
    )
    offsets = np.concatenate([row_offsets, column_offsets])
    return Sides(np.array(tile, np.int64), offsets, linear + 8 * PAGE)


def factor_of(width: int) -> int:
    """How many elements of `width` bits a byte holds whole, 1 where they cross bytes."""
    return 8 // width if 8 % width == 0 else 1


def _bounced(row_offsets: NDArray[np.int64], width: int) -> bool:
    """Whether the rows of a block pass through a buffer."""
    if width > BOUNCE:
        return False
    lines = row_offsets[: LINE // width] % PAGE // LINE
    return int(np.bincount(lines).max()) > WAYS


def _dense(columns: tuple[Loop, ...], whole: int) -> bool:
    """Whether the rows of neighbouring columns, `whole` in length each, follow one another."""
    return len(columns) == 1 and columns[0].target == whole


def side(
    dims: Sequence[tuple[int, int]], block: int, margin: int
) -> tuple[tuple[int, int, int, int], NDArray[np.int64]]:
    """One side of a tile: (count, inner count, outermost stride, block) and its offsets.

    The offsets repeat, a stride further, with every step of the outermost dim;
    so the table holds one step, a block and a margin, however large the dim is.
    """
    if not dims:
        return (1, 1, 0, 1), np.zeros(1, np.int64)
    (size, stride), *inner = dims
    within = np.zeros(1, np.int64)
    for n, s in inner:
        within = (within[:, None] + np.arange(n) * s).reshape(-1)
    count = size * len(within)
    block = min(block, count)
    steps = (block + margin) // len(within) + 2
    table = (np.arange(steps)[:, None] * stride + within).reshape(-1)
    return (count, len(within), stride, block), table


class Tile(NamedTuple):
    """What `tile_of` finds: a strategy, its loops, and how far both first elements shift."""

    strategy: Strategy
    loops: tuple[Loop, ...]
    rows: tuple[Loop, ...] = ()
    columns: tuple[Loop, ...] = ()
    step: int = 0
    shift: int = 0
    target_shift: int = 0
    backs: tuple[tuple[int, int], ...] = ()


def tile_of(loops: list[Loop], width: int) -> Tile:
    """The first way that fits, from whole vectors down to single elements."""
    if loops[-1].target != width:  # a target with gaps between single runs
        return Tile(Strategy.ROWS, tuple(loops))
    chain = sorted((loop for loop in loops[:-1] if loop.source), key=lambda loop: abs(loop.source))
    last = loops[-1]
    if not kind_of(width):
        nearest = abs(chain[0].source) if chain else 0
        in_order = not 0 < nearest < abs(last.source)
        if in_order or width > RUN or (width >= LINE and _streams(loops, chain[0]) <= STREAMS):
            return Tile(Strategy.ROWS, tuple(loops))
        if width >= LINE and _whole_rows(last, chain[0], width) and chain[0].size <= STREAMS:
            return Tile(Strategy.SCATTER, *_apart(loops, chain[0]))
        limits = ROW_BYTES[0], COLUMN_BYTES[0]
        return _transposed(Strategy.RUN_TILES, loops, chain, width, limits)
    if chain and abs(chain[0].source) == width:
        limits = ROW_BYTES[width], COLUMN_BYTES[width]
        tile = _transposed(Strategy.TILES, loops, chain, width, limits)
        if min(bytes_of(tile.rows, width), bytes_of(tile.columns, width)) >= PIECE:
            return tile
        inner = loops[loops.index(chain[0]) + 1 :]
        taking_turns = prod(loop.size for loop in inner)
        dense = chain[0].target == taking_turns * width
        turns = taking_turns in TURNS and chain[0].size * width >= PIECE
        if chain[0].source > 0 and dense and turns:
            around, columns = _whole_pieces(loops[: -len(inner)], width)
            return Tile(Strategy.INTERLEAVE, around, tuple(inner), columns, taking_turns)
    apart = last.source // width
    if apart in STEPS and last.source % width == 0 and last.size * width >= PIECE:
        return Tile(Strategy.PICK, *_whole_pieces(loops, width), step=apart)
    group = width * last.size
    if apart == -1 and group <= PIECE and len(loops) > 1 and loops[-2][1:] == (group, group):
        back = (last.size - 1) * last.source
        groups = (loops[-2],)
        return Tile(Strategy.TURN, tuple(loops[:-2]), groups, step=last.size, shift=back)
    return Tile(Strategy.GATHER, *_last_block(loops, width))


def bit_tile_of(loops: list[Loop], run: int, width: int, unit: int) -> Tile:
    """The same for loops in bits, whose elements of `width` take `unit` bits in the target."""
    if run > width:
        return Tile(Strategy.BIT_ROWS, tuple(loops))
    chain = sorted((loop for loop in loops[:-1] if loop.source), key=lambda loop: abs(loop.source))
    transposed = (
        loops and loops[-1].target == unit == width and chain and abs(chain[0].source) == width
    )
    if transposed:
        limits = BIT_ROW, BIT_COLUMNS * width
        tile = _transposed(Strategy.BIT_TILES, loops, chain, width, limits)
        rows, columns = bytes_of(tile.rows, 1), bytes_of(tile.columns, 1)
        if rows >= BIT_ROWS_LEAST and columns >= PIECE * factor_of(width):
            return tile
    inner = 0
    for loop in reversed(loops):
        if loop.target != bytes_of(loops[len(loops) - inner :], unit):
            break
        inner += 1
    around, within = tuple(loops[: len(loops) - inner]), tuple(loops[len(loops) - inner :])
    if not within:
        return Tile(Strategy.CODES, around, (Loop(1, width, unit),))
    last = within[-1]
    if len(within) > 1 and last.size in TURNS:
        before = within[-2]
        if before.source == width and before.size >= PIECE:
            return Tile(Strategy.BIT_INTERLEAVE, around, within, step=last.size)
    apart = last.source // width
    if apart in STEPS and last.source % width == 0 and last.size >= CODES_LEAST:
        return Tile(Strategy.BIT_PICK, around, within, step=apart)
    return Tile(Strategy.CODES, around, within)


def codes_block(strategy: Strategy, step: int) -> int:
    """Elements that are codes together: whole bytes, and whole turns."""
    if strategy is Strategy.BIT_INTERLEAVE:
        return CODES_BLOCK // (step * LINE) * step * LINE
    return CODES_BLOCK


def _whole_rows(rows: Loop, nearest: Loop, width: int) -> bool:
    """Whether the source holds nothing else between runs, nor between rows of them."""
    return nearest.source == width and rows.source == nearest.size * width


def _apart(loops: list[Loop], nearest: Loop) -> tuple[tuple[Loop, ...], tuple[Loop], tuple[Loop]]:
    """The outer loops, the last one, and the one along which the source is read."""
    rows = loops[-1]
    return tuple(x for x in loops if x not in (rows, nearest)), (rows,), (nearest,)


def _streams(loops: list[Loop], nearest: Loop) -> int:
    """How many places of the source are read in turn before the reads move on from each."""
    return prod(loop.size for loop in loops[loops.index(nearest) + 1 :])


def _whole_pieces(loops: list[Loop], width: int) -> tuple[tuple[Loop, ...], tuple[Loop, ...]]:
    """The outer loops, and the last one; with those before it where it holds whole pieces."""
    if loops[-1].size * width % PIECE:
        return tuple(loops[:-1]), (loops[-1],)
    return _last_block(loops, width)


def _last_block(loops: list[Loop], width: int) -> tuple[tuple[Loop, ...], tuple[Loop, ...]]:
    """The outer loops, and the last ones that make a block."""
    last = 1
    while last < len(loops) and bytes_of(loops[-last:], width) < GATHER_BYTES:
        if loops[-last - 1].target != loops[-last].size * loops[-last].target:
            break
        last += 1
    return tuple(loops[:-last]), tuple(loops[-last:])


def _transposed(
    strategy: Strategy, loops: list[Loop], chain: list[Loop], width: int, limits: tuple[int, int]
) -> Tile:
    """Rows are the target's last dims, columns the source's fastest; both grow to a block.

    `limits` are the lengths of the sides of a block, in the unit of `width` and strides.

    Columns that the source runs through backwards are turned around on both sides.
    """
    step = abs(chain[0].source)
    rows, columns = [loops[-1]], [chain[0]]
    growing = True
    while growing:
        growing = False
        following = loops[-1 - len(rows)] if len(rows) < len(loops) else None
        side = following and following.target == bytes_of(rows, width)
        room = bytes_of(rows, width) < limits[0]
        if following and side and room and following not in columns:
            rows.insert(0, following)
            growing = True
        following = chain[len(columns)] if len(columns) < len(chain) else None
        joins = following and abs(following.source) == step * bytes_of(columns, 1)
        room = bytes_of(columns, width) < limits[1]
        if following and joins and room and following not in rows:
            columns.insert(0, following)
            growing = True
    outer = tuple(loop for loop in loops if loop not in rows and loop not in columns)
    turned = tuple(Loop(n, abs(s), t if s > 0 else -t) for n, s, t in columns)
    back = [((n - 1) * s, (n - 1) * t) for n, s, t in columns if s < 0]
    shift, target_shift = sum(s for s, _ in back), sum(t for _, t in back)
    return Tile(strategy, outer, tuple(rows), turned, 0, shift, target_shift)


def kind_of(width: int) -> int:
    """The width of elements that are transposed in registers, 0 for longer runs."""
    return width if width in (1, 2, 4, 8, 16) else 0


def bytes_of(loops: Sequence[Loop], width: int) -> int:
    """What the loops walk, elements of `width`, in the same unit."""
    return width * prod(loop.size for loop in loops)
