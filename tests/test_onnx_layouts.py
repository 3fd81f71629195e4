"""ONNX's layout operators: versions, meanings, dtypes, peers."""

import re

import onnx
import pytest
from onnx import helper

import shapejit as sj
from shapejit.dialects.onnx.versions import VERSIONS

OPSETS = range(1, 29)
OBSOLETE = {"consumed_inputs"}
# Operators of which a table says which types the inputs after the first may have.
LAYOUTS = [
    *("Transpose", "Squeeze", "Unsqueeze", "Flatten", "Expand", "Concat", "Split", "Slice", "Tile"),
    *("Identity", "Size", "DepthToSpace", "SpaceToDepth", "Pad", "Gather", "CenterCropPad"),
    *("Reshape", "Shape"),
]


def listed(schema, name):
    """The canonical names of the types that an input of a schema may have."""
    formal = next(i for i in schema.inputs if i.name == name)
    return {
        sj.dtype(kind, vocabulary="onnx").name
        for text in formal.types
        if (found := re.fullmatch(r"tensor\((\w+)\)", text))
        for kind in [TENSOR_TYPES[found[1]]]
    }


TENSOR_TYPES = {
    helper.tensor_dtype_to_string(code).removeprefix("TensorProto.").lower(): code
    for code in onnx.TensorProto.DataType.values()
    if code
}


@pytest.mark.parametrize("operator", LAYOUTS)
def test_versions_are_those_of_the_schemas(operator):
    history = {s.since_version: s for s in onnx.defs.get_all_schemas_with_history()
               if s.name == operator and s.domain == ""}  # fmt: skip
    assert [row.since for row in VERSIONS[operator]] == sorted(history)
    for row in VERSIONS[operator]:
        schema = history[row.since]
        assert row.attributes == set(schema.attributes) - OBSOLETE
        for i, name in enumerate(row.operands):
            # A name of its own, or the first input; one that came later has no types before.
            names = [x.name for x in schema.inputs]
            wanted = names[0] if i == 0 else name
            assert row.operands[name] == (listed(schema, wanted) if wanted in names else set())
    for opset in OPSETS:
        if opset >= min(history):
            since = onnx.defs.get_schema(operator, opset).since_version
            assert sj.onnx.version(operator, opset).since == since
