"""`shapejit demo`: convert and verify a generated checkpoint, and compare copies with NumPy's."""

from __future__ import annotations

import shlex
from argparse import ArgumentParser, Namespace
from typing import Any

from ..bench import demo
from . import progress
from .command import DONE, FAILED
from .convert import report_json, report_text
from .output import Columns, print_json, print_table, print_text, ratio, same, shape

_COLUMNS: Columns = {
    "copy": "{0.name}",
    "result": lambda row: shape(row.shape),
    "MB": lambda row: f"{row.nbytes / 1e6:.1f}",
    "same bits": same,
    "GB/s": "{0.gb_per_s:.2f}",
    "NumPy GB/s": "{0.numpy_gb_per_s:.2f}",
    "ratio": lambda row: ratio(row.ratio),
}


def options(parser: ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument(
        "--keep",
        metavar="FOLDER",
        help="keep both checkpoints in this new folder, so that the printed commands can be run",
    )


def run(args: Namespace) -> int:
    """Run the command."""
    with progress.clock(args) as line:
        found = demo.run(line.set_description_str, args.keep)
    if args.json:
        rows = [{**vars(row), "ratio": row.ratio} for row in found.rows]
        head: dict[str, Any] = {"same": found.same, "compile_seconds": found.compile_seconds}
        head |= {"commands": found.commands, "differences": found.differences}
        print_json({**head, "convert": report_json(found.report), "copies": rows})
    else:
        _print(found)
    return DONE if found.same else FAILED


def _print(found: demo.Demo) -> None:
    convert, verify = map(shlex.join, found.commands)
    print(f"{convert}\n{report_text(found.report)} (compiling took {found.compile_seconds:.2f} s)")
    print(f"\n{verify}")
    for difference in found.differences:
        print(difference)
    print(f"{len(found.differences) or 'none'} of {found.report.tensors} weights differ\n")
    print_table(_COLUMNS, found.rows)
    verdict = "Every" if all(row.same for row in found.rows) else "NOT every"
    print(f"\n{verdict} copy equals NumPy's, bit for bit.")
    print_text(
        "GB/s: 10^9 bytes read and written per second; the conversion includes files, copies are "
        "in memory. Copies are measured interleaved with NumPy's; speeds are medians of several "
        "rounds."
    )
    if "SRC" in found.commands[0]:
        print_text("With --keep FOLDER both checkpoints stay, and the commands above can be run.")
    disturbed = sum(row.disturbed for row in found.rows)
    if disturbed:
        print_text(
            f"{disturbed} of {len(found.rows)} rows were disturbed: memcpy was slower on all "
            "threads than on one. Run it again when no other programs use the cores."
        )
