"""The scales of blocks by the rules of `quantization.rules`, several blocks in a vector.

Each does the steps of the rule whose name it has, in float32 and in the same order.
"""

from __future__ import annotations

from math import frexp
from typing import Any

from .encodings import FLOAT32, LARGEST, SAFE, Encoding
from .nearest_code import MULTIPLIES
from .number_vectors import Vector
from .numbers import Conversion

_ONE = 1.0


class Scaling(Vector):
    """Steps of rules on vectors of blocks."""

    def scales(self, what: Encoding, most: Any, factor: Any) -> tuple[Any, Any, Any]:
        """Stored scales, what elements are scaled by, and which blocks NumPy has to encode.

        `most` are the blocks' numbers of largest magnitude, `factor` is that of all.
        """
        stored, by, rare = getattr(self, f"_{what.rule.name}")(what, most, factor)
        rare = self.builder.or_(rare, self.is_infinite(most))
        if what.rule.name not in (*MULTIPLIES, LARGEST):
            rare = self.builder.or_(rare, self.is_unsafe(by))
        return stored, by, rare

    def is_unsafe(self, by: Any) -> Any:
        """Which scales are not fit to divide by; codes of all that is divided by 0 are 0."""
        builder, (least, most) = self.builder, (self.real(each, 32) for each in SAFE)
        inside = builder.fcmp_ordered(">=", by, least)
        inside = builder.and_(inside, builder.fcmp_ordered("<=", by, most))
        return builder.not_(builder.or_(inside, self._is(by, 0)))

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
