"""The public mapping of schemes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches

from ..errors import UnknownNameError, quoted
from .detection import detect
from .rows import ROWS
from .scheme import Scheme


class Schemes(Mapping[str, Scheme]):
    """The schemes by name: a read-only mapping.

    >>> schemes["fp8:block"]
    shapejit.schemes['fp8:block']
    """

    def __init__(self) -> None:
        self._rows = {row.name: Scheme(row, self.__getitem__) for row in ROWS}

    def __getitem__(self, name: str) -> Scheme:
        found = self._rows.get(name)
        if found is None:
            near = get_close_matches(str(name), self._rows, 1, 0)
            raise UnknownNameError(
                f"unknown scheme {quoted(str(name))}; the nearest is {near[0]!r}"
            )
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    detect = staticmethod(detect)


schemes = Schemes()
