"""`shapejit schemes`: print the table of schemes of quantised weights."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from ..quantization.table import schemes
from .command import DONE, Command
from .output import print_json


def _options(parser: ArgumentParser) -> None:
    parser.epilog = (
        "project: whose code is the reference, which each scheme is compared with, bit for bit. "
        "decode: what makes plain numbers of it. encode: `convert --to SCHEME` makes it of plain "
        "numbers, by round to nearest. convert: `--to SCHEME` takes codes of other schemes."
    )


def _run(args: Namespace) -> int:
    if args.json:
        print_json(
            [
                {"name": name, **schemes.facts(name), "source": scheme.source}
                for name, scheme in schemes.items()
            ]
        )
    else:
        print(repr(schemes))
    return DONE


COMMAND = Command("schemes", "print the table of schemes of quantised weights", _run, _options)
