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
