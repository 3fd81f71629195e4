"""Units: groups of elements whose bits are in one or several planes, at fixed places.

Units repeat at even distances: blocks of GGUF, words of other formats, or bytes.

Importing this module does not import numba; `unit_code` makes code of units.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np


class Plane(NamedTuple):
    """`bits` bits of each element, from its bit `low` on, which begin at the bits `places`."""

    bits: int
    low: int
    places: tuple[int, ...]


class Unit(NamedTuple):
    """The planes of some elements of at most 8 bits; places count from the unit's first byte."""

    planes: tuple[Plane, ...]

    @property
    def size(self) -> int:
        """The number of elements."""
        return len(self.planes[0].places)


def planes_of(width: int, order: Sequence[int]) -> list[Plane]:
    """The planes of bytes whose elements, of `width` bits, are read from other places."""
    per = 8 // width
    return [
        Plane(width, k * width, tuple(place * width for place in order[k::per])) for k in range(per)
    ]


def runner(unit: Unit) -> Callable[..., None]:
    """The function that `unit_code.read_units` calls, by NumPy."""
    reach = max(max(plane.places) + plane.bits for plane in unit.planes)

    def run(source: int, target: int, count: int, step: int) -> None:
        for k in range(count):
            memory = ctypes.string_at(source + k * step, -(-reach // 8))
            stream = np.unpackbits(np.frombuffer(memory, np.uint8), bitorder="little")
            made = np.zeros((unit.size, 8), np.uint8)
            for bits, low, places in unit.planes:
                made[:, low : low + bits] = stream[np.array(places)[:, None] + np.arange(bits)]
            codes = np.packbits(made, axis=1, bitorder="little").tobytes()
            ctypes.memmove(target + k * unit.size, codes, unit.size)

    return run
