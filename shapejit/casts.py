"""Casts and scales: numbers of one dtype as numbers of another, in one pass over memory."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from itertools import product
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import engine, operations, outputs
from .cast_planner import Scales, cast_plan
from .dtypes import DType, fixed_width
from .dtypes import dtype as dtype_of
from .errors import DTypeError, FormatError, ReshapeError, shape_text
from .kernels.numbers import Conversion, Number
from .kernels.plain_conversions import plain
from .layout import Layout
from .places import place_of
from .request import integers
from .tensor import Tensor

Array = NDArray[Any] | Tensor

FEW = 4096  # elements for whose sake numba is not imported
ROUND_MODES = ("nearest", "up", "down")


def cast(
    x: Any,
    dtype: object,
    *,
    saturate: bool = True,
    round_mode: str = "nearest",
    out: Any = None,
) -> Any:
    """The numbers of `x`, of any strides, as numbers of `dtype`: row-major, a new array or `out`.

    Floats are rounded to the nearest, ties to even, once. Beyond the largest finite
    value of a float of 8 bits, infinities too, they become that value, or without
    `saturate` infinity, NaN where there is none; wider floats always become infinity,
    narrower ones always the largest value. `round_mode` "up" or "down" is for
    float8_e8m0fnu. A float becomes the whole part of it, the nearest end of the range
    beyond it, 0 for NaN; an integer keeps its low bits as a narrower one; everything but
    0 becomes True. NaNs keep their sign, and their payload only from bfloat16 and float32 to
    a wider float. Complex numbers only become complex numbers, and strings nothing.
    `out` (same kind as `x`, of `dtype` and the shape of `x`, C-contiguous, apart from
    `x`) is filled and returned. ONNX operators Cast-25, section "saturate". Raises
    DTypeError, ReshapeError.

    >>> import numpy as np
    >>> cast(np.array([0.1, 500, -2.5], np.float32), "float8_e4m3fn")
    array([0.101562, 448, -2.5], dtype=float8_e4m3fn)
    >>> cast(np.array([1.9, -1.9, 300], np.float32), "int8")
    array([  1,  -1, 127], dtype=int8)
    """
    kind = fixed_width(dtype)
    if round_mode not in ROUND_MODES:
        raise DTypeError(f"round_mode is one of {', '.join(ROUND_MODES)}, not {round_mode!r}")
    if round_mode != "nearest" and kind.name != "float8_e8m0fnu":
        raise DTypeError(f"round_mode={round_mode!r} is for float8_e8m0fnu, not for {kind}")
    source = operations.checked(x)
    conversion = cast_conversion(_dtype(source), kind, _flag(saturate), round_mode)
    return _result(source, kind, conversion, None, out)


def dequantize(
    codes: Any,
    scale: Any,
    *,
    zero_point: Any = None,
    block_shape: Sequence[int] | None = None,
    dtype: object = None,
    out: Any = None,
) -> Any:
    """`(codes - zero_point) * scale`, row-major: in float32, or float64 if `scale` is.

    `scale` is a number, 0-D, or has the rank of `codes`: one scale per block of
    `block_shape` (elements; the last ones of a dim may be cut short), so that
    `scale.shape[i] == ceil(codes.shape[i] / block_shape[i])`. Without `block_shape` each of
    its dims is 1 or that of `codes`. `zero_point` is a scalar or has the shape of
    `scale`; integers must be in the range of the codes. The result is rounded once, to `dtype` (that
    of `scale`). `out` as in `cast`. ONNX DequantizeLinear-25 is the special case of one axis.
    Raises DTypeError, ReshapeError, FormatError.

    >>> import numpy as np
    >>> codes = np.array([[1, 2, 3, 4]], np.int8)
    >>> dequantize(codes, np.array([[10, 100]], np.float32), block_shape=(1, 2))
    array([[ 10.,  20., 300., 400.]], dtype=float32)
    """
    source = operations.checked(codes)
    kind, operands = dequantize_operands(source, scale, zero_point, block_shape, dtype)
    return _result(source, kind, operands.conversion, operands, out)


def quantize(
    x: Any,
    scale: Any,
    *,
    dtype: object,
    zero_point: Any = None,
    block_shape: Sequence[int] | None = None,
    saturate: bool = True,
    out: Any = None,
) -> Any:
    """Codes of `dtype` for `x / scale + zero_point`, rounded to the nearest, ties to even.

    What is out of range becomes the nearest end of it (`saturate` as in `cast`), NaN 0
    for integers. Integer zero points are added after the rounding, others before it. `scale`,
    `zero_point`, `block_shape`, `out` as in `dequantize`; no scale may be zero, infinite
    or NaN. ONNX QuantizeLinear-25 is the special case of one axis. Raises DTypeError,
    ReshapeError, FormatError.

    >>> import numpy as np
    >>> quantize(np.array([0.5, 1.5, -99], np.float32), 0.5, dtype="int4")
    array([1, 3, -8], dtype=int4)
    """
    source = operations.checked(x)
    kind, operands = quantize_operands(source, scale, zero_point, block_shape, dtype, saturate)
    return _result(source, kind, operands.conversion, operands, out)


def _dtype(x: Array) -> DType:
    """The dtype of an array's elements."""
    return fixed_width(x.dtype)


def _flag(value: Any) -> bool:
    if value is True or value is False:
        return bool(value)
    raise DTypeError(f"saturate is True or False, not {value!r}")


def number_of(kind: DType) -> Number:
    """How the numbers of a dtype are written; the parts of complex ones."""
    if kind.kind == "bool":
        return Number("bool", 8)
    if kind.kind == "integer":
        return Number("int" if kind.signed else "uint", kind.bits)
    if kind.format is None:
        raise DTypeError(f"{kind} elements are not numbers")
    bits = kind.bits // 2 if kind.kind == "complex" else kind.bits
    return Number("table" if kind.format.table else "float", bits, *kind.format)


def cast_conversion(
    source: DType, target: DType, saturate: bool = True, round_mode: str = "nearest"
) -> Conversion:
    """What casts between two dtypes; DTypeError where there is no such cast."""
    if (source.kind == "complex") != (target.kind == "complex"):
        raise DTypeError(f"there is no cast from {source} to {target}: complex numbers stay complex")
    come, made = number_of(source), number_of(target)
    if made.kind == "table":
        raise DTypeError(f"there is no cast to {target}: its values follow no rule")
    whole = ("int", "uint", "bool")
    if come.kind in whole and made.kind in whole:
        arithmetic = 0
    else:
        exact = come.bits <= 16 or (come.bits == 32 and come.kind == "float")
        direct = made.kind == "float" and made.bits == 32 and come.bits == 64 and come.kind in whole
        arithmetic = 32 if exact or direct else 64
    if made.bits != 8 or made.kind != "float":
        saturate = True
    return Conversion(come, made, arithmetic, saturate=saturate, round_mode=round_mode)


class Operands:
    """Scales and zero points, as floats side by side in memory, and what is done with them.

    `blocks` is the block's shape; scales have `shape`, a scalar none.
    """

    def __init__(
        self,
        conversion: Conversion,
        scale: NDArray[Any],
        zero: NDArray[Any] | None,
        blocks: tuple[int, ...],
    ) -> None:
        self.conversion = conversion
        self.scale = scale
        self.zero = zero
        self.blocks = blocks

    def parts(self, shape: Sequence[int]) -> Iterator[tuple[tuple[tuple[int, int], ...], Scales]]:
        """The parts of an array (begin and size per dim) within which scales lie regularly.

        Of a dim whose last block is cut short that block is a part of its own.
        """
        cuts = []
        for size, block in zip(shape, self._blocks(shape), strict=True):
            whole = size // block * block
            short = [(whole, size - whole)] if whole and whole < size else []
            cuts.append([(0, whole or size), *short])
        for part in product(*cuts):
            yield part, self.scales(shape, part)

    def _blocks(self, shape: Sequence[int]) -> tuple[int, ...]:
        return tuple(max(1, size) for size in shape) if self.scale.ndim == 0 else self.blocks

    def scales(self, shape: Sequence[int], part: Sequence[tuple[int, int]]) -> Scales:
        """How scales lie for a part, split into whole blocks: see `split`."""
        bits = self.conversion.arithmetic
        layouts = []
        for array in (self.scale, self.zero):
            if array is None:
                continue
            offset, sizes, strides = 0, list[int](), list[int]()
            apart = array.strides if array.ndim else (0,) * len(shape)
            for (begin, size), block, stride in zip(part, self._blocks(shape), apart, strict=True):
                offset += begin // block * stride
                sizes += [size // block, block] if size > block else [1, size]
                strides += [8 * stride, 0]
            layouts.append(Layout.of(sizes, strides, 8 * offset, bits))
        return Scales(bits, *layouts)

    def split(self, layout: Layout, part: Sequence[tuple[int, int]]) -> Layout:
        """A part of an array's Layout, each dim as whole blocks by the elements of one."""
        sizes, strides, offset = list[int](), list[int](), layout.offset
        blocks = self._blocks(layout.shape)
        for (begin, size), block, stride in zip(part, blocks, layout.strides, strict=True):
            offset += begin * stride
            sizes += [size // block, block] if size > block else [1, size]
            strides += [block * stride, stride]
        return Layout.of(sizes, strides, offset, layout.bits)

    def repeated(self, array: NDArray[Any], shape: Sequence[int]) -> NDArray[Any]:
        """One scale or zero point per element."""
        for axis, (size, block) in enumerate(zip(shape, self._blocks(shape), strict=True)):
            if array.ndim:
                at = np.arange(size) // block
                array = array.take(at, axis=axis)
        return np.ascontiguousarray(np.broadcast_to(array, shape))


def dequantize_operands(
    codes: Any, scale: Any, zero_point: Any, block_shape: Any, dtype: object
) -> tuple[DType, Operands]:
    """The result's dtype and the operands of `dequantize`, checked."""
    source = _dtype(codes)
    come = number_of(source)
    if source.kind in ("complex", "bool"):
        raise DTypeError(f"codes are integers or floats, not {source}")
    scales, scale_kind = _scale(scale)
    kind = scale_kind if dtype is None else fixed_width(dtype)
    made = number_of(kind)
    if made.kind != "float" or kind.kind != "float":
        raise DTypeError(f"dequantize makes floats, not {kind}")
    zeros, zero = _zero_point(zero_point, scales, source)
    blocks = _block_shape(block_shape, codes.shape, scales)
    bits = 8 * scales.itemsize
    lie = "blocks"
    conversion = Conversion(come, made, bits, "dequantize", lie, zeros)
    return kind, Operands(conversion, scales, zero, blocks)


def quantize_operands(
    x: Any, scale: Any, zero_point: Any, block_shape: Any, dtype: object, saturate: bool
) -> tuple[DType, Operands]:
    """The result's dtype and the operands of `quantize`, checked."""
    source, kind = _dtype(x), fixed_width(dtype)
    come, made = number_of(source), number_of(kind)
    if "complex" in (source.kind, kind.kind) or "bool" in (source.kind, kind.kind):
        raise DTypeError(f"quantize makes codes of real numbers, not {kind} of {source}")
    if made.kind == "table" or made.special == "unsigned":
        raise DTypeError(f"quantize does not make {kind}")
    scales, _ = _scale(scale)
    wrong = ~np.isfinite(scales) | (scales == 0)
    if wrong.any():
        at = tuple(int(i) for i in np.argwhere(wrong)[0])
        place = f"scale{list(at)}" if at else "scale"
        raise FormatError(
            f"{place} is {scales[at]}: no number can be divided by it "
            f"(scale has shape {shape_text(scales.shape)}, x {shape_text(x.shape)})"
        )
    zeros, zero = _zero_point(zero_point, scales, kind)
    blocks = _block_shape(block_shape, x.shape, scales)
    narrow = made.kind == "float" and made.bits == 8
    keep = _flag(saturate) or not narrow
    bits = 8 * scales.itemsize
    conversion = Conversion(come, made, bits, "quantize", "blocks", zeros, keep)
    return kind, Operands(conversion, scales, zero, blocks)


def _scale(scale: Any) -> tuple[NDArray[Any], DType]:
    """Scales as float32 or float64 side by side, and their own dtype."""
    if isinstance(scale, int | float) and not isinstance(scale, bool):
        return np.asarray(scale, np.float32), dtype_of("float32")
    if isinstance(scale, np.generic):
        scale = np.asarray(scale)
    given = operations.checked(scale)
    kind = _dtype(given)
    if kind.kind != "float" or (kind.format and kind.format.table):
        raise DTypeError(f"scales are floats, not {kind}")
    return _floats(given, "float64" if kind.name == "float64" else "float32"), kind


def _floats(x: Array, name: str) -> NDArray[Any]:
    """Numbers as floats of 32 or 64 bits, side by side."""
    made = operations.ascontiguous(x) if _dtype(x).name == name else cast(x, name)
    return made.numpy() if isinstance(made, Tensor) else np.asarray(made)


def _zero_point(
    zero_point: Any, scales: NDArray[Any], codes: DType
) -> tuple[str, NDArray[Any] | None]:
    """"integer", "float" or "" where there is none, and zero points as floats."""
    if zero_point is None:
        return "", None
    if isinstance(zero_point, bool):
        raise DTypeError("zero points are numbers, not bool")
    if isinstance(zero_point, int):
        given: Any = np.asarray(np.clip(zero_point, -(2**63), 2**63 - 1), np.int64)
    elif isinstance(zero_point, float | np.generic):
        given = np.asarray(zero_point)
    else:
        given = operations.checked(zero_point)
    kind = _dtype(given)
    if kind.kind not in ("integer", "float"):
        raise DTypeError(f"zero points are integers or floats, not {kind}")
    if given.shape not in ((), scales.shape):
        raise ReshapeError(
            f"zero_point has shape {shape_text(given.shape)}, scale {shape_text(scales.shape)}: "
            f"a zero point is a scalar, or there is one per scale"
        )
    made = _floats(given, f"float{8 * scales.itemsize}")
    if kind.kind == "integer" and codes.kind == "integer":
        low, high = number_of(codes).range
        wrong = (made < low) | (made > high)
        if wrong.any():
            raise FormatError(
                f"zero point {made[wrong].reshape(-1)[0]:g} is out of the range of {codes}, "
                f"{low} to {high} (zero_point has shape {shape_text(given.shape)})"
            )
    if made.ndim == 0:
        made = np.ascontiguousarray(np.broadcast_to(made, scales.shape))
    return kind.kind, made


def _block_shape(
    block_shape: Any, shape: tuple[int, ...], scales: NDArray[Any]
) -> tuple[int, ...]:
    """The elements per scale along each dim."""
    if scales.ndim == 0:
        if block_shape is not None:
            raise ReshapeError("one scale for all elements has no block_shape")
        return ()
    facts = f"scale has shape {shape_text(scales.shape)}, codes {shape_text(shape)}"
    if scales.ndim != len(shape):
        raise ReshapeError(f"scale must be 0-D or have the rank of the codes: {facts}")
    if block_shape is None:
        fit = all(n in (1, size) for n, size in zip(scales.shape, shape, strict=True))
        if not fit:
            raise ReshapeError(f"without block_shape each dim of scale is 1 or the codes': {facts}")
        pairs = zip(scales.shape, shape, strict=True)
        return tuple(1 if n == size else max(1, size) for n, size in pairs)
    blocks = integers(block_shape, "block_shape", "block_shape")
    facts += f", block_shape {shape_text(blocks)}"
    if len(blocks) != len(shape) or any(block < 1 for block in blocks):
        raise ReshapeError(f"block_shape has one size of at least 1 per dim: {facts}")
    wanted = tuple(-(-size // block) for size, block in zip(shape, blocks, strict=True))
    if scales.shape != wanted:
        raise ReshapeError(f"scale must have shape {shape_text(wanted)}: {facts}")
    return tuple(min(block, max(1, size)) for size, block in zip(shape, blocks, strict=True))


def _result(
    source: Array, kind: DType, conversion: Conversion, operands: Operands | None, out: Any
) -> Any:
    """The converted elements as `out`, or as a new array."""
    wanted: Any = kind
    if not isinstance(source, Tensor):
        if kind.numpy is None:
            raise DTypeError(f"NumPy has no {kind}: pass a Tensor, shapejit.asarray(x)")
        wanted = kind.numpy
    target = outputs.target(out, wanted, source.shape, (source,))
    convert(source, target, conversion, operands, fresh=out is None)
    return target if out is None else out


def convert(
    source: Array, target: Array, conversion: Conversion, operands: Operands | None, fresh: bool
) -> None:
    """Convert the elements of `source` into `target`, row-major, of the same shape."""
    if source.size == 0:
        return
    if source.size <= FEW and "numba" not in sys.modules:
        _convert_few(source, target, conversion, operands)
        return
    place, layout = place_of(source)
    to, whole = place_of(target)
    complex_ = _dtype(source).kind == "complex"
    layout, whole = (_parts(a) if complex_ else a for a in (layout, whole))
    if operands is None:
        launch(layout.at(place & 7), place & ~7, whole, to, conversion, None, (0, 0), fresh)
        return
    at = [0 if a is None else engine.address_of(a) for a in (operands.scale, operands.zero)]
    for part, scales in operands.parts(source.shape):
        seen, into = operands.split(layout, part), operands.split(whole, part)
        one, two = place + seen.offset, to + into.offset
        begins = [
            a + (s.offset // 8 if s else 0)
            for a, s in zip(at, (scales.scale, scales.zero), strict=True)
        ]
        still = Scales(
            scales.bits, scales.scale.at(0), scales.zero.at(0) if scales.zero else None
        )
        launch(
            seen.at(one & 7), one & ~7, into, two, conversion, still, (begins[0], begins[1]), fresh
        )


def launch(
    layout: Layout,
    place: int,
    into: Layout,
    to: int,
    conversion: Conversion,
    scales: Scales | None,
    operands: tuple[int, int],
    fresh: bool,
) -> None:
    """One launch: elements at a bit address, results at another."""
    plan = cast_plan(layout, into.bits, into.at(to & 7), scales, 1)
    lie = {"": "", "blocks": "blocks"}.get(plan.scales, "each")
    engine.run_cast(plan, conversion._replace(scales=lie), [place], [to & ~7], operands, fresh)


def _parts(layout: Layout) -> Layout:
    """Complex numbers as pairs of floats."""
    half = layout.bits // 2
    return Layout.of((*layout.shape, 2), (*layout.strides, half), layout.offset, half)


def _convert_few(
    source: Array, target: Array, conversion: Conversion, operands: Operands | None
) -> None:
    """`convert` by NumPy."""
    codes = _codes(source, conversion.source.nbytes)
    made = np.empty(codes.size, f"u{conversion.target.nbytes}")
    pointers = [codes.ctypes.data, made.ctypes.data, codes.size, 1, 0, 0, 0, 0, 0]
    kept = []
    if operands is not None:
        for at, array in ((4, operands.scale), (6, operands.zero)):
            if array is not None:
                kept.append(operands.repeated(array, source.shape))
                pointers[at] = kept[-1].ctypes.data
        conversion = conversion._replace(scales="each")
    plain(conversion)(*pointers)
    if isinstance(target, Tensor):
        if target.dtype.packed:
            operations.pack(made.reshape(target.shape), target.dtype, out=target)
            return
        first = target.offset // 8
        target.buffer[first : first + target.nbytes] = made.view(np.uint8)
    else:
        target.reshape(-1).view(np.uint8)[:] = made.view(np.uint8)


def _codes(source: Array, nbytes: int) -> NDArray[Any]:
    """The elements side by side, as unsigned integers."""
    if isinstance(source, Tensor):
        source = source.unpack()
    return np.ascontiguousarray(source).reshape(-1).view(np.uint8).view(f"u{nbytes}")
