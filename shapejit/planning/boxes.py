"""Boxes: parts of a copy that are whole cache lines on both sides, permuted within a cache.

A box takes the last dims of the target until its runs in the target are long enough, and the
fastest dims of the source until its runs in the source are; a dim in both is taken once. The
elements of a box are put in the target's order on a stage, a buffer that stays in a cache, and are
written from there in long runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, prod
from typing import Any

from ..kernels.constants import BIT_COLUMNS, PIECE, WORD_BITS, per_byte, per_piece
from ..runtime.cpu_caches import LINE, l2
from . import thresholds
from .box_tables import MOST_LANES, SHORT_RUN, Box, box_in, elements_of, firsts, windows
from .loops import BoxLoop, Loop, in_boxes, length_of
from .shuffles import mixed_of, price
from .strategies import Strategy
from .tables import by_words
from .tiles import Tile

# A box has at most so many bytes of the target, and this part of an L2 cache, which also holds its
# source and that of the next box. Runs are at least so many bytes, since their first and last lines
# are shared with others.
BOX_BYTES, BOX_PART = 256 * 1024, 4
TARGET_RUN = 4096
SOURCE_RUN = 1024
LEAST_CODES = 1024  # of a box of elements narrower than a byte

# Cycles, about: of a block of 16 bytes of columns by as many of rows, transposed in registers, by
# width, some of which are padded (pixels of 3 bytes take 2.1 to 5.5 x the time without); what each
# more lane adds to it; and of an element or run that is moved alone.
BLOCK = {1: 64.0, 2: 28.0, 3: 20.0, 4: 12.0, 8: 5.0, 16: 1.2}
LANE = 0.4
ALONE = 2.0


def pays(tile: Tile, total: int) -> bool:
    """Whether a box with long runs on both sides is faster than the result of `tile_of`."""
    rows, columns = (length_of(side, tile.width) for side in (tile.rows, tile.columns))
    match tile.strategy:
        case Strategy.BOXES:
            return True
        case Strategy.TILES:
            long = max(rows, columns) >= thresholds.RUN
            late = long and total < thresholds.LATE_BOXES_FROM * l2()
            return not late and (rows < thresholds.ROWS_LEAST or columns < thresholds.RUN)
        case Strategy.RUN_TILES:
            return tile.width in BLOCK or rows < thresholds.ROWS_LEAST
    return False


def codes_pay(tile: Tile, width: int) -> bool:
    """Whether a box of codes is faster than the result of `bit_tile_of`."""
    match tile.strategy:
        case Strategy.CODE_BOXES:
            return True
        case Strategy.BIT_ROWS:
            return tile.width < width * (SHORT_RUN if per_byte(width) > 1 else thresholds.SHORT)
        case Strategy.BIT_TILES:
            return _few_bits(tile, width)
    return False


def _few_bits(tile: Tile, width: int) -> bool:
    """Whether a tile of bits reads or writes few of them at a time.

    Adjacent rows of several columns are written together. A word holds few elements of 4 bits: then
    boxes are faster unless rows are many, and those of one loop, which follow one another in the
    source. Otherwise tiles take 1.4 x the time, at most 6. Without `far`, transpositions of 1 and 2
    bits take up to 3 x the time.
    """
    row, column = length_of(tile.rows, 1), length_of(tile.columns, 1)
    if per_byte(width) == 1:
        return row < thresholds.SHORT or column < thresholds.RUN
    last = tile.columns[-1]
    run = row * last.size if last.target == row * width else row
    if by_words(column, width) and width * PIECE > WORD_BITS:
        return row < BIT_COLUMNS or len(tile.rows) > 1
    inner = next((loop for loop in reversed(tile.rows) if loop.size >= PIECE), tile.rows[0])
    far = column * width < PIECE and abs(inner.source) >= 8 * LINE
    return run < thresholds.RUN or far


def box_of(loops: Sequence[Loop], width: int) -> Tile:
    """The box of a copy: its elements are transposed in registers, or moved one by one.

    The method with the fewest cycles is chosen. `step` of the Tile is the lanes of a block (0: one
    by one).
    """
    outer, inner = _boxes(loops, parts_of(loops, width))
    at, lanes, _ = _method(inner, width)
    return Tile(Strategy.BOXES, width, outer, tuple(inner[at:]), tuple(inner[:at]), lanes)


def code_box_of(
    loops: Sequence[Loop], width: int, unit: int, always: bool = False, networks: bool = True
) -> Tile | None:
    """The box of a copy (in bits) whose elements are codes in it; None if it has too few.

    There is `always` one if nothing else makes the copy.
    """
    elements = [Loop(loop.size, loop.source // width, loop.target // unit) for loop in loops]
    parts = parts_of(elements, 1)
    if prod(parts) < LEAST_CODES and not always:
        return None
    if parts:  # Whole bytes, so that boxes share few of them.
        parts[-1] = min(loops[-1].size, -(-parts[-1] // 8) * 8)
    outer, inner = _boxes(loops, parts)
    box = ordered(inner, width, unit, networks)
    rows, columns = tuple(inner[box.columns :]), tuple(inner[: box.columns])
    return Tile(Strategy.CODE_BOXES, width, outer, rows, columns, box.lanes, shuffle=box.shuffle)


def ordered(
    dims: Sequence[Any], width: int, unit: int, networks: bool = True, least: float = inf
) -> Box:
    """The Box of dims (in bits): `direct`, or put in order by the method of the fewest cycles.

    That is one of `box_of`, or a network, if there may be `networks`. See `box_in` for `least`.
    """
    box, size = box_in(dims, width, unit, least), max(1, width // 8)
    if box.direct:
        return box
    elements = box.codes.loops
    at, lanes, cycles = _method(elements, size)
    # Long runs stay whole: 207 codes of int4 take 1.25 x the time by a network.
    if networks and (elements[-1][1:] != (size, size) or elements[-1].size < PIECE):
        sides = zip(elements, box.staged, strict=True)
        found = mixed_of([Loop(x.size, 8 * x.source, to) for x, to in sides], 8 * size)
        if found and price(found.network) * found.network.block * found.blocks < cycles:
            return box._replace(shuffle=found)
    return box._replace(columns=at, lanes=lanes)


def _boxes(loops: Sequence[Loop], parts: Sequence[int]) -> tuple[tuple[BoxLoop, ...], list[Loop]]:
    """`in_boxes` in the source's order: the next box continues in the source where possible."""
    outer, inner = in_boxes(loops, parts)
    return tuple(sorted(outer, key=lambda loop: -abs(loop.part * loop.source))), inner


def _method(inner: Sequence[Loop], width: int) -> tuple[int, int, float]:
    """The first of the dims of a box that are rows, and the lanes of its blocks."""
    alone = ALONE * prod(loop.size for loop in inner)
    if inner and inner[-1][1:] == (width, width):
        alone *= -(-width * inner[-1].size // PIECE) / inner[-1].size
    # Of equally good methods, the one with the most rows.
    options = [(alone, 0, 0)]
    for count in range(1, len(inner) + 1):
        columns, rows = inner[:-count], inner[-count:]
        if rows[0].target != length_of(rows[1:], width):
            break
        options.append((alone, -count, 0))
        if columns and width in BLOCK:
            lanes = _lanes(length_of(rows, 1) // per_piece(width))
            options.append((_transposed(rows, columns, width, lanes), -count, lanes))
    cycles, least, lanes = min(options)
    return len(inner) + least, lanes, cycles


def _transposed(rows: Sequence[Loop], columns: Sequence[Loop], width: int, lanes: int) -> float:
    """The cycles of blocks that are transposed; infinite if the columns do not allow that."""
    found = elements_of([*columns, *rows], len(columns), width)
    starts = windows(found.columns, width)
    if starts is None or firsts(found, 1, width) is None:
        return inf
    blocks = len(starts) * -(-length_of(rows, 1) // (lanes * per_piece(width)))
    return BLOCK[width] * (1 + LANE * (lanes - 1)) * blocks


def _lanes(pieces: int) -> int:
    """The pieces of the widest vector that so many fill."""
    return 1 << min(MOST_LANES, max(1, pieces)).bit_length() - 1


def parts_of(loops: Sequence[Loop], width: int, goals: tuple[int, int] | None = None) -> list[int]:
    """The size of a box along each dim, with runs as long as its size allows.

    `goals` are the bytes of runs in the target and in the source, a box their product.
    """
    by_target = range(len(loops) - 1, -1, -1)
    moving = (i for i in by_target if loops[i].source)
    by_source = sorted(moving, key=lambda i: abs(loops[i].source))
    most = prod(goals) if goals else min(BOX_BYTES, l2() // BOX_PART)
    target, source = goals or (TARGET_RUN, SOURCE_RUN)
    while True:
        taken = [1] * len(loops)
        _take(taken, [(i, loops[i].size, loops[i].target) for i in by_target], width, target)
        _take(taken, [(i, loops[i].size, abs(loops[i].source)) for i in by_source], width, source)
        if width * prod(taken) <= most:
            return taken
        target, source = target * 7 // 8, source * 7 // 8


def _take(taken: list[int], dims: Sequence[tuple[int, int, int]], width: int, goal: int) -> None:
    """Extend a box along dims (index, size, stride) to runs of `goal` bytes, except for gaps."""
    run = width
    for i, size, spacing in dims:
        if run >= goal or spacing >= run + LINE:
            return
        steps = -(-size // -(-goal // spacing))
        taken[i] = max(taken[i], -(-size // steps))
        run += spacing * (taken[i] - 1)
        if taken[i] < size:
            return
