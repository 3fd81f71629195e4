"""Layout -> normal form -> Plan: how the bytes of a view reach row-major order.

A Plan is a printable value: it names its strategy, the loops in the order in
which they run, the two sides of a tile, and what is streamed past the caches.
Running it is the engine's work.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property, lru_cache
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .errors import ReshapeError
from .layout import Layout

# Measured on 2-core x86 machines; bytes of the result. A compiled call costs about
# 4 us beyond NumPy's, a parallel launch 2-10 us; streaming past the caches pays once
# the result is too large to be found there again.
NUMPY_BELOW = 17 * 1024  # elements, or 16-byte pieces of runs
PARALLEL_FROM = 1024 * 1024
STREAM_FROM = 8 * 1024 * 1024

# Bytes of a tile along the target (rows) and along the source (columns), by the width of
# what moves whole: several lines of each, so that DRAM pages and the hardware prefetchers
# are used well, and with the stage no more than a core's L2 cache. Columns of narrow
# elements are many; runs (0) are cheap to stage.
ROW_BYTES = {0: 1024, 1: 1024, 2: 1024, 4: 512, 8: 512, 16: 512}
COLUMN_BYTES = {0: 2048, 1: 512, 2: 1024, 4: 2048, 8: 2048, 16: 2048}

GATHER_BYTES = 2048  # bytes of a block that is gathered element by element
STREAMS = 64  # places that are read in turn and still prefetched: heads merge 8.9 -> 6.2 ms
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
PAGE = 4096
LINE = 64
PIECE = 16  # the least bytes that a block of a tile takes of either side


class Strategy(Enum):
    """Which loop moves the bytes."""

    NOTHING = "nothing: there are no elements"
    ONE_RUN = "one run: the elements lie side by side"
    ROWS = "rows: runs that lie side by side in source and target"
    TILES = "tiles: blocks transposed in registers"
    RUN_TILES = "tiles of runs: short runs in another order"
    INTERLEAVE = "interleave: a few rows take turns"
    PICK = "pick: elements a few apart, or backwards"
    TURN = "turn: short groups, each in the other order"
    GATHER = "gather: element by element into whole lines"
    BITS = "bits: elements across byte boundaries"
    NUMPY = "NumPy's copy: too small for a compiled call to pay"


STREAMED_ANYWHERE = (Strategy.TILES, Strategy.RUN_TILES)


class Loop(NamedTuple):
    """One dim of the normal form: its size and both strides (bytes; bits for BITS)."""

    size: int
    source: int
    target: int


@dataclass(frozen=True)
class Plan:
    """How one layout becomes row-major.

    `loops` are the outer dims, outermost first. `rows` are the dims of a tile
    that lie side by side in the target, `columns` those that lie side by side
    in the source. `width` is the bytes of an element or run that moves whole.
    `step` is how many rows INTERLEAVE takes, how many elements apart PICK finds
    its own, or how many are in a group of TURN, whose `width` is a group's. For
    BITS, `width` and all strides are bits, and `unit` is what an element takes
    in the target. `offset` and `target_offset` (bytes) and `bit_offset` lead to
    the first element; `nbytes` is what is written, `padding` the bits behind the
    last element, which become zero. `kept` is the engine's.
    """

    strategy: Strategy
    nbytes: int
    loops: tuple[Loop, ...] = ()
    rows: tuple[Loop, ...] = ()
    columns: tuple[Loop, ...] = ()
    width: int = 1
    unit: int = 8
    step: int = 0
    offset: int = 0
    target_offset: int = 0
    bit_offset: int = 0
    padding: int = 0
    parallel: bool = False
    streaming: bool = False
    kept: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)

    def __str__(self) -> str:
        scale = "bits" if self.strategy is Strategy.BITS else "bytes"
        lines = [f"{self.strategy.value}; {self.width} {scale} at a time, {self.nbytes} bytes"]
        for part, loops in (("loop", self.loops), ("column", self.columns), ("row", self.rows)):
            lines += [
                f"  {part} {loop.size}: source {loop.source:+d}, target {loop.target:+d} {scale}"
                for loop in loops
            ]
        lines.append("  split over the threads" if self.parallel else "  one thread")
        if self.streaming:
            lines[-1] += ", whole lines streamed past the caches"
        return "\n".join(lines)

    @cached_property
    def table(self) -> NDArray[np.int64]:
        """What the kernels walk, one row (size, source, target) a loop; blocks of a tile last."""
        blocks = [
            (-(-side[0] // side[3]), 0, 0)
            for side, dims in zip(self.tile, (self.rows, self.columns), strict=False)
            if dims
        ]
        return np.array([*self.loops, *blocks], np.int64).reshape(-1, 3)

    @cached_property
    def count(self) -> int:
        """Units of work: pages, groups of 8 elements, or iterations of everything in `table`."""
        if self.strategy is Strategy.ONE_RUN:
            return -(-self.nbytes // PAGE)
        if self.strategy is Strategy.BITS:
            return -(-self.elements // 8)
        return int(self.table[:, 0].prod())

    @cached_property
    def elements(self) -> int:
        """The number of elements or runs that the outer loops walk."""
        return prod(loop.size for loop in self.loops)

    @cached_property
    def tile(self) -> NDArray[np.int64]:
        """Rows, columns, stage and bounce buffer, as `kernels.tiles` reads them."""
        return np.array([facts for facts, _ in self._sides], np.int64)

    @cached_property
    def offsets(self) -> NDArray[np.int64]:
        """The offsets of all sides, one after the other."""
        return np.concatenate([table for _, table in self._sides])

    @cached_property
    def stage_bytes(self) -> int:
        """Bytes of the stage that one thread needs to stream a tile."""
        bounce = self.tile[3]
        return int(bounce[1] + LINE * bounce[2])

    @cached_property
    def _sides(self) -> tuple[tuple[tuple[int, ...], NDArray[np.int64]], ...]:
        width, kind = self.width, _kind(self.width)
        rows, row_offsets = _side([(n, s) for n, s, _ in self.rows], ROW_BYTES[kind], width)
        # Columns that take turns are dense in the target: what varies is the source.
        turns = self.strategy is Strategy.INTERLEAVE
        sides = [(n, s if turns else t) for n, s, t in self.columns]
        columns, column_offsets = _side(sides, COLUMN_BYTES[kind], width)
        # A line before and behind: rows reach back and run over, see kernels.tiles.
        pitch = -(-rows[3] * width // LINE) * LINE + LINE + max(LINE, width)
        whole = rows[0] * width
        dense = self._dense(whole) and rows[3] == rows[0]
        if dense:
            pitch = whole
        staged = np.arange(columns[3], dtype=np.int64) * pitch
        apart = columns[3] * width + LINE
        starts = np.cumsum([0, len(row_offsets), len(column_offsets)]).tolist()
        step = self.columns[-1].source if self.columns else 0
        behind = -(-(pitch * columns[3] + 2 * LINE) // PAGE) * PAGE
        return (
            ((*rows, starts[0], 0), row_offsets),
            ((*columns, starts[1], step), column_offsets),
            ((int(dense), 0, pitch, 0, starts[2], 0), staged),
            ((int(self._bounced(row_offsets)), behind, apart, 0, 0, 0), row_offsets[:0]),
        )

    def _bounced(self, row_offsets: NDArray[np.int64]) -> bool:
        """Whether the rows of a block pass through a buffer."""
        if self.width > BOUNCE:
            return False
        lines = row_offsets[: LINE // self.width] % PAGE // LINE
        return int(np.bincount(lines).max()) > WAYS

    def _dense(self, whole: int) -> bool:
        """Whether the rows of neighbouring columns, `whole` bytes each, follow one another."""
        return len(self.columns) == 1 and self.columns[0].target == whole


def _side(
    dims: Sequence[tuple[int, int]], nbytes: int, width: int
) -> tuple[tuple[int, int, int, int], NDArray[np.int64]]:
    """One side of a tile: (count, inner count, outermost stride, block) and its offsets.

    The offsets repeat, a stride further, with every step of the outermost dim;
    so the table holds one step and a block more, however large the dim is.
    """
    if not dims:
        return (1, 1, 0, 1), np.zeros(1, np.int64)
    (size, stride), *inner = dims
    within = np.zeros(1, np.int64)
    for n, s in inner:
        within = (within[:, None] + np.arange(n) * s).reshape(-1)
    count = size * len(within)
    block = min(-(-nbytes // width), count)
    steps = (block + 3 * LINE // width + 2) // len(within) + 2
    table = (np.arange(steps)[:, None] * stride + within).reshape(-1)
    return (count, len(within), stride, block), table


@lru_cache(maxsize=4096)
def plan(layout: Layout, unit: int, into: Layout | None = None) -> Plan:
    """The Plan that puts the elements of `layout` side by side, `unit` bits apart.

    `unit` is `layout.bits`, or 8 to unpack elements narrower than a byte. With
    `into`, a Layout of the same shape and width whose last dims are row-major,
    they go there instead: a part of a larger output. Such a plan is in whole
    bytes; ReshapeError where the places are not.

    >>> print(plan(Layout.row_major((512, 512), 32).permute((1, 0)), 32))
    tiles: blocks transposed in registers; 4 bytes at a time, 1048576 bytes
      column 512: source +4, target +2048 bytes
      row 512: source +2048, target +4 bytes
      split over the threads
    """
    count = layout.size
    nbytes = (count * unit + 7) // 8
    if count == 0:
        return Plan(Strategy.NOTHING, 0)
    parallel, streaming = nbytes >= PARALLEL_FROM, nbytes >= STREAM_FROM
    target = into or Layout.row_major(layout.shape, unit)
    gaps = not target.contiguous
    loops = _normal_form(layout, target)
    offset, bit_offset = divmod(layout.offset, 8)
    target_offset, bit_shift = divmod(target.offset, 8)
    run, outer = _run(layout, unit, loops)
    # fmt: off
    whole = layout.bits == unit or count == 1
    if not outer and whole and bit_offset == 0 == bit_shift and (into is None or run % 8 == 0):
        return Plan(Strategy.ONE_RUN, nbytes, offset=offset, target_offset=target_offset,
                    padding=-run % 8, parallel=parallel, streaming=streaming)
    strides = [s for loop in outer for s in (loop.source, loop.target)]
    if run % 8 or bit_offset or bit_shift or any(s % 8 for s in strides):
        if into is not None:
            raise ReshapeError("elements do not lie on bytes", layout.shape, asked_by="plan")
        return Plan(Strategy.BITS, nbytes, tuple(loops), width=layout.bits, unit=unit,
                    offset=offset, bit_offset=bit_offset, parallel=parallel)
    width = run // 8
    outer = [Loop(size, source // 8, target // 8) for size, source, target in outer]
    if nbytes < NUMPY_BELOW * min(width, PIECE) and layout.bits >= 8:
        return Plan(Strategy.NUMPY, nbytes, tuple(outer), width=width)
    tile = _tile(outer, width)
    # Into an output with gaps only tiles and pages stream: all else gathers on the stage.
    streaming &= not gaps or tile.strategy in STREAMED_ANYWHERE or width > PAGE
    if tile.strategy is Strategy.TURN:
        width *= tile.step
    return Plan(tile.strategy, nbytes, tile.loops, tile.rows, tile.columns, width,
                step=tile.step, offset=offset + tile.shift,
                target_offset=target_offset + tile.target_shift,
                parallel=parallel, streaming=streaming)
    # fmt: on


def _normal_form(layout: Layout, target: Layout) -> list[Loop]:
    """The dims in target order, in bits: size-1 dims dropped, neighbours merged."""
    loops: list[Loop] = []
    for size, source, to in zip(layout.shape, layout.strides, target.strides, strict=True):
        if size == 1:
            continue
        if loops and loops[-1][1:] == (size * source, size * to):
            loops[-1] = Loop(loops[-1].size * size, source, to)
        else:
            loops.append(Loop(size, source, to))
    return loops


def _run(layout: Layout, unit: int, loops: list[Loop]) -> tuple[int, list[Loop]]:
    """The bits that lie side by side in source and target, and the loops around them."""
    if layout.bits == unit and loops and loops[-1][1:] == (unit, unit):
        return unit * loops[-1].size, loops[:-1]
    return layout.bits, loops


class _Tile(NamedTuple):
    """What `_tile` finds: a strategy, its loops, and the shifts (bytes) of both first elements."""

    strategy: Strategy
    loops: tuple[Loop, ...]
    rows: tuple[Loop, ...] = ()
    columns: tuple[Loop, ...] = ()
    step: int = 0
    shift: int = 0
    target_shift: int = 0


def _tile(loops: list[Loop], width: int) -> _Tile:
    """The first way that fits, from whole vectors down to single elements."""
    if loops[-1].target != width:  # a target with gaps between single runs
        return _Tile(Strategy.ROWS, tuple(loops))
    chain = sorted((loop for loop in loops[:-1] if loop.source), key=lambda loop: abs(loop.source))
    last = loops[-1]
    if not _kind(width):
        nearest = abs(chain[0].source) if chain else 0
        in_order = not 0 < nearest < abs(last.source)
        if in_order or width > RUN or (width >= LINE and _streams(loops, chain[0]) <= STREAMS):
            return _Tile(Strategy.ROWS, tuple(loops))
        return _transposed(Strategy.RUN_TILES, loops, chain, width)
    if chain and abs(chain[0].source) == width:
        tile = _transposed(Strategy.TILES, loops, chain, width)
        if min(_bytes(tile.rows, width), _bytes(tile.columns, width)) >= PIECE:
            return tile
        inner = loops[loops.index(chain[0]) + 1 :]
        taking_turns = prod(loop.size for loop in inner)
        dense = chain[0].target == taking_turns * width
        turns = taking_turns in TURNS and chain[0].size * width >= PIECE
        if chain[0].source > 0 and dense and turns:
            around, columns = _whole_pieces(loops[: -len(inner)], width)
            return _Tile(Strategy.INTERLEAVE, around, tuple(inner), columns, taking_turns)
    apart = last.source // width
    if apart in STEPS and last.source % width == 0 and last.size * width >= PIECE:
        return _Tile(Strategy.PICK, *_whole_pieces(loops, width), step=apart)
    group = width * last.size
    if apart == -1 and group <= PIECE and len(loops) > 1 and loops[-2][1:] == (group, group):
        back = (last.size - 1) * last.source
        groups = (loops[-2],)
        return _Tile(Strategy.TURN, tuple(loops[:-2]), groups, step=last.size, shift=back)
    return _Tile(Strategy.GATHER, *_last_block(loops, width))


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
    while last < len(loops) and _bytes(loops[-last:], width) < GATHER_BYTES:
        if loops[-last - 1].target != loops[-last].size * loops[-last].target:
            break
        last += 1
    return tuple(loops[:-last]), tuple(loops[-last:])


def _transposed(strategy: Strategy, loops: list[Loop], chain: list[Loop], width: int) -> _Tile:
    """Rows are the target's last dims, columns the source's fastest; both grow to a block.

    Columns that the source runs through backwards are turned around on both sides.
    """
    kind, step = _kind(width), abs(chain[0].source)
    rows, columns = [loops[-1]], [chain[0]]
    growing = True
    while growing:
        growing = False
        following = loops[-1 - len(rows)] if len(rows) < len(loops) else None
        side = following and following.target == _bytes(rows, width)
        room = _bytes(rows, width) < ROW_BYTES[kind]
        if following and side and room and following not in columns:
            rows.insert(0, following)
            growing = True
        following = chain[len(columns)] if len(columns) < len(chain) else None
        joins = following and abs(following.source) == step * _bytes(columns, 1)
        room = _bytes(columns, width) < COLUMN_BYTES[kind]
        if following and joins and room and following not in rows:
            columns.insert(0, following)
            growing = True
    outer = tuple(loop for loop in loops if loop not in rows and loop not in columns)
    turned = tuple(Loop(n, abs(s), t if s > 0 else -t) for n, s, t in columns)
    back = [((n - 1) * s, (n - 1) * t) for n, s, t in columns if s < 0]
    shift, target_shift = sum(s for s, _ in back), sum(t for _, t in back)
    return _Tile(strategy, outer, tuple(rows), turned, 0, shift, target_shift)


def _kind(width: int) -> int:
    """The width of elements that are transposed in registers, 0 for longer runs."""
    return width if width in (1, 2, 4, 8, 16) else 0


def _bytes(loops: Sequence[Loop], width: int) -> int:
    return width * prod(loop.size for loop in loops)
