"""`shapejit convert`: apply rules to the tensors of a checkpoint."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, ArgumentTypeError, BooleanOptionalAction, Namespace
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from functools import cache
from typing import Any

from .. import conversion, files
from ..conversion import Report
from ..errors import redacted_url, shown
from . import progress
from .command import DONE, Command
from .output import Columns, collapsed, grouped, print_json, print_table, times

_COLUMNS: Columns = {
    "name": lambda row: shown(row["name"]) + times(row["count"]),
    "scheme": "{0[scheme]}",
    "before": "{0[before]}",
    "after": "{0[after]}",
    "way": "{0[way]}",
    "bytes": "{0[nbytes]}",
}

# Of a sample of the first weight of each kind that is encoded.
_ERRORS: Columns = {
    "name": lambda row: shown(row["name"]),
    "scheme": "{0[scheme]}",
    "largest error": "{0[largest]:.3g}",
    "mean": "{0[mean]:.3g}",
    "relative": "{0[relative]:.2%}",
}

SPEC_OPTIONS = ("spec", "special_zero", "allowzero")  # as conversion.dialect calls them


def add_spec_options(parser: ArgumentParser) -> None:
    """The options that say what rules mean."""
    parser.add_argument("--spec", help="onnx, openvino, onednn or array (the default)")
    parser.add_argument(
        "--special-zero", action="store_true", help="0 copies a dim (openvino, onednn)"
    )
    parser.add_argument("--allowzero", action="store_true", help="0 is a size (onnx)")


def report_json(report: Report) -> dict[str, Any]:
    """A report as JSON has it."""
    told = {name: value for name, value in vars(report).items() if name not in ("rows", "errors")}
    return {**told, "gb_per_s": report.gb_per_s}


def report_text(report: Report) -> str:
    """A report as one line."""
    return (
        f"{report.tensors} tensors, {report.changed} changed, {report.moved} of them in more "
        f"than name and shape; "
        f"{report.bytes_read / 1e6:.1f} MB in, {report.bytes_written / 1e6:.1f} MB out, "
        f"{report.seconds:.2f} s, {report.gb_per_s:.2f} GB/s"
    )


def _options(parser: ArgumentParser) -> None:
    parser.epilog = (
        "Rules apply in the order given, each to every tensor whose whole name REGEX matches. "
        "What stands behind the last '=' are values: SHAPE and AXES are comma-separated "
        "integers, none mean a scalar. Weights of floats are quantised by round to nearest: "
        "calibration with data is the field of llm-compressor. "
        "Shards are the unit of work: a shard that was not finished "
        "is written anew (--max-shard-size makes them smaller; a single file of any format is "
        "one), and one host writes it. Nothing is hashed: what a disk corrupts later, `shapejit "
        "verify` finds."
    )
    parser.usage = "%(prog)s [RULES] [OPTIONS] SRC DST"
    parser.add_argument(
        "source", metavar="SRC", help="a file, or a folder of shards; a path or a URL"
    )
    parser.add_argument("destination", metavar="DST", help="may be SRC, if it is a path")
    rules = parser.add_argument_group("rules")
    for option, kind in conversion.RULES.items():
        rules.add_argument(
            f"--{option}",
            dest="rules",
            action="append",
            default=[],
            type=_pair_with(option),
            metavar=kind.form,
            help=kind.text,
        )
    rules.add_argument("--rules", dest="rules", action="append", type=_pair_with(""),
        metavar="FILE", help="rules from a TOML file: tables [[rule]] of one key, as "
        "to = \"bf16\"")  # fmt: skip
    add = parser.add_argument
    add("--max-shard-size", default="5GB", metavar="SIZE",
        help="bytes of tensors per file of a folder, as 500MB (5GB if not given)")  # fmt: skip
    add("--chunk", metavar="SIZE",
        help="have at most so many bytes of a tensor in memory at a time, as 64MiB; "
        "rules that need more are refused")  # fmt: skip
    add("--part", metavar="I/N", type=_part,
        help="write every N-th shard of a folder from the I-th on: in any order, on any hosts "
        "that see both folders; a part without a shard has nothing to do")  # fmt: skip
    add("--commit", metavar="N", type=int,
        help="check that the shards of N parts are there, and make the folder appear")  # fmt: skip
    add("--executor", metavar="NAME", help="have the shards of a folder written by threads[:N] "
        "or dask://HOST:PORT; processes take a --part each")  # fmt: skip
    add("--strict", action="store_true",
        help="refuse what is warned of: keys of a config that are unknown, weights that "
        "contradict it, files that do not say how they are read")  # fmt: skip
    add("--dry-run", action="store_true", help="print what would be done, and write nothing")
    add(
        "--proof",
        action=BooleanOptionalAction,
        default=True,
        help="convert a sample of each kind first, and compare it with NumPy",
    )
    add("--verify", action="store_true", help="make all bytes once more, and compare them with "
        "those that were written, before the destination appears")  # fmt: skip
    add("--resume", action="store_true",
        help="continue an interrupted folder from its finished shards, and keep those of this "
        "run if it is stopped by Ctrl-C or an error")  # fmt: skip
    add(
        "--saturate",
        action=BooleanOptionalAction,
        default=True,
        help="what a cast to float8 makes of numbers beyond its range: the largest, or inf or NaN",
    )


def _part(text: str) -> tuple[int, int]:
    """`I/N` as two numbers."""
    i, _, n = text.partition("/")
    try:
        return int(i), int(n)
    except ValueError:
        raise ArgumentTypeError(f"{text!r} is not I/N with I from 1 to N") from None


def _pair_with(option: str) -> Callable[[str], tuple[str, str]]:
    return lambda text: (option, text)


def _rules(given: Iterable[tuple[str, str]]) -> Iterator[conversion.Rule]:
    """The rules in their order, those of files in the places of these."""
    for option, text in given:
        if option:
            yield conversion.rule(option, text)
        else:
            yield from conversion.read_rules(text)


_SAME = ("executor", "strict", "saturate", "resume", "proof", "verify", "dry_run", "part", "commit",
         "max_shard_size", "chunk", *SPEC_OPTIONS)  # fmt: skip


def _run(args: Namespace) -> int:
    given = {name: value for name, value in vars(args).items() if name in _SAME}
    with ExitStack() as stack:
        # The errors of rules come before the total is known.
        written = cache(lambda total: stack.enter_context(progress.written(args, total)))
        total = [0]

        def planned(report: Report) -> None:
            total[0] = report.bytes_written
            for text in collapsed(report.warnings):
                print(f"warning: {text}", file=sys.stderr)
            left = (f"left as it is: {name} ({what})" for name, what in report.left_out)
            for text in () if args.quiet else collapsed(left):
                print(text, file=sys.stderr)

        given["planned"] = planned
        given["progress"] = lambda count: written(total[0])(count)
        report = files.convert(args.source, args.destination, [*_rules(args.rules)], **given)
    if args.dry_run:
        _print_groups(report, args.json)
    elif args.json:
        paths = {"source": redacted_url(args.source), "destination": redacted_url(args.destination)}
        print_json({**paths, **report_json(report)})
    elif not args.quiet:
        print(f"{shown(args.destination)}: {report_text(report)}")
    return DONE


def _print_groups(report: Report, as_json: bool) -> None:
    groups = grouped(map(vars, report.rows), ("scheme", "before", "after", "way"))
    if as_json:
        errors = [error._asdict() for error in report.errors]
        told = {"warnings": report.warnings, "left_out": report.left_out, "errors": errors}
        print_json({"groups": groups, **told})
        return
    print_table(_COLUMNS, groups)
    if report.errors:
        print_table(_ERRORS, (error._asdict() for error in report.errors))
    print(f"{report.tensors} tensors, {report.bytes_written} bytes")


COMMAND = Command(
    "convert", "apply rules to the tensors of a checkpoint", _run, _options, rules=True
)
