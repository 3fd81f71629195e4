"""The table of ONNX operators: the types and attributes that each opset added.

An operator is a row: the types that each opset added, its attributes. An opset between two
versions uses the older one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any, NamedTuple

import numpy as np

from ...dtypes.table import DType, dtype
from ...errors import DTypeError, ReshapeError
from ..arguments import dtype_in

NEWEST = 28  # opset; what later ones change is not known

_UP_TO_64 = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64"
_ALL_UP_TO_OPSET_5 = f"{_UP_TO_64} string complex64 complex128"
_FLOATS = "float16 float32 float64"
_FLOAT8 = "float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz"
_FLOAT6 = "float6_e2m3fn float6_e3m2fn"

_ALL = f"{_FLOATS} {_ALL_UP_TO_OPSET_5}"

# Types by the opset that added them.
_NARROW_FROM_21 = {
    21: f"{_FLOAT8} int4 uint4",
    23: "float4_e2m1fn",
    24: "float8_e8m0fnu",
    25: "int2 uint2",
}
_NARROW = _NARROW_FROM_21 | {19: _FLOAT8, 21: "int4 uint4"}
_CODES = {
    19: _FLOAT8,
    21: "int16 uint16 int4 uint4",
    23: "float4_e2m1fn",
    25: "int2 uint2",
    28: _FLOAT6,
}
_ALL_FROM_1 = {1: _ALL, 13: "bfloat16"}
_ALL_FROM_5 = {1: _FLOATS, 5: _ALL_UP_TO_OPSET_5, 13: "bfloat16"}
_CAST = {1: f"{_FLOATS} {_UP_TO_64}", 9: "string", 13: "bfloat16", 28: _FLOAT6} | _NARROW
_CAST_LIKE = {15: f"{_FLOATS} {_UP_TO_64} string bfloat16"} | _NARROW
_DEQUANTIZED = {10: "float32", 19: "float16 bfloat16"}
_INDICES = "int32 int64"
SCALE_HAS_TYPE_OF_X = (19, 21)  # versions of QuantizeLinear where both are T1


class _Operator(NamedTuple):
    """An operator: what each opset added to the types of its operands, and its attributes.

    `operands` as in `Version`. An attribute has its first opset, or the first and the last.
    `others` are versions in which neither changed.
    """

    operands: Mapping[str, Mapping[int, str]]
    attributes: Mapping[str, int | tuple[int, int]]
    others: tuple[int, ...] = ()


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
        """T, or the types of the first input.

        >>> sorted(version("Expand", 8).types)[:3]
        ['bool', 'complex128', 'complex64']
        """
        return next(iter(self.operands.values()))

    def check(self, data: object, operand: str = "") -> DType:
        """The dtype of an ndarray or Tensor; DTypeError if it is not among the operand's types.

        >>> version("Cast", 25).check(np.zeros(2, np.float32), "input")
        shapejit.dtype('float32')
        """
        if type(data) is np.ndarray and not data.dtype.hasobject:
            return _listed(self.operator, self.since, operand, data.dtype)
        kind = dtype_in(data, f"{operand} of {self}" if operand else str(self))
        return self.check_dtype(kind, operand)

    def check_dtype(self, kind: DType, operand: str) -> DType:
        """`kind`; DTypeError if it is not among the operand's types.

        >>> version("Cast", 25).check_dtype(dtype("int4"), "output")
        shapejit.dtype('int4')
        """
        if kind.name in self.operands[operand]:
            return kind
        where = f" of {operand}" if operand else ""
        newer = [row.since for row in self._later() if kind.name in row.operands[operand]]
        raise DTypeError(f"{self} does not list {kind} in its T{where}{_from(newer)}")

    def check_attributes(self, **given: tuple[Any, Any]) -> None:
        """Raise ReshapeError for a new attribute that is not its default: (value, default).

        >>> version("Reshape", 5).check_attributes(allowzero=(0, 0))
        >>> version("Reshape", 5).check_attributes(allowzero=(1, 0))
        Traceback (most recent call last):
            ...
        shapejit.errors.ReshapeError: onnx.Reshape-5 has no attribute allowzero (opset 14 does)
        """
        for name, (value, default) in given.items():
            if name not in self.attributes and value != default:
                newer = [row.since for row in self._later() if name in row.attributes]
                raise ReshapeError(f"{self} has no attribute {name}{_from(newer)}")

    def _later(self) -> Iterator[Version]:
        return (row for row in versions(self.operator) if row.since > self.since)


@lru_cache(maxsize=1024)
def _listed(operator: str, since: int, operand: str, kind: np.dtype[Any]) -> DType:
    """`Version.check` of an ndarray's dtype, cached."""
    return version(operator, since).check_dtype(dtype(kind), operand)


def _from(opsets: Sequence[int]) -> str:
    """A hint at a later opset that has it, if any."""
    return f" (opset {opsets[0]} does)" if opsets else ""


_OPERATORS = {
    "Reshape": _Operator({"": _ALL_FROM_5 | _NARROW}, {"shape": (1, 4), "allowzero": 14}),
    "Shape": _Operator({"": _ALL_FROM_1 | _NARROW}, {"start": 15, "end": 15}),
    "Cast": _Operator(
        {"input": _CAST, "output": _CAST}, {"to": 1, "saturate": 19, "round_mode": 24}, (6,)
    ),
    "CastLike": _Operator(
        {"input": _CAST_LIKE, "output": _CAST_LIKE}, {"saturate": 19, "round_mode": 24}
    ),
    "QuantizeLinear": _Operator(
        {
            "x": {10: "float32 int32", 19: "float16 bfloat16"},
            "y_scale": {10: "float32", 19: "float16 bfloat16 int32", 24: "float8_e8m0fnu"},
            "y": {10: "int8 uint8"} | _CODES,
        },
        {"axis": 13, "saturate": 19, "block_size": 21, "output_dtype": 21, "precision": 23},
    ),
    "DequantizeLinear": _Operator(
        {
            "x": {10: "int8 uint8 int32"} | _CODES,
            "x_scale": _DEQUANTIZED | {24: "float8_e8m0fnu"},
            "y": _DEQUANTIZED,
        },
        {"axis": 13, "block_size": 21, "output_dtype": 23},
    ),
    "Transpose": _Operator({"": _ALL_FROM_1 | _NARROW_FROM_21}, {"perm": 1}),
    "Squeeze": _Operator({"": _ALL_FROM_1 | _NARROW_FROM_21}, {"axes": (1, 12)}, (11,)),
    "Unsqueeze": _Operator({"": _ALL_FROM_1 | _NARROW_FROM_21}, {"axes": (1, 12)}, (11,)),
    "Flatten": _Operator(
        {"": {1: _FLOATS, 9: _ALL_UP_TO_OPSET_5, 13: "bfloat16"} | _NARROW_FROM_21},
        {"axis": 1},
        (11,),
    ),
    "Expand": _Operator({"": {8: _ALL, 13: "bfloat16"}}, {}),
    "Slice": _Operator(
        {"data": _ALL_FROM_1, "starts": {10: _INDICES}},
        {"starts": (1, 9), "ends": (1, 9), "axes": (1, 9)},
        (11,),
    ),
    "Identity": _Operator({"": _ALL_FROM_1 | _NARROW}, {}, (14, 16)),  # sequences, optional values
    "Size": _Operator({"": _ALL_FROM_1 | _NARROW}, {}),
    "Concat": _Operator(
        {"": {1: _FLOATS, 4: _ALL_UP_TO_OPSET_5, 13: "bfloat16"}}, {"axis": 1}, (11,)
    ),
    "Split": _Operator(
        {"": {1: _FLOATS, 2: _ALL_UP_TO_OPSET_5, 13: "bfloat16"}},
        {"axis": 1, "split": (1, 12), "num_outputs": 18},
        (11,),
    ),
    "Tile": _Operator({"": {1: _FLOATS, 6: _ALL_UP_TO_OPSET_5, 13: "bfloat16"}}, {}),
    "DepthToSpace": _Operator({"": _ALL_FROM_1}, {"blocksize": 1, "mode": 11}, (28,)),
    "SpaceToDepth": _Operator({"": _ALL_FROM_1}, {"blocksize": 1, "mode": 28}),
    "Gather": _Operator({"data": _ALL_FROM_1, "indices": {1: _INDICES}}, {"axis": 1}, (11,)),
    "Pad": _Operator(
        {
            "data": {
                1: _FLOATS,
                11: "int8 int16 int32 int64 uint8 uint16 uint32 uint64",
                13: "bool string complex64 complex128 bfloat16",
            }
            | _NARROW_FROM_21,
            "axes": {18: _INDICES},
        },
        {"mode": 1, "paddings": (1, 1), "pads": (2, 10), "value": (1, 10)},
        (19,),
    ),
    "CenterCropPad": _Operator(
        {"input_data": {18: f"{_ALL} bfloat16"}, "shape": {18: _INDICES}}, {"axes": 18}
    ),
}


@cache
def versions(operator: str) -> tuple[Version, ...]:
    """The versions of an operator: at each opset something changed.

    >>> [row.since for row in versions("CastLike")]
    [15, 19, 21, 23, 24, 25]
    """
    row = _OPERATORS[operator]
    lives = {
        name: (given, NEWEST) if isinstance(given, int) else given
        for name, given in row.attributes.items()
    }
    added = (opset for types in row.operands.values() for opset in types)
    ends = (last + 1 for _, last in lives.values() if last < NEWEST)
    return tuple(
        Version(
            operator,
            since,
            {
                operand: frozenset(
                    name
                    for opset, names in types.items()
                    if opset <= since
                    for name in names.split()
                )
                for operand, types in row.operands.items()
            },
            frozenset(name for name, (first, last) in lives.items() if first <= since <= last),
        )
        for since in sorted({*row.others, *added, *ends, *(first for first, _ in lives.values())})
    )


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
    rows = versions(operator)
    if opset < rows[0].since:
        raise ReshapeError(f"opset {opset} has no {operator}: it is new in opset {rows[0].since}")
    return next(row for row in reversed(rows) if row.since <= opset)
