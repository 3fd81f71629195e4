"""Numbers divided by the scale of their block, or multiplied, become the nearest codes.

The numbers are finite, and their quotients in the range of the codes but for roundings, or cut to
it. That takes half the steps of a cast, which has to know NaN and every range.
"""

from __future__ import annotations

from typing import Any

from .encodings import Encoding
from .memory import ARM64, FEATURES
from .number_vectors import Vector
from .numbers import Number

FUSED = "fma" in FEATURES or ARM64  # whether products are added without being rounded
MULTIPLIES = ("widest", "magnitude", "most_or_zero", "power", "lower_power")
_BELOW_HALF = 0.5 - 2.0**-25  # added to what is cut, it rounds halves away from zero
_BELOW_ONE = 1 - 2.0**-24


class Nearest(Vector):
    """Steps on vectors of elements; codes stand in 32 bits, of which the upper ones are open."""

    def coded(self, what: Encoding, x: Any, signs: Any, by: Any, inverse: Any) -> Any:
        """The codes of numbers of blocks with scales `by`, whose inverses are at hand, too.

        Of floats `x` are the magnitudes, and the first bits of `signs` tell their signs.
        """
        builder, name = self.builder, what.rule.name
        value = builder.fmul(x, by) if name in MULTIPLIES else self._quotient(x, by, inverse)
        if what.target.kind == "float":
            codes = self._float(value, signs, what)
        else:
            codes = self._int(value, what)
        if name in ("two_levels", "two_inverses"):
            none = builder.fcmp_ordered("==", by, self.real(0, 32))
            codes = builder.select(none, self.whole(0, 32), codes)
        return builder.add(codes, self.whole(what.bias, 32)) if what.bias else codes

    def _quotient(self, x: Any, by: Any, inverse: Any) -> Any:
        """x / by, rounded once: the inverse gives a neighbour of it, then Markstein's theorem says
        that one step more is exact.

        That neighbour takes both parts of the inverse; for numbers of 11 bits or fewer the first is
        enough, as all of them by all scales have shown.
        """
        if not FUSED:
            return self.builder.fdiv(x, by)
        first, *rest = inverse
        near = self.builder.fmul(x, first)
        if rest:
            near = self._fused(x, first, self.builder.fmul(x, rest[0]))
        return self._fused(self._left(x, near, by), first, near)

    def inverses(self, by: Any) -> tuple[Any, Any]:
        """1 / by in two parts, the first of which is rounded once."""
        none = self.builder.fcmp_ordered("==", by, self.real(0, 32))
        by = self.builder.select(none, self.real(1, 32), by)
        first = self.builder.fdiv(self.real(1, 32), by)
        return first, self.builder.fmul(self._left(self.real(1, 32), first, by), first)

    def _left(self, x: Any, quotient: Any, by: Any) -> Any:
        """x - quotient * by."""
        return self._fused(self.builder.fneg(quotient), by, x)

    def _fused(self, a: Any, b: Any, c: Any) -> Any:
        """a * b + c, rounded once."""
        name, kind = f"llvm.fma.v{self.lanes}f32", self.floats(32)
        return self.builder.call(self.declared(name, kind, [kind] * 3), [a, b, c])

    # Floats

    def _float(self, size: Any, signs: Any, what: Encoding) -> Any:
        """The code of the nearest number, halves to even, or towards zero by `lower_power`.

        To a magnitude a power of two is added whose last bit is that of the code: the sum is
        rounded there. Its last bits count steps from the power of two on that its first ones tell,
        and from what makes the code of both when they are added.
        """
        builder, number, lower = self.builder, what.target, what.rule.name == "lower_power"
        up, least, top = 23 - number.mantissa, 128 - number.bias, 1 << (number.bits - 1)
        if lower and not FUSED:
            codes = self._lower(size)
        else:
            bits = builder.bitcast(size, self.ints(32))
            if not _fits(what):
                bits = self._least(bits, self.whole(_float_bits(number), 32))
            power = builder.and_(bits, self.whole(0xFF << 23, 32))
            power = self._most(power, self.whole(least << 23, 32))
            begin = -(least + up << number.mantissa) % top
            power, above = (builder.bitcast(x, self.floats(32)) for x in (power, bits))
            # Exact: a power of two times a float.
            times = self.real(2.0**up * (1 + begin * 2.0**-23), 32)
            if lower:
                made = self._fused(above, self.real(_BELOW_ONE, 32), builder.fmul(power, times))
            elif FUSED:
                made = self._fused(power, times, above)
            else:
                made = builder.fadd(above, builder.fmul(power, times))
            made = builder.bitcast(made, self.ints(32))
            codes = builder.add(builder.lshr(made, self.whole(up, 32)), made)
        codes = builder.and_(codes, self.whole(~top, 32))
        sign = builder.lshr(signs, self.whole(32 - number.bits, 32))
        signed = builder.or_(codes, builder.and_(sign, self.whole(top, 32)))
        if lower or (what.rule.name == "most_or_zero" and number.bits == 4):
            some = builder.and_(codes, self.whole(top - 1, 32))
            none = builder.icmp_unsigned("==", some, self.whole(0, 32))
            return builder.select(none, codes, signed)
        return signed

    def _lower(self, size: Any) -> Any:
        """The codes of magnitudes in float4_e2m1fn, halves towards zero, without fused steps."""
        builder, codes = self.builder, self.whole(0, 32)
        for middle in (0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0):
            above = builder.fcmp_ordered(">", size, self.real(middle, 32))
            codes = builder.add(codes, builder.zext(above, self.ints(32)))
        return codes

    # Integers

    def _int(self, value: Any, what: Encoding) -> Any:
        """Codes of integers, whose middle is that of the numbers."""
        builder, name, top = self.builder, what.rule.name, what.rule.top
        most = self.whole((1 << what.target.bits) - 1, 32)
        if name == "widest":
            value = builder.fadd(value, self.real(top + 0.5, 32))
            return self._least(builder.fptosi(value, self.ints(32)), most)
        if name == "magnitude":
            sign = builder.and_(builder.bitcast(value, self.ints(32)), self.whole(1 << 31, 32))
            half = builder.or_(sign, builder.bitcast(self.real(_BELOW_HALF, 32), self.ints(32)))
            value = builder.fadd(value, builder.bitcast(half, self.floats(32)))
            return builder.add(builder.fptosi(value, self.ints(32)), self.whole(128, 32))
        whole = builder.fptosi(self.called("rint", value), self.ints(32))
        whole = builder.add(whole, self.whole(int(top + 1) // 2, 32))
        return self._least(self._most(whole, self.whole(0, 32)), most)

    def _least(self, a: Any, b: Any) -> Any:
        return self.builder.select(self.builder.icmp_signed("<", a, b), a, b)

    def _most(self, a: Any, b: Any) -> Any:
        return self.builder.select(self.builder.icmp_signed(">", a, b), a, b)


def _fits(what: Encoding) -> bool:
    """Whether no magnitude is beyond the largest number by as much as would be rounded up.

    By 7/8 of a power the next one is taken; float16 may have less than three bits for a scale.
    """
    name, rule = what.rule.name, what.rule
    return (name == "power" and rule.more < 1) or (
        name in ("most", "fixed") and what.scale.exponent == 8
    )


def _float_bits(number: Number) -> int:
    """The bits of the float32 that is the largest number of a narrower float."""
    code, mantissa = number.largest, number.mantissa
    return (code + ((127 - number.bias) << mantissa)) << (23 - mantissa)
