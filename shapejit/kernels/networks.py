"""Networks: permutations of blocks of elements in vector registers.

The permutation of a block permutes digits of indices: each digit of an element's index in the
target is a digit of its index in the source, at another position, or counted from the other end. If
digits are bits, or bytes hold several elements, the generator exchanges two bits of the index at a
time, as few as needed, by shifts within bytes, by shuffles of two vectors, or by renaming vectors;
one shuffle within each vector does the rest. Other, small permutations take one shuffle of the
source for each position within the bytes of the target, shifted as far as elements move within
bytes.

Importing this module does not import numba; `shuffles` makes code of networks.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Network(NamedTuple):
    """One permutation of blocks of elements of `width` bits, at most 8.

    `sizes` are those of the digits of an index in the target, the fastest first; `source` are their
    positions in the order of the source, `back` those that run backwards there. A block consists of
    contiguous pieces of `read` bytes in the source, and of `written` bytes in the target.
    `bias` is added to each element, modulo 2**width.
    """

    width: int
    read: int
    written: int
    sizes: tuple[int, ...]
    source: tuple[int, ...]
    back: tuple[int, ...] = ()
    bias: int = 0

    @property
    def block(self) -> int:
        """The bytes of a block."""
        return prod(self.sizes) * self.width // 8

    @property
    def nbytes(self) -> int:
        """The bytes that are moved at a time."""
        return min(self.read, self.written)

    @property
    def exchanged(self) -> bool:
        """Whether its digits are bits, which are exchanged."""
        return self.width < 8 and prod(self.sizes).bit_count() == 1

    def order(self) -> NDArray[np.int64]:
        """The source index of each element of a block of the target."""
        steps, found = dict[int, int](), np.zeros(1, np.int64)
        for digit in self.source:
            steps[digit] = prod(self.sizes[other] for other in steps)
        for digit, size in enumerate(self.sizes):
            index = np.arange(size)
            index = index[::-1] if digit in self.back else index
            found = np.add.outer(index * steps[digit], found).ravel()
        return found


def permuted(network: Network, block: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The bytes of a block permuted by a network, element by element."""
    width, found = network.width, network.order()
    elements = np.unpackbits(block, bitorder="little").reshape(len(found), width)
    codes = np.packbits(elements[found], axis=1, bitorder="little")[:, 0] + np.uint8(network.bias)
    bits = np.unpackbits(codes[:, None], axis=1, bitorder="little")[:, :width]
    return np.packbits(bits, bitorder="little")


def runner(network: Network) -> Callable[..., None]:
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
