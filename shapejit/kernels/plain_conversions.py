"""Conversions by NumPy: for the JIT switched off, and until there are kernels.

Codes of 16 bits and fewer are looked up in tables of all of them, where there are more to convert.
Values are rounded once, by hand where NumPy would do it twice. Importing this module does not
import numba.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .numbers import Conversion, Number

Values = NDArray[np.float64]

tables = lru_cache(maxsize=32)  # of up to 256 KiB each


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
            into = _at(target + k * size * made.target.nbytes, size, made.target.nbytes)
            into[:] = converted(codes, made, scales, zeros, shift)

    return run


def _at(address: int, count: int, nbytes: int) -> Any:
    memory = (ctypes.c_uint8 * (count * nbytes)).from_address(address)
    codes: NDArray[Any] = np.ctypeslib.as_array(memory).view(f"u{nbytes}")
    return codes


def _floats(address: int, count: int, bits: int) -> Any:
    return _at(address, count, bits // 8).view(f"f{bits // 8}")


def converted(
    codes: NDArray[Any],
    made: Conversion,
    scales: NDArray[Any] | None = None,
    zeros: NDArray[Any] | None = None,
    shift: int = 0,
) -> Any:
    """The codes that become of others, in an array of any shape, as ints of any width.

    Scales and zero points are floats of the conversion's arithmetic, one for each code.
    """
    source = made.source
    if source.bits < 8:
        codes = (codes >> shift) & ((1 << source.bits) - 1)
    # A step of NumPy's takes a quarter of the time of looking a number up.
    steps = made.target.bits >= 32 and (source.kind != "float" or _is_shifted(source))
    with np.errstate(all="ignore"):
        if scales is None and made.arithmetic and not steps and _many(codes, source.bits):
            return _every(made).take(codes)
        return _converted(codes, made, scales, zeros)


def _many(codes: NDArray[Any], bits: int) -> bool:
    """Whether a table of all codes of so many bits is worth its time, once in a process."""
    return bits <= 16 and 16 * codes.size >= 1 << bits


@tables
def _every(made: Conversion) -> Any:
    """What becomes of each code of 16 bits or fewer."""
    codes = np.arange(1 << made.source.bits, dtype=f"u{made.source.nbytes}")
    return _converted(codes, made, None, None).astype(f"u{made.target.nbytes}")


def _converted(
    codes: NDArray[Any],
    made: Conversion,
    scales: NDArray[Any] | None,
    zeros: NDArray[Any] | None,
) -> Any:
    source, target = made.source, made.target
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
        if made.bias:
            kept = kept + kept.dtype.type(made.bias)
        return kept if target.bits >= 8 else kept & kept.dtype.type((1 << target.bits) - 1)
    floats = np.dtype(f"f{made.arithmetic // 8}")
    if scales is not None:
        return encoded(_scaled(values.astype(floats, copy=False), made, scales, zeros), made)
    if integers and source.bits == 64 and target.kind == "float" and target.bits < 64:
        values = values.astype(np.float32) if target.bits == 32 else _to_odd(values)
    return encoded(values.astype(floats, copy=False), made)


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
    if _is_shifted(number):
        bits = codes.astype(np.uint32)
        bits <<= np.uint32(23 - number.mantissa)
        return bits.view(np.float32)
    return _singles(number).take(codes)


def _is_shifted(number: Number) -> bool:
    """Whether a float is the upper bits of a float32."""
    return number.exponent == 8 and number.special == "ieee"


@tables
def _singles(number: Number) -> Any:
    """The float32 of every code of 16 bits or fewer, which is its value."""
    return _values(number).astype(np.float32)


def bits_of(number: Number) -> tuple[int, ...]:
    """The float32 of every code of 16 bits or fewer, as bits."""
    return tuple(_singles(number).view(np.uint32).tolist())


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
        return _integers(values, number)
    if number.bits >= 32:
        return values.astype(f"f{number.nbytes}", copy=False).view(f"u{number.nbytes}")
    if values.itemsize == 8 and number.special == "unsigned":
        return _powers(values, made)
    if values.itemsize == 8 and (number.bits, number.exponent) != (16, 5):
        values = _to_odd_singles(values).view(np.float32)
    if number.bits == 16:
        if number.exponent == 5:
            codes = values.astype(np.float16).view(np.uint16)
        else:
            bits = values.view(np.uint32)
            codes = bits + np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1))
            codes >>= np.uint32(16)
        nans = np.isnan(values)
        if nans.any():
            codes = np.where(nans, number.nan | np.signbit(values) * 0x8000, codes)
        return codes
    if _many(values, 16):
        # Rounded to odd in 16 bits, as a later rounding is the only one.
        bits = values.view(np.uint32)
        odd = (bits >> np.uint32(16)).astype(np.uint16)
        odd |= (bits & np.uint32(0xFFFF)) != 0
        return _every_upper_half(number, made.saturate, made.round_mode).take(odd)
    return _rounded(values, made)


@tables
def _every_upper_half(number: Number, saturate: bool, round_mode: str) -> Any:
    """The codes of all float32 whose lower 16 bits are zero."""
    values = (np.arange(1 << 16, dtype=np.uint32) << np.uint32(16)).view(np.float32)
    made = Conversion(number, number, 32, saturate=saturate, round_mode=round_mode)
    return _rounded(values, made).astype(np.uint8)


def _integers(values: NDArray[Any], number: Number) -> Any:
    """Values cut to integers; what is beyond the ends becomes the nearest of them, NaN 0."""
    low, high = number.range
    if number.bits <= 16:  # floats have both ends
        cut = np.clip(values, low, high)
        nans = np.isnan(values)
        codes = (np.where(nans, 0, cut) if nans.any() else cut).astype(np.int32)
        return codes & ((1 << number.bits) - 1) if number.bits < 8 else codes
    kind = np.int64 if number.kind == "int" else np.uint64
    # No float is beyond the ends that lies between them and the next power of two.
    above, inside = values >= high + 1, (values >= low) & (values < high + 1)
    if inside.all():
        return values.astype(kind)
    codes = np.where(inside, values, 0).astype(kind)
    codes[above], codes[values < low] = high, low
    return codes


def _rounded(given: NDArray[Any], made: Conversion) -> Any:
    number, values = made.target, given.astype(np.float64)
    if number.special == "unsigned":
        return _powers(values, made)
    negative, size = np.signbit(given), np.abs(values)
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


def _to_odd_singles(values: Values) -> Any:
    """The bits of float32; what is none is rounded to odd: a later rounding is the only one."""
    single = values.astype(np.float32)
    back = single.astype(np.float64)
    away = np.abs(back) > np.abs(values)
    bits = single.view(np.uint32) - away
    bits |= (back != values) & ~np.isnan(values)
    return bits


def _powers(values: Values, made: Conversion) -> Any:
    bits = _to_odd_singles(values).astype(np.int64)
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
