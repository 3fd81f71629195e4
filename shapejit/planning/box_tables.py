"""The offsets of the elements of a box, and the tables that its kernels read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..kernels.constants import COUNT, PIECE, ROWS, per_piece
from ..runtime.cpu_caches import LINE
from ..runtime.ndarrays import distinct
from . import thresholds
from .loops import Loop
from .shuffles import Shuffle
from .tables import Offsets, Sides, offsets_of

SHORT_RUN = 4 * LINE  # bytes of a run on a stage
MOST_LANES = 4  # 16-byte pieces of the widest vector


class Box(NamedTuple):
    """The offsets of the elements of a box; `windows` are those of the columns in the source."""

    rows: Offsets  # in the source
    columns: Offsets  # in the source, ascending
    places: Offsets  # of the columns, on the stage
    runs: Offsets  # on the stage
    targets: Offsets  # of the runs
    run: int  # bytes of a run


def box_at(rows: Sequence[Loop], columns: Sequence[Loop], width: int) -> Box:
    """The offsets for a box of these dims."""
    dims = [*columns, *rows]
    strides, outer, run = box_strides(dims, width)
    spread = [(dims[i].size, strides[i], dims[i].target) for i in reversed(outer)]
    came = offsets_of([(loop.size, loop.source) for loop in columns])
    by_source = np.argsort(came, kind="stable")
    staged = zip(columns, strides, strict=False)
    places = offsets_of([(loop.size, stride) for loop, stride in staged])
    return Box(
        offsets_of([(loop.size, loop.source) for loop in rows]),
        came[by_source],
        places[by_source],
        offsets_of([(size, stride) for size, stride, _ in spread]),
        offsets_of([(size, target) for size, _, target in spread]),
        run,
    )


def box_strides(dims: Sequence[Loop], width: int) -> tuple[list[int], list[int], int]:
    """The strides of dims on the stage, those that are no part of a run, and the bytes of runs."""
    return _on_stage([(loop.size, loop.target) for loop in dims], width, width)


def _on_stage(
    dims: Sequence[tuple[int, int]], width: int, staged: int, gap: int = 0
) -> tuple[list[int], list[int], int]:
    """The strides on a stage of dims of (size, stride); which of them are far; the bytes of a run.

    Elements of `width` have `staged` bytes there. A run consists of the nearest dims, those that
    begin at most `gap` elements after the end of the previous one, and is repeated by the far ones:
    at multiples of 16 bytes, so that the end of a block may run over. Dims with stride 0 are not
    repeated there.
    """
    order = sorted((k for k, (_, stride) in enumerate(dims) if stride), key=lambda k: dims[k][1])
    strides, run, near = [0] * len(dims), 1, 0
    for k in order:
        size, stride = dims[k]
        after, uneven = divmod(stride, width)
        if uneven or not 0 <= after - run <= gap:
            break
        strides[k], run, near = staged * after, run + (size - 1) * after, near + 1
    run *= staged
    # An odd number of lines, so that long runs use all sets of a cache.
    step = -(-run // PIECE) * PIECE if run < SHORT_RUN else (run // LINE + 2 | 1) * LINE
    for k in order[near:]:
        strides[k], step = step, step * dims[k][0]
    return strides, order[near:], run


def windows(columns: Offsets, width: int) -> Offsets | None:
    """The offsets of 16-byte pieces that cover all columns; None if no pieces do.

    They cannot cover columns off the grid of elements, or several columns at one offset (of a
    broadcast, or of overlapping windows). If possible, the last piece reaches back, and does not
    read beyond the source, unless elements are padded.
    """
    if ((columns - columns[0]) % width).any() or not np.diff(columns).all():
        return None
    before = (per_piece(width) - 1) * width  # bytes before the last element of a piece
    last = max(int(columns[0]), int(columns[-1]) - before)
    behind = np.searchsorted(columns, columns + before, "right").tolist()
    firsts, at = list[int](), 0
    while at < len(columns):
        firsts.append(at)
        at = behind[at]
    return np.minimum(columns[firsts], last)


def firsts(box: Box, lanes: int, width: int) -> Offsets | None:
    """The first row of each block; blocks reach back.

    If there are fewer rows than in a block, it extends beyond the last one, and overwrites the
    stage there; None if that is in use by then. Without that: 1.01, at most 5.9 (24 rows of bytes).
    """
    count, step = len(box.rows), lanes * per_piece(width)
    if count >= step:
        return np.minimum(np.arange(0, count, step), count - step)
    turn = np.argsort(box.places, kind="stable")
    place = box.places[turn]
    later = (
        ((turn[k:] > turn[:-k]) | (place[k:] - place[:-k] >= step * width)).all()
        for k in range(1, step // count + 1)
    )
    return np.zeros(1, np.int64) if all(later) else None


class Codes(NamedTuple):
    """A box of elements narrower than a byte as codes on the stage, a byte each.

    `loops` are those of the box, in bytes; the first element is at `first`. `reads` has a row for
    each run of the source: its offset in bits, that of its codes, and their number.
    """

    loops: list[Loop]
    first: int
    reads: NDArray[np.int64]
    nbytes: int


def codes_of(inner: Sequence[Loop], width: int, unit: int) -> Codes:
    """The codes of a box of these loops (in bits), in the order of the source.

    Gaps between runs, of up to GAP elements, are read, too.
    """
    dims = [(loop.size, abs(loop.source)) for loop in inner]
    strides, far, run = _on_stage(dims, width, 1, thresholds.GAP)
    lowest = sum((loop.size - 1) * min(0, loop.source) for loop in inner)
    begins = offsets_of([dims[k] for k in reversed(far)]) + lowest
    to = offsets_of([(dims[k][0], strides[k]) for k in reversed(far)])
    reads = np.stack([begins, to, np.full(len(to), run)], axis=1)
    loops = [
        Loop(loop.size, stride if loop.source > 0 else -stride, loop.target // unit)
        for loop, stride in zip(inner, strides, strict=True)
    ]
    first = sum((loop.size - 1) * -min(0, loop.source) for loop in loops)
    return Codes(loops, first, reads, int(to.max()) + run)


def lines_of(reads: NDArray[np.int64], width: int) -> Offsets:
    """The cache lines of the source that contain runs of a box, as offsets in bytes."""
    first, count = reads[:, 0] >> 9, int(reads[0, 2]) * width // (8 * LINE) + 2
    return distinct(first[:, None] + np.arange(count)) * LINE


def box_sides(
    rows: Sequence[Loop],
    columns: Sequence[Loop],
    width: int,
    lanes: int,
    lines: Offsets | None = None,
) -> Sides:
    """The tables of a box with blocks of `lanes` pieces (0: no blocks).

    Lines of the source, which are prefetched, are those of its rows and columns unless given.
    """
    box = box_at(rows, columns, width)
    count, staged = len(box.rows), int(box.runs[-1]) + box.run + 2 * LINE
    places, starts, blocks = np.zeros(0, np.int64), box.columns, np.zeros(0, np.int64)
    behind, spoilt = 0, 0
    if lanes:
        found, first = windows(box.columns, width), firsts(box, lanes, width)
        assert found is not None
        assert first is not None
        starts, blocks = found, first
        behind = max(0, lanes * per_piece(width) - count)
        wanted = starts[:, None] + width * np.arange(per_piece(width))
        at = np.minimum(np.searchsorted(box.columns, wanted), len(box.columns) - 1)
        # Elements between columns go to an unused place after all others.
        places = np.where(box.columns[at] == wanted, box.places[at], staged).reshape(-1)
        spoilt = (count + behind) * width + LINE
    if lines is None:
        lines = distinct((box.rows[:, None] + distinct(starts // LINE) * LINE) // LINE) * LINE
    filled = np.pad(box.rows, (0, behind), "edge")
    parts = (filled, box.columns, box.places, blocks, starts, places, box.runs, box.targets, lines)
    made = _sides(parts, (box.run, int(box.rows.max() + starts.max() + PIECE)), staged + spoilt)
    made.tile[ROWS, COUNT] = count
    return made


def network_sides(dims: Sequence[Loop], shuffle: Shuffle, lines: Offsets) -> Sides:
    """The tables of a box of codes that a network permutes.

    ROWS and PLACES are the offsets of the calls of its function, COLUMNS the pieces of a block.
    """
    box, calls = box_at(dims, (), 1), shuffle.loops[:-1]
    came = offsets_of([(loop.size, loop.source) for loop in calls])
    places = offsets_of([(loop.size, loop.target) for loop in calls])
    pieces, none = np.array([*shuffle.sources, *shuffle.targets], np.int64), np.zeros(0, np.int64)
    parts = came, pieces, places, none, none, none, box.runs, box.targets, lines
    return _sides(parts, (box.run, 0), int(box.runs[-1]) + box.run + 2 * LINE)


def _sides(parts: Sequence[Offsets], run: tuple[int, int], stage: int) -> Sides:
    begin = np.cumsum([0, *map(len, parts)])[:-1].tolist()
    table = [(len(part), at) for part, at in zip(parts, begin, strict=True)]
    return Sides(np.array([*table, run], np.int64), np.concatenate(parts), stage)
