"""Command, the exit codes, and the parsers of numeric arguments."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable
from typing import NamedTuple

from ..errors import quoted

DONE, FAILED, BAD_INPUT = 0, 1, 2


class ArgumentError(Exception):
    """Arguments that the command line does not accept."""


class Command(NamedTuple):
    """One row of the table of commands.

    `text` is its one-line help, `run` returns the exit code, `options` adds its own options and
    arguments to a parser; with `rules` it also takes `--spec` and its flags.
    """

    name: str
    text: str
    run: Callable[[Namespace], int]
    options: Callable[[ArgumentParser], None] = lambda parser: None
    rules: bool = False


_DIGITS = 18  # of an integer at most


def integer(text: str) -> int:
    """Parse an int; raises ArgumentTypeError for other text.

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
    """Parse an int from 1 to 10000."""
    value = integer(text)
    if not 1 <= value <= 10_000:
        raise ArgumentTypeError(f"not from 1 to 10000: {value}")
    return value


def number(accepted: Callable[[float], bool], range_text: str) -> Callable[[str], float]:
    """A parser of a float for which `accepted` is true; `range_text` describes those in errors."""

    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            raise ArgumentTypeError(f"not a number: {quoted(text, 40)}") from None
        if not accepted(value):
            raise ArgumentTypeError(f"not a number {range_text}: {value:g}")
        return value

    return read
