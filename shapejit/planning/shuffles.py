"""Which copies of narrow elements permute blocks in registers: see `kernels.networks`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

from ..dims import merged
from ..kernels.constants import LINE
from ..kernels.networks import Network
from .loops import Loop

VECTOR = 64  # bytes
PIECES = (64, 32, 16, 8)  # bytes that lie side by side, the best first
MOST_VECTORS = 32  # of a block: as many as there are registers
SIDE_BY_SIDE = 1024  # bytes of the source that are read before those elsewhere
BOX_BYTES = 896 * 1024  # in an L2 cache, of the target
MOST_BLOCKS = 512  # that one call of a network's function permutes


class Shuffle(NamedTuple):
    """A network, the bytes from a block's first piece to each one in source and target, and loops.

    `loops` are in bytes. With `boxes` their last two are those within a box: along
    the target, and along the source. The first piece lies `shift` bits behind the first
    element.
    """

    network: Network
    sources: tuple[int, ...]
    targets: tuple[int, ...]
    loops: tuple[Loop, ...]
    boxes: bool
    shift: int

    @property
    def pitch(self) -> int:
        """Bytes from one row of a box to the next: an odd number of lines, for all sets."""
        lines = -(-self.loops[-2].size * self.network.written // LINE)
        return (lines | 1) * LINE

    @property
    def stage(self) -> int:
        """Bytes of a box."""
        return self.loops[-1].size * len(self.targets) * self.pitch


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
            if made is None or not made.boxes or written <= read:
                return made
            # Pieces read are short: larger blocks have so many that they fall out of the caches.
    return None


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
    along = _split(near, SIDE_BY_SIDE // abs(near.source))
    rows = _split(last, BOX_BYTES // (along[1].size * pieces * written))
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
