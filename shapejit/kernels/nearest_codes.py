"""The codes nearest to numbers divided or multiplied by the scale of their block."""

from __future__ import annotations

import numpy as np

from . import numerics
from .encodings import Encoding
from .numerics import Values

MULTIPLIES = ("widest", "magnitude", "most_or_zero", "power", "lower_power")
_BELOW_HALF = 0x3EFFFFFF  # the bits of what, added to what is cut, rounds halves away from zero


def coded(what: Encoding, x: Values, by: Values) -> Values:
    """The codes of finite numbers of blocks with scales `by`, in the low bits of 32."""
    name = what.rule.name
    value = x * by if name in MULTIPLIES else x / by
    codes = (_float if what.target.kind == "float" else _int)(value, what)
    if name in ("two_levels", "two_inverses"):
        codes = np.where(by == 0, 0, codes)
    return codes + what.bias if what.bias else codes


def _float(value: Values, what: Encoding) -> Values:
    """Codes of floats; a cast, which handles NaN, takes a third longer."""
    number, bits = what.target, value.view("i4")
    codes = numerics.nearest(bits & numerics.MAGNITUDE, number, number.largest)
    if what.rule.name in ("most_or_zero", "lower_power") and number.bits == 4:
        return np.where(codes & 7 == 0, codes, numerics.signed(codes, bits, number))  # no -0
    return numerics.signed(codes, bits, number)


def _int(value: Values, what: Encoding) -> Values:
    """Codes of integers whose range is centred like that of the numbers."""
    name, half = what.rule.name, 1 << what.target.bits - 1
    if name == "widest":
        return np.minimum((value + (half + 0.5)).astype("i4"), 2 * half - 1)
    if name == "magnitude":
        signed_half = value.view("u4") & 1 << 31 | _BELOW_HALF
        return (value + signed_half.view("f4")).astype("i4") + half
    return np.clip(np.rint(value).astype("i4") + half, 0, 2 * half - 1)
