"""`shapejit convert`: apply rules to the tensors of a checkpoint."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, ArgumentTypeError, BooleanOptionalAction, Namespace
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from functools import cache
from typing import Any

from .. import conversion
from ..conversion import Report
from ..errors import redacted_url, shown
from . import progress
from .command import DONE, Command
from .output import Columns, collapsed, print_json, print_table

_COLUMNS: Columns = {
    "name": lambda row: shown(row.name) + (f" x {row.count}" if row.count > 1 else ""),
    "scheme": "{0.scheme}",
    "before": "{0.before}",
    "after": "{0.after}",
    "way": "{0.way}",
    "bytes": "{0.nbytes}",
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
    return {**vars(report), "gb_per_s": report.gb_per_s}


def report_text(report: Report) -> str:
    """A report as one line."""
    return (
        f"{report.tensors} tensors, {report.changed} changed, {report.moved} of them moved; "
        f"{report.bytes_read / 1e6:.1f} MB in, {report.bytes_written / 1e6:.1f} MB out, "
        f"{report.seconds:.2f} s, {report.gb_per_s:.2f} GB/s"
    )


def _options(parser: ArgumentParser) -> None:
    parser.epilog = (
        "Rules apply in the order given, each to every tensor whose whole name REGEX matches. "
        "What stands behind the last '=' are values: SHAPE and AXES are comma-separated "
        "integers, none mean a scalar."
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
        help="write the I-th of N parts of a folder and leave a receipt: in any order, on any "
        "hosts that see both folders")  # fmt: skip
    add("--commit", metavar="N", type=int,
        help="check what N parts have written, and make the folder appear")  # fmt: skip
    add("--executor", metavar="NAME", help="have the items of a folder done by threads[:N], "
        "processes[:N], dask://HOST:PORT or dask://local[:N]")  # fmt: skip
    add("--item-size", metavar="SIZE",
        help="bytes of an item that parts and executors share out (64MiB)")  # fmt: skip
    add("--strict", action="store_true",
        help="refuse what is warned of: keys of a config that are unknown, weights that "
        "contradict it")  # fmt: skip
    add("--dry-run", action="store_true", help="print what would be done, and write nothing")
    add(
        "--proof",
        action=BooleanOptionalAction,
        default=True,
        help="convert a sample of each kind first, and compare it with NumPy",
    )
    add("--resume", action="store_true",
        help="continue an interrupted folder from its finished files, and keep those of this "
        "run if it is stopped by Ctrl-C or an error")  # fmt: skip
    add(
        "--saturate",
        action=BooleanOptionalAction,
        default=True,
        help="what a cast to float8 makes of numbers beyond its range: the largest, or inf or NaN",
    )


def _warn(warnings: Iterable[str]) -> None:
    for text in collapsed(warnings):
        print(f"warning: {text}", file=sys.stderr)


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


def _run(args: Namespace) -> int:
    given = {name: value for name, value in vars(args).items() if name in SPEC_OPTIONS}
    rules = tuple((r.option, r.text) for r in _rules(args.rules))
    chunk = None if args.chunk is None else conversion.nbytes_of(args.chunk)
    job = conversion.Job(
        args.source, args.destination, rules, saturate=args.saturate, chunk=chunk,
        strict=args.strict, **given,
    )  # fmt: skip
    item = None if args.item_size is None else conversion.nbytes_of(args.item_size)
    most = conversion.nbytes_of(args.max_shard_size)
    settings = conversion.Settings(most, args.resume, args.part, args.commit, item)
    plan = job.plan()
    _warn(plan.warnings)
    if args.dry_run:
        _print_groups(plan, args.json)
        return DONE
    if args.proof and args.commit is None:
        conversion.prove(plan.changes, plan.most)
    with ExitStack() as stack:

        @cache
        def bar() -> Any:
            # Made at the first byte, so that an error before it stands alone.
            options = {"unit": "B", "unit_scale": True, "desc": "convert"}
            total = plan.nbytes // (args.part or (1, 1))[1]
            return stack.enter_context(progress.bar(args, total=total, **options))

        tell = None if args.quiet else lambda nbytes: bar().update(nbytes)
        report = conversion.written(job, plan, settings, args.executor, tell)
    if args.json:
        paths = {"source": redacted_url(args.source), "destination": redacted_url(args.destination)}
        print_json({**paths, **report_json(report)})
    elif not args.quiet:
        print(f"{shown(args.destination)}: {report_text(report)}")
    return DONE


def _print_groups(plan: conversion.Conversion, as_json: bool) -> None:
    groups = conversion.described(plan.tensors)
    if as_json:
        print_json({"groups": [vars(group) for group in groups], "warnings": plan.warnings})
        return
    print_table(_COLUMNS, groups)
    print(f"{sum(g.count for g in groups)} tensors, {sum(g.nbytes for g in groups)} bytes")


COMMAND = Command(
    "convert", "apply rules to the tensors of a checkpoint", _run, _options, rules=True
)
