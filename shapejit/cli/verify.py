"""`shapejit verify`: compare two checkpoints."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError, Namespace
from dataclasses import asdict
from math import isfinite

from ..comparing import Weights, differences
from ..errors import escaped
from ..files import file_formats
from ..files.configuration import configuration
from .command import DONE, FAILED, Command
from .output import print_json


def _options(parser: ArgumentParser) -> None:
    parser.epilog = (
        "Bits are compared; where weights are quantised in different ways, or on one side only, "
        "the numbers that they stand for. Exit code 0: equal, 1: different."
    )
    for name in ("a", "b"):
        parser.add_argument(name, metavar=name.upper(), help="a file, or a folder of shards")
    parser.add_argument(
        "--tolerance",
        type=_tolerance,
        metavar="X",
        help="floats may differ by X times the largest magnitude in the tensor of A, and in dtype",
    )


def _tolerance(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not isfinite(value) or value < 0:
        raise ArgumentTypeError(f"{text[:40]!r} is not a number from 0 on")
    return value


def _weights(path: str) -> Weights:
    found = file_formats.read(path)
    return Weights(found.typed, configuration(found))


def _run(args: Namespace) -> int:
    a, b = _weights(args.a), _weights(args.b)
    found = []
    for each in differences(a, b, args.tolerance):
        found.append(asdict(each))
        if not args.json:
            print(each)
    warnings, count = {"a": a.warnings, "b": b.warnings}, len(a.keys() | b.keys())
    if args.json:
        head = {"a": args.a, "b": args.b, "equal": not found, "weights": count}
        print_json({**head, "differences": found, "warnings": warnings})
        return FAILED if found else DONE
    for side, texts in warnings.items():
        for text in texts:
            print(f"{side.upper()}: warning: {escaped(text)}")
    print(f"{len(found) or 'none'} of {count} weights differ")
    return FAILED if found else DONE


COMMAND = Command("verify", "compare two checkpoints bit for bit", _run, _options)
