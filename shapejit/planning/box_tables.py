"""The offsets of the elements of a box, and the tables that its kernels read."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..kernels.constants import PIECE, READS, ROWS, coders, padded, per_piece
from ..runtime.cpu_caches import LINE
from ..runtime.kernel_names import Code, Function, Functions, count_tag, widest, width_tag
from ..runtime.ndarrays import distinct
from . import thresholds
from .loops import Loop
from .shuffles import Shuffle
from .tables import Offsets, offsets_of

SHORT_RUN = 4 * LINE  # bytes of a run on a stage
MOST_LANES = 4  # 16-byte pieces of the widest vector
_NONE = np.zeros(0, np.int64)


class Elements(NamedTuple):
    """The offsets of the elements of a box whose rows and columns are put in order."""

    rows: Offsets  # in the source
    columns: Offsets  # in the source, ascending
    places: Offsets  # of the columns, on the stage
    nbytes: int  # on the stage


def elements_of(dims: Sequence[Loop], at: int, width: int) -> Elements:
    """The offsets of the elements of a box of these dims, the first `at` of which are columns."""
    columns, rows, strides = dims[:at], dims[at:], box_strides(dims, width)[0]
    came = offsets_of([(loop.size, loop.source) for loop in columns])
    by_source = np.argsort(came, kind="stable")
    staged = zip(columns, strides, strict=False)
    places = offsets_of([(loop.size, stride) for loop, stride in staged])
    return Elements(
        offsets_of([(loop.size, loop.source) for loop in rows]),
        came[by_source],
        places[by_source],
        extent(dims, strides, width),
    )


def extent(dims: Sequence[Any], strides: Sequence[int], width: int) -> int:
    """The length of dims with these strides, from the first element to the end of the last one."""
    steps: list[int] = [dim.size - 1 for dim in dims]
    return width + sum(n * stride for n, stride in zip(steps, strides, strict=True))


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


def firsts(box: Elements, lanes: int, width: int) -> Offsets | None:
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


class Box(NamedTuple):
    """A box of a copy: its elements, and how they get into the order of the target.

    `dims` are in bits, in the order of the target, with elements of `width` bits and results of
    `unit`. Runs are read at the strides `staged` (bits): from the source if the box is `direct`,
    else from the stage. There elements are put, codes if they are narrower than a byte, by blocks
    of `lanes` 16-byte pieces (0: one by one) of which the first dims are `columns`; or by the
    network of `shuffle`, which permutes the source itself if the box is `packed`.
    """

    dims: tuple[Any, ...]
    width: int
    unit: int
    staged: tuple[int, ...]
    direct: bool = False
    packed: bool = False
    columns: int = 0
    lanes: int = 0
    shuffle: Shuffle | None = None

    @property
    def unpacked(self) -> bool:
        """Whether its elements become codes before they are put in order."""
        return self.width < 8 and not (self.direct or self.packed)

    @property
    def codes(self) -> Codes:
        """Its elements on the stage, or in the source, in bytes, in the order of the source."""
        if self.unpacked:
            return codes_of(self.dims, self.width, self.unit)
        size = max(1, self.width // 8)
        dims = [Loop(d.size, d.source // 8, d.target // self.unit * size) for d in self.dims]
        return Codes(dims, 0, np.zeros((0, 3), np.int64), 0)

    def run(self, most: int | None = None) -> int:
        """How many of its last dims are a run, on both sides, of at most `most` elements."""
        width = self.width if self.direct or self.packed else max(8, self.width)
        found = dense([dim.size for dim in self.dims], self.staged, width)
        last = self.dims[len(self.dims) - found :]
        return dense([d.size for d in last], [d.target for d in last], self.unit, most)


def dense(sizes: Sequence[int], strides: Sequence[int], width: int, most: int | None = None) -> int:
    """How many of the last dims are contiguous, with at most `most` elements, or one of them."""
    count, length = 0, 1
    for size, stride in zip(reversed(sizes), reversed(strides), strict=True):
        if stride != width * length or (count and most and length * size > most):
            break
        count, length = count + 1, length * size
    return count


def box_in(dims: Sequence[Any], width: int, unit: int, least: float = inf) -> Box:
    """The Box of these dims: `direct` if it is one run, or all have `least` elements."""
    sizes, strides = [dim.size for dim in dims], [dim.source for dim in dims]
    found = dense(sizes, strides, width)
    made = Box(tuple(dims), width, unit, tuple(strides), True)
    if prod(sizes[len(sizes) - found :]) >= min(least, prod(sizes)):
        return made
    made = made._replace(direct=False)
    staged = box_strides(made.codes.loops, max(1, width // 8))[0]
    return made._replace(staged=tuple(8 * stride for stride in staged))


def functions_of(
    box: Box, converts: Code | None = None, mover: Function | None = None
) -> Functions:
    """What the kernel of a box calls; see `kernels.boxes`."""
    size, packs = max(1, box.width // 8), box.unit < 8
    unpack = box.width < 8 or (box.direct and packs and converts is None)
    fill = network = None
    if box.shuffle:
        network = Code("network_generator", box.shuffle.network)
    elif not box.direct:
        tag = count_tag(size) if box.lanes and padded(size) > size else widest(size)
        fill = Function("boxes.fill", 6, (tag, width_tag(max(1, box.lanes))))
    unpacks = coders(box.width)[0] if unpack else None
    return Functions(
        (unpacks, fill, network, converts, coders(box.unit)[1] if packs else None, mover)
    )


class Scaling(NamedTuple):
    """How the runs of a box are scaled, with one scale for each `block` elements.

    `steps` are those between scales and zero points, `strides` theirs along the dims around runs
    (bytes); `plans` are small plans that repeat them, `nbytes` what these write.
    """

    block: int
    steps: tuple[int, int]
    strides: tuple[Sequence[int], Sequence[int]]
    plans: NDArray[np.int64]
    nbytes: tuple[int, int]


class Steps(NamedTuple):
    """The tables of a box for its kernel, and the bytes of its stage."""

    tables: tuple[NDArray[np.int64], ...]
    stage: int


def steps_of(box: Box, run: int, reach: int, scaling: Scaling | None = None) -> Steps:
    """The tables of a box whose last `run` dims are a run.

    `reach` is the number of bytes that may be read of the source.
    """
    around, codes = box.dims[: len(box.dims) - run], box.codes
    if box.direct:
        parts = _Parts([_NONE] * 7)
    else:
        parts = _by_network(box) if box.shuffle else _ordered(box, codes.loops)
    sides = [box.staged[: len(around)], [dim.target for dim in around]]
    sides += scaling.strides if scaling else ()
    runs = [offsets_of([*zip((d.size for d in around), side, strict=True)]) for side in sides]
    offsets = [*parts.offsets, codes.reads.reshape(-1), *runs, *[_NONE] * (4 - len(runs))]
    begins = np.cumsum([0, *map(len, offsets)])[:-1].tolist()
    table = [*zip(map(len, offsets), begins, strict=True), (parts.moved, parts.reach)]
    table[ROWS], table[READS] = (parts.rows, 0), (len(codes.reads), begins[READS])

    count = prod(dim.size for dim in box.dims[len(around) :])
    in_place = box.direct and box.width == 8 and box.unit < 8 and not scaling
    by_run = in_place or (box.width < 8 and not box.unpacked)
    packed = count if box.unit < 8 else 0
    scaled = scaling or Scaling(0, (0, 0), ((), ()), _NONE, (0, 0))
    used = parts.nbytes, codes.nbytes + count * by_run, packed if scaling else 0, packed
    # Vectors read and write beyond the last element.
    at = np.cumsum([0, *((n + 3 * LINE) // LINE * LINE for n in (*used, *scaled.nbytes))]).tolist()
    numbers = [0, 0, reach, count, count * box.unit, scaled.block, *scaled.steps, in_place]
    numbers += [*parts.network, at[1], codes.first + parts.first, *at[2:6]]
    tables = np.array(table, np.int64), np.concatenate(offsets), scaled.plans, np.array(numbers)
    return Steps(tables, at[-1])


class _Parts(NamedTuple):
    """The offsets of a box from its rows to its lines; see `kernels.constants` for the numbers.

    There are so many `rows`, and `nbytes` on the stage. Of a `network`: the blocks of a call, their
    steps on both sides, and how far ahead it prefetches; it begins `first` bytes after the first
    element.
    """

    offsets: list[Offsets]
    rows: int = 0
    nbytes: int = 0
    moved: int = 0
    reach: int = 0
    network: tuple[int, ...] = (0, 0, 0, 0)
    first: int = 0


def _by_network(box: Box) -> _Parts:
    """The parts of a box that a network permutes: rows are the calls of its function."""
    assert box.shuffle is not None
    *calls, blocks = box.shuffle.loops
    came, places = (offsets_of([(loop[0], loop[k]) for loop in calls]) for k in (1, 2))
    pieces = np.array([*box.shuffle.sources, *box.shuffle.targets], np.int64)
    nbytes = extent(box.dims, box.staged, 8) // 8
    # The lines of the next call, or box.
    far, lines = (calls[-1].source if calls else 0, _NONE) if box.packed else (0, _lines(box))
    offsets, first = [came, pieces, places, _NONE, _NONE, _NONE, lines], box.shuffle.shift // 8
    network = *blocks, far
    return _Parts(offsets, len(came), nbytes, network=network, first=0 if box.packed else first)


def _ordered(box: Box, dims: Sequence[Loop]) -> _Parts:
    """The parts of a box that is put in order without a network."""
    size, at, lanes = max(1, box.width // 8), box.columns, box.lanes
    width = size
    if not lanes and dims[at:] and dims[-1][1:] == (size, size):
        width = size * dims[-1].size
        dims = dims[:-1]
    found = elements_of(dims, at, width)
    count, staged = len(found.rows), found.nbytes + 2 * LINE
    places, starts, blocks = _NONE, found.columns, _NONE
    behind = spoilt = 0
    if lanes:
        begins, first = windows(found.columns, width), firsts(found, lanes, width)
        assert begins is not None
        assert first is not None
        starts, blocks = begins, first
        behind = max(0, lanes * per_piece(width) - count)
        wanted = starts[:, None] + width * np.arange(per_piece(width))
        near = np.minimum(np.searchsorted(found.columns, wanted), len(found.columns) - 1)
        # Elements between columns go to an unused place after all others.
        there = found.columns[near] == wanted
        places = np.where(there, found.places[near], staged).reshape(-1)
        spoilt = (count + behind) * width + LINE
    if box.unpacked:
        lines = _lines(box)
    else:
        lines = distinct((found.rows[:, None] + distinct(starts // LINE) * LINE) // LINE) * LINE
    filled = np.pad(found.rows, (0, behind), "edge")
    offsets = [filled, found.columns, found.places, blocks, starts, places, lines]
    reach = int(found.rows.max() + starts.max() + PIECE)
    return _Parts(offsets, count, staged + spoilt, width, reach)


def _lines(box: Box) -> Offsets:
    """The cache lines of the source that contain codes of a box, as offsets in bytes."""
    reads = codes_of(box.dims, box.width, box.unit).reads
    first, count = reads[:, 0] >> 9, int(reads[0, 2]) * box.width // (8 * LINE) + 2
    return distinct(first[:, None] + np.arange(count)) * LINE
