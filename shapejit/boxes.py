"""Boxes: parts of a copy that are whole cache lines on both sides, permuted within a cache.

A box takes the target's last dims until its runs there are long enough, and the
source's fastest dims until they are there; dims that both sides want are taken
once. What is inside goes to a stage in the order of the target, and leaves in
long runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .kernels.constants import LINE, PIECE
from .tiling import STEPS, STREAMS, Loop, Sides, Strategy, Tile, bytes_of

# Bytes of a box, of the target; with its source and the next box's in an L2 cache. Runs of
# so many bytes are worth a place of their own: their first and last lines are shared.
BOX_BYTES = 256 * 1024
TARGET_RUN = 4096
SOURCE_RUN = 1024

# Bytes of the sides of a tile that is faster than a box: rows leave it in whole lines, and
# few lines are met again by the next tile.
LEAST_ROWS = 256
LEAST_DENSE = 128  # where the rows of neighbouring columns follow one another
LEAST_COLUMNS = 32
WIDE = 8  # bytes of elements that are gathered fast where the source is read in few places

# Cycles, about: of a block of 16 bytes of columns by as many of rows, transposed in
# registers, by width; what each more lane adds to it; of a vector of elements that are
# picked, one apart; and of an element or run that is moved alone.
BLOCK = {1: 64.0, 2: 28.0, 4: 12.0, 8: 5.0, 16: 1.2}
LANE = 0.4
LANES = 4  # 16-byte pieces of the widest vector
PICKED = 4.0
ALONE = 2.0

Offsets = NDArray[np.int64]


class Box(NamedTuple):
    """Where the elements of a box lie; `windows` are those of the columns, by their source."""

    rows: Offsets  # in the source
    columns: Offsets  # in the source, ascending
    places: Offsets  # of the columns, on the stage
    runs: Offsets  # on the stage
    targets: Offsets  # of the runs
    run: int  # bytes of a run


def pays(tile: Tile, loops: Sequence[Loop], width: int) -> bool:
    """Whether a box is faster than what `tile_of` found."""
    match tile.strategy:
        case Strategy.GATHER | Strategy.PICK:
            chain = [loop for loop in loops if loop.source]
            in_order = chain == sorted(chain, key=lambda loop: -abs(loop.source))
            nearest = min(chain, key=lambda loop: abs(loop.source), default=loops[-1])
            streams = prod(loop.size for loop in loops[loops.index(nearest) + 1 :])
            return not in_order and (width < WIDE or streams > STREAMS)
        case Strategy.TILES:
            rows, columns = bytes_of(tile.rows, width), bytes_of(tile.columns, width)
            dense = len(tile.columns) == 1 and tile.columns[0].target == rows
            return rows < (LEAST_DENSE if dense else LEAST_ROWS) or columns < LEAST_COLUMNS
        case Strategy.RUN_TILES:
            return bytes_of(tile.rows, width) < LEAST_ROWS
    return False


def box_of(loops: Sequence[Loop], width: int) -> Tile:
    """The box of a copy, whose elements are picked, transposed in registers or moved alone.

    Whichever way takes the fewest cycles; `step` of the Tile is how many apart they
    are picked, or the lanes of a block (0: they are moved alone).
    """
    outer, backs, inner = list[Loop](), list[tuple[int, int]](), list[Loop]()
    for (size, source, target), part in zip(loops, parts_of(loops, width), strict=True):
        steps = -(-size // part)
        if part > 1:
            inner.append(Loop(part, source, target))
        if steps > 1:
            outer.append(Loop(steps, part * source, part * target))
            over = steps * part - size
            backs.append((over * source, over * target))
    # Of ways as good as one another, that with the most rows.
    options = [(ALONE * prod(loop.size for loop in inner), 0, Strategy.BOXES, 0)]
    for count in range(1, len(inner) + 1):
        columns, rows = inner[:-count], inner[-count:]
        if rows[0].target != bytes_of(rows[1:], width):
            break
        options.append((options[0][0], -count, Strategy.BOXES, 0))
        if count == 1 and width in BLOCK and rows[0].source // width in STEPS:
            options += _picked(rows[0], columns, width)
        if columns and width in BLOCK:
            options += _transposed(rows, columns, width)
    _, least, strategy, step = min(options, key=lambda option: option[:2])
    at = len(inner) + least
    return Tile(
        strategy, tuple(outer), tuple(inner[at:]), tuple(inner[:at]), step, backs=tuple(backs)
    )


Option = tuple[float, int, Strategy, int]  # cycles, rows (negative), strategy, step


def _picked(row: Loop, columns: Sequence[Loop], width: int) -> list[Option]:
    """The way that picks the elements of each row, where it holds a vector."""
    nbytes, apart = row.size * width, row.source // width
    if row.source % width or nbytes < PIECE:
        return []
    vectors = -(-nbytes // (_lanes(nbytes) * PIECE))
    cycles = vectors * PICKED * (1 + abs(apart)) * prod(loop.size for loop in columns)
    return [(cycles, -1, Strategy.PICK_BOXES, apart)]


def _transposed(rows: Sequence[Loop], columns: Sequence[Loop], width: int) -> list[Option]:
    """The way that transposes blocks, where the columns allow it."""
    box = box_at(rows, columns, width)
    starts = windows(box.columns, width)
    if starts is None or firsts(box, 1, width) is None:
        return []
    nbytes = len(box.rows) * width
    lanes = _lanes(nbytes)
    cycles = BLOCK[width] * (1 + LANE * (lanes - 1)) * len(starts) * -(-nbytes // (lanes * PIECE))
    return [(cycles, -len(rows), Strategy.BOXES, lanes)]


def _lanes(nbytes: int) -> int:
    """The pieces of the widest vector that so many bytes fill."""
    return 1 << min(LANES, max(1, nbytes // PIECE)).bit_length() - 1


def parts_of(loops: Sequence[Loop], width: int) -> list[int]:
    """How much of each dim a box takes: whichever side has the shorter runs grows first."""
    taken = [1] * len(loops)
    by_target = list(range(len(loops) - 1, -1, -1))
    by_source = sorted(
        (i for i in by_target if loops[i].source), key=lambda i: abs(loops[i].source)
    )
    strides = [loop.target for loop in loops], [abs(loop.source) for loop in loops]
    goals = TARGET_RUN, SOURCE_RUN
    while True:
        options = []
        for order, apart, goal in zip((by_target, by_source), strides, goals, strict=True):
            run, following = _run_of(loops, taken, order, apart, width)
            if following is not None and run < goal:
                options.append((run / goal, following, -(-goal // apart[following])))
        room = BOX_BYTES // (width * prod(taken))
        if not options or room < 2:
            return taken
        _, following, wanted = min(options)
        size = loops[following].size
        steps = -(-size // max(2, min(size, wanted, room)))
        taken[following] = -(-size // steps)


def _run_of(
    loops: Sequence[Loop],
    taken: Sequence[int],
    order: Sequence[int],
    apart: Sequence[int],
    width: int,
) -> tuple[int, int | None]:
    """The bytes that a box takes side by side, but for gaps, and the dim that follows them."""
    run = width
    for i in order:
        if apart[i] >= run + LINE:
            return run, None
        if taken[i] == 1:
            return run, i
        run += apart[i] * (taken[i] - 1)
        if taken[i] < loops[i].size:
            return run, None
    return run, None


def box_at(rows: Sequence[Loop], columns: Sequence[Loop], width: int) -> Box:
    """The places of a box of these dims."""
    dims = [*columns, *rows]
    run, inner = width, len(dims)
    order = sorted(range(len(dims)), key=lambda i: dims[i].target)
    strides = [0] * len(dims)
    for at, i in enumerate(order):
        if dims[i].target != run:
            inner = at
            break
        strides[i], run = run, run * dims[i].size
    # An odd number of lines, so that runs do not fall on one set of a cache.
    pitch = (run // LINE + 2 | 1) * LINE if inner < len(dims) else run
    step = pitch
    for i in order[inner:]:
        strides[i], step = step, step * dims[i].size
    spread = [(dims[i].size, strides[i], dims[i].target) for i in reversed(order[inner:])]
    came = _sum([(loop.size, loop.source) for loop in columns])
    by_source = np.argsort(came, kind="stable")
    places = _sum([(loop.size, stride) for loop, stride in zip(columns, strides, strict=False)])
    return Box(
        _sum([(loop.size, loop.source) for loop in rows]),
        came[by_source],
        places[by_source],
        _sum([(size, stride) for size, stride, _ in spread]),
        _sum([(size, target) for size, _, target in spread]),
        run,
    )


def _sum(dims: Sequence[tuple[int, int]]) -> Offsets:
    """The offsets of all elements of dims of (size, stride), the last one fastest."""
    made = np.zeros(1, np.int64)
    for size, stride in dims:
        made = (made[:, None] + np.arange(size) * stride).reshape(-1)
    return made


def windows(columns: Offsets, width: int) -> Offsets | None:
    """Where pieces of 16 bytes begin that hold all columns; None: they lie between elements.

    The last one reaches back where there is room, so that nothing behind is read.
    """
    if ((columns - columns[0]) % width).any():
        return None
    last = max(int(columns[0]), int(columns[-1]) + width - PIECE)
    starts, at = [], 0
    while at < len(columns):
        start = min(int(columns[at]), last)
        starts.append(start)
        at = int(np.searchsorted(columns, start + PIECE - width, "right"))
    return np.array(starts, np.int64)


def firsts(box: Box, lanes: int, width: int) -> Offsets | None:
    """The first row of each block; blocks reach back.

    Fewer rows than a block has are filled up in front (from a row below 0 on) or
    behind, which spoils the stage there: None if both places are filled already.
    """
    count, step = len(box.rows), lanes * PIECE // width
    if count >= step:
        return np.minimum(np.arange(0, count, step), count - step)
    turn = np.argsort(box.places, kind="stable")
    place = box.places[turn]
    for sign, first in ((1, 0), (-1, count - step)):
        later = (
            ((sign * (turn[k:] - turn[:-k]) > 0) | (place[k:] - place[:-k] >= step * width)).all()
            for k in range(1, step // count + 1)
        )
        if all(later):
            return np.array([first])
    return None


def most_bytes(rows: Sequence[Loop], columns: Sequence[Loop], width: int) -> int:
    """A bound on the bytes of the tables of `box_sides`, whatever the vectors."""
    count, other = prod(loop.size for loop in rows), prod(loop.size for loop in columns)
    reach = sum((loop.size - 1) * abs(loop.source) for loop in columns)
    lines = count * min(other, reach // LINE + 2)
    blocks = count + 2 * LANES * PIECE
    return 8 * (lines + 2 * blocks + (5 + PIECE // width) * other)


def box_sides(rows: Sequence[Loop], columns: Sequence[Loop], width: int, lanes: int) -> Sides:
    """The tables of a box, as `kernels.boxes` reads them."""
    box = box_at(rows, columns, width)
    count, staged = len(box.rows), int(box.runs[-1]) + box.run + 2 * LINE
    places, starts, blocks = np.zeros(0, np.int64), box.columns, np.zeros(0, np.int64)
    before, behind, spoilt = 0, 0, 0
    if lanes:
        found, first = windows(box.columns, width), firsts(box, lanes, width)
        assert found is not None
        assert first is not None
        starts, blocks = found, first
        before = -min(0, int(first[0]))
        behind = max(0, lanes * PIECE // width - count - before)
        wanted = starts[:, None] + np.arange(0, PIECE, width)
        at = np.minimum(np.searchsorted(box.columns, wanted), len(box.columns) - 1)
        # What lies between columns goes to a place behind all others.
        free = staged + before * width
        places = np.where(box.columns[at] == wanted, box.places[at], free).reshape(-1)
        spoilt = (before + count + behind) * width + LINE
    lines = np.unique((box.rows[:, None] + np.unique(starts // LINE) * LINE) // LINE) * LINE
    filled = np.pad(box.rows, (before, behind), "edge")
    parts = (filled, box.columns, box.places, blocks, starts, places, box.runs, box.targets, lines)
    begin = np.cumsum([0, *map(len, parts)])[:-1].tolist()
    table = [(len(part), at) for part, at in zip(parts, begin, strict=True)]
    table[0] = count, before
    table.append((box.run, int(box.rows.max() + starts.max() + PIECE)))
    return Sides(np.array(table, np.int64), np.concatenate(parts), staged + spoilt)
