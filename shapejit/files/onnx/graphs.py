"""The tensors in the graphs of a model, and their names."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from typing import Any, NamedTuple

from onnx import AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, TensorProto

Graph = Any  # GraphProto or FunctionProto
# What stands before the names of a graph's values, and of those of the graphs around it.
Scope = tuple[str, ...]
ONNX = ("", "ai.onnx")  # names of the domain of ONNX's own operators


class GraphTensor(NamedTuple):
    """A tensor of a model: an initialiser, or the value of a Constant node.

    `name` is its own name in `graph`, before which stand the names of graphs around it.
    """

    name: str
    own: str
    proto: TensorProto
    graph: Graph


def held(model: ModelProto) -> Iterator[GraphTensor]:
    """The tensors of the graph, its subgraphs and the functions of a model, in their order.

    Those of the graph have their own names. Others get a prefix: the first output of the node and
    the attribute of its subgraph, or the function, as in `y.then_branch/w`.
    """
    for (prefix, *_), graph, _ in graphs(model):
        if isinstance(graph, GraphProto):
            for proto in graph.initializer:
                yield GraphTensor(f"{prefix}{proto.name}", proto.name, proto, graph)
        for node in graph.node:
            for attribute in constant(node):
                if attribute.name == "value" and attribute.HasField("t"):
                    name = node.output[0]
                    yield GraphTensor(f"{prefix}{name}", name, attribute.t, graph)


def constant(node: NodeProto) -> Sequence[AttributeProto]:
    """The attributes of a Constant node; none for other nodes."""
    found = node.op_type == "Constant" and node.domain in ONNX and len(node.output) == 1
    return node.attribute if found else ()


def graphs(model: ModelProto) -> Iterator[tuple[Scope, Graph, int | None]]:
    """The graph of a model and all subgraphs and functions, each after the one around it.

    Each comes with its scope, and the version of ONNX's operators in it.
    """
    yield from _nested(("",), model.graph, _opset(model))
    for function in model.functions:
        words = filter(None, (function.domain, function.name, function.overload))
        yield from _nested((f"{'.'.join(words)}/",), function, _opset(function))


def _opset(importing: ModelProto | FunctionProto) -> int | None:
    return next((each.version for each in importing.opset_import if each.domain in ONNX), None)


def _nested(
    scope: Scope, graph: Graph, opset: int | None
) -> Iterator[tuple[Scope, Graph, int | None]]:
    """A graph, followed by its subgraphs."""
    yield scope, graph, opset
    for node in graph.node:
        for attribute in node.attribute:
            first = f"{scope[0]}{next(iter(node.output), node.name)}.{attribute.name}"
            if attribute.HasField("g"):
                yield from _nested((f"{first}/", *scope), attribute.g, opset)
            for i, each in enumerate(attribute.graphs):
                yield from _nested((f"{first}.{i}/", *scope), each, opset)


def full_name(name: str, scope: Scope, known: Container[str]) -> str | None:
    """The full name of the known value that a name refers to, in a graph or an enclosing one."""
    return next((p + name for p in scope if name and p + name in known), None)


def protos(message: Any) -> Iterator[TensorProto]:
    """Every tensor in a message, at any depth."""
    if isinstance(message, TensorProto):
        yield message
        return
    for field, value in message.ListFields():
        if field.message_type is not None:
            for each in (value,) if hasattr(value, "ListFields") else value:
                yield from protos(each)
