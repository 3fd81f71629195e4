"""`shapejit warmup`: compile kernels ahead of time, for example into a container image."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace

from ..programs import warming
from ..runtime.kernels import kernel_status
from . import progress
from .command import DONE, FAILED
from .output import print_json, print_table


def options(parser: ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument(
        "--only",
        nargs="+",
        choices=list(warming.WORK),
        metavar="WORK",
        help=f"compile for these kinds of work only: {', '.join(warming.WORK)} (default: all)",
    )
    parser.add_argument(
        "--processes",
        type=int,
        metavar="N",
        help="number of compiler processes (default: one per core)",
    )
    parser.epilog = (
        "Kernels are kept in NUMBA_CACHE_DIR/shapejit, or, if that variable is not set, next to "
        "the package or in your cache folder. Later processes on the same kind of processor find "
        "them there. Exit code 1: a kernel could not be built."
    )


def run(args: Namespace) -> int:
    """Run the command."""
    with progress.clock(args) as line:
        line.set_description_str("compiling kernels")
        taken = warming.warmup(args.only, processes=args.processes)
    if args.json:
        print_json(taken)
    else:
        print_table({"work": "{0[0]}", "seconds": "{0[1]:.2f}"}, taken.items())
    reasons = {name: kernel.reason for name, kernel in kernel_status().items() if kernel.reason}
    for name, reason in reasons.items():
        print(f"no kernel {name}: {reason}", file=sys.stderr)
    return FAILED if reasons else DONE
