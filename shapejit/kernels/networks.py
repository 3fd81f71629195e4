"""Networks: blocks of elements permuted in vector registers.

A block of a `Network` is a power of two of elements, and each bit of an element's index is
a bit of its place on either side: which element of a byte, which byte of a vector, or which vector.
So the permutation is one of these bits. The generator exchanges two of them at a time, as
few as needed, by shifts within bytes, by shuffles of two vectors, or by taking
vectors in another order; what is left is one shuffle within each vector. A `Mixed` block
is of any size and in any order: each place within the bytes of the target is one shuffle
of the source's vectors, shifted as far as its elements move within theirs.

Importing this module does not import numba; `shuffles` makes code of networks.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from math import log2
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Network(NamedTuple):
    """One permutation of blocks of elements of `width` bits, at most 8.

    Vectors have `nbytes` bytes, which lie side by side in the source in pieces of `read`
    bytes, in the target of `written`. `source` has for each bit of a place in the source, the
    lowest first, the bit of the index that it is, `target` the same of the target;
    `back` are those that run backwards in the source. `bias` is added to each element,
    modulo 2**width.
    """

    width: int
    nbytes: int
    read: int
    written: int
    source: tuple[int, ...]
    target: tuple[int, ...]
    back: tuple[int, ...] = ()
    bias: int = 0

    @property
    def per_byte(self) -> int:
        """The bits of a place that tell the elements of a byte apart."""
        return int(log2(8 // self.width))

    @property
    def per_vector(self) -> int:
        """The bits of a place that tell the elements of a vector apart."""
        return self.per_byte + int(log2(self.nbytes))

    @property
    def vectors(self) -> int:
        """The number of vectors of a block."""
        return 1 << (len(self.source) - self.per_vector)

    @property
    def block(self) -> int:
        """The bytes of a block."""
        return self.vectors * self.nbytes

    def order(self) -> NDArray[np.int64]:
        """For each element of a block of the target, which one of the source it is."""
        places = np.arange(1 << len(self.source))
        found = np.zeros(len(places), np.int64)
        for place, bit in enumerate(self.target):
            flag = places >> place & 1
            found |= (flag ^ (bit in self.back)) << self.source.index(bit)
        return found


class Mixed(NamedTuple):
    """Blocks of elements of `width` bits, at most 8, in any order: whole bytes, not too many.

    They lie side by side in the source in pieces of `read` bytes, in the target of `written`.
    `elements` has for each one of the target which one of the source it is.
    """

    width: int
    read: int
    written: int
    elements: tuple[int, ...]
    bias: int = 0

    @property
    def block(self) -> int:
        """The bytes of a block."""
        return len(self.elements) * self.width // 8

    @property
    def nbytes(self) -> int:
        """The bytes that are moved at a time."""
        return min(self.read, self.written)

    def order(self) -> NDArray[np.int64]:
        """For each element of a block of the target, which one of the source it is."""
        return np.array(self.elements, np.int64)


def permuted(network: Network | Mixed, block: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """What a network makes of the bytes of a block, element by element."""
    width, found = network.width, network.order()
    elements = np.unpackbits(block, bitorder="little").reshape(len(found), width)
    codes = np.packbits(elements[found], axis=1, bitorder="little")[:, 0] + np.uint8(network.bias)
    bits = np.unpackbits(codes[:, None], axis=1, bitorder="little")[:, :width]
    return np.packbits(bits, bitorder="little")


def runner(network: Network | Mixed) -> Callable[..., None]:
    """The function that `shuffles.shuffle` calls, by NumPy."""
    nbytes = network.block
    reads, writes = nbytes // network.read, nbytes // network.written

    def run(
        src: int, dst: int, table: int, count: int, src_step: int, dst_step: int, *_: int
    ) -> None:
        offsets = (ctypes.c_int64 * (reads + writes)).from_address(table)
        for k in range(count):
            begin, into = src + k * src_step, dst + k * dst_step
            found = [ctypes.string_at(begin + at, network.read) for at in offsets[:reads]]
            made = permuted(network, np.frombuffer(b"".join(found), np.uint8)).tobytes()
            for i, at in enumerate(offsets[reads:]):
                ctypes.memmove(into + at, made[i * network.written :], network.written)

    return run


class Exchange(NamedTuple):
    """Two bits of a place that are exchanged."""

    first: int
    second: int


def exchanges(network: Network) -> tuple[list[Exchange], list[int]]:
    """What brings each bit into bytes and vectors as the target has it; the bits after it."""
    now, steps = list(network.source), list[Exchange]()

    def exchange(first: int, second: int) -> None:
        steps.append(Exchange(first, second))
        now[first], now[second] = now[second], now[first]

    for place, bit in enumerate(network.target[: network.per_byte]):
        if now[place] != bit:
            exchange(place, now.index(bit))
    wanted = network.target[network.per_byte : network.per_vector]
    for place in range(network.per_byte, network.per_vector):
        if now[place] not in wanted:
            missing = next(p for p in range(network.per_vector, len(now)) if now[p] in wanted)
            exchange(place, missing)
    return steps, now
