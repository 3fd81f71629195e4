"""The Reshape and Shape nodes of a model, and what each specification resolves them to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, TypeProto
from onnx.checker import ValidationError
from onnx.shape_inference import InferenceError, infer_shapes

from ...dialects import onednn, onnx as dialect, openvino
from ...dialects.onnx.versions import NEWEST
from ...errors import ShapeJitError
from ...shapes.request import Request
from ...shapes.resolver import resolve
from ..checkpoint import Checkpoint
from ..open_files import File
from .graphs import ONNX, Graph, constant, nested, protos, roots
from .tensors import from_tensorproto
from .wire import Place

Dims = tuple[int | str | None, ...]  # None is an unknown size, a str a name for one

# How each specification reads the shape of a Reshape: allowzero=1 is special_zero=false.
DIALECTS: dict[str, Callable[[Any, int, int], Request]] = {
    "onnx": lambda shape, zero, opset: dialect.request(shape, allowzero=zero, opset=opset),
    "openvino": lambda shape, zero, _: openvino.request(shape, special_zero=not zero),
    "onednn": lambda shape, zero, _: onednn.request(shape, special_zero=not zero),
}


@dataclass(frozen=True)
class ShapeNode:
    """A Reshape or a Shape: `version` is that in force, `source` the shape of its data.

    For an unknown, newer opset it names the opset, and there are no outcomes.

    `target` is the shape that a Reshape is given, if it is constant. `outcomes` are the
    shapes, or the faults, by specification, where source and target are known; those of
    Shape are its elements, as ONNX has them. `inferred` is what onnx infers of the output of a
    Reshape, and the elements of Shape where some of them are unknown, or names.
    """

    name: str
    version: str
    source: Dims | None
    target: tuple[int, ...] | None
    allowzero: int
    outcomes: Mapping[str, tuple[int, ...] | str]
    inferred: Dims | None

    @property
    def disagree(self) -> bool | None:
        """Whether the outcomes differ (all faults are one); None if they are unknown."""
        found = {None if isinstance(each, str) else each for each in self.outcomes.values()}
        return len(found) > 1 if found else None

    @property
    def result(self) -> Dims | None:
        """The shape, or the elements of Shape, in ONNX; what is inferred else."""
        found = self.outcomes.get("onnx")
        if isinstance(found, tuple):
            return found
        return self.inferred if found is None else None

    @property
    def fault(self) -> str | None:
        """Why ONNX does not allow it, if it does not."""
        found = self.outcomes.get("onnx")
        return found if isinstance(found, str) else None


@dataclass
class _Values:
    """The known facts about values in a graph: dims, and the elements of constants."""

    dims: dict[str, Dims | None]
    constants: dict[str, TensorProto]


def nodes_of(found: Checkpoint) -> list[ShapeNode]:
    """The Reshape and Shape nodes of a model, with the shapes that onnx infers.

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
    return [*shape_nodes(model)]


def shape_nodes(model: ModelProto) -> Iterator[ShapeNode]:
    """The nodes of the graph, its subgraphs and the functions of a model with inferred shapes.

    Constants that are shapes must have their data. Values of an outer graph are known in
    its subgraphs.
    """
    for start, root, opset in roots(model):
        known: dict[str, _Values] = {}
        for prefix, graph in nested(start, root):
            outer = max((p for p in known if prefix.startswith(p)), key=len, default=None)
            values = known[prefix] = _values(graph, known[outer] if outer is not None else None)
            for node in graph.node:
                read = _OPERATORS.get(node.op_type)
                if read is not None and node.domain in ONNX and opset is not None and node.output:
                    if opset > NEWEST:
                        read = _unknown
                    yield read(prefix + node.output[0], node, opset, values)


def _values(graph: Graph, outer: _Values | None) -> _Values:
    made = _Values({}, {}) if outer is None else _Values({**outer.dims}, {**outer.constants})
    if isinstance(graph, GraphProto):
        for value in (*graph.input, *graph.value_info, *graph.output):
            made.dims[value.name] = _dims(value.type)
        made.constants |= {proto.name: proto for proto in graph.initializer}
    for node in graph.node:
        for attribute in constant(node):
            if attribute.name == "value":
                made.constants[node.output[0]] = attribute.t
            elif attribute.name == "value_ints":
                proto = TensorProto(data_type=TensorProto.INT64, dims=[len(attribute.ints)])
                proto.int64_data.extend(attribute.ints)
                made.constants[node.output[0]] = proto
    made.dims |= {name: tuple(proto.dims) for name, proto in made.constants.items()}
    return made


def _dims(kind: TypeProto) -> Dims | None:
    if not kind.HasField("tensor_type") or not kind.tensor_type.HasField("shape"):
        return None
    return tuple(
        each.dim_value if each.HasField("dim_value") else each.dim_param or None
        for each in kind.tensor_type.shape.dim
    )


def _reshape(name: str, node: NodeProto, opset: int, values: _Values) -> ShapeNode:
    row = dialect.version("Reshape", opset)
    given, by_input = _attributes(node, row), "shape" not in row.attributes
    target = _constant(node, values) if by_input else given.get("shape", ())
    if not isinstance(target, tuple):
        target = None
    source, zero = _source(node, values), given.get("allowzero", 0)
    readings = {
        spec: lambda sizes, request=request: resolve(sizes, request(target, zero, opset))
        for spec, request in (DIALECTS.items() if target is not None else ())
    }
    outcomes, inferred = _outcomes(source, readings), values.dims.get(node.output[0])
    return ShapeNode(name, str(row), source, target, zero, outcomes, inferred)


def _shape(name: str, node: NodeProto, opset: int, values: _Values) -> ShapeNode:
    row, source = dialect.version("Shape", opset), _source(node, values)
    given = _attributes(node, row)
    readings = {"onnx": lambda sizes: dialect.shape_of(sizes, opset=opset, **given).tolist()}
    # The elements of Shape are some of the dims: which, tell those of dims that count them.
    chosen = _outcomes(None if source is None else range(len(source)), readings).get("onnx")
    inferred = None
    if source is not None and isinstance(chosen, tuple):
        inferred = tuple(source[i] for i in chosen)
    return ShapeNode(name, str(row), source, None, 0, _outcomes(source, readings), inferred)


def _unknown(name: str, node: NodeProto, opset: int, values: _Values) -> ShapeNode:
    """A node of an unknown, newer opset."""
    version, inferred = f"onnx.{node.op_type}, opset {opset}", values.dims.get(node.output[0])
    return ShapeNode(name, version, _source(node, values), _constant(node, values), 0, {}, inferred)


_OPERATORS = {"Reshape": _reshape, "Shape": _shape}


def _outcomes(
    source: Sequence[int | str | None] | None,
    readings: Mapping[str, Callable[[Sequence[int]], Sequence[int]]],
) -> dict[str, tuple[int, ...] | str]:
    """The result of each specification for a source shape; empty if a size is unknown."""
    made = dict[str, tuple[int, ...] | str]()
    sizes = [size for size in source or () if isinstance(size, int) and size >= 0]
    for spec, read in readings.items() if len(sizes) == len(source or (None,)) else ():
        try:
            made[spec] = tuple(read(sizes))
        except ShapeJitError as fault:
            made[spec] = str(fault)
    return made


def _attributes(node: NodeProto, row: dialect.Version) -> dict[str, Any]:
    """The attributes of a node that its operator has."""
    return {each.name: _value(each) for each in node.attribute if each.name in row.attributes}


def _value(attribute: AttributeProto) -> Any:
    """An integer, or some; the name of its type for others, which are no shapes."""
    if attribute.type == AttributeProto.INT:
        return attribute.i
    if attribute.type == AttributeProto.INTS:
        return tuple(attribute.ints)
    return AttributeProto.AttributeType.Name(attribute.type)


def _source(node: NodeProto, values: _Values) -> Dims | None:
    return values.dims.get(node.input[0]) if node.input else None


def _constant(node: NodeProto, values: _Values) -> tuple[int, ...] | None:
    """The shape given by the second input, if that is constant."""
    proto = values.constants.get(node.input[1]) if len(node.input) > 1 else None
    if proto is None:
        return None
    try:
        return tuple(np.asarray(from_tensorproto(proto)).reshape(-1).tolist())
    except ShapeJitError:  # its data are in another file, or are no integers
        return None


_SMALL = 4096  # bytes: shapes, axes and the like, which inference reads


def inferred(model: ModelProto, file: File, *, strict: bool) -> ModelProto:
    """A copy of a skeleton with the types and shapes that onnx infers.

    If it is `strict`, onnx.shape_inference.InferenceError (a RuntimeError) tells what does not fit;
    operators that onnx does not know fit everything.
    """
    made: ModelProto = infer_shapes(
        with_small_data(model, file), check_type=strict, strict_mode=strict, data_prop=True
    )
    return made


def with_small_data(model: ModelProto, file: File) -> ModelProto:
    """A copy of a skeleton with the raw data of small tensors, and without those of others."""
    made = ModelProto()
    made.CopyFrom(model)
    for proto in protos(made):
        if proto.HasField("raw_data"):
            begin, nbytes = Place.of(proto.raw_data)
            proto.ClearField("raw_data")
            if begin >= 0 and nbytes <= _SMALL and proto.data_location != TensorProto.EXTERNAL:
                proto.raw_data = bytes(file.bytes(begin, nbytes))
    return made
