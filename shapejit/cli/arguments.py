"""Numbers on the command line, and the error for words that are none."""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Callable

from ..errors import quoted

_DIGITS = 18  # of every integer that is asked for


def integer(text: str) -> int:
    """An int; ArgumentTypeError for other words.

    >>> integer("-3")
    -3
    """
    try:
        if len(text) <= _DIGITS:
            return int(text)
    except ValueError:
        pass
    raise ArgumentTypeError(f"not an integer: {quoted(text, 40)}")


def count(text: str) -> int:
    """An int from 1 to 10000."""
    value = integer(text)
    if not 1 <= value <= 10_000:
        raise ArgumentTypeError(f"not from 1 to 10000: {value}")
    return value


def number(accepted: Callable[[float], bool], range_text: str) -> Callable[[str], float]:
    """The reader of a float that is `accepted`, as `range_text` says."""

    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            raise ArgumentTypeError(f"not a number: {quoted(text, 40)}") from None
        if not accepted(value):
            raise ArgumentTypeError(f"not a number {range_text}: {value:g}")
        return value

    return read
