"""Tiles for transpositions and the like: which dims one has. `tables` bounds its bytes."""

from __future__ import annotations

from typing import Any, NamedTuple

from ..kernels.constants import BIT_COLUMNS, NARROW_BITS, PIECE, per_byte
from ..runtime.cpu_caches import LINE, PAGE
from . import thresholds
from .loops import Loop, by_source, length_of, split
from .strategies import Strategy
from .tables import (
    BIT_ROW,
    ROW_BYTES,
    RUN_TILE,
    STREAMS,
    Dims,
    tile_bytes,
)


class Tile(NamedTuple):
    """A strategy and its loops: see `Plan`.

    The first element is `shift` bits after that of the Layout, `target_shift` in the target.
    """

    strategy: Strategy
    width: int
    loops: tuple[Any, ...]  # Loops, or BoxLoops
    rows: Dims = ()
    columns: Dims = ()
    step: int = 0
    shift: int = 0
    target_shift: int = 0
    shuffle: Any = None  # a Shuffle, of a box of codes


def tile_of(loops: list[Loop], width: int) -> Tile:
    """The first strategy that fits; the loops of BOXES are not yet cut, see `boxes.box_of`."""
    if not loops:
        return Tile(Strategy.ONE_RUN, 8 * width, ())
    if loops[-1].target != width:  # a target with gaps between single runs
        return Tile(Strategy.ROWS, width, tuple(loops))
    chain = by_source(loops[:-1])
    if width not in ROW_BYTES:
        return _tile_of_runs(loops, chain, width)
    if chain and abs(chain[0].source) == width:
        tile = _transposed(Strategy.TILES, loops, chain, width, tile_bytes(width))
        if min(length_of(tile.rows, width), length_of(tile.columns, width)) >= PIECE:
            return tile
    return Tile(Strategy.BOXES, width, tuple(loops))


def _tile_of_runs(loops: list[Loop], chain: list[Loop], width: int) -> Tile:
    """The tile for reordered runs of `width` bytes; `chain` are the loops by source stride."""
    last = loops[-1]
    nearest = abs(chain[0].source) if chain else 0
    if not 0 < nearest < abs(last.source) or width > PAGE:  # in the source's order as well
        return Tile(Strategy.ROWS, width, tuple(loops))
    if (
        chain[0].source == width >= LINE
        and last.source > 0
        and last.size * width >= thresholds.LONG_RUN
    ):
        parts, column = split(chain[0], STREAMS)
        nbytes = column.size * width  # side by side in the source
        if nbytes == last.source or (nbytes > thresholds.LONG_RUN and column.size > 1):
            others = (loop for loop in loops if loop not in (last, chain[0]))
            outer = *others, *((parts,) if parts.size > 1 else ())
            return Tile(Strategy.SCATTER, width, outer, (last,), (column,))
    places = length_of(loops[loops.index(chain[0]) + 1 :], 1)  # that are read in turn
    if width > thresholds.LONG_RUN or (width >= LINE and places <= thresholds.PLACES):
        return Tile(Strategy.ROWS, width, tuple(loops))
    return _transposed(Strategy.RUN_TILES, loops, chain, width, RUN_TILE)


def bit_tile_of(loops: list[Loop], run: int, width: int, unit: int) -> Tile:
    """The tile for loops in bits, with elements of `width` bits and `unit` bits in the target."""
    if not loops and unit == width:
        return Tile(Strategy.ONE_RUN, run, ())
    if run > width:
        return Tile(Strategy.BIT_ROWS, run, tuple(loops))
    chain = by_source(loops[:-1])
    if chain and loops[-1].target == unit == width == abs(chain[0].source):
        limits = BIT_ROW * per_byte(width) * width, BIT_COLUMNS * width
        tile = _transposed(Strategy.BIT_TILES, loops, chain, width, limits)
        rows, columns = length_of(tile.rows, 1), length_of(tile.columns, 1)
        # With shorter sides boxes take .2 to .8 of the time.
        least = PIECE if per_byte(width) == 1 else PIECE // 2
        if rows >= PIECE // 2 and columns >= least:
            return tile
    return Tile(Strategy.CODE_BOXES, width, tuple(loops))


def _transposed(
    strategy: Strategy, loops: list[Loop], chain: list[Loop], width: int, limits: tuple[int, int]
) -> Tile:
    """The tile of a transposition: rows are the target's last dims, columns the source's fastest.

    Both grow to a block; `limits` are the lengths of its sides, in the unit of `width` and strides.
    Columns with negative source strides are reversed on both sides.
    """
    step = abs(chain[0].source)
    rows, columns, taken = [loops[-1]], [chain[0]], 0
    while taken < len(rows) + len(columns):
        taken = len(rows) + len(columns)
        by_row, by_column = length_of(rows, width), length_of(columns, width)
        row, column = [*loops[::-1], None][len(rows)], [*chain, None][len(columns)]
        # Rows that are long enough leave the next dim of the source to few columns: int4 1.8 x.
        left = strategy is Strategy.BIT_TILES and row == column
        left = left and by_column < NARROW_BITS and by_row >= 16 * LINE
        if row and row.target == by_row < limits[0] and not left and row not in columns:
            rows.insert(0, row)
        joins = column and abs(column.source) * width == step * by_column
        if column and joins and by_column < limits[1] and column not in rows:
            columns.insert(0, column)
    # In the source's order, so that tiles that follow one another read on where they can.
    around = [loop for loop in loops if loop not in rows and loop not in columns]
    outer = sorted(around, key=lambda loop: -abs(loop.source))
    turned = tuple(Loop(n, abs(s), t if s > 0 else -t) for n, s, t in columns)
    back = [loop for loop in columns if loop.source < 0]
    scale = 1 if strategy.row.bits else 8
    shift, target_shift = (
        scale * sum((loop.size - 1) * loop[side] for loop in back) for side in (1, 2)
    )
    return Tile(strategy, width, tuple(outer), tuple(rows), turned, 0, shift, target_shift)
