"""Chains of nodes that only move elements as one Program: one copy, or a view."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from onnx import AttributeProto

from ..arrays.tensor import Tensor
from ..dtypes.table import STRING
from ..operations.views import dtype_of
from ..programs.planned import plan
from ..programs.program import Program
from ..runtime.recent import Recent
from .onnx_operators import Operator, own_errors

# Operators of one output, which only move the elements of the first input.
MOVING = {
    *("Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Expand", "Slice", "Tile"),
    *("Identity", "DepthToSpace", "SpaceToDepth"),
}
LEAST = 16 * 1024  # bytes; copies of smaller arrays cost less than a Program for each shape
KEPT = 16  # shapes, dtypes and further inputs whose Programs a chain remembers


class Fused:
    """Nodes of which each takes what the one before makes, and nobody else does.

    To onnx's evaluator it is one node: its inputs are the first node's, and the further
    inputs of the others (shapes, axes …), which are read when it runs.
    """

    has_linked_attribute = False
    domain = ""

    def __init__(self, nodes: Sequence[Operator]) -> None:
        self.nodes = tuple(nodes)
        first, *others = self.nodes
        self.input = [*first.input, *(name for node in others for name in node.input[1:])]
        self.output = self.nodes[-1].output
        self.op_type = " -> ".join(node.op_type for node in self.nodes)
        self._programs: Recent[Any, Program] = Recent(KEPT)

    def need_context(self) -> bool:
        """The nodes have no subgraphs."""
        return False

    def run(self, *inputs: Any) -> tuple[Any]:
        """The last node's output; errors are those of the nodes."""
        x, *others = (np.asarray(v) if isinstance(v, np.generic) else v for v in inputs)
        with own_errors():
            plain = isinstance(x, np.ndarray) and x.nbytes >= LEAST and dtype_of(x) is not STRING
            if not plain:
                return (self.step_by_step(x, others),)
            return (self.program(x, others)(x),)

    def step_by_step(self, x: Any, others: Sequence[Any]) -> Any:
        """What the nodes make of `x`, an array or a traced Tensor, one after the other."""
        left = iter(others)
        for node in self.nodes:
            further = [next(left) for _ in node.input[1:]]
            (x,) = node.apply(x, *further)
        return x

    def program(self, x: np.ndarray[Any, Any], others: Sequence[Any]) -> Program:
        """The Program for arrays like `x` with these further inputs."""
        key = x.shape, x.dtype, *(map(_key, others))
        made = self._programs.get(key)
        if made is None:
            made = plan(x.shape, x.dtype, lambda t: self._traced(t, others))
            self._programs.put(key, made)
        return made

    def _traced(self, t: Tensor, others: Sequence[Any]) -> Tensor:
        traced: Tensor = self.step_by_step(t, others)
        return traced


def _key(value: Any) -> Any:
    """What stands for a further input in a cache."""
    if isinstance(value, np.ndarray) and value.dtype != object:
        return value.dtype, value.shape, value.tobytes()
    return repr(value)


def fused(nodes: Sequence[Any], outputs: Sequence[str]) -> list[Any]:
    """An evaluator's nodes, in which chains are one node, in the place of their last one.

    `outputs` are the names of the values that are asked for.
    """
    uses = Counter(name for node in nodes for name in _read(node))
    uses.update(outputs)
    open_chains: dict[str, list[Any]] = {}  # by the value that only the next node reads
    places: dict[int, list[Any]] = {}  # by the place of their last node
    for place, node in enumerate(nodes):
        chain: list[Any] = []
        if _moves(node):
            chain = open_chains.pop(node.input[0], [])
            if chain:
                del places[nodes.index(chain[-1])]
            if uses[node.output[0]] == 1 and node.output[0] not in outputs:
                open_chains[node.output[0]] = chain
        chain.append(node)
        places[place] = chain
    return [chain[0] if len(chain) == 1 else Fused(chain) for chain in places.values()]


def hidden(nodes: Sequence[Any]) -> set[str]:
    """The values that chains pass on without making an array of them."""
    chains = [node.nodes for node in nodes if isinstance(node, Fused)]
    return {node.output[0] for chain in chains for node in chain[:-1]}


def _moves(node: Any) -> bool:
    """Whether a node can be one of a chain."""
    return (
        isinstance(node, Operator)
        and node.op_type in MOVING
        and not node.has_linked_attribute
        and len(node.output) == 1
    )


def _read(node: Any) -> Iterator[str]:
    """The names that a node reads, its subgraphs included."""
    yield from node.input
    yield from _in_subgraphs(node.onnx_node)


def _in_subgraphs(node: Any) -> Iterator[str]:
    for attribute in node.attribute:
        graphs = [attribute.g] if attribute.type == AttributeProto.GRAPH else attribute.graphs
        for graph in graphs:
            yield from (output.name for output in graph.output)
            for inner in graph.node:
                yield from inner.input
                yield from _in_subgraphs(inner)
