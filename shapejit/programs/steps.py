"""Conversions within a Program, as values that can be compared, pickled and checked."""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..arrays.tensor import Tensor
from ..dtypes.table import DType, dtype, fixed_width
from ..engine.converting import Operands, cast_conversion
from ..errors import FormatError
from ..kernels.numbers import Conversion
from ..operations.casts import ROUND_MODES
from ..operations.scaling import Find, dequantize_operands, quantize_operands
from ..runtime.ndarrays import is_a
from ..shapes.layout import checked_shape
from ..shapes.request import Ints

Constant = tuple[str, Ints, bytes]  # dtype, shape and elements (codes)


def constant(x: Any) -> Constant:
    """The Constant with the elements of an array, or with a number."""
    array = x.unpack() if is_a(x, Tensor) else np.asarray(x)
    return str(array.dtype), array.shape, array.tobytes()


def array_of(given: Any) -> NDArray[Any]:
    """The elements of a Constant, read-only. Raises FormatError for anything else."""
    if type(given) is not tuple or list(map(type, given)) != [str, tuple, bytes]:
        raise FormatError("scales and zero points are constants: a dtype, a shape and bytes")
    name, shape, data = given
    kind = fixed_width(name).codes
    size = prod(checked_shape(shape, "the shape", "a constant"))
    if size * kind.itemsize != len(data):
        raise FormatError(f"a constant of shape {shape} has {len(data)} bytes")
    return np.frombuffer(data, kind).reshape(shape)


class ConversionStep(NamedTuple):
    """A conversion of all elements to `kind`, with `operands` if it scales them."""

    kind: DType
    conversion: Conversion
    operands: Operands | None = None

    def repeated(self, shape: Ints) -> ConversionStep:
        """The same with one scale per element."""
        assert self.operands is not None
        scale, zero, each = self.operands.scale, self.operands.zero, self.operands.repeated
        arrays = each(scale, shape), None if zero is None else each(zero, shape)
        return self._replace(operands=Operands(self.conversion, *arrays, (1,) * len(shape)))


class Expected(NamedTuple):
    """The known facts about an array to convert."""

    dtype: DType
    shape: Ints


def scaled(operands: Operands, kind: DType) -> tuple[Any, ...]:
    """The arguments of an Op that represent operands."""
    blocks = operands.blocks if operands.scale.ndim else None
    zero = None if operands.zero is None else constant(operands.given[1])
    return constant(operands.scale), zero, blocks, kind.name


def cast_step(
    kind: DType, shape: Ints, name: str, saturate: bool, round_mode: str
) -> ConversionStep:
    """The step of `cast`."""
    if round_mode not in ROUND_MODES or type(saturate) is not bool:
        raise FormatError(f"unknown saturate or round_mode: {saturate!r}, {round_mode!r}")
    made = dtype(name)
    return ConversionStep(made, cast_conversion(kind, made, saturate, round_mode))


def dequantize_step(
    kind: DType, shape: Ints, scale: Any, zero: Any, blocks: Any, name: str
) -> ConversionStep:
    """The step of `dequantize`."""
    return _scaled_step(dequantize_operands, Expected(kind, shape), scale, zero, blocks, name)


def quantize_step(
    kind: DType,
    shape: Ints,
    scale: Any,
    zero: Any,
    blocks: Any,
    name: str,
    saturate: bool,
) -> ConversionStep:
    """The step of `quantize`."""
    asked = blocks, name, saturate
    return _scaled_step(quantize_operands, Expected(kind, shape), scale, zero, *asked)


def _scaled_step(find: Find, x: Expected, scale: Any, zero: Any, *asked: Any) -> ConversionStep:
    made, operands = find(x, array_of(scale), None if zero is None else array_of(zero), *asked)
    return ConversionStep(made, operands.conversion, operands)
