"""cast, dequantize and quantize: convert numbers between dtypes, in one pass over memory."""

from __future__ import annotations

from collections.abc import Sequence
from sys import intern
from types import NoneType
from typing import Any

import numpy as np

from ..arrays.foreign import changes_dtype, converts_any_array
from ..arrays.tensor import Tensor
from ..dtypes.table import DType, fixed_width
from ..engine import outputs, small_calls
from ..engine.calls import follow, keep, key_of
from ..engine.converting import AnyArray, Operands, cast_conversion, convert
from ..engine.numpy_fallback import caster
from ..engine.routes import FOUND
from ..engine.small_calls import TABLE
from ..errors import DTypeError
from ..kernels.numbers import Conversion
from ..runtime.launches import address_of
from ..runtime.ndarrays import is_a, may_share_memory
from ..shapes.request import are_sizes
from . import views
from .scaling import Find, dequantize_operands, flag, quantize_operands

BY_VALUE_MAX_BYTES = 256  # of scales or zero points that are compared by value
NEAREST = "nearest"
ROUND_MODES = (NEAREST, "up", "down")


@changes_dtype
def cast(
    x: Any,
    dtype: object,
    *,
    saturate: bool = True,
    round_mode: str = NEAREST,
    out: Any = None,
) -> Any:
    """Convert the numbers of `x` (any strides) to `dtype`: into a new row-major array, or `out`.

    Floats are rounded once, to the nearest, ties to even. Out-of-range numbers become:

    - in float8 dtypes the largest finite value, also infinities; with `saturate=False` infinity,
      or NaN in a dtype without infinity;
    - in wider floats infinity, in narrower ones the largest value;
    - in float8_e8m0fnu, below its range, its smallest value, or NaN with `saturate=False`;
      `round_mode` "up" or "down" applies to this dtype only;
    - from floats to integers (which truncates) the nearest end of the range, and NaN becomes 0;
    - from integers to narrower integers their low bits, as in NumPy: 300 becomes 44 in uint8.

    As bool, every number but 0 is True.

    NaNs keep their sign, and their payload only from bfloat16 and float32 to a wider float.
    Complex numbers only become complex numbers, and strings cannot be cast. `out` (same
    kind as `x`, of `dtype` and the shape of `x`, C-contiguous, not overlapping any other argument)
    is filled and returned. ONNX operators Cast-25, section "saturate". Raises DTypeError,
    ReshapeError.

    >>> import numpy as np
    >>> cast(np.array([0.1, 500, -2.5], np.float32), "float8_e4m3fn")
    array([0.101562, 448, -2.5], dtype='float8_e4m3fn')
    >>> cast(np.array([1.9, -1.9, 300], np.float32), "int8")
    array([  1,  -1, 127], dtype=int8)
    """
    named = saturate is True and round_mode is NEAREST and type(dtype) is str
    if named:
        done = small_calls.run(x, out, dtype, TABLE, None)
        if done is not None:
            return done
        given, dtype = dtype, intern(str(dtype))  # Routes know one string of each name
        if dtype is not given:
            done = small_calls.run(x, out, dtype, TABLE, None)
            if done is not None:
                return done
    if type(x) is np.ndarray:
        x = x[...]  # another thread may give `x` another shape
    elif not is_a(x, Tensor):
        return views.with_native(x, cast, out, dtype, saturate=saturate, round_mode=round_mode)
    key = key_of(x, ("cast", dtype)) if named else None
    call = FOUND.get(key)  # as `follow`: one call less
    done = None if call is None else call(x, out)
    return _cast(x, dtype, saturate, round_mode, key, out) if done is None else done


def _cast(x: Any, dtype: Any, saturate: Any, round_mode: Any, key: Any, out: Any) -> Any:
    """`cast` without a Route; with a `key`, one is made for the next call."""
    kind = fixed_width(dtype)
    if round_mode not in ROUND_MODES:
        raise DTypeError(f"round_mode must be one of {', '.join(ROUND_MODES)}, not {round_mode!r}")
    special = kind.format.special if kind.format else ""
    if round_mode != "nearest" and special != "unsigned":
        raise DTypeError(f"round_mode={round_mode!r} is for float8_e8m0fnu, not for {kind}")
    given_kind = fixed_width(x.dtype)
    conversion = cast_conversion(given_kind, kind, flag(saturate), round_mode)
    infinite = kind.bits == 8 and special == "ieee"
    if kind is given_kind and not (infinite and saturate):
        return views.reshape(x, x.shape, copy=True, out=out)
    if isinstance(x, Tensor) and type(x) is not Tensor:
        given = kind.name, conversion.saturate, round_mode
        return x.converted("cast", kind, None, given, out)  # type: ignore[attr-defined]  # traced
    return _result(x, conversion, kind, None, out, key, dtype if key else None)


@converts_any_array
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
    `scale`; integers must be in the range of the codes. The result is rounded once, to
    `dtype` (that of `scale`). `out` as in `cast`. ONNX DequantizeLinear-25 is the
    special case of one axis. Raises DTypeError, ReshapeError, FormatError.

    >>> import numpy as np
    >>> codes = np.array([[1, 2, 3, 4]], np.int8)
    >>> dequantize(codes, np.array([[10, 100]], np.float32), block_shape=(1, 2))
    array([[ 10.,  20., 300., 400.]], dtype=float32)
    """
    key = None
    large = type(scale) is np.ndarray and scale.nbytes > BY_VALUE_MAX_BYTES
    simple = zero_point is None and type(dtype) in (str, NoneType)
    if large and simple and (block_shape is None or are_sizes(block_shape)):
        of_scale = scale.dtype, scale.shape, scale.strides, address_of(scale)
        key = key_of(codes, ("dequantize", dtype, block_shape, *of_scale))
        key = key if _is_apart(scale, out) else None
    return scaled(dequantize_operands, codes, scale, zero_point, block_shape, out, key, dtype)


@converts_any_array
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

    Out-of-range numbers are clamped to the range (`saturate` as in `cast`); in integers, NaN
    becomes 0. Integer zero points are added after rounding, others before it. `scale`,
    `zero_point`, `block_shape`, `out` as in `dequantize`; no scale may be zero, infinite
    or NaN. ONNX QuantizeLinear-25 is the special case of one axis. Raises DTypeError,
    ReshapeError, FormatError.

    >>> import numpy as np
    >>> quantize(np.array([0.5, 1.5, -99], np.float32), 0.5, dtype="int4")
    array([1, 3, -8], dtype=int4)
    """
    given = x, scale, zero_point, block_shape, out
    return scaled(quantize_operands, *given, None, dtype, saturate)


def scaled(
    find: Find,
    x: Any,
    scale: Any,
    zero_point: Any,
    block_shape: Any,
    out: Any,
    key: object,
    *asked: object,
    by_value: bool = False,
) -> Any:
    """`x` converted with the operands that `find` makes of the arguments.

    `key` finds the Route if the scales are in the same memory as before, or `by_value`, as that of
    `follow_by_value`, which is made here if there is none.
    """
    done = None
    if key is not None:
        done = None if by_value else follow(key, x, out)
    elif block_shape is None or are_sizes(block_shape):
        key, done = follow_by_value(x, scale, zero_point, find, block_shape, *asked, out=out)
        by_value = key is not None
    if done is not None:
        return done
    source = views.checked(x)
    if by_value:
        scale, zero_point = (a.copy() if type(a) is np.ndarray else a for a in (scale, zero_point))
    kind, operands = find(source, scale, zero_point, block_shape, *asked)
    made = operands.conversion
    if isinstance(source, Tensor) and type(source) is not Tensor:
        given = (made.saturate,) if made.step == "quantize" else ()
        return source.converted(made.step, kind, operands, given, out)  # type: ignore[attr-defined]  # traced
    if not by_value and operands.scale is not scale:
        key = None  # the next call reads it from other memory
    return _result(source, made, kind, operands, out, key, by_value=by_value)


def follow_by_value(
    x: Any, scale: Any, zero_point: Any, *asked: object, out: Any = None
) -> tuple[object, Any]:
    """A key for what is `asked` of arrays like `x`, and its result; None for those that are none.

    Scales and zero points of at most `BY_VALUE_MAX_BYTES` are in it with their values.
    """
    of_scale = _value(scale, out)
    of_zero = of_scale and _value(zero_point, out)
    if not of_zero:
        return None, None
    key = key_of(x, (of_scale, of_zero, asked, *map(type, asked)))
    try:
        return key, follow(key, x, out)
    except TypeError:  # an argument that has no hash
        return None, None


def _value(x: Any, out: Any) -> object:
    """A key that is equal for equal values; False unless it is a scalar or a small array.

    Nor may an array share memory with `out`.
    """
    if type(x) is np.ndarray or isinstance(x, np.generic):
        known = x.nbytes <= BY_VALUE_MAX_BYTES and _is_apart(x, out)
        return known and (x.dtype, x.shape, x.tobytes())
    return (x is None or type(x) in (int, float)) and repr(x)


def _is_apart(x: Any, out: Any) -> bool:
    """Whether scales obviously share no memory with `out`."""
    if out is None or type(x) is not np.ndarray:
        return True
    memory = out.buffer if type(out) is Tensor else out
    return type(memory) is np.ndarray and not may_share_memory(x, memory)


def _result(
    source: AnyArray,
    conversion: Conversion,
    kind: DType,
    operands: Operands | None,
    out: Any,
    key: object = None,
    asked: object = None,
    by_value: bool = False,
) -> Any:
    """The converted elements as `out` or a new array; later calls with the `key` have a Route.

    Small arrays find it by what is `asked`, see `small_calls`. Operands `by_value` are those of
    later calls, too.
    """
    wanted: Any = kind
    if not isinstance(source, Tensor):
        if kind.numpy is None:
            raise DTypeError(f"NumPy has no {kind}: pass a Tensor, shapejit.asarray(x)")
        wanted = kind.numpy
    given = () if operands is None else operands.given
    target, fresh = outputs.target(out, wanted, source.shape, (source, *given))
    done = convert(source, target, conversion, operands, fresh)
    if done and not by_value and operands is not None:
        # What NumPy does reads the scales that are at the address then, as kernels do: by a Plan.
        done = done._replace(move=None) if done.operands[0] else None
    if key is not None and done and target.dtype is wanted:
        done = done._replace(alive=operands if by_value else None)
        if asked is not None and isinstance(source, np.ndarray):
            FOUND.put((source.dtype, asked), (caster(conversion, wanted), done.way.kind))
        keep(key, done, source, target, fresh, asked)
    return target if out is None else out
