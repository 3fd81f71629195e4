"""Conversions within a Program, as values that can be compared, pickled and checked."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..dtypes.table import DType, dtype
from ..engine.converting import Operands, cast_conversion
from ..errors import FormatError
from ..kernels.numbers import Conversion
from ..operations.casts import ROUND_MODES, cast
from ..operations.scaling import Find, dequantize_operands, quantize_operands
from ..shapes.layout import checked_shape

_CONSTANTS = ("float32", "float64", "int64", "uint64")


@dataclass(frozen=True)
class Constant:
    """An array that an operation holds: its dtype (one of `_CONSTANTS`), shape and bytes."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes

    def __post_init__(self) -> None:
        if self.dtype not in _CONSTANTS:
            raise FormatError(f"constants are {', '.join(_CONSTANTS)}, not {self.dtype!r}")
        if type(self.data) is not bytes:
            raise FormatError(f"a constant holds bytes, not {type(self.data).__name__}")
        size = prod(checked_shape(self.shape, "the shape", "Constant"))
        if size * np.dtype(self.dtype).itemsize != len(self.data):
            raise FormatError(f"a constant of shape {self.shape} has {len(self.data)} bytes")

    def __reduce__(self) -> tuple[Any, ...]:
        return _constant, (self.dtype, self.shape, self.data)

    @staticmethod
    def of(array: NDArray[Any]) -> Constant:
        """The Constant with an array's elements."""
        return Constant(str(array.dtype), array.shape, array.tobytes())

    @property
    def array(self) -> NDArray[Any]:
        """The elements, read-only."""
        return np.frombuffer(self.data, self.dtype).reshape(self.shape)


def _constant(dtype: str, shape: tuple[int, ...], data: bytes) -> Constant:
    """Unpickle a Constant."""
    return Constant(dtype, shape, data)


_constant.__module__ = "shapejit"  # the module named in pickles


class Step(NamedTuple):
    """A conversion of all elements to `kind`, with `operands` if it scales them."""

    kind: DType
    conversion: Conversion
    operands: Operands | None = None

    def repeated(self, shape: tuple[int, ...]) -> Step:
        """The same with one scale per element."""
        assert self.operands is not None
        scale, zero, each = self.operands.scale, self.operands.zero, self.operands.repeated
        arrays = each(scale, shape), None if zero is None else each(zero, shape)
        return self._replace(operands=Operands(self.conversion, *arrays, (1,) * len(shape)))


class Expected(NamedTuple):
    """The known facts of an array to convert."""

    dtype: DType
    shape: tuple[int, ...]


def scaled(operands: Operands, kind: DType) -> tuple[Any, ...]:
    """The arguments of an Op that represent operands."""
    zero, made = operands.zero, operands.conversion
    if zero is not None and made.zeros == "integer":
        # Saturating: the float next to the largest int64 is above it.
        codes = made.source if made.step == "dequantize" else made.target
        signed = codes.kind == "int" or zero.min(initial=0) < 0
        large = not signed and zero.max(initial=0) >= 2**63
        zero = cast(zero, "uint64" if large else "int64")
    blocks = operands.blocks if operands.scale.ndim else None
    constant = None if zero is None else Constant.of(zero)
    return Constant.of(operands.scale), constant, blocks, kind.name


def cast_step(
    kind: DType, shape: tuple[int, ...], name: str, saturate: bool, round_mode: str
) -> Step:
    """The Step of `cast`."""
    if round_mode not in ROUND_MODES or type(saturate) is not bool:
        raise FormatError(f"unknown saturate or round_mode: {saturate!r}, {round_mode!r}")
    made = dtype(name)
    return Step(made, cast_conversion(kind, made, saturate, round_mode))


def dequantize_step(
    kind: DType, shape: tuple[int, ...], scale: Any, zero: Any, blocks: Any, name: str
) -> Step:
    """The Step of `dequantize`."""
    return _scaled_step(dequantize_operands, Expected(kind, shape), scale, zero, blocks, name)


def quantize_step(
    kind: DType,
    shape: tuple[int, ...],
    scale: Any,
    zero: Any,
    blocks: Any,
    name: str,
    saturate: bool,
) -> Step:
    """The Step of `quantize`."""
    asked = blocks, name, saturate
    return _scaled_step(quantize_operands, Expected(kind, shape), scale, zero, *asked)


def _scaled_step(find: Find, x: Expected, scale: Any, zero: Any, *asked: Any) -> Step:
    if type(scale) is not Constant or (zero is not None and type(zero) is not Constant):
        raise FormatError("scales and zero points are Constants")
    made, operands = find(x, scale.array, None if zero is None else zero.array, *asked)
    return Step(made, operands.conversion, operands)
