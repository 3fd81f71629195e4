"""`shapejit formats`: print the table of packing formats, or check it."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import Any

from ..errors import shortened
from ..packings.packing import Packing
from ..packings.repacking import proved
from ..packings.rows import formats
from .command import DONE, FAILED
from .output import Columns, print_table

_COLUMNS: Columns = {
    "name": "{0[name]}",
    "bits": lambda row: ",".join(map(str, row["bits"])) or "any",
    "unit": lambda row: row["unit"] or "the dtype's",
    "order": lambda row: "; ".join(row["order"]),
    "dims": "{0[dims]}",
    "bias": "{0[bias]}",
    "versions": lambda row: row["versions"] or None,
    "source": "{0[source]}",
}
_PROVED: Columns = {
    "name": "{0[name]}",
    "proved": lambda row: "yes" if row["proved"] else "NO",
    "check": lambda row: shortened(row["check"]["stored"], 64),
}


def options(parser: ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument(
        "--verify", action="store_true", help="check each format against its test vector"
    )
    parser.epilog = (
        "order: the last dims and their factors, outermost first -> their order in memory; "
        "see help('shapejit.packings.orders') in Python. bias: the number added to stored codes; "
        "min: signed codes are stored minus the smallest value of their dtype."
    )


def run(args: Namespace) -> int:
    """Run the command."""
    rows = [_facts(row, args.verify) for row in formats.values()]
    print_table(_PROVED if args.verify else _COLUMNS, rows, args.json)
    return DONE if all(row.get("proved", True) for row in rows) else FAILED


def _facts(row: Packing, verify: bool) -> dict[str, Any]:
    """The printed facts of a format."""
    dims = "flat" if row.flat else "in, out" if row.inputs_first else "as stored"
    check = {**row.check._asdict(), "codes": list(row.check.codes)}
    facts = {
        "name": row.name,
        "bits": row.bits,
        "unit": row.unit,
        "order": [plane.order for plane in row.planes],
        "planes": [[plane.bits, plane.low] for plane in row.planes],
        "dims": dims,
        "pads": row.pads,
        "bias": "min" if row.unsigned and not row.bias else f"{row.bias:+d}" if row.bias else "0",
        "versions": row.versions,
        "source": row.source,
        "check": check,
    }
    return facts | ({"proved": proved(row)} if verify else {})
