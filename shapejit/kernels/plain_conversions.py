"""Conversions by NumPy: for the JIT switched off, and for few elements before numba is loaded.

Values are float64, rounded once by hand. Importing this module does not import numba.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .numbers import Conversion, Number

Values = NDArray[np.float64]


def plain(made: Conversion) -> Callable[..., None]:
    """The function that `conversions.convert` calls."""

    def run(
        source: int,
        target: int,
        count: int,
        block: int,
        scale: int,
        scale_step: int,
        zero: int,
        zero_step: int,
        shift: int,
    ) -> None:
        size = block if made.scales == "blocks" else count
        for k in range(count // size if size else 0):
            codes = _at(source + k * size * made.source.nbytes, size, made.source.nbytes)
            scales = zeros = None
            if made.scales:
                many = size if made.scales == "each" else 1
                scales = _floats(scale + k * scale_step, many, made.arithmetic)
                if made.zeros:
                    zeros = _floats(zero + k * zero_step, many, made.arithmetic)
            with np.errstate(all="ignore"):
                result = _converted(codes, made, shift, scales, zeros)
            into = _at(target + k * size * made.target.nbytes, size, made.target.nbytes)
            into[:] = result.astype(into.dtype)

    return run


def _at(address: int, count: int, nbytes: int) -> Any:
    memory = (ctypes.c_uint8 * (count * nbytes)).from_address(address)
    codes: NDArray[Any] = np.ctypeslib.as_array(memory).view(f"u{nbytes}")
    return codes


def _floats(address: int, count: int, bits: int) -> Any:
    return _at(address, count, bits // 8).view(f"f{bits // 8}")


def _converted(
    codes: NDArray[Any],
    made: Conversion,
    shift: int,
    scales: NDArray[Any] | None,
    zeros: NDArray[Any] | None,
) -> Any:
    source, target = made.source, made.target
    if source.bits < 8:
        codes = (codes >> shift) & ((1 << source.bits) - 1)
    if source.kind == "bool":
        codes = (codes != 0).astype(np.uint8)
    integers = source.kind in ("int", "uint", "bool")
    if integers:
        values: Any = codes.view(f"i{codes.itemsize}") if source.kind == "int" else codes
        if source.kind == "int" and source.bits < 8:
            values = (values ^ (1 << (source.bits - 1))) - (1 << (source.bits - 1))
    else:
        values = decoded(codes, source)
    if not made.arithmetic:
        if target.kind == "bool":
            return codes != 0
        kept = values.astype(f"i{target.nbytes}").view(f"u{target.nbytes}")
        kept = kept + kept.dtype.type(made.bias)
        return kept & kept.dtype.type((1 << target.bits) - 1)
    floats = np.dtype(f"f{made.arithmetic // 8}")
    if scales is not None:
        return encoded(_scaled(values.astype(floats), made, scales, zeros), made)
    if integers and source.bits == 64 and target.kind == "float" and target.bits < 64:
        values = values.astype(np.float32) if target.bits == 32 else _to_odd(values)
    return encoded(values.astype(floats), made)


def _to_odd(values: NDArray[Any]) -> Any:
    """64-bit integers cut to 53 bits, rounded to odd: a later rounding is the only one."""
    low = values.dtype.type((1 << 11) - 1)
    sticky = ((values & low) != 0).astype(values.dtype) << values.dtype.type(11)
    large = (values >= 1 << 53) | (values < -(1 << 53) if values.dtype.kind == "i" else False)
    return np.where(large, values & ~low | sticky, values)


def _scaled(
    values: NDArray[Any], made: Conversion, scales: NDArray[Any], zeros: NDArray[Any] | None
) -> Any:
    if made.step == "dequantize":
        if made.zeros == "offset":
            return values * scales + zeros
        return (values if zeros is None else values - zeros) * scales
    values = values / scales
    if zeros is not None and made.zeros == "float":
        values = values + zeros
    if made.target.kind in ("int", "uint"):
        values = np.rint(values)
    return values + zeros if zeros is not None and made.zeros == "integer" else values


def decoded(codes: NDArray[Any], number: Number) -> Any:
    """The values of float codes: float32 or float64, whichever keeps every bit."""
    if number.bits >= 32:
        return codes.view(f"f{number.nbytes}")
    if number.exponent == 8 and number.special == "ieee":
        return (codes.astype(np.uint32) << np.uint32(23 - number.mantissa)).view(np.float32)
    return _values(number)[codes]


def bits_of(number: Number) -> tuple[int, ...]:
    """The float32 of every code of 16 bits or fewer, as bits."""
    return tuple(_values(number).astype(np.float32).view(np.uint32).tolist())


@cache
def _values(number: Number) -> Any:
    """The value of every code of 16 bits or fewer."""
    codes = np.arange(1 << number.bits)
    if number.kind in ("int", "uint"):
        return np.where(codes > number.range[1], codes - (1 << number.bits), codes)
    if number.kind == "table":
        return np.array(number.table, np.float32).astype(np.float64)
    top = number.exponent + number.mantissa
    magnitude = codes & ((1 << top) - 1)
    exponent, rest = magnitude >> number.mantissa, magnitude & ((1 << number.mantissa) - 1)
    if number.special == "unsigned":
        return np.where(codes == 255, np.nan, np.ldexp(1.0, codes - number.bias))
    whole = np.where(exponent > 0, rest + (1 << number.mantissa), rest)
    values = np.ldexp(whole, np.maximum(exponent, 1) - number.bias - number.mantissa)
    if number.special == "ieee":
        values[magnitude == number.infinity] = np.inf
    values[magnitude > number.largest + (number.special == "ieee")] = np.nan
    values = np.where(codes >> top != 0, -values, values)
    if number.special == "fnuz":
        values[1 << top] = np.copysign(np.nan, -1)  # as in ml_dtypes
    return values


def encoded(values: NDArray[Any], made: Conversion) -> Any:
    """The codes of float32 or float64 values, rounded once."""
    number = made.target
    if number.kind == "bool":
        return values != 0
    if number.kind in ("int", "uint"):
        low, high = number.range
        # No float is beyond the ends that lies between them and the next power of two.
        exact = [
            high if v >= high + 1 else low if v <= low else 0 if v != v else int(v)
            for v in values.tolist()
        ]
        return np.array([v & ((1 << 8 * number.nbytes) - 1) for v in exact], np.uint64) & np.uint64(
            (1 << number.bits) - 1
        )
    if number.bits >= 32:
        return values.astype(f"f{number.nbytes}").view(f"u{number.nbytes}")
    exact64 = values.astype(np.float64)
    if number.special == "unsigned":
        return _powers(exact64, made)
    return _rounded(exact64, np.signbit(values), made)


def _rounded(values: Values, negative: NDArray[np.bool_], made: Conversion) -> Any:
    number = made.target
    size = np.abs(values)
    top = number.exponent + number.mantissa
    finite = np.where(np.isfinite(size), size, 0.0)
    _, exponent = np.frexp(finite)
    # The distance between neighbours is 2**unit.
    unit = np.maximum(exponent - 1, 1 - number.bias) - number.mantissa
    whole = np.rint(np.ldexp(finite, -unit))
    carried = whole >= 1 << (number.mantissa + 1)
    whole, unit = np.where(carried, whole / 2, whole), unit + carried
    normal = whole >= 1 << number.mantissa
    field = np.where(normal, unit + number.mantissa + number.bias, 0)
    codes = (field.astype(np.int64) << number.mantissa) + np.where(
        normal, whole - (1 << number.mantissa), whole
    ).astype(np.int64)
    too_large = (codes > number.largest) | np.isinf(size)
    codes = np.where(too_large, number.beyond(made.saturate), codes)
    sign = negative.astype(np.int64) << top
    nan = np.isnan(values)
    if number.special == "finite":
        return np.where(nan, sign ^ (1 << top), codes | sign)
    if number.special == "fnuz":
        signed = np.where((codes == 0) | (codes == number.nan), codes, codes | sign)
        return np.where(nan, number.nan, signed)
    return np.where(nan, number.nan, codes) | sign


def _powers(values: Values, made: Conversion) -> Any:
    with np.errstate(all="ignore"):
        single = values.astype(np.float32)
        # Rounded to odd, as a later rounding is the only one.
        away = np.abs(single.astype(np.float64)) > np.abs(values)
        bits = single.view(np.uint32).astype(np.int64) - away
        bits |= (single.astype(np.float64) != values) & ~np.isnan(values)
    bits = np.where(values == 0, 0, bits)
    if made.round_mode == "nearest":
        codes = (bits + (1 << 22) - 1 + (bits >= 1 << 23)) >> 23
    elif made.round_mode == "up":
        codes = np.where(bits <= 1 << 22, 0, (bits + (1 << 23) - 1) >> 23)
    else:
        codes = bits >> 23
    if made.saturate:
        lost = ~(values >= 0)
        return np.where(lost, 255, np.minimum(codes, 254))
    inside = (values >= 2.0**-127) & (values < 2.0**128)
    return np.where(inside, codes, 255)
