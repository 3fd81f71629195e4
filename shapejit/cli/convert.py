"""`shapejit convert`: apply rules to the tensors of a checkpoint."""

from __future__ import annotations

import re
import sys
from argparse import ArgumentParser, ArgumentTypeError, BooleanOptionalAction, Namespace
from collections.abc import Callable
from contextlib import closing
from typing import Any

from .. import conversion, files
from ..conversion import Report
from ..errors import number_of, quoted, redacted_url, shown
from . import progress
from .command import DONE, SPEC_OPTIONS
from .output import Columns, collapsed, counted, grouped, print_json, print_table

_COLUMNS: Columns = {
    "name": counted,
    "scheme": "{0[scheme]}",
    "before": "{0[before]}",
    "after": "{0[after]}",
    "way": "{0[way]}",
    "bytes": "{0[nbytes]}",
}


def report_json(report: Report) -> dict[str, Any]:
    """A report as a dict for JSON."""
    found = {name: value for name, value in vars(report).items() if name != "rows"}
    return {**found, "gb_per_s": report.gb_per_s}


def report_text(report: Report) -> str:
    """A report as one line."""
    return (
        f"{number_of(report.tensors, 'tensor')} written: {report.moved} converted, "
        f"{report.tensors - report.moved} copied; {report.changed} changed by rules; "
        f"{report.bytes_read / 1e6:.1f} MB read, {report.bytes_written / 1e6:.1f} MB written, "
        f"{report.seconds:.2f} s, {report.gb_per_s:.2f} GB/s"
    )


def options(parser: ArgumentParser) -> None:
    """Add the options of the command."""
    parser.epilog = (
        "Rules apply in the order given, each to every tensor whose whole name matches REGEX; the "
        "text after the last '=' is the value. SHAPE and AXES are comma-separated integers, "
        "none for a scalar. Quantising is round to nearest, without calibration; for "
        "AWQ, GPTQ or SmoothQuant with data use llm-compressor. A folder is written shard by "
        "shard, and a shard by one host: an unfinished one is written again, so smaller ones "
        "(--max-shard-size) lose less. A single file counts as one shard. No checksums are "
        "stored: `shapejit verify` finds data that a disk corrupts later."
    )
    parser.usage = "%(prog)s [RULES] [OPTIONS] SRC DST"
    parser.add_argument(
        "source", metavar="SRC", help="a file or a folder of shards; a path or a URL"
    )
    parser.add_argument(
        "destination",
        metavar="DST",
        help="the file or folder to write; its suffix names the format. An existing one is "
        "replaced when all is written, and may be SRC; at a URL it is refused",
    )
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
    rules.add_argument(
        "--rules",
        dest="rules",
        action="append",
        type=_pair_with("rules"),
        metavar="FILE",
        help="read rules from a TOML file of [[rule]] tables with one key each, such as "
        'to = "bf16"',
    )
    add = parser.add_argument
    add(
        "--max-shard-size",
        default="5GB",
        metavar="SIZE",
        help="start a new shard of a folder after SIZE bytes, such as 500MB (default: 5GB)",
    )
    add(
        "--part",
        metavar="I/N",
        type=_part,
        help="write only every N-th shard of a folder, from the I-th on (I from 1 to N); parts "
        "may run in any order, and on any hosts that see SRC and DST",
    )
    add(
        "--commit",
        metavar="N",
        type=int,
        help="after N parts: check that all shards are there, then make DST appear",
    )
    add(
        "--executor",
        metavar="NAME",
        help="write the shards of a folder in threads[:N] or on a cluster, dask://HOST:PORT "
        "(default: one after the other; for several processes use --part)",
    )
    add(
        "--strict",
        action="store_true",
        help="treat warnings as errors: unknown keys in a config, weights that contradict it, "
        "formats that cannot say how their weights are to be read",
    )
    add("--dry-run", action="store_true", help="print what would be done, and write nothing")
    add(
        "--proof",
        action=BooleanOptionalAction,
        default=True,
        help="first convert a sample of each kind of tensor, and compare it with NumPy's result "
        "(default: on)",
    )
    add(
        "--verify",
        action="store_true",
        help="convert everything a second time and compare it with what was written, before DST "
        "appears",
    )
    add(
        "--resume",
        action="store_true",
        help="continue from the finished shards of an interrupted run; keep those of this run if "
        "Ctrl-C or an error stops it",
    )
    add(
        "--saturate",
        action=BooleanOptionalAction,
        default=True,
        help="in casts to float8, clamp numbers beyond its range instead of storing inf or NaN "
        "(default: on)",
    )


def _part(text: str) -> tuple[int, int]:
    """`I/N` as two numbers, which `files.convert` checks."""
    found = re.fullmatch("(-?[0-9]{1,9})/(-?[0-9]{1,9})", text)
    if found is None:
        raise ArgumentTypeError(f"{quoted(text)} is not I/N with I from 1 to N")
    return int(found[1]), int(found[2])


def _pair_with(option: str) -> Callable[[str], tuple[str, str]]:
    return lambda text: (option, text)


_SAME = ("executor", "strict", "saturate", "resume", "proof", "verify", "dry_run", "part", "commit",
         "max_shard_size", *SPEC_OPTIONS)  # fmt: skip


def run(args: Namespace) -> int:
    """Run the command."""
    given = {name: value for name, value in vars(args).items() if name in _SAME}
    with closing(progress.ByteCounter(args)) as counter:

        def planned(report: Report) -> None:
            counter.total = report.bytes_written
            for text in collapsed(report.warnings):
                print(f"warning: {text}", file=sys.stderr)
            left = (f"left as it is: {name} ({what})" for name, what in report.left_out)
            for text in () if args.quiet else collapsed(left):
                print(text, file=sys.stderr)

        given |= {"planned": planned, "progress": counter.add}
        report = files.convert(args.source, args.destination, args.rules, **given)
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
        print_json({"groups": groups, "warnings": report.warnings, "left_out": report.left_out})
        return
    print_table(_COLUMNS, groups)
    print(f"{number_of(report.tensors, 'tensor')}, {number_of(report.bytes_written, 'byte')}")
