"""The public mapping of schemes."""

from __future__ import annotations

from collections.abc import Callable

from ..packings.named_rows import NamedRows
from .detection import detect
from .rows import ROWS
from .scheme import Scheme

# The project that writes such weights, what decodes them, whether they can be encoded or converted.
_COLUMNS: dict[str, Callable[[Scheme], str]] = {
    "project": lambda scheme: scheme.project,
    "decode": lambda scheme: f"library {scheme.library}" if scheme.library else "kernel",
    "encode": lambda scheme: "yes" if scheme.encodes else "-",
    "convert": lambda scheme: "yes" if scheme.converts else "-",
}


class Schemes(NamedRows[Scheme]):
    """The schemes by name: a read-only mapping.

    >>> schemes["fp8:block"]
    shapejit.schemes['fp8:block']
    """

    def __init__(self) -> None:
        super().__init__("scheme", map(Scheme, ROWS), _COLUMNS)

    detect = staticmethod(detect)


schemes = Schemes()
