"""The table of strategies: a row per loop that moves bytes, with the arguments of its kernel."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any, NamedTuple

from ..kernels.constants import (
    COLUMNS,
    COUNT,
    DENSE,
    DENSE_PIECES,
    PIECE,
    ROWS,
    STAGE_BYTES,
    STAGED,
    coders,
    per_byte,
)
from ..runtime.cpu_caches import PAGE
from ..runtime.kernel_names import Function, width_tag
from .box_tables import Box, box_in, functions_of, steps_of
from .loops import Loop
from .plans import Plan
from .shuffle_tables import shuffle_loops, shuffle_table, shuffled
from .tables import (
    Sides,
    bit_sides,
    blocks,
    byte_sides,
    scattered_sides,
)

Arguments = tuple[Any, ...]
Takes = Callable[[Plan, int], Arguments]
Tables = Callable[[Plan, int], tuple[Arguments, int]]


def _loops(plan: Plan, vector: int) -> tuple[Arguments, int]:
    return (plan.table,), STAGE_BYTES


def _tile(plan: Plan, vector: int) -> tuple[Arguments, int]:
    tile, offsets, stage = plan.sides
    return (plan.table, tile, offsets), stage


def _box(plan: Plan, vector: int) -> Box:
    """The Box of BOXES and CODE_BOXES."""
    scale = 1 if plan.row.bits else 8
    dims = [Loop(n, scale * s, scale * t) for n, s, t in (*plan.columns, *plan.rows)]
    made = box_in(dims, scale * plan.width, plan.unit if plan.row.bits else scale * plan.width)
    columns, lanes = len(plan.columns), _lanes(plan, vector)
    return made._replace(columns=columns, lanes=lanes, shuffle=plan.shuffle)


def _steps(plan: Plan, vector: int) -> tuple[Arguments, int]:
    box = _box(plan, vector)
    tables, stage = steps_of(box, box.run(), plan.reach)
    return (plan.table, *tables), stage


def _functions(plan: Plan, vector: int) -> Arguments:
    return (functions_of(_box(plan, vector)),)


def _lanes(plan: Plan, vector: int) -> int:
    """The pieces of a block of BOXES; 0 without blocks."""
    return min(plan.step, vector // PIECE)


def _transposes(plan: Plan, vector: int) -> Arguments:
    """The function that transposes elements, and the bytes of one and of its vectors."""
    size, nbytes = plan.columns[-1].source, plan.sides.tile[ROWS, COUNT] * plan.width
    filled = _filled(nbytes, vector)
    tags = width_tag(size), width_tag(filled // PIECE)
    return Function("transpositions.transpose", 9, tags), size, filled


def _bit_transposes(plan: Plan, vector: int) -> Arguments:
    """What unpacks and packs, if need be, and transposes packed rows by vectors of so many bytes.

    These are whole vectors if rows are adjacent.
    """
    together = per_byte(plan.width)
    row = max(PIECE, int(plan.sides.tile[ROWS, COUNT]) // together)
    dense = plan.sides.tile[STAGED, DENSE] == DENSE_PIECES
    filled = _filled(row & -row if dense else row, vector)
    function = Function("bit_tiles.transpose", 8, (width_tag(filled // PIECE),))
    return *(coders(plan.width) if together == 1 else (0, 0)), function, filled


def _filled(nbytes: int, vector: int) -> int:
    """The bytes of the widest vector, up to `vector`, that a row of `nbytes` fills."""
    return 1 << min(vector, int(nbytes)).bit_length() - 1


Steps = list[tuple[int, ...]]


def _loops_in_bits(plan: Plan) -> Steps:
    """The loops over boxes of whole bytes, in bits."""
    return [loop._replace(source=8 * loop.source, target=8 * loop.target) for loop in plan.loops]


def _tile_loops(plan: Plan) -> Steps:
    """The outer loops, and the loops over the blocks of rows and of columns."""
    return [*plan.loops, *((blocks(plan.sides.tile[side]), 0, 0) for side in (ROWS, COLUMNS))]


class StrategyRow(NamedTuple):
    """One strategy: the text and the kernel of a Plan.

    `words` are what a Plan prints; `kernel` is "module.function" in `kernels/`. The kernel's
    arguments are addresses, `work`, `span`, `stage`, then the `tables`, which are returned with the
    bytes of its stage, then what it `takes` of a plan; both depend on the bytes of a vector. Unless
    `staged`, it gets a stage only if lines are streamed.

    Functions of a plan: `loops` returns the rows of its table, whose iterations are its units of
    work, `sides` those of its tile.
    Flags: `bits`: strides and width count bits; `bit_addresses`: those of the kernel do, too;
    `collects`: what is streamed is adjacent in the target.
    """

    words: str
    kernel: str = ""
    takes: Takes = lambda plan, vector: ()
    tables: Tables = _tile
    staged: bool = False
    loops: Callable[[Plan], Steps] = lambda plan: [*plan.loops]
    sides: Callable[[Plan], Sides] = lambda plan: byte_sides(
        plan.rows, plan.columns, plan.width, plan.step
    )
    bits: bool = False
    bit_addresses: bool = False
    collects: bool = False


class Strategy(Enum):
    """The loop that moves the bytes of a Plan.

    Comments say how many times as long the affected cases take by other strategies (Zen 3, 16 to 40
    MiB), as geometric mean and at most.
    """

    NOTHING = StrategyRow("nothing: there are no elements")
    SMALL = StrategyRow("small: whole tensors, each by one thread")
    ONE_RUN = StrategyRow(
        "one run: the elements are contiguous",
        "bits.bit_run",
        lambda plan, vector: (plan.width,),
        tables=lambda plan, vector: ((), 1),
        loops=lambda plan: [(plan.nbytes // PAGE + 2, 0, 0)],  # the pages that it may touch
        bits=True,
    )
    ROWS = StrategyRow(
        "rows: runs that are contiguous in source and target",
        "copies.rows",
        lambda plan, vector: (plan.width, plan.reach, width_tag(1)),
        tables=_loops,
        collects=True,
    )
    # Array by array: 1.2, at most 2.6 (joined points of three float32).
    INTERLEAVED_ROWS = StrategyRow(
        "interleaved rows of several arrays",
        "copies.rows",
        lambda plan, vector: (plan.width, plan.reach, width_tag(2)),
        tables=_loops,
        collects=True,
    )
    TILES = StrategyRow(
        "tiles: blocks transposed in registers",
        "tiles.tiles",
        lambda plan, vector: (0, *_transposes(plan, vector), plan.reach),
        loops=_tile_loops,
    )
    # BOXES: 1.3, at most 1.6 (ttc-30, 43, 45; heads of int4); ROWS: 1.8, at most 4.6.
    RUN_TILES = StrategyRow(
        "tiles of runs: short runs in another order",
        "tiles.tiles",
        lambda plan, vector: (0, 0, plan.width, plan.width, plan.reach),
        loops=_tile_loops,
    )
    # ROWS: 1.9, at most 3.4; RUN_TILES: 1.4, at most 1.6; BOXES: 1.9, at most 2.5 (split heads).
    SCATTER = StrategyRow(
        "scatter: runs in the source's order, to a few places",
        "scatters.scatter",
        lambda plan, vector: (plan.width,),
        sides=lambda plan: scattered_sides(plan.rows, plan.columns, plan.width),
        loops=_tile_loops,
    )
    BOXES = StrategyRow(
        "boxes: whole lines of both sides, permuted within a cache",
        "boxes.boxes",
        _functions,
        tables=_steps,
        staged=True,
        loops=_loops_in_bits,
        bit_addresses=True,
    )
    # By networks, slices, flips and interleaved rows of at most 4 KiB take 0.8 of the time, and
    # steps of 5 and more 0.1 to 0.5.
    CODE_BOXES = StrategyRow(
        "boxes of codes: a byte per element within a cache",
        "boxes.boxes",
        _functions,
        tables=_steps,
        staged=True,
        bits=True,
    )
    BIT_ROWS = StrategyRow(
        "rows of bits: runs that begin off byte boundaries",
        "bits.bit_rows",
        lambda plan, vector: (plan.width, plan.reach, int(plan.gaps)),
        tables=_loops,
        staged=True,
        bits=True,
    )
    BIT_TILES = StrategyRow(
        "tiles of bits: packed blocks transposed in registers",
        "bit_tiles.bit_tiles",
        lambda plan, vector: (plan.reach, *_bit_transposes(plan, vector)),
        staged=True,
        sides=lambda plan: bit_sides(plan.rows, plan.columns, plan.width),
        bits=True,
        loops=_tile_loops,
    )
    SHUFFLE = StrategyRow(
        "shuffle: blocks of elements permuted in registers",
        "shuffles.shuffle_blocks",
        shuffled,
        tables=shuffle_table,
        loops=shuffle_loops,
    )

    def __repr__(self) -> str:
        return str(self)

    @property
    def row(self) -> StrategyRow:
        """The row of this strategy."""
        return self.value
