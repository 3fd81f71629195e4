"""Number and Conversion: how numbers are represented in bits, and what a conversion does.

Importing this module does not import numba.
"""

from __future__ import annotations

from typing import NamedTuple


class Number(NamedTuple):
    """A representation of numbers.

    `kind` is "bool", "int" (two's complement), "uint", "float" or "table". A float has a sign
    (unless `special` is "unsigned"), `exponent` and `mantissa` bits and a `bias`. `special` is
    "ieee" (infinities and NaNs), "fn" (one NaN, all bits set), "fnuz" (one NaN, the code that would
    be a negative zero), "finite" (nothing) or "unsigned" (powers of two; NaN is all bits set). The
    values of a "table" are listed.
    """

    kind: str
    bits: int
    exponent: int = 0
    mantissa: int = 0
    bias: int = 0
    special: str = ""
    table: tuple[float, ...] = ()

    @property
    def nbytes(self) -> int:
        """Bytes that hold a code."""
        return max(1, self.bits // 8)

    @property
    def range(self) -> tuple[int, int]:
        """The smallest and the largest value of an integer."""
        if self.kind == "int":
            return -(1 << (self.bits - 1)), (1 << (self.bits - 1)) - 1
        return 0, (1 << self.bits) - 1

    @property
    def infinity(self) -> int:
        """The code of infinity ("ieee")."""
        return ((1 << self.exponent) - 1) << self.mantissa

    @property
    def largest(self) -> int:
        """The code of the largest finite value."""
        every = (1 << (self.exponent + self.mantissa)) - 1
        if self.special == "ieee":
            return self.infinity - 1
        return every - 1 if self.special in ("fn", "unsigned") else every

    @property
    def nan(self) -> int:
        """The code of NaN, without a sign."""
        if self.special == "ieee":
            return self.infinity | 1 << (self.mantissa - 1)
        if self.special == "fnuz":
            return 1 << (self.exponent + self.mantissa)
        return (1 << (self.exponent + self.mantissa)) - 1

    def beyond(self, saturate: bool) -> int:
        """The code, without a sign, of numbers that are too large."""
        if self.special == "finite" or (saturate and self.bits <= 8):
            return self.largest
        return self.infinity if self.special == "ieee" else self.nan


class Conversion(NamedTuple):
    """The conversion of a run of elements.

    `source` and `target` are the representations; `arithmetic` the bits (32 or 64) of
    the floats between them, 0 where integers stay integers. `step` is "cast",
    "dequantize" or "quantize"; `scales` is "" (none), "blocks" (one for each block of elements) or
    "each" (one per element). `zeros` is "" (none),
    "integer" or "float", or "offset": numbers that "dequantize" adds to the product
    instead of taking them away from the codes; or "positive": negative zeros become positive.
    `bias` is added to integers, modulo the range of the target's codes if they stay integers, else
    of their own.
    """

    source: Number
    target: Number
    arithmetic: int
    step: str = "cast"
    scales: str = ""
    zeros: str = ""
    saturate: bool = True
    round_mode: str = "nearest"
    bias: int = 0

    @property
    def operands(self) -> int:
        """How many arrays of scales and zero points there are."""
        return bool(self.scales) + (self.zeros not in ("", "positive"))

    @property
    def exact(self) -> bool:
        """Whether the target, a float with the exponent range of float32, has every value."""
        source, most = self.source, self.target.mantissa
        if self.step != "cast":
            return False
        if source.kind == "float":
            return source.exponent <= 8 and source.mantissa <= most
        return source.kind in ("int", "uint", "bool") and source.bits <= most + 1
