"""The Reshape nodes of a model, and what each specification resolves them to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, TypeProto
from onnx.checker import ValidationError
from onnx.shape_inference import InferenceError, infer_shapes

from ...dialects import onednn, onnx as dialect, openvino
from ...dialects.onnx.versions import NEWEST
from ...errors import ShapeJitError
from ...shapes.request import Ints, Request
from ...shapes.resolver import resolve
from ..checkpoint import Checkpoint
from ..open_files import File
from .graphs import ONNX, constant, full_name, graphs, held, protos
from .tensors import from_tensorproto, to_tensorproto
from .wire import Place

Dims = tuple[int | str | None, ...]  # None is an unknown size, a str a name for one

# How each specification reads the shape of a Reshape: allowzero=1 is special_zero=false.
DIALECTS: dict[str, Callable[[Any, int, int], Request]] = {
    "onnx": lambda shape, zero, opset: dialect.request(shape, allowzero=zero, opset=opset),
    "openvino": lambda shape, zero, _: openvino.request(shape, special_zero=not zero),
    "onednn": lambda shape, zero, _: onednn.request(shape, special_zero=not zero),
}


@dataclass(frozen=True)
class ReshapeNode:
    """A Reshape: `version` is that in force, `source` the shape of its data.

    `name` is that of the node, or of its output if the node has none.

    For an unknown, newer opset it names the opset, and there are no outcomes. `target` is the
    requested shape, if that is constant. `outcomes` are the shapes, or the errors, by
    specification, where source and target are known. `inferred` is the shape that onnx infers for
    its output.
    """

    name: str
    version: str
    source: Dims | None
    target: Ints | None
    allowzero: Any
    outcomes: Mapping[str, Ints | str]
    inferred: Dims | None

    @property
    def disagree(self) -> bool | None:
        """Whether the outcomes differ (all faults are one); None if they are unknown."""
        found = {None if isinstance(each, str) else each for each in self.outcomes.values()}
        return len(found) > 1 if found else None

    @property
    def result(self) -> Dims | None:
        """The shape in ONNX, or else the inferred one; None if ONNX does not allow the reshape."""
        found = self.outcomes.get("onnx", self.inferred)
        return None if isinstance(found, str) else found

    @property
    def fault(self) -> str | None:
        """Why ONNX does not allow it, if it does not."""
        found = self.outcomes.get("onnx")
        return found if isinstance(found, str) else None


def nodes_of(found: Checkpoint) -> list[ReshapeNode]:
    """The Reshape nodes of a model, with the shapes that onnx infers.

    >>> import tempfile, onnx
    >>> from shapejit.files.onnx import read
    >>> graph = "g (float[0,3] x) => (float[N,M] y) <int64[2] s = {0,-1}> { y = Reshape(x, s) }"
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model = onnx.helper.make_model(onnx.parser.parse_graph(graph))
    ...     onnx.save_model(model, f"{folder}/a.onnx")
    ...     (node,) = nodes_of(read(f"{folder}/a.onnx"))
    >>> node.version, node.outcomes["openvino"], node.disagree
    ('onnx.Reshape-25', (0, 3), True)
    """
    try:
        model = inferred(found.own.proto, found.own.file, strict=False)
    except (InferenceError, ValidationError):
        model = with_small_data(found.own.proto, found.own.file)
    return [*reshape_nodes(model)]


def reshape_nodes(model: ModelProto) -> Iterator[ReshapeNode]:
    """The nodes of the graph, its subgraphs and the functions of a model with inferred shapes.

    Constants that are shapes must have their data.
    """
    constants = {each.name: each.proto for each in held(model)}
    dims: dict[str, Dims | None] = {}
    for (prefix, *_), graph, _ in graphs(model):
        if isinstance(graph, GraphProto):
            for value in (*graph.input, *graph.value_info, *graph.output):
                dims[prefix + value.name] = _dims(value.type)
        for node in graph.node:
            for attribute in constant(node):
                if attribute.name == "value_ints":
                    ints = np.array(attribute.ints, np.int64)
                    constants[prefix + node.output[0]] = to_tensorproto(ints)
    dims |= {name: tuple(proto.dims) for name, proto in constants.items()}
    for scope, graph, opset in graphs(model):
        for node in graph.node:
            reshape = node.op_type == "Reshape" and node.domain in ONNX
            if reshape and opset is not None and node.output:
                data, shape = (full_name(x, scope, dims) or "" for x in (*node.input, "", "")[:2])
                output = scope[0] + node.output[0]
                target = _constant(constants.get(shape))
                name = scope[0] + (node.name or node.output[0])
                yield _reshape(name, node, opset, dims.get(data), target, dims.get(output))


def _reshape(
    name: str, node: NodeProto, opset: int, source: Dims | None, target: Any, inferred: Dims | None
) -> ReshapeNode:
    """A node, given the shape of its data, and its second input, where they are known."""
    outcomes = dict[str, Ints | str]()
    if opset > NEWEST:
        version = f"onnx.Reshape, opset {opset}"
        return ReshapeNode(name, version, source, target, 0, outcomes, inferred)
    row = dialect.version("Reshape", opset)
    given = {each.name: _value(each) for each in node.attribute if each.name in row.attributes}
    zero = given.get("allowzero", 0)
    if "shape" in row.attributes:
        target = given.get("shape", ())
    target = target if isinstance(target, tuple) else None
    sizes = [size for size in source or () if isinstance(size, int) and size >= 0]
    if target is not None and source is not None and len(sizes) == len(source):
        for specification, request in DIALECTS.items():
            try:
                outcomes[specification] = resolve(sizes, request(target, zero, opset))
            except ShapeJitError as fault:
                outcomes[specification] = str(fault)
    return ReshapeNode(name, str(row), source, target, zero, outcomes, inferred)


def _dims(kind: TypeProto) -> Dims | None:
    if not kind.HasField("tensor_type") or not kind.tensor_type.HasField("shape"):
        return None
    return tuple(
        each.dim_value if each.HasField("dim_value") else each.dim_param or None
        for each in kind.tensor_type.shape.dim
    )


def _value(attribute: AttributeProto) -> Any:
    """One integer or several; the name of the type for other values, which are no shapes."""
    if attribute.type == AttributeProto.INT:
        return attribute.i
    if attribute.type == AttributeProto.INTS:
        return tuple(attribute.ints)
    return AttributeProto.AttributeType.Name(attribute.type)


def _constant(proto: TensorProto | None) -> Ints | None:
    """The elements of a constant shape."""
    if proto is None:
        return None
    try:
        return tuple(np.asarray(from_tensorproto(proto)).reshape(-1).tolist())
    except ShapeJitError:  # its data are in another file, or are no integers
        return None


_MAX_INFERRED_BYTES = 4096  # bytes: shapes, axes and the like, which inference reads


def inferred(model: ModelProto, file: File, *, strict: bool) -> ModelProto:
    """A copy of a skeleton with the types and shapes that onnx infers.

    If `strict`, onnx.shape_inference.InferenceError (a RuntimeError) reports what does not fit;
    operators that onnx does not know fit everything.
    """
    made: ModelProto = infer_shapes(
        with_small_data(model, file), check_type=strict, strict_mode=strict, data_prop=True
    )
    return made


def with_small_data(model: ModelProto, file: File) -> ModelProto:
    """A copy of a skeleton with the raw data of small tensors only."""
    made = ModelProto()
    made.CopyFrom(model)
    for proto in protos(made):
        if proto.HasField("raw_data"):
            begin, nbytes = Place.of(proto.raw_data)
            proto.ClearField("raw_data")
            if (
                begin >= 0
                and nbytes <= _MAX_INFERRED_BYTES
                and proto.data_location != TensorProto.EXTERNAL
            ):
                proto.raw_data = bytes(file.bytes(begin, nbytes))
    return made
