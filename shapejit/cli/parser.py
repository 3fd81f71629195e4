"""The table of commands, and the parser that it makes."""

from __future__ import annotations

import argparse
from typing import NoReturn

from .. import __version__
from ..errors import escaped
from . import bench, convert, demo, dtypes, formats, inspect, verify, warmup
from .command import ArgumentError, Command

COMMANDS = (
    convert.COMMAND,
    inspect.COMMAND,
    verify.COMMAND,
    demo.COMMAND,
    dtypes.COMMAND,
    formats.COMMAND,
    bench.COMMAND,
    warmup.COMMAND,
)


class _Parser(argparse.ArgumentParser):
    """An ArgumentParser whose errors are printed where all errors are."""

    def error(self, message: str) -> NoReturn:
        raise ArgumentError(f"{escaped(message)} (see {self.prog} --help)")


def parse(argv: list[str] | None) -> argparse.Namespace:
    """The arguments, `command` (a Command) among them; SystemExit after --help and --version."""
    # The only default of an option that may stand before the command and behind it:
    # one of the command's parser would overwrite what stood before.
    args = _parser().parse_args(argv, argparse.Namespace(json=False))
    stray = [name for name in convert.SPEC_OPTIONS if name in args]
    if stray and not args.command.rules:
        raise ArgumentError(f"--{stray[0].replace('_', '-')} is for commands with rules")
    return args


def _parser() -> _Parser:
    json_option, spec_options = _global_options()
    parser = _Parser(
        prog="shapejit",
        description="Reshape and permute tensors of every dtype, exactly and fast.",
        allow_abbrev=False,
        parents=[json_option, spec_options],
    )
    parser.add_argument("--version", action="version", version=f"shapejit {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for command in COMMANDS:
        parents = [json_option, spec_options] if command.rules else [json_option]
        _add(commands, command, parents)
    return parser


def _add(
    commands: argparse._SubParsersAction[_Parser], command: Command, parents: list[_Parser]
) -> None:
    text = command.text
    parser = commands.add_parser(
        command.name, help=text, description=text, parents=parents, allow_abbrev=False
    )
    parser.set_defaults(command=command)
    command.options(parser)


def _global_options() -> tuple[_Parser, _Parser]:
    """The options that may stand before the command too: --json, and what rules mean."""
    json_option, spec_options = (
        _Parser(add_help=False, argument_default=argparse.SUPPRESS) for _ in range(2)
    )
    json_option.add_argument("--json", action="store_true", help="results as JSON")
    convert.add_spec_options(spec_options)
    return json_option, spec_options
