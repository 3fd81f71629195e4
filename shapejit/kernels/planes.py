"""Units: groups of elements whose bits are in one or several planes, at fixed places.

Units repeat at even distances: blocks of GGUF, words of other formats, or bytes.

Importing this module does not import numba; `unit_generator` makes code of units.
"""

from __future__ import annotations

from typing import NamedTuple


class Plane(NamedTuple):
    """`bits` bits of each element, from its bit `low` on, at the bits `places` of a unit."""

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
