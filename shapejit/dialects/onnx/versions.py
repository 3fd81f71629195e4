"""Every version of the ONNX operators that shapejit has (onnx.ai/onnx/operators).

A version is a row: its opset, the types it adds, its attributes. An opset between two
versions uses the older one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from ...arrays.tensor import is_array
from ...dtypes.table import DType
from ...errors import DTypeError, ReshapeError, type_name
from ...operations.views import dtype_of

NEWEST = 28  # opset; what later ones change is not known

_UP_TO_64 = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64"
_ALL_UP_TO_OPSET_5 = f"{_UP_TO_64} string complex64 complex128"
_FLOATS = "float16 float32 float64"
_FLOAT8 = "float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz"
_FLOAT6 = "float6_e2m3fn float6_e3m2fn"

# (since opset, types added to T, attributes)
_RESHAPE = (
    (1, _FLOATS, "shape"),
    (5, _ALL_UP_TO_OPSET_5, ""),
    (13, "bfloat16", ""),
    (14, "", "allowzero"),
    (19, _FLOAT8, "allowzero"),
    (21, "int4 uint4", "allowzero"),
    (23, "float4_e2m1fn", "allowzero"),
    (24, "float8_e8m0fnu", "allowzero"),
    (25, "int2 uint2", "allowzero"),
)
_SHAPE = (
    (1, f"{_FLOATS} {_ALL_UP_TO_OPSET_5}", ""),
    (13, "bfloat16", ""),
    (15, "", "start end"),
    (19, _FLOAT8, "start end"),
    (21, "int4 uint4", "start end"),
    (23, "float4_e2m1fn", "start end"),
    (24, "float8_e8m0fnu", "start end"),
    (25, "int2 uint2", "start end"),
)
# (since opset, types added to the input's and to the output's, attributes)
_CAST = (
    (1, *2 * (f"{_FLOATS} {_UP_TO_64}",), "to"),
    (6, "", "", "to"),
    (9, "string", "string", "to"),
    (13, "bfloat16", "bfloat16", "to"),
    (19, _FLOAT8, _FLOAT8, "to saturate"),
    (21, "int4 uint4", "int4 uint4", "to saturate"),
    (23, "float4_e2m1fn", "float4_e2m1fn", "to saturate"),
    (24, "float8_e8m0fnu", "float8_e8m0fnu", "to saturate round_mode"),
    (25, "int2 uint2", "int2 uint2", "to saturate round_mode"),
    (28, _FLOAT6, _FLOAT6, "to saturate round_mode"),
)
_CAST_LIKE = (
    (15, *2 * (f"{_FLOATS} {_UP_TO_64} string bfloat16",), ""),
    (19, _FLOAT8, _FLOAT8, "saturate"),
    (21, "int4 uint4", "int4 uint4", "saturate"),
    (23, "float4_e2m1fn", "float4_e2m1fn", "saturate"),
    (24, "float8_e8m0fnu", "float8_e8m0fnu", "saturate round_mode"),
    (25, "int2 uint2", "int2 uint2", "saturate round_mode"),
)
# (since opset, types added to those of x, of the scale and of y, attributes)
_QUANTIZE_LINEAR = (
    (10, "float32 int32", "float32", "int8 uint8", ""),
    (13, "", "", "", "axis"),
    (19, "float16 bfloat16", "float16 bfloat16 int32", _FLOAT8, "axis saturate"),
    (21, "", "", "int16 uint16 int4 uint4", "axis saturate block_size output_dtype"),
    (23, "", "", "float4_e2m1fn", "axis saturate block_size output_dtype precision"),
    (24, "", "float8_e8m0fnu", "", "axis saturate block_size output_dtype precision"),
    (25, "", "", "int2 uint2", "axis saturate block_size output_dtype precision"),
    (28, "", "", _FLOAT6, "axis saturate block_size output_dtype precision"),
)
SCALE_HAS_TYPE_OF_X = (19, 21)  # versions of QuantizeLinear where both are T1
_DEQUANTIZE_LINEAR = (
    (10, "int8 uint8 int32", "float32", "float32", ""),
    (13, "", "", "", "axis"),
    (19, _FLOAT8, "float16 bfloat16", "float16 bfloat16", "axis"),
    (21, "int16 uint16 int4 uint4", "", "", "axis block_size"),
    (23, "float4_e2m1fn", "", "", "axis block_size output_dtype"),
    (24, "", "float8_e8m0fnu", "", "axis block_size output_dtype"),
    (25, "int2 uint2", "", "", "axis block_size output_dtype"),
    (28, _FLOAT6, "", "", "axis block_size output_dtype"),
)

_ALL = f"{_FLOATS} {_ALL_UP_TO_OPSET_5}"


def _since_21(attributes: str) -> tuple[tuple[Any, ...], ...]:
    """The rows of operators that got all narrow types in opset 21 and later."""
    return (
        (21, f"{_FLOAT8} int4 uint4", attributes),
        (23, "float4_e2m1fn", attributes),
        (24, "float8_e8m0fnu", attributes),
        (25, "int2 uint2", attributes),
    )


# (since opset, types added to T, attributes)
_TRANSPOSE = ((1, _ALL, "perm"), (13, "bfloat16", "perm"), *_since_21("perm"))
_SQUEEZE = ((1, _ALL, "axes"), (11, "", "axes"), (13, "bfloat16", ""), *_since_21(""))
_FLATTEN = (
    (1, _FLOATS, "axis"),
    (9, _ALL_UP_TO_OPSET_5, "axis"),
    (11, "", "axis"),
    (13, "bfloat16", "axis"),
    *_since_21("axis"),
)
_EXPAND = ((8, _ALL, ""), (13, "bfloat16", ""))
_IDENTITY = (
    (1, _ALL, ""),
    (13, "bfloat16", ""),
    (14, "", ""),  # sequences, too
    (16, "", ""),  # optional values, too
    (19, _FLOAT8, ""),
    (21, "int4 uint4", ""),
    (23, "float4_e2m1fn", ""),
    (24, "float8_e8m0fnu", ""),
    (25, "int2 uint2", ""),
)
_SIZE = tuple(row for row in _IDENTITY if row[0] not in (14, 16))
_CONCAT = (
    (1, _FLOATS, "axis"),
    (4, _ALL_UP_TO_OPSET_5, "axis"),
    (11, "", "axis"),
    (13, "bfloat16", "axis"),
)
_SPLIT = (
    (1, _FLOATS, "axis split"),
    (2, _ALL_UP_TO_OPSET_5, "axis split"),
    (11, "", "axis split"),
    (13, "bfloat16", "axis"),
    (18, "", "axis num_outputs"),
)
_TILE = ((1, _FLOATS, ""), (6, _ALL_UP_TO_OPSET_5, ""), (13, "bfloat16", ""))
_DEPTH_TO_SPACE = (
    (1, _ALL, "blocksize"),
    (11, "", "blocksize mode"),
    (13, "bfloat16", "blocksize mode"),
    (28, "", "blocksize mode"),
)
_SPACE_TO_DEPTH = (
    (1, _ALL, "blocksize"),
    (13, "bfloat16", "blocksize"),
    (28, "", "blocksize mode"),
)
# (since opset, types added to T and to those of indices, attributes)
_SLICE = (
    (1, _ALL, "", "starts ends axes"),
    (10, "", "int32 int64", ""),
    (11, "", "", ""),
    (13, "bfloat16", "", ""),
)
_GATHER = ((1, _ALL, "int32 int64", "axis"), (11, "", "", "axis"), (13, "bfloat16", "", "axis"))
_CENTER_CROP_PAD = ((18, f"{_ALL} bfloat16", "int32 int64", "axes"),)
_PAD = (
    (1, _FLOATS, "", "mode paddings value"),
    (2, "", "", "mode pads value"),
    (11, "int8 int16 int32 int64 uint8 uint16 uint32 uint64", "", "mode"),
    (13, "bool string complex64 complex128 bfloat16", "", "mode"),
    (18, "", "int32 int64", "mode"),
    (19, "", "", "mode"),
    *((since, types, "", attributes) for since, types, attributes in _since_21("mode")),
)

# What else changed with an opset: from when on operators, but for some, count axes from the
# back, and have a mode.
NEGATIVE_AXES = {"": 11, "Gather": 1}
NEGATIVE_INDICES = 11
PAD_MODES = {"constant": 1, "reflect": 1, "edge": 1, "wrap": 19}


class Version(NamedTuple):
    """One version of an operator: its first opset, its types (canonical names), its attributes.

    `operands` has the types by the name of an input or output; there is one, `""`, where
    all have the same T.

    >>> row = version("Reshape", 17)
    >>> row.since, "bfloat16" in row.types, sorted(row.attributes)
    (14, True, ['allowzero'])
    """

    operator: str
    since: int
    operands: Mapping[str, frozenset[str]]
    attributes: frozenset[str]

    def __str__(self) -> str:
        return f"onnx.{self.operator}-{self.since}"

    @property
    def types(self) -> frozenset[str]:
        """T, or the types of the first input."""
        return next(iter(self.operands.values()))

    def check(self, data: object, operand: str = "") -> DType:
        """The dtype of an ndarray or Tensor; DTypeError if it is not among the operand's types."""
        if not is_array(data):
            name = f"{operand} of {self}" if operand else str(self)
            wanted = "a numpy.ndarray or a shapejit.Tensor"
            raise DTypeError(f"{name} expects {wanted}, not {type_name(data)}")
        return self.check_dtype(dtype_of(data), operand)

    def check_dtype(self, kind: DType, operand: str) -> DType:
        """`kind`; DTypeError if it is not among the operand's types."""
        if kind.name in self.operands[operand]:
            return kind
        where = f" of {operand}" if operand else ""
        newer = [row.since for row in self._later() if kind.name in row.operands[operand]]
        raise DTypeError(f"{self} does not list {kind} in its T{where}{_from(newer)}")

    def check_attributes(self, **given: tuple[Any, Any]) -> None:
        """Raise ReshapeError for a new attribute that is not its default: (value, default)."""
        for name, (value, default) in given.items():
            if name not in self.attributes and value != default:
                newer = [row.since for row in self._later() if name in row.attributes]
                raise ReshapeError(f"{self} has no attribute {name}{_from(newer)}")

    def _later(self) -> Iterator[Version]:
        return (row for row in VERSIONS[self.operator] if row.since > self.since)


def _from(opsets: Sequence[int]) -> str:
    """A hint at the later opset that has it, if any."""
    return f" (opset {opsets[0]} does)" if opsets else ""


def _versions(operator: str, operands: str, rows: Sequence[Sequence[Any]]) -> tuple[Version, ...]:
    """The versions; each row adds its types to those before."""
    versions = []
    types = {operand: frozenset[str]() for operand in operands.split(",")}
    for since, *more_types, attributes in rows:
        added = zip(types, more_types, strict=True)
        types = types | {operand: types[operand] | set(more.split()) for operand, more in added}
        versions.append(Version(operator, since, types, frozenset(attributes.split())))
    return tuple(versions)


VERSIONS = {
    operator: _versions(operator, operands, rows)
    for operator, operands, rows in (
        ("Reshape", "", _RESHAPE),
        ("Shape", "", _SHAPE),
        ("Cast", "input,output", _CAST),
        ("CastLike", "input,output", _CAST_LIKE),
        ("QuantizeLinear", "x,y_scale,y", _QUANTIZE_LINEAR),
        ("DequantizeLinear", "x,x_scale,y", _DEQUANTIZE_LINEAR),
        ("Transpose", "", _TRANSPOSE),
        ("Squeeze", "", _SQUEEZE),
        ("Unsqueeze", "", _SQUEEZE),
        ("Flatten", "", _FLATTEN),
        ("Expand", "", _EXPAND),
        ("Slice", "data,starts", _SLICE),
        ("Identity", "", _IDENTITY),
        ("Size", "", _SIZE),
        ("Concat", "", _CONCAT),
        ("Split", "", _SPLIT),
        ("Tile", "", _TILE),
        ("DepthToSpace", "", _DEPTH_TO_SPACE),
        ("SpaceToDepth", "", _SPACE_TO_DEPTH),
        ("Gather", "data,indices", _GATHER),
        ("Pad", "data,axes", _PAD),
        ("CenterCropPad", "input_data,shape", _CENTER_CROP_PAD),
    )
}


@lru_cache(maxsize=256, typed=True)  # True and 1.0 equal 1, but are refused
def version(operator: str, opset: int) -> Version:
    """The version of an operator (`"Reshape"`, `"Cast"`, …) in force at an opset (1 to NEWEST).

    Raises ReshapeError for an opset without the operator, DTypeError for what is not an int.

    >>> str(version("Reshape", 17))
    'onnx.Reshape-14'
    """
    if isinstance(opset, bool) or not isinstance(opset, int | np.integer):
        raise DTypeError(f"opset must be an int, not {opset!r}")
    if opset < 1:
        raise ReshapeError(f"opset must be at least 1, not {opset}", asked_by="onnx")
    if opset > NEWEST:
        fault = f"opset {opset} is newer than the newest known, {NEWEST}"
        raise ReshapeError(fault, asked_by="onnx")
    rows = VERSIONS[operator]
    if opset < rows[0].since:
        raise ReshapeError(f"opset {opset} has no {operator}: it is new in opset {rows[0].since}")
    return next(row for row in reversed(rows) if row.since <= opset)
