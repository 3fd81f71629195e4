"""`shapejit warmup`: compile kernels and keep them on disk, as for an image of a container."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from ..programs import warming
from . import progress
from .command import DONE, Command
from .output import print_json, print_table


def _options(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--only",
        nargs="+",
        choices=list(warming.ROWS),
        metavar="WORK",
        help=f"some of {', '.join(warming.ROWS)}",
    )
    parser.add_argument(
        "--processes",
        type=int,
        metavar="N",
        help="that divide the work (one per core if not given)",
    )
    parser.epilog = (
        "The environment variable NUMBA_CACHE_DIR says where kernels are kept. "
        "Processes on the same kind of processor find them there."
    )


def _run(args: Namespace) -> int:
    with progress.clock(args) as line:
        line.set_description_str("compiling kernels")
        taken = warming.warmup(args.only, processes=args.processes)
    if args.json:
        print_json(taken)
    else:
        print_table({"work": "{0[0]}", "seconds": "{0[1]:.2f}"}, taken.items())
    return DONE


COMMAND = Command("warmup", "compile kernels and keep them on disk", _run, _options)
