"""Tables whose rows have names, such as `shapejit.formats`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Protocol, TypeVar

from ..errors import UnknownNameError, did_you_mean, quoted


class Named(Protocol):
    """A row of a table."""

    @property
    def name(self) -> str:
        """The name of the row."""


Row = TypeVar("Row", bound=Named)


class NamedRows(Mapping[str, Row]):
    """A read-only mapping of names to the rows of a table; `columns` are printed.

    >>> from ..dtypes.table import dtype
    >>> NamedRows("dtype", [dtype("int4")])["Int4"]
    Traceback (most recent call last):
        ...
    shapejit.errors.UnknownNameError: unknown dtype 'Int4'; did you mean 'int4'?
    """

    def __init__(
        self,
        what: str,
        rows: Iterable[Row],
        columns: Mapping[str, Callable[[Row], str]] | None = None,
    ) -> None:
        self._what = what
        self._rows = {row.name: row for row in rows}
        self.columns = dict(columns or {})

    def __repr__(self) -> str:
        cells = [[*self.columns], *(self.facts(name).values() for name in self._rows)]
        texts = [[name, *rest] for name, rest in zip((self._what, *self._rows), cells, strict=True)]
        widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
        lines = ("  ".join(map(str.ljust, line, widths)).rstrip() for line in texts)
        return "\n".join(lines)

    def facts(self, name: str) -> dict[str, str]:
        """The printed facts of a row, by the names of the columns.

        Raises UnknownNameError.

        >>> import shapejit as sj
        >>> sj.formats.facts("lsb")["unit"]
        'uint8'
        """
        row = self[name]
        return {column: text(row) for column, text in self.columns.items()}

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
