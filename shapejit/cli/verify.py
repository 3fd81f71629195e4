"""`shapejit verify`: compare two checkpoints."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from math import isfinite
from typing import Any

from .. import conversion
from ..conversion.comparing import Weights, differences
from ..conversion.destination_config import facts_after, rewritten
from ..conversion.single_files import results
from ..errors import escaped, redacted_url
from ..files import file_formats
from ..files.config_files import configuration
from ..files.open_files import release
from .command import DONE, FAILED, SPEC_OPTIONS, number
from .output import print_json


def options(parser: ArgumentParser) -> None:
    """Add the options of the command."""
    parser.epilog = (
        "Weights are compared bit for bit; those that are quantised in different schemes, or on "
        "one side only, as numbers. Exit codes: 0 equal, 1 different, 2 bad input."
    )
    for name in ("a", "b"):
        parser.add_argument(
            name, metavar=name.upper(), help="a file or a folder of shards; a path or a URL"
        )
    parser.add_argument(
        "--rules",
        action="append",
        default=[],
        metavar="FILE",
        help="apply the rules of a TOML file to A first, as `shapejit convert` does; repeatable",
    )
    parser.add_argument(
        "--tolerance",
        type=number(lambda x: isfinite(x) and x >= 0, "from 0 on"),
        metavar="X",
        help="let floats differ by X times the largest magnitude in A's tensor, and in dtype "
        "(default: all bits must be equal)",
    )


def _weights(path: str, rules: Sequence[str], spec: Mapping[str, Any]) -> Weights:
    """The weights of a checkpoint after the rules in these files."""
    found = file_formats.read(path)
    if not rules:
        return Weights(found.typed, configuration(found).facts)
    given = [rule for file in rules for rule in conversion.read_rules(file)]
    tensors = conversion.plan(found, given, conversion.dialect(**spec))
    return Weights(results(tensors), facts_after(rewritten(tensors), tensors))


def run(args: Namespace) -> int:
    """Run the command."""
    spec = {name: value for name, value in vars(args).items() if name in SPEC_OPTIONS}
    a, b = _weights(args.a, args.rules, spec), _weights(args.b, (), {})
    found = []
    for each in differences(a, b, args.tolerance, lambda _: release()):
        found.append(asdict(each))
        if not args.json:
            print(each)
    warnings, count = {"a": a.warnings, "b": b.warnings}, len(a.keys() | b.keys())
    if args.json:
        head = {
            "a": redacted_url(args.a),
            "b": redacted_url(args.b),
            "equal": not found,
            "weights": count,
        }
        print_json({**head, "differences": found, "warnings": warnings})
        return FAILED if found else DONE
    for side, texts in warnings.items():
        for text in texts:
            print(f"{side.upper()}: warning: {escaped(text)}")
    print(f"{len(found) or 'none'} of {count} weights differ")
    return FAILED if found else DONE
