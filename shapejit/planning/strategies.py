"""The strategies: one row for each loop that moves bytes, and what its kernel takes of a plan."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

from ..kernels.constants import (
    CODES_BLOCK,
    CODES_BYTES,
    COLUMNS,
    COUNT,
    COUNTS,
    DENSE,
    DENSE_PIECES,
    LINE,
    PAGE,
    PIECE,
    ROWS,
    STAGE_BYTES,
    STAGED,
    WIDTHS,
    per_byte,
)
from .box_tables import box_sides, most_bytes
from .loops import Loop
from .tables import Sides, bit_sides, blocks, byte_sides, interleaved_sides, scattered_sides

if TYPE_CHECKING:
    from .plans import Plan

# Bytes of a plan with its tables.
LARGEST_TILE_OF_BITS = 128 * 1024
LARGE = 32 * 1024  # of all others, but for boxes


class Call(NamedTuple):
    """What a kernel takes behind `places`, `work`, `span` and `stage`, which has so many bytes."""

    arguments: tuple[Any, ...]
    stage: int = STAGE_BYTES


def _rows(plan: Plan, vector: int) -> Call:
    return Call((plan.table, plan.width, _widest(plan.width)))


def _tiles(plan: Plan, vector: int) -> Call:
    tile, offsets, stage = plan.sides
    pieces = _pieces(tile[ROWS, COUNT] * plan.width, vector)
    return Call((plan.table, tile, offsets, _widest(plan.width), pieces), stage)


def _run_tiles(plan: Plan, vector: int) -> Call:
    tile, offsets, stage = plan.sides
    width = plan.width
    return Call((plan.table, tile, offsets, width, plan.reach, _widest(width)), stage)


def _scatter(plan: Plan, vector: int) -> Call:
    tile, offsets, stage = plan.sides
    return Call((plan.table, tile, offsets, plan.width, _widest(plan.width)), stage)


def _gather(plan: Plan, vector: int) -> Call:
    tile, offsets, _ = plan.sides
    return Call((plan.table, tile, offsets, _widest(plan.width)))


def _interleave(plan: Plan, vector: int) -> Call:
    tile, offsets, _ = plan.sides
    pieces = _even_pieces(plan.columns, plan.width, vector)
    return Call((plan.table, tile, offsets, COUNTS[plan.step], _widest(plan.width), pieces))


def _pick(plan: Plan, vector: int) -> Call:
    tile, offsets, _ = plan.sides
    return Call((plan.table, tile, offsets, *_picks(plan, vector)))


def _turn(plan: Plan, vector: int) -> Call:
    tile, offsets, _ = plan.sides
    return Call((plan.table, tile, offsets, COUNTS[plan.step], WIDTHS[plan.width // plan.step]))


def _boxes(plan: Plan, vector: int) -> Call:
    lanes = min(plan.step, vector // PIECE)
    tile, offsets, stage = box_sides(plan.rows, plan.columns, plan.width, lanes)
    width, pieces = _widest(plan.width), WIDTHS[max(1, lanes)]
    return Call((plan.table, tile, offsets, plan.width, plan.reach, width, pieces), stage)


def _pick_boxes(plan: Plan, vector: int) -> Call:
    tile, offsets, stage = box_sides(plan.rows, plan.columns, plan.width, 0)
    return Call((plan.table, tile, offsets, *_picks(plan, vector)), stage)


def _bit_rows(plan: Plan, vector: int) -> Call:
    return Call((plan.table, plan.width, plan.reach, plan.gaps))


def _bit_tiles(plan: Plan, vector: int) -> Call:
    tile, offsets, stage = plan.sides
    row = max(PIECE, int(tile[ROWS, COUNT]) // per_byte(plan.width))
    if tile[STAGED, DENSE] == DENSE_PIECES:
        row &= -row
    return Call((plan.table, tile, offsets, COUNTS[plan.width], _pieces(row, vector)), stage)


def _codes(plan: Plan, vector: int) -> Call:
    return _by_codes(plan, 1, 1)


def _codes_interleaved(plan: Plan, vector: int) -> Call:
    return _by_codes(plan, plan.step, 1)


def _codes_picked(plan: Plan, vector: int) -> Call:
    return _by_codes(plan, 1, plan.step)


def _by_codes(plan: Plan, turns: int, step: int) -> Call:
    outer, per_row = len(plan.loops) + 1, prod(loop.size for loop in plan.rows)
    tags = COUNTS[plan.width], COUNTS[turns], COUNTS[abs(step)], _direction(step)
    block = _codes_block(plan)
    return Call((plan.table, plan.reach, outer, per_row, block, plan.unit, *tags), CODES_BYTES)


def _codes_block(plan: Plan) -> int:
    """Elements that are codes together: whole bytes, and whole turns."""
    if plan.strategy is Strategy.BIT_INTERLEAVE:
        return CODES_BLOCK // (plan.step * LINE) * plan.step * LINE
    return CODES_BLOCK


def _picks(plan: Plan, vector: int) -> tuple[Any, ...]:
    """How far apart elements are picked, in which direction, their width, pieces of a vector."""
    step, pieces = plan.step, _even_pieces(plan.rows, plan.width, vector)
    return COUNTS[abs(step)], _direction(step), _widest(plan.width), pieces


def _direction(step: int) -> Any:
    """The tag of the direction in which elements are picked: two bytes mean backwards."""
    return WIDTHS[2 if step < 0 else 1]


def _widest(width: int) -> Any:
    """The tag of the widest element that fits into `width` bytes."""
    return WIDTHS[min(16, 1 << (width.bit_length() - 1))]


def _pieces(nbytes: int, vector: int) -> Any:
    """The tag of as many 16-byte pieces as a vector holds and `nbytes` fill."""
    return WIDTHS[1 << (min(vector, int(nbytes)) // PIECE).bit_length() - 1]


def _even_pieces(dims: tuple[Loop, ...], width: int, vector: int) -> Any:
    """The same for vectors that must not run over the last dim's end, if there are more."""
    nbytes = dims[-1].size * width
    return _pieces(nbytes if len(dims) == 1 else nbytes & -nbytes, vector)


Steps = list[tuple[int, ...]]


def _tile_loops(plan: Plan) -> Steps:
    """The outer loops, and those over the blocks of rows and of columns."""
    tile = plan.sides.tile
    dims = (ROWS, plan.rows), (COLUMNS, plan.columns)
    return [*plan.loops, *((blocks(tile[side]), 0, 0) for side, loops in dims if loops)]


def _box_loops(plan: Plan) -> Steps:
    """The loops over boxes, and how far the last step of each goes back."""
    return [(*loop, *back) for loop, back in zip(plan.loops, plan.backs, strict=True)]


def _code_loops(plan: Plan) -> Steps:
    """The outer loops, that over the blocks of a row of codes, and those within a row."""
    row = prod(loop.size for loop in plan.rows)
    return [*plan.loops, (-(-row // _codes_block(plan)), 0, 0), *plan.rows]


def _iterations(plan: Plan) -> int:
    """The iterations of all loops together."""
    return int(plan.table[:, 0].prod())


def _code_blocks(plan: Plan) -> int:
    return int(plan.table[: len(plan.loops) + 1, 0].prod())


def _box_weight(plan: Plan) -> int:
    return LARGE + most_bytes(plan.rows, plan.columns, plan.width)


class Row(NamedTuple):
    """All that a strategy is.

    `words` are what a Plan prints; `kernel` is "module.function" in `kernels/`. `call`
    makes what the kernel takes of a plan, on a machine with vectors of so many bytes;
    unless `staged`, it gets its stage only where lines are streamed. Of a plan, `loops`
    are the rows of its table, `sides` those of its tile, `units` its units of work,
    `weight` a bound on the bytes that it and its tables take. Flags: `bits`: strides and
    width count bits; `streams_gaps`: whole lines are streamed into a target with gaps,
    too; `vectors`: a small plan would move element by element what goes by whole vectors
    here.
    """

    words: str
    kernel: str = ""
    call: Callable[[Plan, int], Call] = _gather
    staged: bool = False
    loops: Callable[[Plan], Steps] = _tile_loops
    sides: Callable[[tuple[Loop, ...], tuple[Loop, ...], int], Sides] = byte_sides
    units: Callable[[Plan], int] = _iterations
    weight: Callable[[Plan], int] = lambda plan: LARGE
    bits: bool = False
    streams_gaps: bool = False
    vectors: bool = False


_CODES: dict[str, Any] = {
    "kernel": "bits.by_codes",
    "staged": True,
    "loops": _code_loops,
    "units": _code_blocks,
    "bits": True,
    "streams_gaps": True,
}
_BOXES: dict[str, Any] = {
    "staged": True,
    "loops": _box_loops,
    "weight": _box_weight,
    "streams_gaps": True,
}


class Strategy(Enum):
    """Which loop moves the bytes."""

    NOTHING = Row("nothing: there are no elements")
    NUMPY = Row("NumPy's copy: too small for a compiled call to pay")
    SMALL = Row("small: whole tensors, each by one thread")
    ONE_RUN = Row(
        "one run: the elements lie side by side",
        "copies.run",
        lambda plan, vector: Call((plan.nbytes,), 1),
        units=lambda plan: -(-plan.nbytes // PAGE),
    )
    ROWS = Row("rows: runs that lie side by side in source and target", "copies.rows", _rows)
    TILES = Row("tiles: blocks transposed in registers", "tiles.tiles", _tiles, streams_gaps=True)
    RUN_TILES = Row(
        "tiles of runs: short runs in another order",
        "tiles.run_tiles",
        _run_tiles,
        streams_gaps=True,
    )
    SCATTER = Row(
        "scatter: runs in the source's order, each to one of a few places",
        "scatters.scatter",
        _scatter,
        sides=scattered_sides,
        streams_gaps=True,
    )
    INTERLEAVE = Row(
        "interleave: a few rows take turns",
        "gathers.interleave_rows",
        _interleave,
        sides=interleaved_sides,
        vectors=True,
    )
    PICK = Row("pick: elements a few apart, or backwards", "gathers.pick_rows", _pick, vectors=True)
    TURN = Row(
        "turn: short groups, each in the other order", "gathers.turn_rows", _turn, vectors=True
    )
    GATHER = Row("gather: element by element into whole lines", "gathers.gather", _gather)
    BOXES = Row(
        "boxes: whole lines of both sides, permuted within a cache",
        "boxes.boxes",
        _boxes,
        **_BOXES,
    )
    PICK_BOXES = Row(
        "boxes of elements a few apart, or backwards", "boxes.pick_boxes", _pick_boxes, **_BOXES
    )
    BIT_RUN = Row(
        "one run of bits: the elements lie side by side, between bytes",
        "bits.bit_run",
        lambda plan, vector: Call((plan.width,), 0),
        units=lambda plan: plan.nbytes // PAGE + 2,  # the pages that it may touch
        bits=True,
        streams_gaps=True,
    )
    BIT_ROWS = Row(
        "rows of bits: runs that begin between bytes",
        "bits.bit_rows",
        _bit_rows,
        staged=True,
        bits=True,
        streams_gaps=True,
    )
    BIT_TILES = Row(
        "tiles of bits: packed blocks transposed in registers",
        "bit_tiles.bit_tiles",
        _bit_tiles,
        staged=True,
        sides=bit_sides,
        weight=lambda plan: LARGEST_TILE_OF_BITS,
        bits=True,
        streams_gaps=True,
    )
    CODES = Row("codes: a byte per element on the way, then packed", call=_codes, **_CODES)
    BIT_INTERLEAVE = Row("codes of a few rows that take turns", call=_codes_interleaved, **_CODES)
    BIT_PICK = Row("codes of elements a few apart, or backwards", call=_codes_picked, **_CODES)

    @property
    def row(self) -> Row:
        """All that the strategy is."""
        return self.value
