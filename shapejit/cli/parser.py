"""The table of commands, and the argument parser made from it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from .. import __version__
from ..errors import did_you_mean, escaped, quoted
from .command import SPEC_OPTIONS, ArgumentError, Command, add_spec_options

COMMANDS = (
    Command("convert", "apply rules to the tensors of a checkpoint", rules=True),
    Command("inspect", "list the tensors of a checkpoint, and how they are quantised"),
    Command("verify", "compare two checkpoints bit for bit", rules=True),
    Command("demo", "convert and verify a generated checkpoint, and compare copies with NumPy's"),
    Command("dtypes", "print the dtype table"),
    Command("formats", "print the table of packing formats"),
    Command("schemes", "print the table of schemes of quantised weights"),
    Command("bench", "compare copies with memcpy, NumPy and other libraries"),
    Command("warmup", "compile kernels ahead of time, and keep them on disk"),
)

_EXAMPLES = """\
examples:
  shapejit demo                                       try it without a checkpoint
  shapejit inspect model.safetensors                  list tensors and how they are quantised
  shapejit convert model-fp8 model-bf16 --to bf16     decode a folder, in bounded memory
  shapejit convert model-bf16 model-fp8 --to fp8:block    quantise by round to nearest
  shapejit convert a.safetensors b.safetensors --permute '.*_proj\\.weight=1,0' --dry-run
  shapejit verify a.safetensors b.safetensors         find the first difference
"""


class _Parser(argparse.ArgumentParser):
    """An ArgumentParser that raises ArgumentError, with near matches of unknown words."""

    def error(self, message: str) -> NoReturn:
        raise ArgumentError(f"{escaped(message)} (see {self.prog} --help)")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """As in argparse, but suggest the nearest choice instead of listing all of them."""
        choices = list(action.choices or ())
        if choices and value not in choices:
            hint = did_you_mean(value, choices) or f"; known are {', '.join(choices)}"
            if isinstance(action, argparse._SubParsersAction):
                self.error(f"unknown command {quoted(value)}{hint}")
            raise argparse.ArgumentError(action, f"unknown: {quoted(value)}{hint}")

    def unknown(self, word: str) -> NoReturn:
        """Raise for an argument that no option takes."""
        name = word.partition("=")[0]
        if not name.startswith("-"):
            self.error(f"unexpected argument {quoted(word)}")
        self.error(
            f"unknown option {quoted(name)}{did_you_mean(name, self._option_string_actions)}"
        )


def parse(argv: list[str] | None) -> argparse.Namespace | None:
    """The parsed arguments, with the Command as `command`; None if there is no command.

    Without a command help is printed to stderr. Raises ArgumentError for bad arguments, SystemExit
    after --help and --version.
    """
    words = sys.argv[1:] if argv is None else argv
    if words[:1] == ["help"]:
        words = [*words[1:], "--help"]
    parser = _parser(words)
    # Options that may stand before or after the command have their defaults here: a default of
    # the command's parser would overwrite a value given before the command.
    defaults = argparse.Namespace(json=False, quiet=False, command=None, parser=parser)
    args, rest = parser.parse_known_args(words, defaults)
    if rest:
        args.parser.unknown(rest[0])
    if args.command is None:
        parser.print_help(sys.stderr)
        return None
    stray = [name for name in SPEC_OPTIONS if name in args]
    if stray and not args.command.rules:
        raise ArgumentError(f"--{stray[0].replace('_', '-')} is for commands with rules")
    return args


def _parser(words: Sequence[str]) -> _Parser:
    """The parser of all commands; only those among the words get their options."""
    common_options, spec_options = _global_options()
    parser = _Parser(
        prog="shapejit",
        usage="shapejit COMMAND [ARGUMENTS]",
        description="Convert, inspect and compare model checkpoints; benchmark array copies.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
        parents=[common_options, spec_options],
    )
    parser.add_argument("--version", action="version", version=f"shapejit {__version__}")
    commands = parser.add_subparsers(
        prog="shapejit", metavar="COMMAND", help="`shapejit COMMAND --help` describes its options"
    )
    for command in COMMANDS:
        parents = [common_options, spec_options] if command.rules else [common_options]
        parser_of_it = _added(commands, command, parents)
        if command.name in words:
            command.module.options(parser_of_it)
    return parser


def _added(
    commands: argparse._SubParsersAction[_Parser], command: Command, parents: list[_Parser]
) -> _Parser:
    text = command.text
    parser = commands.add_parser(
        command.name,
        help=text,
        description=f"{text[0].upper()}{text[1:]}.",
        parents=parents,
        allow_abbrev=False,
    )
    parser.set_defaults(command=command, parser=parser)
    return parser


def _global_options() -> tuple[_Parser, _Parser]:
    """Options that may also precede the command: common ones, and those of `--spec`."""
    common_options, spec_options = (
        _Parser(add_help=False, argument_default=argparse.SUPPRESS) for _ in range(2)
    )
    common_options.add_argument("--json", action="store_true", help="print results as JSON")
    common_options.add_argument(
        "--quiet",
        action="store_true",
        help="show no progress; convert prints warnings and errors only",
    )
    add_spec_options(spec_options)
    return common_options, spec_options
