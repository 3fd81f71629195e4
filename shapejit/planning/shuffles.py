"""Copies of narrow elements that permute blocks in registers: see `kernels.networks`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from math import prod
from typing import NamedTuple

from ..kernels.networks import Network
from ..runtime.cpu_caches import LINE, l2
from ..shapes.dims import merged
from . import thresholds
from .loops import Loop, split
from .tables import offsets_of

VECTOR = 64  # bytes
PIECES = (64, 32, 16, 8)  # bytes that are contiguous on both sides, the best first
MOST_VECTORS = 32  # of a block: as many as there are registers
SIDE_BY_SIDE = 1024  # bytes of the source that are read in sequence
BOX_PART = 7 / 16  # of an L2 cache: a box of the target
MOST_MIXED = 2 * VECTOR  # bytes of a block whose elements mix in any order
LEAST_MIXED = 8  # and of its pieces
SIDES = 1, 2  # of a loop: source and target
MOST_BLOCKS = 512  # that one call of a network's function permutes


class Shuffle(NamedTuple):
    """A network, the offsets of a block's pieces in source and target (bytes), and the loops.

    `loops` are in bytes. With `boxes` the last two are those within a box: along the target, and
    along the source. The first piece is `shift` bits after the first element.
    """

    network: Network
    sources: tuple[int, ...]
    targets: tuple[int, ...]
    loops: tuple[Loop, ...]
    boxes: bool
    shift: int

    @property
    def whole(self) -> bool:
        """Whether the blocks of both loops of a box fill whole rows of the target."""
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
        """Bytes from one row of a box to the next: an odd number of lines uses all cache sets."""
        return (-(-self.row // LINE) | 1) * LINE

    @property
    def stage(self) -> int:
        """Bytes of a box."""
        return (1 if self.whole else self.loops[-1].size) * len(self.targets) * self.pitch


def shuffle_of(
    loops: Sequence[Loop], width: int, bias: int = 0, boxes: bool = True
) -> Shuffle | None:
    """The blocks of loops (in bits, by ascending target) that a network permutes; None if none.

    Without `boxes` if the target is in a cache itself.
    """
    if 8 % width or any(loop.source == 0 for loop in loops):
        return None
    bits = [(loop.size & -loop.size).bit_length() - 1 for loop in loops]
    here, there = (_side_by_side(loops, bits, width, side) for side in SIDES)
    whole = (8 * VECTOR // width).bit_length() - 1
    best: Shuffle | None = None
    for most in product(PIECES, PIECES):
        near, far = ((8 * n // width).bit_length() - 1 for n in most)
        if near > len(here) or far > len(there):
            continue
        taken = [max(here[:near].count(k), there[:far].count(k)) for k in range(len(loops))]
        while sum(taken) < min(whole, sum(bits)):
            left = (k for k in range(len(loops)) if taken[k] < bits[k])
            taken[min(left, key=lambda k: loops[k].target << taken[k])] += 1
        if width << sum(taken) <= 8 * VECTOR * MOST_VECTORS:
            made = _blocks(loops, [1 << n for n in taken], width, most, bias)
            made = _boxed(made) if made and boxes else made
            if made is None or not made.boxes:
                return best or made
            if most[1] > most[0]:
                continue  # larger blocks have so many short pieces that they leave the caches
            if made.row >= thresholds.RUN:
                return made
            if best is None or made.row > best.row:
                best = made
    return best


def _side_by_side(loops: Sequence[Loop], bits: Sequence[int], width: int, side: int) -> list[int]:
    """The loops along which elements are adjacent, in factors of two, the innermost first."""
    by_stride = {abs(loop[side]) << k: at for at, loop in enumerate(loops) for k in range(bits[at])}
    found: list[int] = []
    while width << len(found) in by_stride:
        found.append(by_stride[width << len(found)])
    return found


def _blocks(
    loops: Sequence[Loop], factors: Sequence[int], width: int, most: Sequence[int], bias: int = 0
) -> Shuffle | None:
    """The blocks of so many steps of each loop, in pieces of so many bytes of source and target."""
    each = zip(factors, loops, strict=True)
    parts = [
        (Loop(loop.size // n, *(n * s for s in loop[1:])), loop._replace(size=n))
        for n, loop in each
    ]
    block = sorted((loop for _, loop in parts if loop.size > 1), key=lambda loop: loop.target)
    around = sorted((loop for loop, _ in parts if loop.size > 1), key=lambda loop: -loop.target)
    source = sorted(range(len(block)), key=lambda k: abs(block[k].source))
    reads = _pieces([(block[k].size, abs(block[k].source)) for k in source], width, most[0])
    writes = _pieces([(loop.size, loop.target) for loop in block], width, most[1])
    if reads is None or writes is None or any(s % 8 for loop in around for s in loop[1:]):
        return None
    back = tuple(k for k, loop in enumerate(block) if loop.source < 0)
    sizes = tuple(loop.size for loop in block)
    network = Network(width, reads[0], writes[0], sizes, tuple(source), back, bias)
    shift = sum((block[k].size - 1) * block[k].source for k in back)
    sides = zip(*around, strict=True) if around else ((), (), ())
    outer = [Loop(n, s // 8, t // 8) for n, s, t in merged(*sides)] or [Loop(1, 0, 0)]
    return Shuffle(network, reads[1], writes[1], tuple(outer), False, shift)


def _pieces(
    dims: Sequence[tuple[int, int]], width: int, most: int
) -> tuple[int, tuple[int, ...]] | None:
    """The bytes of the contiguous pieces of some dims (innermost first), and their offsets.

    None if elements overlap, or pieces are no whole bytes.
    """
    run = end = width
    rest = list[tuple[int, int]]()
    for size, stride in dims:
        if stride < end:
            return None
        end += (size - 1) * stride
        if stride == run and not rest:
            run *= size
        else:
            rest.append((size, stride))
    if run > 8 * most:
        rest.insert(0, (run // (8 * most), 8 * most))
        run = 8 * most
    if any(bits % 8 for bits in (run, *(stride for _, stride in rest))):
        return None
    begins = offsets_of([(size, stride // 8) for size, stride in reversed(rest)])
    return run // 8, tuple(begins.tolist())


def _boxed(made: Shuffle) -> Shuffle:
    """Blocks that pass through boxes, unless blocks adjacent in the target are so in the source."""
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
    along = split(near, wanted)
    if 4 * along[1].size <= wanted and near.size * pieces * written <= most:
        along = split(near, near.size)  # a prime number of steps, say
    rows = split(last, most // (along[1].size * pieces * written))
    loops[loops.index(near)] = along[0]
    return [*loops, rows[0], rows[1], along[1]]


def mixed_of(loops: Sequence[Loop], width: int) -> Shuffle | None:
    """The blocks of loops (in bits) whose elements are permuted arbitrarily, if pieces are long.

    This covers loops of 3 or 5 steps, whose index has no bits that a network could exchange.
    """
    if 8 % width or any(loop.source == 0 for loop in loops):
        return None
    best, least = None, 0.0
    for first, second in product(*(_runs(loops, width, side) for side in SIDES)):
        factors = tuple(map(max, first, second))
        if any(f % a or f % b for f, a, b in zip(factors, first, second, strict=True)):
            continue
        if prod(factors) * width > 8 * MOST_MIXED:
            continue
        made = _blocks(loops, factors, width, (MOST_MIXED, MOST_MIXED))
        if made is None or made.network.nbytes < LEAST_MIXED:
            continue
        if best is None or _price(made) < least:
            best, least = made, _price(made)
    return best


def _runs(loops: Sequence[Loop], width: int, side: int) -> Iterator[tuple[int, ...]]:
    """The steps of each loop that make a contiguous run, for runs up to a block."""
    taken, run = [1] * len(loops), 1
    by_stride = {abs(loop[side]): k for k, loop in enumerate(loops)}
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


def _price(made: Shuffle) -> float:
    """The approximate number of instructions per byte."""
    network, block = made.network, made.network.block
    moves = sum(block // n * n.bit_count() for n in (network.read, network.written))
    return (moves + 4 * -(-block // VECTOR) * (8 // network.width)) / block
