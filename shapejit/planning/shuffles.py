"""Chooses the Network of a copy of narrow elements, and the loops around it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from math import prod
from typing import NamedTuple

from ..kernels.constants import CALLED, PIECE
from ..kernels.networks import Network, parts
from ..runtime.cpu_caches import LINE, l2
from ..shapes.dims import merged
from . import thresholds
from .loops import Loop, split
from .tables import offsets_of

VECTOR_BYTES = 64  # bytes
MOST_VECTORS = 32  # of a block: as many as there are registers
MOST_MIXED = 2 * VECTOR_BYTES  # bytes of a block whose elements mix in any order
MOST_READ = 7 * VECTOR_BYTES  # bytes of a piece with gaps
LEAST_PIECE = 8  # bytes that are contiguous on both sides
SOURCE, TARGET = 1, 2  # of a loop
RUN_BLOCKS = 8  # that write runs of lines; 16: 1.4 x the time


class Shuffle(NamedTuple):
    """A network, the offsets of a block's pieces in source and target (bytes), and the loops.

    `loops` are in bytes. The first piece is `shift` bits after the first element.
    """

    network: Network
    sources: tuple[int, ...]
    targets: tuple[int, ...]
    loops: tuple[Loop, ...]
    shift: int

    @property
    def blocks(self) -> int:
        """The number of blocks."""
        return prod(loop.size for loop in self.loops)

    @property
    def in_sequence(self) -> bool:
        """Whether a block follows the previous one on both sides, as with interleaved rows."""
        network, (_, source, target) = self.network, self.loops[-1]
        return abs(source) == network.read and target == network.written

    @property
    def long(self) -> bool:
        """Whether one call permutes as many blocks as pay for it."""
        return self.loops[-1].size * self.network.block >= CALLED


def shuffle_of(
    loops: Sequence[Loop], width: int, flips: bool = False, cached: bool = False
) -> Shuffle | None:
    """The blocks of loops (in bits, by ascending target) that a network permutes; None if none.

    Unless the target is `cached`, its lines are written whole, or met again while they are in a
    cache.
    """
    if 8 % width or any(loop.source == 0 for loop in loops):
        return None
    reads = _powers_of_two(loops, width, SOURCE)
    for each in product(reads, _powers_of_two(loops, width, TARGET)):
        taken = [*map(max, *each)]
        while prod(taken) * width < 8 * VECTOR_BYTES:  # packed/flip-inner: 0.75 of the time
            left = [k for k, loop in enumerate(loops) if loop.size % (2 * taken[k]) == 0]
            if not left:
                break
            taken[min(left, key=lambda k: loops[k].target * taken[k])] *= 2
        if VECTOR_BYTES // 2 <= prod(taken) * width // 8 <= MOST_VECTORS * VECTOR_BYTES:
            most = [prod(piece) * width // 8 for piece in each]
            made = _blocks(loops, taken, width, most, flips)
            return made if made is None or cached else _near(made)
    return None


def _powers_of_two(loops: Sequence[Loop], width: int, side: int) -> list[tuple[int, ...]]:
    """The `_runs` of up to a vector that are made of powers of two, the longest first."""
    found = [
        run
        for run in _runs(loops, width, side)
        if prod(run) * width <= 8 * VECTOR_BYTES
        and all(
            n.bit_count() == 1 and loop.size % n == 0 for n, loop in zip(run, loops, strict=True)
        )
    ]
    return sorted(found, key=prod, reverse=True)


def _blocks(
    loops: Sequence[Loop],
    factors: Sequence[int],
    width: int,
    most: Sequence[int],
    flips: bool = False,
    apart: int = 1,
) -> Shuffle | None:
    """The blocks of `steps` of each loop, in pieces of limited bytes of source and target.

    Blocks overlap if they do not divide a loop. Elements of a piece may be `apart` in the source.
    """
    block, around = list[Loop](), list[Loop]()
    for n, loop in zip(factors, loops, strict=True):
        if n > 1:
            block.append(loop._replace(size=n))
        around += _cut(loop, n)
    block.sort(key=lambda loop: loop.target)
    around.sort(key=lambda loop: -loop.target)
    source = sorted(range(len(block)), key=lambda k: abs(block[k].source))
    reads = _pieces([(block[k].size, abs(block[k].source)) for k in source], width, most[0], apart)
    writes = _pieces([(loop.size, loop.target) for loop in block], width, most[1])
    if reads is None or writes is None or any(s % 8 for loop in around for s in loop[1:]):
        return None
    steps = dict(zip(source, reads.steps, strict=True))
    digits = ((x.size, steps[k] if x.source > 0 else -steps[k]) for k, x in enumerate(block))
    network = Network(width, reads.nbytes, writes.nbytes, tuple(digits), flips)
    shift = sum((loop.size - 1) * min(0, loop.source) for loop in block)
    sides = zip(*around, strict=True) if around else ((), (), ())
    outer = [Loop(n, s // 8, t // 8) for n, s, t in merged(*sides)] or [Loop(1, 0, 0)]
    return Shuffle(network, reads.begins, writes.begins, tuple(outer), shift)


def _cut(loop: Loop, n: int) -> list[Loop]:
    """The loops over blocks of `n` steps: two overlapping halves if there is a remainder."""
    halves = 1 if loop.size % n == 0 else 2
    blocks = -(-loop.size // (halves * n))
    cuts = (halves, loop.size - blocks * n), (blocks, n)
    return [Loop(k, by * loop.source, by * loop.target) for k, by in cuts if k > 1]


class _Pieces(NamedTuple):
    """The contiguous pieces of some dims: bytes and offsets.

    `steps` are those of the dims in elements of the pieces, one after the other.
    """

    nbytes: int
    begins: tuple[int, ...]
    steps: list[int]


def _pieces(
    dims: Sequence[tuple[int, int]], width: int, most: int, apart: int = 1
) -> _Pieces | None:
    """The pieces of some dims (innermost first), of at most `most` bytes.

    Of a piece, one in `apart` elements at least is moved: the bytes between belong to it. None if
    elements overlap, or pieces are not whole bytes.
    """
    run = end = moved = width
    rest, steps, gaps = list[tuple[int, int]](), list[int](), False
    for size, stride in dims:
        if stride < end:
            return None
        end += (size - 1) * stride
        if not rest and stride <= apart * moved:
            gaps = gaps or stride > run
            run += (size - 1) * stride
            moved *= size
            steps.append(stride // width)
        else:
            rest.append((size, stride))
    run = -(-run // 8) * 8 if gaps else run
    step = run // width
    for size, _ in rest:
        steps.append(step)
        step *= size
    if run > 8 * most:
        if gaps:
            return None
        rest.insert(0, (run // (8 * most), 8 * most))
        run = 8 * most
    if any(bits % 8 for bits in (run, *(stride for _, stride in rest))):
        return None
    begins = offsets_of([(size, stride // 8) for size, stride in reversed(rest)])
    return _Pieces(run // 8, tuple(begins.tolist()), steps)


def _near(made: Shuffle) -> Shuffle | None:
    """Blocks in an order in which lines that several of them touch stay in a cache, if any.

    Blocks are adjacent in source and target, or have gaps in the target: then their lines are
    written again by each block after the next ones along the source. Those adjacent in the target
    alone write runs: gguf:q4_0 to awq:gemm 5.7 -> 1.8 x memcpy. If pieces are short, tiles are
    faster.
    """
    loops, network = list(made.loops), made.network
    near = min(loops, key=lambda loop: abs(loop.source))
    if near is loops[-1]:
        return made
    if loops[-1].target != network.written:
        around, along = split(near, _blocks_in_cache(len(made.targets)))
        loops[loops.index(near)] = around
    elif network.read < PIECE or network.written < LINE:
        return None
    else:
        along = loops.pop()
        loops.remove(near)
        some = _even(along.size, RUN_BLOCKS)
        loops += [*_cut(along, some), near]
        along = along._replace(size=some)
    return made._replace(loops=tuple(loop for loop in (*loops, along) if loop.size > 1))


def mixed_of(loops: Sequence[Loop], width: int) -> Shuffle | None:
    """The blocks of loops (in bits) whose elements are permuted arbitrarily, if pieces are long.

    This covers loops of 3 or 5 steps, whose index has no bits that a network could exchange. An
    element, or a run, of several bytes is one more loop.
    """
    if width % 8 == 0:
        loops, width = [*loops, *([Loop(width // 8, 8, 8)] if width > 8 else [])], 8
    if 8 % width:
        return None
    factors = set[tuple[int, ...]]()
    reads = _runs(loops, width, SOURCE, thresholds.MOST_APART)
    for first, second in product(reads, _runs(loops, width, TARGET)):
        both = tuple(map(max, first, second))
        if not any(f % a or f % b for f, a, b in zip(both, first, second, strict=True)):
            factors.add(both)
    best, least, count = None, 0.0, prod(loop.size for loop in loops)
    for each in sorted(factors):
        if prod(each) * width < 8 * VECTOR_BYTES // 2 or prod(each) * width > 8 * MOST_MIXED:
            continue
        made = _blocks(loops, each, width, (MOST_READ, MOST_MIXED), False, thresholds.MOST_APART)
        if made is None:
            continue
        # Blocks that overlap write some elements twice.
        again = made.network.elements * made.blocks / count
        cost = again * price(made.network)
        if best is None or cost < least:
            best, least = made, cost
    return best and best._replace(loops=_called(best))


def _called(made: Shuffle) -> tuple[Loop, ...]:
    """The loops, the last of which is one over many blocks: a call takes as long as some blocks.

    Or over fewer that are side by side on both sides, if the copy exceeds the caches: 20 random
    permutations of 40 MiB take 0.7 of the time, at best 0.3.

    The others follow the source; the last ones write beside lines of the call before. If they
    return to lines of an earlier call, on either side, that loop is cut, so that these lines are
    still in a cache.
    """
    loops, block = made.loops, made.network.block
    at = max((k for k, loop in enumerate(loops) if loop.size * block >= CALLED), default=-1)
    if made.in_sequence and block * made.blocks >= thresholds.STREAM_FROM:
        at = -1
    others, many = [*loops[:at], *loops[at:][1:]], loops[at]
    some = many.size
    if many is not loops[-1] or any(abs(loop.source) < abs(many.source) for loop in others):
        some = _even(some, _blocks_in_cache(len(made.sources) + len(made.targets)))
    around = sorted(
        [*_cut(many, some), *others],
        key=lambda loop: (abs(loop.target) <= 2 * LINE, -abs(loop.source)),
    )
    return *around, many._replace(size=some)


def _blocks_in_cache(pieces: int) -> int:
    """The number of blocks of `pieces` pieces whose lines stay in a cache."""
    return int(thresholds.LINES_MET_AGAIN * l2()) // (LINE * pieces)


def _runs(
    loops: Sequence[Loop], width: int, side: int, apart: int = 1
) -> Iterator[tuple[int, ...]]:
    """The steps of each loop that make a piece, for pieces up to a block; they may be apart."""
    taken, moved = [1] * len(loops), width
    near = (k for k, loop in enumerate(loops) if loop[side])
    for at in sorted(near, key=lambda k: abs(loops[k][side])):
        size, stride = loops[at].size, abs(loops[at][side])
        if not moved <= stride <= apart * moved:
            return
        most = 8 * MOST_MIXED // moved
        for part in sorted(
            {_even(size, most)} | {1 << k for k in range(min(size, most).bit_length())}
        ):
            taken[at] = part
            if moved * part >= 8 * LEAST_PIECE:
                yield tuple(taken)
        if size > most:
            return
        moved *= size


def _even(size: int, most: int) -> int:
    """The largest block of at most `most` steps of a loop that hardly overlaps with others."""
    return size if size <= most else -(-size // (2 * -(-size // (2 * most))))


def price(network: Network) -> float:
    """The approximate number of instructions per byte."""
    sides = zip((network.read, network.written), network.pieces, strict=True)
    moves = sum(count * len(parts(nbytes)) for nbytes, count in sides)
    vectors = -(-network.block // VECTOR_BYTES) * max(
        2, network.span * network.width / (8 * VECTOR_BYTES)
    )
    return (moves + 2 * vectors * (8 // network.width)) / network.block
