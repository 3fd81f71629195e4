"""`shapejit inspect`: list the tensors of a checkpoint."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from ..errors import shown
from ..files import safetensors
from .command import DONE, Command
from .output import Columns, print_json, print_table, shape

_COLUMNS: Columns = {
    "name": lambda row: shown(row["name"]),
    "dtype": "{0[dtype]}",
    "shape": lambda row: shape(row["shape"]),
    "bytes": "{0[nbytes]}",
    "begin": "{0[offsets][0]}",
    "end": "{0[offsets][1]}",
}


def _options(parser: ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE")


def _run(args: Namespace) -> int:
    found = safetensors.read(args.file)
    rows = [
        {
            "name": name,
            "dtype": kind.name,
            "shape": sizes,
            "nbytes": end - begin,
            "offsets": (begin, end),
        }
        for name, (kind, sizes, begin, end) in found.entries.items()
    ]
    if args.json:
        head = {"file": args.file, "nbytes": found.nbytes, "metadata": found.metadata}
        print_json({**head, "tensors": rows})
        return DONE
    print_table(_COLUMNS, rows)
    for key, value in (found.metadata or {}).items():
        print(f"{shown(key)}: {value if value.isprintable() else repr(value)}")
    print(f"{len(rows)} tensors, {found.nbytes} bytes")
    return DONE


COMMAND = Command("inspect", "list the tensors of a safetensors file", _run, _options)
