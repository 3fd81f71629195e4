"""`shapejit convert`: apply rules to the tensors of a checkpoint."""

from __future__ import annotations

from argparse import ArgumentParser, BooleanOptionalAction, Namespace
from collections.abc import Callable
from contextlib import ExitStack
from functools import cache
from typing import Any

from tqdm import tqdm

from .. import conversion
from ..conversion import Report
from ..errors import shown
from ..files import file_formats
from .command import DONE, Command
from .output import print_json

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
        "SHAPE and AXES are comma-separated integers behind the last '='; none mean a scalar."
    )
    parser.add_argument("source", metavar="SRC")
    parser.add_argument("destination", metavar="DST", help="may be SRC")
    for option, kind in conversion.RULES.items():
        parser.add_argument(
            f"--{option}",
            dest="rules",
            action="append",
            default=[],
            type=_pair_with(option),
            metavar=kind.form,
            help=kind.text,
        )

    parser.add_argument(
        "--saturate",
        action=BooleanOptionalAction,
        default=True,
        help="what a cast to float8 makes of numbers beyond its range: the largest, or inf or NaN",
    )


def _pair_with(option: str) -> Callable[[str], tuple[str, str]]:
    return lambda text: (option, text)


def _run(args: Namespace) -> int:
    given = {name: value for name, value in vars(args).items() if name in SPEC_OPTIONS}
    reshape = conversion.dialect(**given)
    rules = [conversion.rule(*words) for words in args.rules]
    plan = conversion.plan(file_formats.read(args.source), rules, reshape, args.saturate)
    with ExitStack() as stack:

        @cache
        def bar() -> Any:
            # Made at the first byte, so that an error before it stands alone.
            options = {"unit": "B", "unit_scale": True, "desc": "convert", "leave": False}
            return stack.enter_context(tqdm(total=plan.nbytes, **options))

        report = plan.write(args.destination, lambda nbytes: bar().update(nbytes))
    if args.json:
        paths = {"source": args.source, "destination": args.destination}
        print_json({**paths, **report_json(report)})
    else:
        print(f"{shown(args.destination)}: {report_text(report)}")
    return DONE


COMMAND = Command(
    "convert", "apply rules to the tensors of a checkpoint", _run, _options, rules=True
)
