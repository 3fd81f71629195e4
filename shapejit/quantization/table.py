"""The public mapping of schemes."""

from __future__ import annotations

from ..packings.named_rows import NamedRows
from .detection import detect
from .rows import ROWS
from .scheme import Scheme


class Schemes(NamedRows[Scheme]):
    """The schemes by name: a read-only mapping.

    >>> schemes["fp8:block"]
    shapejit.schemes['fp8:block']
    """

    def __init__(self) -> None:
        super().__init__("scheme", {row.name: Scheme(row, self.__getitem__) for row in ROWS})

    detect = staticmethod(detect)


schemes = Schemes()
