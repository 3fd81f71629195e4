"""Tables whose rows have names, such as `shapejit.formats`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeVar

from ..errors import UnknownNameError, did_you_mean, quoted

Row = TypeVar("Row")


class NamedRows(Mapping[str, Row]):
    """The rows of a table by name, read-only.

    >>> NamedRows("fruit", {"apple": 1})["Aple"]
    Traceback (most recent call last):
        ...
    shapejit.errors.UnknownNameError: unknown fruit 'Aple'; did you mean 'apple'?
    """

    def __init__(self, what: str, rows: Mapping[str, Row]) -> None:
        self._what = what
        self._rows = rows

    def __getitem__(self, name: object) -> Row:
        if not isinstance(name, str):
            raise UnknownNameError(f"unknown {self._what} {type(name).__name__}")
        if name not in self._rows:
            hint = did_you_mean(name, self._rows)
            raise UnknownNameError(f"unknown {self._what} {quoted(name)}{hint}")
        return self._rows[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)
