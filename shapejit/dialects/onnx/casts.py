"""ONNX Cast, CastLike, QuantizeLinear and DequantizeLinear (onnx.ai/onnx/operators)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...arrays.foreign import converts_any_array
from ...arrays.tensor import Array, Tensor
from ...dtypes.promotion import AnyDtype
from ...dtypes.table import STRING, DType, dtype
from ...errors import DTypeError, ReshapeError, shape_text
from ...operations import casts
from ...operations.scaling import dequantize_operands, quantize_operands
from ...operations.views import reshape
from ...runtime.ndarrays import is_a, plain
from ...shapes.request import integer
from ..arguments import dtype_in
from .versions import SCALE_HAS_TYPE_OF_X, Version, version

# The dtype in which QuantizeLinear divides, by its precision or the scale's dtype.
_DIVISIONS = {
    "float16": "float16",
    "bfloat16": "bfloat16",
    "float32": "float32",
    "float64": "float64",
    "int32": "float64",
    "float8_e8m0fnu": "float32",
}

# Shapes of a scale for the whole tensor.
_SCALAR: tuple[tuple[int, ...], ...] = ((), (1,))

Operand = NDArray[Any] | Tensor


class _Kind(NamedTuple):
    """The facts about an operand that are checked."""

    dtype: AnyDtype
    shape: tuple[int, ...]


@converts_any_array
def cast(
    x: Array, *, to: int | str, saturate: int = 1, round_mode: str = "up", opset: int = 25
) -> Array:
    """ONNX Cast (1, 6, 9, 13, 19, 21, 23, 24, 25, 28) of an ndarray or Tensor.

    `to` is a TensorProto.DataType: its code, or its name as Cast-1 has it. `saturate`
    concerns float8 targets, `round_mode` float8_e8m0fnu. What a float beyond an integer's
    range becomes the specification leaves undefined: it is clamped, and NaN is 0, as in
    `shapejit.cast`. Only integers of 2 and 4 bits get the low bits of an int32, clamped, which
    the operator's test cases demand. (onnx's reference evaluator takes the low bits of the
    other integers, too: 300 as INT8 is 44 there, and 127 here.)
    Strings are left to onnx's own evaluator. Raises DTypeError for dtypes that the
    version does not list, ReshapeError for attributes that it does not have.

    >>> import numpy as np
    >>> cast(np.array([1.5, 1000, -0.0], np.float32), to=17).tolist()
    [1.5, 448.0, -0.0]
    """
    row = version("Cast", opset)
    return _cast(row, x, dtype(to, vocabulary="onnx"), saturate, round_mode)


@converts_any_array
def cast_like(
    x: Array,
    target_type: Operand,
    *,
    saturate: int = 1,
    round_mode: str = "up",
    opset: int = 25,
) -> Array:
    """ONNX CastLike (15, 19, 21, 23, 24, 25): `cast` to the dtype of `target_type`.

    Raises DTypeError, ReshapeError.

    >>> import numpy as np
    >>> cast_like(np.array([1.5, -2.5], np.float32), np.zeros(0, np.int8))
    array([ 1, -2], dtype=int8)
    """
    row = version("CastLike", opset)
    return _cast(row, x, row.check(target_type, "output"), saturate, round_mode)


def _cast(row: Version, x: Array, to: DType, saturate: int, round_mode: str) -> Array:
    source = row.check(x, "input")
    row.check_dtype(to, "output")
    row.check_attributes(saturate=(saturate, 1), round_mode=(round_mode, "up"))
    _flag(row, saturate)
    if round_mode not in casts.ROUND_MODES:
        raise ReshapeError(
            f"round_mode of {row} must be one of {casts.ROUND_MODES}, not {round_mode!r}"
        )
    if STRING in (source, to):
        raise DTypeError(f"{row} from {source} to {to}: strings are left to onnx's own evaluator")
    if source.kind == "float" and to.kind == "integer" and to.packed:
        x = casts.cast(x, "int32")
    mode = round_mode if to.name == "float8_e8m0fnu" else "nearest"
    # By its name: what was cast to that before has a Route.
    y: Array = casts.cast(x, to.name, saturate=bool(saturate), round_mode=mode)
    return y


@converts_any_array
def dequantize_linear(
    x: Array,
    x_scale: Operand,
    x_zero_point: Operand | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
    opset: int = 25,
) -> Array:
    """ONNX DequantizeLinear (10, 13, 19, 21, 23, 24, 25, 28) of an ndarray or Tensor.

    (x - x_zero_point) * x_scale in float32, rounded once to `output_dtype` (a
    TensorProto.DataType; 0 is the scale's dtype). `x_scale` is a scalar, has one element
    for each of `axis`, or with `block_size` (elements of `axis`) the shape of x, divided
    and rounded up along `axis`; `x_zero_point` has the scale's shape and x's dtype.
    Raises DTypeError, ReshapeError.

    >>> import numpy as np
    >>> dequantize_linear(np.array([[0, 3], [128, 255]], np.uint8), np.float32([2, 4]),
    ...     np.array([128, 3], np.uint8))
    array([[-256.,    0.],
           [   0., 1008.]], dtype=float32)
    """
    asked = dequantize_linear, axis, block_size, output_dtype, opset
    key, done = casts.follow_by_value(x, x_scale, x_zero_point, *asked)
    if done is not None:
        return done  # type: ignore[no-any-return]  # like x
    row = version("DequantizeLinear", opset)
    x, x_kind = _operand(row, x, "x")
    x_scale, scale_kind = _operand(row, x_scale, "x_scale")
    x_zero_point, zero_kind = _operand(row, x_zero_point, "x_zero_point", "x")
    axis, block_size = _int(row, axis, "axis"), _int(row, block_size, "block_size")
    attributes = axis, block_size, _code(output_dtype)
    target, blocks = _dequantizing(row.since, x_kind, scale_kind, zero_kind, attributes)
    scale, zero_point = blocks(x_scale), blocks(x_zero_point)
    y: Array
    if key is None:  # large scales are found by their address
        y = casts.dequantize(
            x, scale, zero_point=zero_point, block_shape=blocks.shape, dtype=target
        )
        return y
    wanted = scale, zero_point, blocks.shape, None, key, target
    y = casts.scaled(dequantize_operands, x, *wanted, by_value=True)
    return y


@lru_cache(maxsize=256)
def _dequantizing(
    since: int, x: _Kind, scale: _Kind, zero_point: _Kind | None, attributes: tuple[int, int, int]
) -> tuple[str, _Blocks]:
    """The name of the result's dtype, and the blocks, for operands of these kinds."""
    row, (axis, block_size, output_dtype) = version("DequantizeLinear", since), attributes
    row.check_attributes(axis=(axis, 1), block_size=(block_size, 0), output_dtype=(output_dtype, 0))
    kind = row.check_dtype(dtype(x.dtype), "x")
    scale_kind = row.check_dtype(dtype(scale.dtype), "x_scale")
    if zero_point is not None:
        _same_dtype(row, "x_zero_point", dtype(zero_point.dtype), "x", kind)
    target = row.check_dtype(_onnx_dtype(output_dtype) or scale_kind, "y")
    return target.name, _blocks(row, x, scale, zero_point, axis, block_size)


@converts_any_array
def quantize_linear(
    x: Array,
    y_scale: Operand,
    y_zero_point: Operand | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
    precision: int = 0,
    saturate: int = 1,
    opset: int = 25,
) -> Array:
    """ONNX QuantizeLinear (10, 13, 19, 21, 23, 24, 25, 28) of an ndarray or Tensor.

    x / y_scale in the dtype `precision` (a TensorProto.DataType; 0 is the scale's dtype),
    rounded half to even for integers, + y_zero_point, saturated. y has the dtype of the
    zero point, or `output_dtype`, or uint8. Shapes as in `dequantize_linear`. Scales of
    int32 and float8_e8m0fnu have no division of their own: float64 and float32 stand in.
    Raises DTypeError, ReshapeError for shapes and attributes, FormatError for scales of
    0, infinity or NaN.

    >>> import numpy as np
    >>> quantize_linear(np.array([-1.0, 3, 1000], np.float32), np.float32(2), np.uint8(128))
    array([128, 130, 255], dtype=uint8)
    """
    asked = quantize_linear, axis, block_size, output_dtype, precision, saturate, opset
    key = done = None
    if getattr(y_scale, "dtype", None) == np.float32:  # a quotient of 16 bits takes several steps
        key, done = casts.follow_by_value(x, y_scale, y_zero_point, *asked)
    if done is not None:
        return done  # type: ignore[no-any-return]  # like x
    row = version("QuantizeLinear", opset)
    _flag(row, saturate)
    x, x_kind = _operand(row, x, "x")
    y_scale, scale_kind = _operand(row, y_scale, "y_scale")
    y_zero_point, zero_kind = _operand(row, y_zero_point, "y_zero_point", "y")
    axis, block_size = _int(row, axis, "axis"), _int(row, block_size, "block_size")
    made, divided = _code(output_dtype), _code(precision)
    attributes = axis, block_size, made, divided, int(saturate)
    target, division, blocks = _quantizing(row.since, x_kind, scale_kind, zero_kind, attributes)
    scale = y_scale if dtype(y_scale.dtype) is division else casts.cast(y_scale, division)
    scale, zero_point = blocks(scale), blocks(y_zero_point)
    if division.bits == 16:  # the quotient is rounded to it
        x = casts.quantize(casts.cast(x, division), scale, dtype=division, block_shape=blocks.shape)
        scale, key = np.ones(scale.shape, np.float32), None
    wanted = blocks.shape, None, key, target, bool(saturate)
    y: Array = casts.scaled(
        quantize_operands, x, scale, zero_point, *wanted, by_value=key is not None
    )
    return y


@lru_cache(maxsize=256)
def _quantizing(
    since: int,
    x: _Kind,
    scale: _Kind,
    zero_point: _Kind | None,
    attributes: tuple[int, int, int, int, int],
) -> tuple[DType, DType, _Blocks]:
    """The dtype of the result, that of the division, and the blocks: see `_dequantizing`."""
    axis, block_size, output_dtype, precision, saturate = attributes
    row = version("QuantizeLinear", since)
    row.check_attributes(
        axis=(axis, 1),
        block_size=(block_size, 0),
        output_dtype=(output_dtype, 0),
        precision=(precision, 0),
        saturate=(saturate, 1),
    )
    kind = row.check_dtype(dtype(x.dtype), "x")
    scale_kind = row.check_dtype(dtype(scale.dtype), "y_scale")
    zero_kind = None if zero_point is None else row.check_dtype(dtype(zero_point.dtype), "y")
    if row.since in SCALE_HAS_TYPE_OF_X:
        _same_dtype(row, "y_scale", scale_kind, "x", kind)
    target = _onnx_dtype(output_dtype)
    if zero_kind is not None and target is not None:
        _same_dtype(row, "y_zero_point", zero_kind, "output_dtype", target)
    target = row.check_dtype(zero_kind or target or dtype("uint8"), "y")
    division = _division(row, _onnx_dtype(precision) or scale_kind)
    return target, division, _blocks(row, x, scale, zero_point, axis, block_size)


def _flag(row: Version, saturate: int) -> None:
    if not isinstance(saturate, int | np.integer) or saturate not in (0, 1):
        raise ReshapeError(f"saturate of {row} must be 0 or 1, not {saturate!r}")


def _onnx_dtype(code: int) -> DType | None:
    """The dtype of a TensorProto.DataType; None for 0, UNDEFINED."""
    return None if code == 0 else dtype(code, vocabulary="onnx")


def _operand(row: Version, x: Any, name: str, types_of: str = "") -> tuple[Any, Any]:
    """An operand as an exact ndarray or a Tensor, and its kind.

    If it is optional and None, it has the types of another operand.
    """
    if type(x) is not np.ndarray:
        if x is None and types_of:
            return None, None
        if issubclass(type(x), np.generic):  # scales and zero points may be NumPy's scalars
            x = np.asarray(x)
        elif is_a(x, np.ndarray):
            x = plain(x)
        else:
            row.check_dtype(dtype_in(x, f"{name} of {row}"), types_of or name)
    return x, _Kind(x.dtype, x.shape)


def _code(value: Any) -> int:
    """A TensorProto.DataType. Raises DTypeError for any other value."""
    if type(value) is not int:
        _onnx_dtype(value)
    return int(value)


def _int(row: Version, value: Any, name: str) -> int:
    return value if type(value) is int else integer(value, name, row)


def _same_dtype(row: Version, name: str, kind: DType, other: str, expected: DType) -> None:
    if kind is not expected:
        raise DTypeError(f"{name} of {row} must be {expected} as {other} is, not {kind}")


def _division(row: Version, kind: DType) -> DType:
    found = _DIVISIONS.get(kind.name)
    if found is None:
        raise DTypeError(f"{row} does not divide in {kind}")
    return dtype(found)


class _Blocks(NamedTuple):
    """Scales and zero points of an operator as those of `shapejit.quantize`.

    All of them get the shape `scales`, or stay as they are (None); `shape` is the
    block_shape.
    """

    scales: tuple[int, ...] | None
    shape: tuple[int, ...] | None

    def __call__(self, x: Any) -> Any:
        if x is None or self.scales in (None, x.shape):
            return x
        return x.reshape(self.scales) if type(x) is np.ndarray else reshape(x, self.scales)


def _blocks(
    row: Version, x: _Kind, scales: _Kind, zeros: _Kind | None, axis: int, block_size: int
) -> _Blocks:
    """The elements that share a scale: all, those of an index of the axis, or a block along it."""
    shape, scale = x.shape, scales.shape
    if zeros is not None and zeros.shape not in _alike(scale):
        raise ReshapeError(
            f"the zero point of {row} must have the scale's shape {shape_text(scale)}, "
            f"not {shape_text(zeros.shape)}"
        )
    if scale in _SCALAR:
        return _Blocks((), None)
    about = f"the scale {shape_text(scale)} of {row} for x {shape_text(shape)}"
    if "axis" not in row.attributes:
        raise ReshapeError(f"{about} must be a scalar (opset 13 has an axis)")
    rank = len(shape)
    if not -rank <= axis < rank:
        raise ReshapeError(f"{about}: axis {axis} is not in [{-rank}, {rank - 1}]")
    axis %= rank
    if block_size < 0:
        raise ReshapeError(f"{about}: block_size must not be negative, but is {block_size}")
    if not block_size:
        expected: tuple[int, ...] = (shape[axis],)
    else:
        expected = (*shape[:axis], -(-shape[axis] // block_size), *shape[axis + 1 :])
    if scale != expected:
        blocks = f" and block_size {block_size}" if block_size else ""
        raise ReshapeError(f"{about} must be {shape_text(expected)} for axis {axis}{blocks}")
    if not block_size:
        return _Blocks((*(1,) * axis, shape[axis], *(1,) * (rank - axis - 1)), None)
    return _Blocks(None, (*(1,) * axis, int(block_size), *(1,) * (rank - axis - 1)))


def _alike(shape: tuple[int, ...]) -> Sequence[tuple[int, ...]]:
    """The equivalent shapes: a scalar may be an array of one element."""
    return _SCALAR if shape in _SCALAR else (shape,)
