"""The arguments of dequantize and quantize (scales, zero points, blocks), checked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays.foreign import native
from ..arrays.tensor import Tensor
from ..dtypes.table import FLOAT32, DType, dtype, fixed_width
from ..engine.converting import Operands, cast_conversion, convert, number_of
from ..errors import DTypeError, FormatError, ReshapeError, shape_text
from ..kernels.numbers import Conversion
from ..runtime.ndarrays import array_of
from ..shapes.request import Ints, integers
from . import views

Found = tuple[DType, Operands]
Find = Callable[..., Found]


def flag(value: Any) -> bool:
    """`saturate`, which must be True or False."""
    if value is True or value is False:
        return bool(value)
    raise DTypeError(f"saturate must be True or False, not {value!r}")


def dequantize_operands(
    codes: Any,
    scale: Any,
    zero_point: Any,
    block_shape: Any,
    wanted: object,
) -> tuple[DType, Operands]:
    """The result's dtype and the operands of `dequantize`, checked."""
    source = fixed_width(codes.dtype)
    src = number_of(source)
    if source.kind in ("complex", "bool"):
        raise DTypeError(f"codes must be integers or floats, not {source}")
    given = _argument(scale), _argument(zero_point)
    scales, scale_kind = _scale(given[0])
    kind = scale_kind if wanted is None else fixed_width(wanted)
    dst = number_of(kind)
    if dst.kind != "float" or kind.kind != "float":
        raise DTypeError(f"dequantize makes floats, not {kind}")
    zeros, zero = _zero_point(given[1], scales, source)
    blocks = blocks_of(block_shape, codes.shape, scales.shape)
    conversion = Conversion(src, dst, 8 * scales.itemsize, "dequantize", "blocks", zeros)
    return kind, Operands(conversion, scales, zero, blocks, given)


def quantize_operands(
    x: Any, scale: Any, zero_point: Any, block_shape: Any, wanted: object, saturate: bool
) -> tuple[DType, Operands]:
    """The result's dtype and the operands of `quantize`, checked."""
    source, kind = fixed_width(x.dtype), fixed_width(wanted)
    src, dst = number_of(source), number_of(kind)
    if "complex" in (source.kind, kind.kind) or "bool" in (source.kind, kind.kind):
        raise DTypeError(f"quantize makes codes of real numbers, not {kind} of {source}")
    if dst.kind == "table" or dst.special == "unsigned":
        raise DTypeError(f"quantize does not make {kind}")
    given = _argument(scale), _argument(zero_point)
    scales, _ = _scale(given[0])
    wrong = ~np.isfinite(scales) | (scales == 0)
    if wrong.any():
        at = tuple(int(i) for i in np.argwhere(wrong)[0])
        place = f"scale{list(at)}" if at else "scale"
        raise FormatError(
            f"{place} is {scales[at]}: scales must be finite and not 0 "
            f"(scale has shape {shape_text(scales.shape)}, x {shape_text(x.shape)})"
        )
    zeros, zero = _zero_point(given[1], scales, kind)
    blocks = blocks_of(block_shape, x.shape, scales.shape)
    narrow = dst.kind == "float" and dst.bits == 8
    keep = flag(saturate) or not narrow
    bits = 8 * scales.itemsize
    conversion = Conversion(src, dst, bits, "quantize", "blocks", zeros, keep)
    return kind, Operands(conversion, scales, zero, blocks, given)


def _argument(x: Any) -> Any:
    """A scale or a zero point as an array; Python numbers and None are returned unchanged."""
    own = isinstance(x, int | float) and not isinstance(x, bool | np.generic)
    return x if own or x is None else views.checked(native(x))


def _scale(scale: Any) -> tuple[NDArray[Any], DType]:
    """Scales as contiguous float32 or float64, and their own dtype."""
    if scale is None:
        raise DTypeError("scale must be a number or an array, not None")
    if isinstance(scale, int | float):
        try:
            return np.asarray(float(scale), np.float32), FLOAT32
        except OverflowError:
            raise FormatError("scale is an int beyond the range of floats") from None
    kind = fixed_width(scale.dtype)
    if kind.kind != "float" or (kind.format and kind.format.table):
        raise DTypeError(f"scales must be floats, not {kind}")
    return _floats(scale, "float64" if kind.name == "float64" else "float32"), kind


def _floats(x: Any, name: str) -> NDArray[Any]:
    """Numbers as contiguous float32 or float64."""
    given = x.numpy() if isinstance(x, Tensor) and not x.dtype.packed else x
    if fixed_width(given.dtype).name == name:
        return np.asarray(views.ascontiguous(given))
    if isinstance(given, np.ndarray) and given.dtype.kind in "iu":
        return given.astype(name, order="C")  # calling a kernel takes as long
    made = array_of(given.shape, np.dtype(name))
    conversion = cast_conversion(fixed_width(given.dtype), dtype(name))
    convert(given, made, conversion, None, fresh=True)
    return made


def _zero_point(
    zero_point: Any, scales: NDArray[Any], codes: DType
) -> tuple[str, NDArray[Any] | None]:
    """The kind of zero points ("integer", "float", or "" for none), and these as floats."""
    if zero_point is None:
        return "", None
    if isinstance(zero_point, int):
        zero_point = np.asarray(zero_point)  # dtype object if 64 bits do not hold it
        _check_range(zero_point, codes)
    kind, made = _one_per_scale(zero_point, scales)
    if kind.kind == "integer" and codes.kind == "integer" and kind is not codes:
        # Floats hold all integers of 16 bits, but not all of 32.
        _check_range(made if kind.bits < 32 else np.asarray(zero_point), codes)
    return kind.kind, made


def _check_range(zero: NDArray[Any], codes: DType) -> None:
    """Raise for zero points outside the range of the codes, or of int64 if codes are floats."""
    whole = codes.kind == "integer"
    low, high = number_of(codes).range if whole else (-(2**63), 2**64 - 1)
    wrong = np.asarray((zero < low) | (zero > high))
    if wrong.any():
        raise FormatError(
            f"zero point {int(zero[wrong][0])} is out of the range of "
            f"{codes if whole else 'integers of 64 bits'}, {low} to {high} "
            f"(zero_point has shape {shape_text(zero.shape)})"
        )


def _one_per_scale(given: Any, scales: NDArray[Any]) -> tuple[DType, NDArray[Any]]:
    """The dtype of a `zero_point`, and its numbers as floats, broadcast to one per scale."""
    if isinstance(given, float):
        given = np.asarray(given)
    kind = fixed_width(given.dtype)
    if kind.kind not in ("integer", "float"):
        raise DTypeError(f"zero_point must be integers or floats, not {kind}")
    if given.shape not in ((), scales.shape):
        raise ReshapeError(
            f"zero_point has shape {shape_text(given.shape)}, scale {shape_text(scales.shape)}: "
            f"it must be a scalar or one number per scale"
        )
    made = _floats(given, f"float{8 * scales.itemsize}")
    if made.shape != scales.shape:
        made = np.full(scales.shape, made)
    return kind, made


def blocks_of(block_shape: Any, shape: Ints, scales: Ints) -> Ints:
    """The elements per scale along each dim of codes of `shape`; () for a scalar scale.

    >>> blocks_of(None, (4, 6), (4, 1)), blocks_of((1, 4), (4, 6), (4, 2))
    ((1, 6), (1, 4))
    """
    if not scales:
        if block_shape is not None:
            raise ReshapeError("block_shape needs one scale per block, not a scalar")
        return ()
    facts = f"scale has shape {shape_text(scales)}, codes {shape_text(shape)}"
    if len(scales) != len(shape):
        raise ReshapeError(f"scale must be 0-D or have the rank of the codes: {facts}")
    if block_shape is None:
        fit = all(n in (1, size) for n, size in zip(scales, shape, strict=True))
        if not fit:
            raise ReshapeError(
                f"without block_shape each dim of scale must be 1 or the codes': {facts}"
            )
        pairs = zip(scales, shape, strict=True)
        return tuple(1 if n == size else max(1, size) for n, size in pairs)
    blocks = integers(block_shape, "block_shape", "block_shape")
    facts += f", block_shape {shape_text(blocks)}"
    if len(blocks) != len(shape) or any(block < 1 for block in blocks):
        raise ReshapeError(f"block_shape must have one size of at least 1 per dim: {facts}")
    wanted = tuple(-(-size // block) for size, block in zip(shape, blocks, strict=True))
    # An empty dim may keep the one scale that it has for any other length.
    alike = zip(scales, wanted, strict=True)
    if not all(n == count or (count == 0 and n == 1) for n, count in alike):
        raise ReshapeError(f"scale must have shape {shape_text(wanted)}: {facts}")
    return tuple(min(block, max(1, size)) for size, block in zip(shape, blocks, strict=True))
