"""Results as text: tables, JSON, paragraphs and numbers."""

from __future__ import annotations

import json
import re
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from ..errors import escaped

NUMBER = re.compile(r"(?<![^./])[0-9]+(?![^./])")  # a whole component of a name
Columns = Mapping[str, str | Callable[[Any], str]]


def print_json(value: object) -> None:
    """Print a value as indented JSON."""
    print(json.dumps(value, indent=2))


def print_table(columns: Columns, rows: Iterable[Any]) -> None:
    """Print one line per row under the names of the columns; numbers to the right.

    A column is a function of the row, or a format string of which the row is argument 0.
    """
    texts = [
        [c.format(row) if isinstance(c, str) else c(row) for c in columns.values()] for row in rows
    ]
    cells = []
    for head, *column in zip(columns, *texts, strict=True):
        width = max(map(len, (head, *column)))
        numbers = all(text[:1] in "+-0123456789" for text in column)
        cells.append([f"{text:{'>' if numbers else '<'}{width}}" for text in (head, *column)])
    for line in zip(*cells, strict=True):
        print("  ".join(line).rstrip())


def print_text(text: str) -> None:
    """Print a paragraph in lines of at most 90 characters."""
    print(textwrap.fill(text, 90))


def shape(sizes: Iterable[int | str]) -> str:
    """A shape without blanks.

    >>> shape((2, 3))
    '[2,3]'
    """
    return "[" + ",".join(map(str, sizes)) + "]"


def times(count: int) -> str:
    """How often what stands before it is there, if more than once.

    >>> "layers.#.weight" + times(61)
    'layers.#.weight x 61'
    """
    return f" x {count}" if count > 1 else ""


def collapsed(texts: Iterable[str]) -> Iterator[str]:
    """Lines that differ in the numbers of names alone, as one with their count.

    >>> [*collapsed(["layers.0.q is odd", "layers.1.q is odd"])]
    ['layers.#.q is odd x 2']
    """
    for text, count in Counter(NUMBER.sub("#", text) for text in texts).items():
        yield escaped(text) + times(count)


def ratio(value: float | None) -> str:
    """A ratio with two decimals, or with two digits where it is small.

    >>> ratio(1.234), ratio(0.0123), ratio(None)
    ('1.23x', '0.012x', '-')
    """
    if value is None:
        return "-"
    return f"{value:.2f}x" if value >= 0.1 else f"{value:.2g}x"


def same(row: Any) -> str:
    """Whether the result of a row has the right bits; a failure stands out."""
    return "yes" if row.same else "NO"
