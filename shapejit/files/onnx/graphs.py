"""The tensors in the graphs of a model, and their names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from onnx import AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, TensorProto

Graph = Any  # GraphProto or FunctionProto
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

    Those of the graph have their own names. The names of others have a prefix: the first output of
    the node and the attribute of its subgraph, or the function, as in `y.then_branch/w`.
    """
    for prefix, graph in graphs(model):
        if isinstance(graph, GraphProto):
            for proto in graph.initializer:
                yield GraphTensor(f"{prefix}{proto.name}", proto.name, proto, graph)
        for node in graph.node:
            for attribute in constant(node):
                if attribute.name == "value" and attribute.HasField("t"):
                    name = node.output[0]
                    yield GraphTensor(f"{prefix}{name}", name, attribute.t, graph)


def constant(node: NodeProto) -> Sequence[AttributeProto]:
    """The attributes of a Constant node; none of others."""
    found = node.op_type == "Constant" and node.domain in ONNX and len(node.output) == 1
    return node.attribute if found else ()


def graphs(model: ModelProto) -> Iterator[tuple[str, Graph]]:
    """The graph of a model, all subgraphs and functions, with the prefix of their names."""
    for prefix, root, _ in roots(model):
        yield from nested(prefix, root)


def roots(model: ModelProto) -> Iterator[tuple[str, Graph, int | None]]:
    """The graph of a model and its functions, each with the opset of ONNX's operators there."""
    yield "", model.graph, _opset(model)
    for function in model.functions:
        words = filter(None, (function.domain, function.name, function.overload))
        yield f"{'.'.join(words)}/", function, _opset(function)


def _opset(importing: ModelProto | FunctionProto) -> int | None:
    return next((each.version for each in importing.opset_import if each.domain in ONNX), None)


def nested(prefix: str, graph: Graph) -> Iterator[tuple[str, Graph]]:
    """A graph, followed by its subgraphs."""
    yield prefix, graph
    for node in graph.node:
        for attribute in node.attribute:
            first = next(iter(node.output), node.name)
            if attribute.HasField("g"):
                yield from nested(f"{prefix}{first}.{attribute.name}/", attribute.g)
            for i, each in enumerate(attribute.graphs):
                yield from nested(f"{prefix}{first}.{attribute.name}.{i}/", each)


def protos(message: Any) -> Iterator[TensorProto]:
    """Every tensor in a message, at any depth."""
    if isinstance(message, TensorProto):
        yield message
        return
    for field, value in message.ListFields():
        if field.message_type is not None:
            for each in (value,) if hasattr(value, "ListFields") else value:
                yield from protos(each)
