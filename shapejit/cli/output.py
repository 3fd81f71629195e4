"""Print results: tables, JSON, paragraphs and numbers."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from ..errors import escaped, shown

NUMBER = re.compile(r"(?<![^./])[0-9]+(?![^./])")  # a whole component of a name
Columns = Mapping[str, str | Callable[[Any], object]]


def print_json(value: object) -> None:
    """Print a value as indented JSON."""
    print(json.dumps(value, indent=2))


def print_table(columns: Columns, rows: Iterable[Any], as_json: bool = False) -> None:
    """Print a row per line under the names of the columns, numbers aligned right.

    A column is a function of the row, or a format string whose argument 0 is the row. None is
    printed as `-`; a column with no other values is left out. As JSON, whole rows are printed.
    """
    given = list(rows)
    if as_json:
        print_json(given)
        return
    cells = []
    for head, column in columns.items():
        values = [column.format(x) if isinstance(column, str) else column(x) for x in given]
        texts = [head, *("-" if value is None else str(value) for value in values)]
        numbers = all(text[:1] in "+-0123456789" for text in texts[1:])
        if not given or any(value is not None for value in values):
            width = max(map(len, texts))
            cells.append([f"{text:{'>' if numbers else '<'}{width}}" for text in texts])
    for line in zip(*cells, strict=True):
        print("  ".join(line).rstrip())


def print_text(text: str) -> None:
    """Print a paragraph in lines of at most 90 characters."""
    print(textwrap.fill(text, 90))


def shape(sizes: Iterable[int | str]) -> str:
    """A shape without spaces.

    >>> shape((2, 3))
    '[2,3]'
    """
    return "[" + ",".join(map(str, sizes)) + "]"


def times(count: int) -> str:
    """The suffix ` x count`; empty for 1.

    >>> "layers.#.weight" + times(61)
    'layers.#.weight x 61'
    """
    return f" x {count}" if count > 1 else ""


def counted(row: Mapping[str, Any]) -> str:
    """The name of a row of `grouped`, with its count.

    >>> counted({"name": "h.#.w", "count": 3})
    'h.#.w x 3'
    """
    return shown(row["name"]) + times(row["count"])


def grouped(rows: Iterable[Mapping[str, Any]], same: Sequence[str]) -> list[dict[str, Any]]:
    """Merge rows that differ only in the numbers within their names, with their count and bytes.

    >>> grouped([{"name": f"h.{k}.w", "way": "copy", "nbytes": 4} for k in range(3)], ["way"])
    [{'name': 'h.#.w', 'count': 3, 'way': 'copy', 'nbytes': 12}]
    """
    found: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        alike = NUMBER.sub("#", row["name"]), [row.get(word) for word in same]
        found.setdefault(repr(alike), []).append(row)
    return [
        {
            "name": first["name"] if not more else NUMBER.sub("#", first["name"]),
            "count": 1 + len(more),
            **{word: first[word] for word in same if word in first},
            "nbytes": sum(row.get("nbytes", 0) for row in (first, *more)),
        }
        for first, *more in found.values()
    ]


def collapsed(texts: Iterable[str]) -> Iterator[str]:
    """Merge lines that differ only in the numbers within names, with their count.

    >>> [*collapsed(["layers.0.q is odd", "layers.1.q is odd"])]
    ['layers.#.q is odd x 2']
    >>> [*collapsed(["layers.0.q is odd"])]
    ['layers.0.q is odd']
    """
    for row in grouped(({"name": text} for text in texts), ()):
        yield escaped(row["name"]) + times(row["count"])


def ratio(value: float | None) -> str:
    """A ratio with two decimals, or with two significant digits if it is small.

    >>> ratio(1.234), ratio(0.0123), ratio(None)
    ('1.23x', '0.012x', '-')
    """
    if value is None:
        return "-"
    return f"{value:.2f}x" if value >= 0.1 else f"{value:.2g}x"


def same(row: Any) -> str:
    """Whether the result of a row has the right bits: "yes" or "NO"."""
    return "yes" if row.same else "NO"
