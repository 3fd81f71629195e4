"""`shapejit inspect`: list the tensors of a checkpoint, and how they are quantised."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from ..errors import escaped, number_of, redacted_url, shown
from ..files import file_formats
from ..files.checkpoint import Checkpoint
from ..files.config_files import configuration
from ..files.places import file_system
from ..files.stored import Stored
from ..quantization.detection import Detected
from ..quantization.scheme import schemes
from .command import DONE
from .output import Columns, collapsed, counted, grouped, print_json, print_table, shape

_COLUMNS: Columns = {
    "name": counted,
    "type": lambda row: row.get("type"),
    "scheme": lambda row: row.get("scheme"),
    "dtype": "{0[dtype]}",
    "shape": lambda row: shape(row["shape"]),
    "bytes": "{0[nbytes]}",
    "begin": lambda row: row["offsets"][0],
    "end": lambda row: row["offsets"][1],
}

_SHOWN = 8  # values of an array in the metadata


def options(parser: ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument(
        "file", metavar="FILE", help="a file or a folder of shards; a path or a URL"
    )


def _row(found: Checkpoint, member: Stored) -> dict[str, Any]:
    """A tensor as a dict for JSON: its offsets if it is in the file itself, or else its shard."""
    row: dict[str, Any] = {
        "name": member.name,
        "dtype": member.dtype.name,
        "shape": member.layout.shape,
        "nbytes": member.nbytes,
    }
    if found.types:
        row["type"] = found.types[member.name]
    if found.format == "sharded":
        row["shard"] = file_system(member.file.path).base(member.file.path)
    elif member.file.path != found.path:
        row["external"] = file_system(member.file.path).base(member.file.path)
    elif not member.file.compressed:
        begin = member.begin - found.start
        row["offsets"] = begin, begin + (member.layout.span[1] + 7) // 8
    return row


def _schemes(rows: Iterable[dict[str, Any]], found: Detected) -> list[dict[str, Any]]:
    """The quantised weights as dicts for JSON; adds the scheme to the rows of their tensors."""
    own = {name: each.scheme for each in found for name in each.parts.names.values()}
    for row in rows:
        if row["name"] in own:
            row["scheme"] = own[row["name"]]
    return [
        {"name": e.parts.weight, "scheme": e.scheme, "tensors": [*e.parts.names.values()]}
        for e in found
    ]


def run(args: Namespace) -> int:
    """Run the command."""
    found = file_formats.read(args.file)
    rows = [_row(found, member) for member in found.members.values()]
    detected = schemes.detect(found.typed, configuration(found).facts)
    warnings = [*found.warnings, *detected.warnings]
    weights = _schemes(rows, detected)
    groups = grouped(rows, ("dtype", "shape", "type", "scheme"))
    nodes = _onnx_nodes(found) if found.format == "onnx" else []
    if args.json:
        head = {"file": redacted_url(args.file), "format": found.format, "nbytes": found.nbytes}
        more = {"metadata": found.metadata, "tensors": rows, "groups": groups, "weights": weights}
        if found.format == "onnx":
            more["nodes"] = nodes
        unclear = [each._asdict() for each in detected.unclear]
        print_json({**head, **more, "unclear": unclear, "warnings": warnings})
        return DONE
    offsets = {row["name"]: row["offsets"] for row in rows if "offsets" in row}
    for group in groups:
        group["offsets"] = offsets.get(group["name"], (None, None))
    unknown = () if groups else ("type", "scheme")
    print_table({name: c for name, c in _COLUMNS.items() if name not in unknown}, groups)
    print_nodes(nodes)
    for key, value in (found.metadata or {}).items():
        print(f"{shown(key)}: {_text(value)}")
    for line in collapsed(map(str, detected.unclear)):
        print(f"unclear: {line}")
    for line in collapsed(warnings):
        print(f"warning: {line}")
    print(f"{number_of(len(rows), 'tensor')}, {number_of(found.nbytes, 'byte')}")
    return DONE


def _text(value: Any) -> str:
    """A value of the metadata on one line, long arrays shortened."""
    if isinstance(value, str):
        return value if value.isprintable() else repr(value)
    if isinstance(value, list) and len(value) > _SHOWN:
        first = ", ".join(map(repr, value[:_SHOWN]))
        return f"[{first}, ...] ({len(value)} values)"
    return repr(value)


def _onnx_nodes(found: Any) -> list[dict[str, Any]]:
    """The Reshape nodes of a model as dicts for JSON."""
    from ..files.onnx.shapes import nodes_of  # imported late: it imports onnx

    return [
        {**asdict(node), "result": node.result, "fault": node.fault, "disagree": node.disagree}
        for node in nodes_of(found)
    ]


_AGREEMENT = {None: "unknown", False: "agree", True: "DISAGREE"}
_NODE_COLUMNS: Columns = {
    "node": counted,
    "operator": "{0[version]}",
    "data": lambda row: _dims(row["source"]),
    "shape": lambda row: _dims(row["target"]),
    "allowzero": "{0[allowzero]}",
    "result": lambda row: "error" if row["fault"] else _dims(row["result"]),
    "specifications": lambda row: (
        "all refuse" if row["fault"] and not row["disagree"] else _AGREEMENT[row["disagree"]]
    ),
}


def _dims(sizes: Iterable[int | str | None] | None) -> str:
    return "unknown" if sizes is None else shape("?" if n is None else n for n in sizes)


def print_nodes(nodes: Iterable[dict[str, Any]]) -> None:
    """Print a line for each node, and each result where specifications disagree, or the error."""
    given = [*nodes]
    found = grouped(given, [word for word in given[0] if word != "name"] if given else ())
    if found:
        print_table(_NODE_COLUMNS, found)
    for row in found:
        told = {"onnx": row["fault"]} if row["fault"] else {}
        for spec, outcome in (row["outcomes"] if row["disagree"] else told).items():
            if isinstance(outcome, str):
                text = "; ".join(map(str.strip, outcome.splitlines()))
            else:
                text = shape(outcome)
            print(f"{shown(row['name'])}: {spec}: {escaped(text)}")
