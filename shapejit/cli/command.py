"""Command, the exit codes, and the parsers of numeric arguments."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

from ..errors import quoted

DONE, FAILED, BAD_INPUT = 0, 1, 2


class ArgumentError(Exception):
    """Arguments that the command line does not accept."""


class Command(NamedTuple):
    """One row of the table of commands.

    Its module has the same name, and is imported when the command is called; `run` there returns
    the exit code, and `options` adds options and arguments to a parser. `text` is the one-line
    help; with `rules` a command also takes `--spec` and its flags.
    """

    name: str
    text: str
    rules: bool = False

    @property
    def module(self) -> Any:
        """The module with `run` and `options`."""
        return import_module(f".{self.name}", __package__)


SPEC_OPTIONS = ("spec", "special_zero", "allowzero")  # as conversion.dialect calls them


def add_spec_options(parser: ArgumentParser) -> None:
    """The options that define what 0 and -1 mean in a reshape."""
    parser.add_argument(
        "--spec",
        metavar="SPEC",
        help="the specification that defines 0 and -1 in --reshape: array (the default), onnx, "
        "openvino or onednn",
    )
    parser.add_argument(
        "--special-zero",
        action="store_true",
        help="with --spec openvino or onednn: 0 keeps the size of the source dim",
    )
    parser.add_argument(
        "--allowzero", action="store_true", help="with --spec onnx: 0 is the size zero"
    )


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
    """A parser of floats for which `accepted` is true; errors describe them by `range_text`."""

    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            raise ArgumentTypeError(f"not a number: {quoted(text, 40)}") from None
        if not accepted(value):
            raise ArgumentTypeError(f"not a number {range_text}: {value:g}")
        return value

    return read
