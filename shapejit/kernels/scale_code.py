"""The rules of `quantization.rules` on vectors: what scales are, and codes of scaled numbers.

Each does the steps of the rule whose name it has, in float32 and in the same order.
"""

from __future__ import annotations

from math import frexp
from typing import Any

from .encodings import FLOAT32, Encoding
from .number_vectors import Vector
from .numbers import Conversion

_MIDDLES = (0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0)  # between the numbers of float4_e2m1fn
_ONE = 1.0


class Scaling(Vector):
    """Steps of rules on vectors of blocks, and of elements."""

    def scales(self, what: Encoding, most: Any, factor: Any) -> tuple[Any, Any, Any]:
        """Stored scales, what elements are scaled by, and which blocks NumPy has to encode.

        `most` are the blocks' numbers of largest magnitude, `factor` is that of all.
        """
        made: tuple[Any, Any, Any] = getattr(self, f"_{what.rule.name}")(what, most, factor)
        return made

    def coded(self, what: Encoding, x: Any, by: Any) -> Any:
        """The codes of numbers, a byte each."""
        builder, name, target = self.builder, what.rule.name, what.target
        bits = target.bits
        if name in ("widest", "magnitude", "most_or_zero", "power", "lower_power"):
            value = builder.fmul(x, by)
        else:
            value = builder.fdiv(x, by)
        if name in ("two_levels", "two_inverses"):
            value = self._where(self._is(by, 0), self.real(0, 32), value)
        elif name == "range":
            half = self.real((what.rule.top + 1) / 2, 32)
            value = builder.fadd(self.called("rint", value), half)
        elif name == "widest":
            value = builder.fadd(value, self.real(what.rule.top + 0.5, 32))
        elif name == "magnitude":
            value = builder.fadd(self._away(value), self.real(128, 32))
        if name == "lower_power":
            codes = self._lower(value)
        else:
            codes = self.encoded(value, Conversion(FLOAT32, target, 32, "quantize"), None)
        if name == "most_or_zero" and bits == 4:
            codes = self._where(self._same(codes, 8, 8), self.whole(0, 8), codes)
        if what.bias:
            codes = builder.add(codes, self.whole(what.bias, 8))
            codes = builder.and_(codes, self.whole((1 << bits) - 1, 8))
        return codes

    def is_infinite(self, x: Any) -> Any:
        """Which numbers are infinite, or NaN."""
        return self.builder.fcmp_unordered(
            ">=", self.called("fabs", x), self.real(float("inf"), 32)
        )

    # Rules

    def _most(self, what: Encoding, most: Any, factor: Any) -> tuple[Any, Any, Any]:
        scale = self.builder.fdiv(most, self.real(what.rule.top, 32))
        return self._divided(what, self._instead(scale, _ONE))

    def _range(self, what: Encoding, most: Any, factor: Any) -> tuple[Any, Any, Any]:
        scale = self.builder.fdiv(most, self.real(what.rule.top / 2, 32))
        return self._divided(what, self._instead(scale, what.rule.more))

    def _divided(self, what: Encoding, scale: Any) -> tuple[Any, Any, Any]:
        """Scales as they are stored, by which elements are divided."""
        stored = self._rounded_to(what, scale)
        by = self._read(what, stored)
        return stored, by, self._is(by, 0)

    def _power(self, what: Encoding, most: Any, factor: Any) -> tuple[Any, Any, Any]:
        """The inverse of a power of two is exact: a product has the bits of the quotient."""
        builder, one = self.builder, 1 << 23
        bits = builder.bitcast(most, self.ints(32))
        up = one - int((2 * what.rule.more - 1) * one)
        exponent = builder.lshr(builder.add(bits, self.whole(up, 32)), self.whole(23, 32))
        _, largest = frexp(what.rule.top)
        made = builder.sub(exponent, self.whole(largest - 1, 32))
        made = self._where(
            builder.icmp_signed("<", made, self.whole(0, 32)), self.whole(0, 32), made
        )
        over = builder.icmp_signed(">", made, self.whole(254, 32))
        made = self._where(over, self.whole(254, 32), made)
        inverse = builder.shl(builder.sub(self.whole(254, 32), made), self.whole(23, 32))
        least = self.whole(1 << 22, 32)
        inverse = self._where(self._same(made, 254, 32), least, inverse)
        by = builder.bitcast(inverse, self.floats(32))
        return self.narrowed(made, 8), by, self._never()

    _lower_power = _power

    def _two_levels(self, what: Encoding, most: Any, factor: Any) -> tuple[Any, Any, Any]:
        builder = self.builder
        scale = builder.fdiv(most, builder.fmul(self.real(6, 32), factor))
        stored = self._rounded_to(what, scale)
        found = self._read(what, stored)
        if what.rule.more:  # is stored for blocks of zeros
            other = self._rounded_to(what, self.real(what.rule.more, 32))
            stored = self._where(self._is(found, 0), other, stored)
        return stored, builder.fmul(found, factor), self._never()

    def _two_inverses(self, what: Encoding, most: Any, factor: Any) -> tuple[Any, Any, Any]:
        builder = self.builder
        scale = builder.fmul(factor, builder.fdiv(most, self.real(6, 32)))
        scale = self._instead(self._read(what, self._rounded_to(what, scale)), what.rule.more)
        return self._rounded_to(what, scale), builder.fdiv(scale, factor), self._never()

    def _most_or_zero(self, what: Encoding, most: Any, factor: Any) -> tuple[Any, Any, Any]:
        stored = self._rounded_to(what, self.builder.fdiv(most, self.real(what.rule.top, 32)))
        return stored, self._inverse(self._read(what, stored)), self._never()

    def _widest(self, what: Encoding, most: Any, factor: Any) -> tuple[Any, Any, Any]:
        return self._multiplied(what, self.builder.fdiv(most, self.real(-what.rule.top, 32)))

    def _magnitude(self, what: Encoding, most: Any, factor: Any) -> tuple[Any, Any, Any]:
        return self._multiplied(what, self.builder.fdiv(most, self.real(what.rule.top, 32)))

    def _multiplied(self, what: Encoding, scale: Any) -> tuple[Any, Any, Any]:
        """Scales as they are stored; elements are multiplied with what they were before."""
        by = self._inverse(scale)
        return self._rounded_to(what, scale), by, self.is_infinite(by)

    def _largest(self, what: Encoding, most: Any, factor: Any) -> tuple[Any, Any, Any]:
        return self._rounded_to(what, most), most, self._never()

    # Steps

    def _where(self, flag: Any, a: Any, b: Any) -> Any:
        return self.builder.select(flag, a, b)

    def _is(self, x: Any, value: float) -> Any:
        return self.builder.fcmp_ordered("==", x, self.real(value, 32))

    def _same(self, codes: Any, code: int, bits: int) -> Any:
        return self.builder.icmp_unsigned("==", codes, self.whole(code, bits))

    def _never(self) -> Any:
        return self.whole(0, 1)

    def _instead(self, x: Any, other: float) -> Any:
        """Numbers, and another one instead of 0."""
        return self._where(self._is(x, 0), self.real(other, 32), x)

    def _inverse(self, x: Any) -> Any:
        """1 / x, 0 for 0."""
        zero, one = self.real(0, 32), self.real(1, 32)
        return self._where(self._is(x, 0), zero, self.builder.fdiv(one, self._instead(x, _ONE)))

    def _rounded_to(self, what: Encoding, scale: Any) -> Any:
        return self.encoded(scale, Conversion(FLOAT32, what.scale, 32, "quantize"), None)

    def _read(self, what: Encoding, stored: Any) -> Any:
        return self.decoded(stored, Conversion(what.scale, FLOAT32, 32))

    def _away(self, x: Any) -> Any:
        """The nearest integers, halves away from zero."""
        builder, size = self.builder, self.called("fabs", x)
        whole = self.called("floor", size)
        rest = builder.fcmp_ordered(">=", builder.fsub(size, whole), self.real(0.5, 32))
        whole = builder.fadd(whole, builder.uitofp(rest, self.floats(32)))
        minus = builder.fcmp_ordered("<", x, self.real(0, 32))
        return self._where(minus, builder.fsub(self.real(0, 32), whole), whole)

    def _lower(self, x: Any) -> Any:
        """Codes of float4_e2m1fn, halves towards zero; no zero is negative."""
        builder, size, codes = self.builder, self.called("fabs", x), self.whole(0, 8)
        for middle in _MIDDLES:
            above = builder.fcmp_ordered(">", size, self.real(middle, 32))
            codes = builder.add(codes, builder.zext(above, self.ints(8)))
        minus = builder.fcmp_ordered("<", x, self.real(0, 32))
        minus = builder.and_(minus, builder.icmp_unsigned("!=", codes, self.whole(0, 8)))
        return self._where(minus, builder.or_(codes, self.whole(8, 8)), codes)
