"""Network: a permutation of a block of elements, as sizes and strides, and its steps as shuffles.

The permutation of a block is a loop nest: each digit of an element's index in the target has a size
and a stride in the source. If digits are bits, the generator exchanges two bits of the index at a
time, as few as needed, by shifts within bytes, by shuffles of two vectors, or by renaming vectors;
one shuffle within each vector does the rest. Other, small permutations take one shuffle of the
source for each position within the bytes of the target, shifted as far as elements move within
bytes.

Importing this module does not import numba; `network_generator` makes code of networks.
"""

from __future__ import annotations

from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..runtime.cpu_caches import LINE


class Network(NamedTuple):
    """One permutation of blocks of elements of `width` bits, at most 8.

    A block consists of contiguous pieces of `read` bytes in the source, and of `written` bytes in
    the target. `digits` are those of an index in the target, the fastest first: the size of each,
    and the distance of its steps in the concatenated pieces of the source (elements). Pieces of the
    source may have elements that are not in the target. If it `flips` elements, their top bits are
    inverted: half their range is added to each, modulo 2**width.
    """

    width: int
    read: int
    written: int
    digits: tuple[tuple[int, int], ...]
    flips: bool = False

    @property
    def elements(self) -> int:
        """The elements of a block."""
        return prod(size for size, _ in self.digits)

    @property
    def block(self) -> int:
        """The bytes of a block in the target."""
        return self.elements * self.width // 8

    @property
    def span(self) -> int:
        """The elements of its source, from the first to the last."""
        return 1 + sum((size - 1) * abs(step) for size, step in self.digits)

    @property
    def pieces(self) -> tuple[int, int]:
        """The number of pieces in source and target."""
        return -(-self.span * self.width // (8 * self.read)), self.block // self.written

    @property
    def nbytes(self) -> int:
        """The bytes that are moved at a time."""
        return min(self.read, self.written)

    @property
    def exchanged(self) -> bool:
        """Whether its digits are bits, which are exchanged."""
        return self.width < 8 and self.elements.bit_count() == 1 and self.span == self.elements

    def order(self) -> NDArray[np.int64]:
        """The source index of each element of a block of the target."""
        found = np.zeros(1, np.int64)
        for size, step in self.digits:
            index = np.arange(size) if step > 0 else np.arange(size)[::-1]
            found = np.add.outer(index * abs(step), found).ravel()
        return found


def parts(nbytes: int) -> list[tuple[int, int]]:
    """The vectors that cover `nbytes`: (at, bytes). The last one reaches back."""
    part = min(LINE, 1 << (nbytes.bit_length() - 1))
    return [(min(at, nbytes - part), part) for at in range(0, nbytes, part)]
