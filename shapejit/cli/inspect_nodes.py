"""The Reshape and Shape nodes of an ONNX model, as `shapejit inspect` lists them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict
from typing import Any

from ..errors import escaped, shown
from .output import Columns, grouped, print_table, shape, times


def _onnx_nodes(found: Any) -> list[dict[str, Any]]:
    """The Reshape and Shape nodes of a model as dicts for JSON."""
    from ..files.onnx.shapes import nodes_of  # imported late: it imports onnx

    return [
        {**asdict(node), "result": node.result, "fault": node.fault, "disagree": node.disagree}
        for node in nodes_of(found)
    ]


# Reads the nodes of a file, by its format.
NODES: dict[str, Callable[[Any], list[dict[str, Any]]]] = {"onnx": _onnx_nodes}
_AGREEMENT = {None: "unknown", False: "agree", True: "DISAGREE"}
_NODE_COLUMNS: Columns = {
    "node": lambda row: shown(row["name"]) + times(row["count"]),
    "operator": "{0[version]}",
    "data": lambda row: _dims(row["source"]),
    "shape": lambda row: "-" if "Reshape" not in row["version"] else _dims(row["target"]),
    "allowzero": "{0[allowzero]}",
    "result": lambda row: "error" if row["fault"] else _dims(row["result"]),
    "specifications": lambda row: _AGREEMENT[row["disagree"]],
}


def _dims(sizes: Iterable[int | str | None] | None) -> str:
    return "unknown" if sizes is None else shape("?" if n is None else n for n in sizes)


def print_nodes(nodes: Iterable[dict[str, Any]]) -> None:
    """Print a line for each node, and the result by each specification where they disagree."""
    given = [*nodes]
    found = grouped(given, [word for word in given[0] if word != "name"] if given else ())
    if found:
        print_table(_NODE_COLUMNS, found)
    for row in found:
        for spec, outcome in row["outcomes"].items() if row["disagree"] else ():
            if isinstance(outcome, str):
                text = "; ".join(map(str.strip, outcome.splitlines()))
            else:
                text = shape(outcome)
            print(f"{shown(row['name'])}: {spec}: {escaped(text)}")
