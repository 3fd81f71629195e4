"""The table of commands, and the parser that it makes."""

from __future__ import annotations

import argparse
import sys
from typing import Any, NoReturn

from .. import __version__
from ..errors import did_you_mean, escaped, quoted
from . import bench, convert, demo, dtypes, formats, inspect, schemes, verify, warmup
from .command import ArgumentError, Command

COMMANDS = (
    convert.COMMAND,
    inspect.COMMAND,
    verify.COMMAND,
    demo.COMMAND,
    dtypes.COMMAND,
    formats.COMMAND,
    schemes.COMMAND,
    bench.COMMAND,
    warmup.COMMAND,
)

_EXAMPLES = """\
examples:
  shapejit demo                                       see it work, without any file
  shapejit inspect model.safetensors                  tensors, and how they are quantised
  shapejit convert model-fp8 model-bf16 --to bf16     a whole folder, in bounded memory
  shapejit convert model-bf16 model-fp8 --to fp8:block    quantised by round to nearest
  shapejit convert a.safetensors b.safetensors --permute '.*_proj\\.weight=1,0' --dry-run
  shapejit verify a.safetensors b.safetensors         the first bit that differs
"""


class _Parser(argparse.ArgumentParser):
    """An ArgumentParser whose errors are printed where all errors are, with near matches."""

    def error(self, message: str) -> NoReturn:
        raise ArgumentError(f"{escaped(message)} (see {self.prog} --help)")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Argparse lists all choices instead, which hides the near one."""
        choices = list(action.choices or ())
        if choices and value not in choices:
            hint = did_you_mean(value, choices) or f"; known are {', '.join(choices)}"
            if isinstance(action, argparse._SubParsersAction):
                self.error(f"unknown command {quoted(value)}{hint}")
            raise argparse.ArgumentError(action, f"unknown: {quoted(value)}{hint}")

    def unknown(self, word: str) -> NoReturn:
        """Refuse an argument that nothing takes."""
        name = word.partition("=")[0]
        if not name.startswith("-"):
            self.error(f"unexpected argument {quoted(word)}")
        self.error(
            f"unknown option {quoted(name)}{did_you_mean(name, self._option_string_actions)}"
        )


def parse(argv: list[str] | None) -> argparse.Namespace | None:
    """The arguments, `command` (a Command) among them; None, after help, if there is none.

    SystemExit after --help and --version.
    """
    words = sys.argv[1:] if argv is None else argv
    if words[:1] == ["help"]:
        words = [*words[1:], "--help"]
    parser = _parser()
    # The only defaults of options that may stand before the command and behind it:
    # one of the command's parser would overwrite what stood before.
    defaults = argparse.Namespace(json=False, quiet=False, command=None, parser=parser)
    args, rest = parser.parse_known_args(words, defaults)
    if rest:
        args.parser.unknown(rest[0])
    if args.command is None:
        parser.print_help(sys.stderr)
        return None
    stray = [name for name in convert.SPEC_OPTIONS if name in args]
    if stray and not args.command.rules:
        raise ArgumentError(f"--{stray[0].replace('_', '-')} is for commands with rules")
    return args


def _parser() -> _Parser:
    common_options, spec_options = _global_options()
    parser = _Parser(
        prog="shapejit",
        usage="shapejit COMMAND [ARGUMENTS]",
        description="Convert, inspect and compare checkpoints, and measure copies.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
        parents=[common_options, spec_options],
    )
    parser.add_argument("--version", action="version", version=f"shapejit {__version__}")
    commands = parser.add_subparsers(
        prog="shapejit", metavar="COMMAND", help="shapejit COMMAND --help says more of each"
    )
    for command in COMMANDS:
        parents = [common_options, spec_options] if command.rules else [common_options]
        _add(commands, command, parents)
    return parser


def _add(
    commands: argparse._SubParsersAction[_Parser], command: Command, parents: list[_Parser]
) -> None:
    text = command.text
    parser = commands.add_parser(
        command.name, help=text, description=text, parents=parents, allow_abbrev=False
    )
    parser.set_defaults(command=command, parser=parser)
    command.options(parser)


def _global_options() -> tuple[_Parser, _Parser]:
    """The options that may stand before the command too: of all, and what rules mean."""
    common_options, spec_options = (
        _Parser(add_help=False, argument_default=argparse.SUPPRESS) for _ in range(2)
    )
    common_options.add_argument("--json", action="store_true", help="results as JSON")
    common_options.add_argument(
        "--quiet", action="store_true", help="no progress; of convert, errors only"
    )
    convert.add_spec_options(spec_options)
    return common_options, spec_options
