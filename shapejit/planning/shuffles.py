"""Which copies of narrow elements permute blocks in registers: see `kernels.networks`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..kernels.networks import Mixed, Network
from ..runtime.cpu_caches import LINE, l2
from ..shapes.dims import merged
from .loops import Loop

VECTOR = 64  # bytes
PIECES = (64, 32, 16, 8)  # bytes that lie side by side, the best first
MOST_VECTORS = 32  # of a block: as many as there are registers
SIDE_BY_SIDE = 1024  # bytes of the source that are read before those elsewhere
BOX_PART = 7 / 16  # of an L2 cache: a box of the target
ROW = 128  # bytes of a row of a box that are worth larger blocks
MOST_MIXED = 2 * VECTOR  # bytes of a block whose elements mix in any order
LEAST_MIXED = 8  # and of its pieces
MOST_BLOCKS = 512  # that one call of a network's function permutes


class Shuffle(NamedTuple):
    """A network, the bytes from a block's first piece to each one in source and target, and loops.

    `loops` are in bytes. With `boxes` their last two are those within a box: along
    the target, and along the source. The first piece lies `shift` bits behind the first
    element.
    """

    network: Network | Mixed
    sources: tuple[int, ...]
    targets: tuple[int, ...]
    loops: tuple[Loop, ...]
    boxes: bool
    shift: int

    @property
    def whole(self) -> bool:
        """Whether the blocks of both loops of a box make whole rows of the target."""
        step, along = self.loops[-2:]
        side_by_side = step.target == self.network.written
        return side_by_side and along.target == step.size * step.target

    @property
    def row(self) -> int:
        """Bytes of a row of a box."""
        step, along = self.loops[-2:]
        return step.size * (along.size if self.whole else 1) * self.network.written

    @property
    def pitch(self) -> int:
        """Bytes from one row of a box to the next: an odd number of lines, for all sets."""
        return (-(-self.row // LINE) | 1) * LINE

    @property
    def stage(self) -> int:
        """Bytes of a box."""
        return (1 if self.whole else self.loops[-1].size) * len(self.targets) * self.pitch


class _Bit(NamedTuple):
    """A bit of the index of an element: of which loop, and what it moves in bits."""

    loop: int
    source: int
    target: int


def shuffle_of(
    loops: Sequence[Loop], width: int, bias: int = 0, boxes: bool = True
) -> Shuffle | None:
    """The blocks of loops (in bits, targets ascending) that a network permutes, if one can.

    There are no `boxes` on the way to a target that is in a cache itself.
    """
    if 8 % width or any(loop.source == 0 for loop in loops):
        return None
    bits = [
        _Bit(at, loop.source << k, loop.target << k)
        for at, loop in enumerate(loops)
        for k in range((loop.size & -loop.size).bit_length() - 1)
    ]
    best: Shuffle | None = None
    there = _side_by_side(bits, [bit.target for bit in bits], width)
    here = _side_by_side(bits, [abs(bit.source) for bit in bits], width)
    for read, written in product(PIECES, PIECES):
        near, far = ((8 * n // width).bit_length() - 1 for n in (read, written))
        if near > len(here) or far > len(there):
            continue
        block = list(dict.fromkeys(there[:far] + here[:near]))
        whole = (8 * VECTOR // width).bit_length() - 1
        rest = sorted((bit for bit in bits if bit not in block), key=lambda bit: bit.target)
        block += rest[: max(0, whole - len(block))]
        if width << len(block) <= 8 * VECTOR * MOST_VECTORS:
            nbytes = min(VECTOR, (width << len(block)) // 8)
            sizes = nbytes, read, written
            made = _shuffle(loops, width, bias, sizes, block, here[:near], there[:far])
            made = _boxed(made) if made and boxes else made
            if made is None or not made.boxes:
                return best or made
            if written > read:
                continue  # larger blocks have so many short pieces that they leave the caches
            if made.row >= ROW:
                return made
            if best is None or made.row > best.row:
                best = made
    return best


def _side_by_side(bits: Sequence[_Bit], strides: Sequence[int], width: int) -> list[_Bit]:
    """The bits along which elements lie side by side, the nearest first."""
    by_stride = dict(zip(strides, bits, strict=True))
    found: list[_Bit] = []
    while width << len(found) in by_stride:
        found.append(by_stride[width << len(found)])
    return found


def _shuffle(
    loops: Sequence[Loop],
    width: int,
    bias: int,
    sizes: tuple[int, int, int],
    block: list[_Bit],
    here: list[_Bit],
    there: list[_Bit],
) -> Shuffle | None:
    more = [bit for bit in block if bit not in here], [bit for bit in block if bit not in there]
    around = _around(loops, block)
    strides = [s for loop in around for s in loop[1:]]
    strides += [bit.source for bit in more[0]] + [bit.target for bit in more[1]]
    if any(stride % 8 for stride in strides):
        return None
    name = {bit: index for index, bit in enumerate(block)}
    source, target = (
        tuple(name[bit] for bit in side) for side in (here + more[0], there + more[1])
    )
    back = tuple(index for bit, index in name.items() if bit.source < 0)
    network = Network(width, *sizes, source, target, back, bias)
    sources = _offsets([abs(bit.source) for bit in more[0]])
    targets = _offsets([bit.target for bit in more[1]])
    shift = sum(bit.source for bit in block if bit.source < 0)
    inner = [Loop(size, s // 8, t // 8) for size, s, t in around] or [Loop(1, 0, 0)]
    return Shuffle(network, sources, targets, tuple(inner), False, shift)


def _boxed(made: Shuffle) -> Shuffle:
    """Blocks that pass through boxes, unless those side by side in the target are so in both."""
    inner = list(made.loops)
    near = min(inner, key=lambda loop: abs(loop.source))
    if near is inner[-1]:
        return made
    loops = _boxes(inner, near, made.network.written, len(made.targets))
    return made._replace(loops=tuple(loops), boxes=True)


def _boxes(loops: list[Loop], near: Loop, written: int, pieces: int) -> list[Loop]:
    """The loops over boxes, then those within one."""
    last = loops.pop()
    wanted, most = SIDE_BY_SIDE // abs(near.source), int(l2() * BOX_PART)
    along = _split(near, wanted)
    if 4 * along[1].size <= wanted and near.size * pieces * written <= most:
        along = _split(near, near.size)  # a prime number of steps, say
    rows = _split(last, most // (along[1].size * pieces * written))
    loops[loops.index(near)] = along[0]
    return [*loops, rows[0], rows[1], along[1]]


def _split(loop: Loop, most: int) -> tuple[Loop, Loop]:
    """A loop as two, of which the inner one has at most so many steps."""
    few = max(n for n in range(1, max(1, most) + 1) if loop.size % n == 0)
    outer = Loop(loop.size // few, loop.source * few, loop.target * few)
    return outer, Loop(few, loop.source, loop.target)


def _around(loops: Sequence[Loop], block: Sequence[_Bit]) -> list[Loop]:
    """What is left of the loops, in the order of the target."""
    left = []
    for at, (size, source, target) in enumerate(loops):
        taken = {bit.target // target for bit in block if bit.loop == at}
        step = 1
        while step < size:
            if step in taken:
                step *= 2
                continue
            run = 1
            while step * run < size and step * run not in taken:
                more = 2 if size // step // run % 2 == 0 else size // step // run
                run *= more
            left.append(Loop(run, source * step, target * step))
            step *= run
    left.sort(key=lambda loop: -loop.target)
    sides = zip(*left, strict=True) if left else ((), (), ())
    return [Loop(*loop) for loop in merged(*sides)]


def _offsets(strides: Sequence[int]) -> tuple[int, ...]:
    """The bytes from a block's first vector to each of its vectors."""
    return tuple(
        sum(stride // 8 for k, stride in enumerate(strides) if index >> k & 1)
        for index in range(1 << len(strides))
    )


def mixed_of(loops: Sequence[Loop], width: int) -> Shuffle | None:
    """The blocks of loops (in bits) whose elements mix in any order, if their pieces are long.

    Loops of 3 and 5 steps have no bits that a network could exchange.
    """
    if 8 % width or any(loop.source == 0 for loop in loops):
        return None
    sides = [lambda loop: loop.source, lambda loop: loop.target]
    best, least = None, 0.0
    for first, second in product(*(_runs(loops, width, side) for side in sides)):
        factors = tuple(map(max, first, second))
        if any(f % a or f % b for f, a, b in zip(factors, first, second, strict=True)):
            continue
        made = _mixed(loops, factors, width)
        if made is not None and (best is None or _price(made) < least):
            best, least = made, _price(made)
    return best


def _runs(
    loops: Sequence[Loop], width: int, side: Callable[[Loop], int]
) -> Iterator[tuple[int, ...]]:
    """How many steps of each loop make a run of elements side by side, for runs up to a block."""
    taken, run = [1] * len(loops), 1
    by_stride = {abs(side(loop)): k for k, loop in enumerate(loops)}
    while run * width in by_stride:
        at = by_stride[run * width]
        size, most = loops[at].size, 8 * MOST_MIXED // (run * width)
        for part in (n for n in range(2, min(size, most) + 1) if size % n == 0):
            taken[at] = part
            if run * part * width >= 8 * LEAST_MIXED:
                yield tuple(taken)
        if size > most:
            return
        run *= size


def _mixed(loops: Sequence[Loop], factors: tuple[int, ...], width: int) -> Shuffle | None:
    """The blocks of so many steps of each loop, if they consist of whole bytes."""
    block = [Loop(n, loop.source, loop.target) for n, loop in zip(factors, loops, strict=True)]
    if prod(factors) * width > 8 * MOST_MIXED:
        return None
    around = [
        Loop(loop.size // n, loop.source * n, loop.target * n)
        for n, loop in zip(factors, loops, strict=True)
        if loop.size > n
    ]
    sources, targets = (
        _places(block, lambda loop: loop.source),
        _places(block, lambda loop: loop.target),
    )
    shift = int(sources.min())
    by_source, by_target = np.argsort(sources), np.argsort(targets)
    reads = _pieces(sources[by_source] - shift, width)
    writes = _pieces(targets[by_target], width)
    if reads is None or writes is None or any(s % 8 for loop in around for s in loop[1:]):
        return None
    rank = np.empty(len(sources), np.int64)
    rank[by_source] = np.arange(len(sources))
    elements = tuple(rank[by_target].tolist())
    network = Mixed(width, reads[0], writes[0], elements)
    around.sort(key=lambda loop: -loop.target)
    inner = tuple(Loop(n, s // 8, t // 8) for n, s, t in around) or (Loop(1, 0, 0),)
    return Shuffle(network, reads[1], writes[1], inner, False, shift)


def _places(block: Sequence[Loop], side: Callable[[Loop], int]) -> NDArray[np.int64]:
    """Where the elements of a block begin, in bits."""
    places = np.zeros(1, np.int64)
    for loop in block:
        places = np.add.outer(places, np.arange(loop.size) * side(loop)).ravel()
    return places


def _pieces(places: NDArray[np.int64], width: int) -> tuple[int, tuple[int, ...]] | None:
    """The bytes of the pieces that ascending places come to, all alike, and where each begins."""
    steps = np.diff(places)
    starts = np.concatenate([[0], np.flatnonzero(steps != width) + 1])
    count = len(places) // len(starts)
    begins = places[starts]
    alike = np.array_equal(starts, np.arange(len(starts)) * count)
    if not alike or (steps < width).any() or count * width % 8 or (begins % 8).any():
        return None
    nbytes = count * width // 8
    return (nbytes, tuple((begins // 8).tolist())) if nbytes >= LEAST_MIXED else None


def _price(made: Shuffle) -> float:
    """About how many instructions a byte takes."""
    network, block = made.network, made.network.block
    moves = sum(block // n * n.bit_count() for n in (network.read, network.written))
    return (moves + 4 * -(-block // VECTOR) * (8 // network.width)) / block
