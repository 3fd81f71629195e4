"""`shapejit demo`: convert a checkpoint made up here, prove it, show the speed."""

from __future__ import annotations

import shlex
from argparse import ArgumentParser, Namespace
from typing import Any

from ..bench import demo
from . import progress
from .command import DONE, FAILED, Command
from .convert import report_json, report_text
from .output import Columns, print_json, print_table, print_text, ratio, same, shape

_COLUMNS: Columns = {
    "tensor": "{0.name}",
    "from": lambda row: shape(row.source_shape),
    "to": lambda row: shape(row.shape),
    "MB": lambda row: f"{row.nbytes / 1e6:.1f}",
    "same bits": same,
    "GB/s": "{0.gb_per_s:.2f}",
    "NumPy GB/s": "{0.numpy_gb_per_s:.2f}",
    "ratio": lambda row: ratio(row.ratio),
}


def _options(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--keep",
        metavar="FOLDER",
        help="leave the checkpoint and what it was converted to in a new folder, for the "
        "command that is printed",
    )


def _run(args: Namespace) -> int:
    with progress.clock(args) as line:
        found = demo.run(line.set_description_str, args.keep)
    if args.json:
        rows = [{**vars(row), "ratio": row.ratio} for row in found.rows]
        head: dict[str, Any] = {"same": found.same, "first_seconds": found.first_seconds}
        head |= {"rules": found.rules, "command": found.command}
        print_json({**head, "convert": report_json(found.report), "tensors": rows})
    else:
        _print(found)
    return DONE if found.same else FAILED


def _print(found: demo.Demo) -> None:
    print(shlex.join(found.command))
    print(report_text(found.report) + f" (the first time {found.first_seconds:.2f} s)\n")
    print_table(_COLUMNS, found.rows)
    verdict = "Every tensor equals" if found.same else "NOT every tensor equals"
    print(f"\n{verdict} NumPy's, bit for bit.")
    print_text(
        "GB/s: 10^9 bytes read and written per second, in memory. Both take turns for several "
        "rounds; the median of the faster half of each counts, since other programs slow down "
        "single rounds."
    )
    if "SRC" in found.command:
        print_text("With --keep FOLDER both files stay, and the command above can be pasted.")
    disturbed = sum(row.disturbed for row in found.rows)
    if disturbed:
        print_text(
            f"{disturbed} of {len(found.rows)} rows were disturbed all the same: their fastest "
            "round was far faster. Run it again when other programs leave the cores."
        )


COMMAND = Command(
    "demo", "convert a checkpoint made up here, prove it, show the speed", _run, _options
)
