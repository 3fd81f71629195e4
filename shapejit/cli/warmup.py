"""`shapejit warmup`: compile kernels into numba's disk cache, as for an image of a container."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from .. import warming
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
    parser.epilog = (
        "The cache is numba's: the environment variable NUMBA_CACHE_DIR says where it lies. "
        "Processes on the same kind of processor find the kernels there."
    )


def _run(args: Namespace) -> int:
    taken: dict[str, float] = {}
    with progress.clock(args) as line:
        for name in args.only or list(warming.ROWS):
            line.set_description_str(f"compiling {name}")
            taken |= warming.warmup([name])
    if args.json:
        print_json(taken)
    else:
        print_table({"work": "{0[0]}", "seconds": "{0[1]:.2f}"}, taken.items())
    return DONE


COMMAND = Command("warmup", "compile kernels into the disk cache", _run, _options)
