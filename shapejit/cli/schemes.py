"""`shapejit schemes`: print the table of schemes of quantised weights."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from ..quantization.scheme import schemes
from .command import DONE
from .output import print_json


def options(parser: ArgumentParser) -> None:
    """Add the options of the command."""
    parser.epilog = (
        "project: the project whose own code each scheme is compared with, bit for bit. decode: "
        "by a kernel of shapejit or by a library. encode: `convert --to SCHEME` quantises floats "
        "to it, by round to nearest. convert: `--to SCHEME` takes the codes of other schemes."
    )


def run(args: Namespace) -> int:
    """Run the command."""
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
