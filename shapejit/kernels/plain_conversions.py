"""Conversions by NumPy, until kernels are ready.

Floats of 16 bits or fewer are looked up in tables of all of them; everything else is `numerics`.
Importing this module does not import numba.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import numerics
from .numbers import Conversion, Number

tables = lru_cache(maxsize=32)  # of up to 256 KiB each


def converted(
    codes: NDArray[Any],
    made: Conversion,
    scales: NDArray[Any] | None = None,
    zeros: NDArray[Any] | None = None,
) -> Any:
    """Convert codes, in an array of any shape, of ints of any width.

    Scales and zero points are floats of the conversion's arithmetic, one per code.
    """
    bits = made.source.bits
    if bits < 8:
        codes = codes & ((1 << bits) - 1)
    with np.errstate(all="ignore"):
        if not made.arithmetic:
            return numerics.resized(codes, made)
        values = numerics.decoded(codes, made, _read)
        if scales is not None:
            values = numerics.scaled(values, made, scales, zeros)
        return numerics.encoded(values, made, _narrow)


def _read(codes: NDArray[Any], number: Number) -> Any:
    """The float32 values of codes of 16 bits or fewer."""
    if number.kind == "float" and numerics.is_shifted(number):
        return numerics.float_of(codes, number)
    return _singles(number).take(codes)


@tables
def _singles(number: Number) -> Any:
    """A table of the float32 values of all codes of 16 bits or fewer."""
    if number.kind == "table":
        return np.array(number.table, np.float32)
    if number.kind == "float":
        return numerics.float_of(_codes(number), number)
    return numerics.decoded(_codes(number), Conversion(number, number, 32), _read)


def _codes(number: Number) -> NDArray[Any]:
    """All codes of 16 bits or fewer."""
    return np.arange(1 << number.bits, dtype=f"u{number.nbytes}")


def bits_of(number: Number) -> tuple[int, ...]:
    """A table of the float32 values of all codes of 16 bits or fewer, as bits."""
    return tuple(_singles(number).view(np.uint32).tolist())


def _narrow(values: NDArray[Any], made: Conversion) -> Any:
    """The codes of floats of 16 bits or fewer."""
    number = made.target
    if (number.bits, number.exponent) == (16, 5):  # NumPy rounds float64 once
        return numerics.half(values, made)
    if number.special == "unsigned" and values.itemsize == 8:
        return numerics.powers(values, made)
    values = numerics.single(values)
    if number.bits == 16:
        return numerics.cut(values, made)
    if 16 * values.size < 1 << 16:  # too few for a table
        return _rounded(values, made)
    # Rounded to odd in 16 bits, as a later rounding is the only one.
    bits = values.view(np.uint32)
    odd = (bits >> np.uint32(16)).astype(np.uint16)
    odd |= (bits & np.uint32(0xFFFF)) != 0
    return _every_upper_half(number, made.saturate, made.round_mode).take(odd)


@tables
def _every_upper_half(number: Number, saturate: bool, round_mode: str) -> Any:
    """The codes of all float32 whose lower 16 bits are zero."""
    values = (np.arange(1 << 16, dtype=np.uint32) << np.uint32(16)).view(np.float32)
    made = Conversion(number, number, 32, saturate=saturate, round_mode=round_mode)
    return _rounded(values, made).astype(np.uint8)


def _rounded(values: NDArray[Any], made: Conversion) -> Any:
    unsigned = made.target.special == "unsigned"
    return (numerics.powers if unsigned else numerics.rounded)(values, made)
