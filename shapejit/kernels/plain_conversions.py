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
    codes = numerics.low_bits(codes, made.source.bits)
    with np.errstate(all="ignore"):
        if not made.arithmetic:
            return numerics.resized(codes, made)
        values = numerics.decoded(codes, made, _read)
        if scales is not None:
            values = numerics.scaled(values, made, scales, zeros)
        return numerics.encoded(values, made)


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
