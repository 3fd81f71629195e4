"""What a command is, and the exit codes."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from typing import NamedTuple

DONE, FAILED, BAD_INPUT = 0, 1, 2


class ArgumentError(Exception):
    """Arguments that the command line does not accept."""


class Command(NamedTuple):
    """One row of the table of commands.

    `text` is its line of help, `run` returns the exit code, `options` adds its
    own options and arguments; `rules` says whether it takes the options that
    give rules their meaning (`--spec` and its flags).
    """

    name: str
    text: str
    run: Callable[[Namespace], int]
    options: Callable[[ArgumentParser], None] = lambda parser: None
    rules: bool = False
