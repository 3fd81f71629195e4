"""The nodes of a model with quantised weights: the tensors and settings of each weight."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from onnx import AttributeProto, ModelProto, NodeProto

from ...quantization.parts import WeightNode
from ..stored import Stored
from .graphs import ONNX, full_name, graphs

_DOMAIN = "com.microsoft"  # onnxruntime, docs/ContribOperators.md
_MATMUL = "MatMulNBits"
_INPUTS = ("A", "B", "scales", "zero_points", "g_idx", "bias")
_ATTRIBUTES = ("bits", "K", "N", "block_size")
_DEFAULT_BITS = 4  # default of the attribute
# Other operators with weights of a few bits, which no scheme decodes; and ONNX's own, in blocks.
_OTHER_OPERATORS = (
    "GatherBlockQuantized", "MatMulBlockQuantizedFp4Weight", "MatMulBlockQuantizedFp8Weight",
    "MatMulBnb4", "MatMulFpQ4", "MatMulNBitsMlp", "MatMulNBitsQLoRA", "MatMulNBitsQkv", "QMoE",
)  # fmt: skip


def weight_nodes(model: ModelProto, members: Mapping[str, Stored]) -> Sequence[WeightNode]:
    """The nodes whose weights are tensors of the file; equal ones are one.

    Nodes that take one tensor's codes in different ways have a fault.
    """
    made: dict[tuple[str, ...], WeightNode] = {}
    for names, node in _nodes(model, members):
        found = _matmul(node, names) if node.op_type == _MATMUL else _other(node, names, members)
        if found is not None:
            key = found.operator, found.codes
            before = made.setdefault(key, found)
            if before != found:
                fault = f"nodes of {found.operator} read its codes in different ways"
                made[key] = before._replace(fault=before.fault or fault)
    return tuple(made.values())


def _nodes(
    model: ModelProto, members: Mapping[str, Stored]
) -> Iterator[tuple[list[str | None], NodeProto]]:
    """The nodes of these operators, with the names of the tensors that are their inputs."""
    for scope, graph, _ in graphs(model):
        for node in graph.node:
            if _takes_weights(node):
                yield [full_name(name, scope, members) for name in node.input], node


def _takes_weights(node: NodeProto) -> bool:
    if node.domain in ONNX and node.op_type == "DequantizeLinear":
        return any(each.name == "block_size" and each.i for each in node.attribute)
    return node.domain == _DOMAIN and node.op_type in (_MATMUL, *_OTHER_OPERATORS)


def _matmul(node: NodeProto, names: Sequence[str | None]) -> WeightNode | None:
    given = dict(zip(_INPUTS, zip(node.input, names, strict=True), strict=False))
    weight = {key: pair for key, pair in given.items() if pair[0] and key not in ("A", "bias")}
    tensors = {key: name for key, (_, name) in weight.items() if name is not None}
    if "B" not in tensors:
        return None
    numbers = {
        each.name: each.i
        for each in node.attribute
        if each.type == AttributeProto.INT and not each.ref_attr_name
    }
    settings = {key: numbers[key] for key in _ATTRIBUTES if key in numbers}
    open_ = {each.name for each in node.attribute} - numbers.keys()
    if "bits" not in open_:
        settings.setdefault("bits", _DEFAULT_BITS)
    missing = [key for key in _ATTRIBUTES if key not in settings]
    outside = [key for key in weight if key not in tensors]
    faults = {
        f"the node does not define {', '.join(missing)}": missing,
        f"its {', '.join(outside)} are no tensors of the file": outside,
        "the node has no scales": "scales" not in weight,
        "its g_idx, which onnxruntime has deprecated, is not read": "g_idx" in weight,
        "its codes are prepacked for one kind of GPU": numbers.get("weight_prepacked"),
    }
    operator = f"{_DOMAIN}.{_MATMUL}"
    fault = next((f"{operator}: {text}" for text, holds in faults.items() if holds), "")
    return WeightNode(operator, tensors, settings, fault)


def _other(
    node: NodeProto, names: Sequence[str | None], members: Mapping[str, Stored]
) -> WeightNode | None:
    kinds = {name: members[name].dtype for name in names if name is not None}
    found = [name for name, kind in kinds.items() if kind.bits <= 8 or kind.kind == "float"]
    found.sort(key=lambda name: kinds[name].bits > 8)
    if not found or kinds[found[0]].bits > 8:
        return None
    operator = f"{node.domain or ONNX[1]}.{node.op_type}"
    return WeightNode(operator, {name: name for name in found}, {}, f"{operator} is not decoded")
