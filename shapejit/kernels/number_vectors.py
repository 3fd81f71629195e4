"""Numbers in vector registers: decoded from their codes, scaled, and encoded again.

Every step is written for any representation (see `numbers`), in the steps of LLVM's builder.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from .memory import FEATURES, VECTOR
from .number_decoding import HALVES, Decoding
from .number_words import WORD
from .numbers import Conversion, Number

# Two vectors of float32 are rounded to one of bfloat16 by an instruction.
BRAIN = VECTOR == 64 and "avx512bf16" in FEATURES
PAIR = 32  # elements of the two


class Vector(Decoding):
    """Steps of a conversion on vectors of so many elements."""

    def scaled(self, value: Any, made: Conversion, scale: Any, zero: Any) -> Any:
        """The scaled values; see `Conversion`."""
        builder = self.builder
        if made.step == "dequantize":
            if made.zeros == "offset":
                return builder.fadd(builder.fmul(value, scale), zero)
            if zero is not None:
                value = builder.fsub(value, zero)
            return builder.fmul(value, scale)
        value = builder.fdiv(value, scale)
        if zero is not None and made.zeros == "float":
            value = builder.fadd(value, zero)
        if made.target.kind in ("int", "uint"):
            value = self.called("rint", value)
        if zero is not None and made.zeros == "integer":
            value = builder.fadd(value, zero)
        return value

    def encoded(self, value: Any, made: Conversion, codes: Any) -> Any:
        """The codes of values, which had other `codes` before."""
        builder, number = self.builder, made.target
        if number.kind == "bool":
            nonzero = builder.fcmp_unordered("!=", value, self.real(0.0, made.arithmetic))
            return builder.zext(nonzero, self.ints(8))
        if number.kind in ("int", "uint"):
            if made.arithmetic == 32 and self.narrows(number):
                words = self._words(builder.bitcast(value, self.ints(32)), made, codes)
                return self.whole_words(*words, number)
            return self._clamped(value, made.arithmetic, number)
        if number.bits == 64:
            if made.arithmetic == 32:
                value = builder.fpext(value, self.floats(64))
            return builder.bitcast(value, self.ints(64))
        given = value
        if made.arithmetic == 64:
            if number.bits == 32:
                value = builder.fptrunc(value, self.floats(32))
            else:
                value = self._to_odd_24(value)
        bits = builder.bitcast(value, self.ints(32))
        if number.bits == 32:
            return bits
        if number.special == "unsigned":
            codes = self._power_of_two(given, bits, made)
        elif self.narrows(number):
            _, words = self._words(bits, made, codes)
            nearest = self.nearest_words(words, number)
            codes = self._finished(nearest, self.lost(words), words, made)
        elif number.exponent == 8:
            codes = self._cut(value, bits, made)
        elif HALVES and number.bits == 16:
            half = builder.fptrunc(builder.bitcast(bits, self.floats(32)), self.of(ir.HalfType()))
            codes = builder.bitcast(half, self.ints(16))
            sign = builder.and_(codes, self.whole(1 << 15, 16))
            lost = builder.fcmp_unordered("uno", value, value)
            codes = builder.select(lost, builder.or_(sign, self.whole(number.nan, 16)), codes)
        else:
            codes = self._rounded(value, bits, made)
        return self.narrowed(codes, 8 * number.nbytes)

    def _words(self, bits: Any, made: Conversion, codes: Any) -> tuple[Any, Any]:
        """The words of float32 values, cut and rounded to odd: their codes if these are words."""
        if made.source[:4] == WORD and made.step == "cast":
            return codes, codes
        return self.cut_words(bits)

    def _to_odd_24(self, value: Any) -> Any:
        """float64 as float32, rounded to odd: a later rounding is the only one."""
        builder = self.builder
        near = builder.fptrunc(value, self.floats(32))
        back = builder.fpext(near, self.floats(64))
        inexact = builder.fcmp_ordered("!=", back, value)
        away = builder.fcmp_ordered(">", self.called("fabs", back), self.called("fabs", value))
        bits = builder.bitcast(near, self.ints(32))
        bits = builder.sub(bits, builder.zext(away, self.ints(32)))
        bits = builder.or_(bits, builder.zext(inexact, self.ints(32)))
        return builder.bitcast(bits, self.floats(32))

    def _clamped(self, value: Any, bits: int, number: Number) -> Any:
        """Integers: the whole part, the nearest end of the range beyond it, 0 for NaN."""
        builder, signed = self.builder, number.kind == "int"
        low, high = number.range
        above, below = float(high + 1), float(low)
        wide = max(32, 8 * number.nbytes)
        over = builder.fcmp_ordered(">=", value, self.real(above, bits))
        under = builder.fcmp_ordered("<=", value, self.real(below, bits))
        inside = builder.fcmp_ordered("<", self.called("fabs", value), self.real(above, bits))
        kept = builder.select(inside, value, self.real(0.0, bits))
        narrow = signed or number.bits < 32
        made = (builder.fptosi if narrow else builder.fptoui)(
            kept if narrow else builder.select(under, self.real(0.0, bits), kept), self.ints(wide)
        )
        made = builder.select(over, self.whole(high, wide), made)
        made = builder.select(under, self.whole(low, wide), made)
        made = self.narrowed(made, 8 * number.nbytes)
        if number.bits < 8:
            made = builder.and_(made, self.whole((1 << number.bits) - 1, 8))
        return made

    def _cut(self, value: Any, bits: Any, made: Conversion) -> Any:
        """Codes of floats with the exponent of float32: rounded, if `made` is not exact."""
        number = made.target
        if not made.exact and BRAIN and number.bits == 16 and self.lanes % PAIR == 0:
            return self._brain(value, bits, made)
        return self._cut_by_steps(value, bits, made)

    def _brain(self, value: Any, bits: Any, made: Conversion) -> Any:
        """The codes of bfloat16 by the instruction, which knows no subnormal numbers or payloads.

        A vector with such a number, or a NaN, goes the long way.
        """
        builder = self.builder
        unusual = self.any_unusual(value)
        with builder.if_else(unusual) as (some, none):
            with some:
                by_steps = self.narrowed(self._cut_by_steps(value, bits, made), 16)
                after_steps = builder.block
            with none:
                at_once = self.brain_codes(value)
                after_instruction = builder.block
        codes = builder.phi(self.ints(16))
        codes.add_incoming(by_steps, after_steps)
        codes.add_incoming(at_once, after_instruction)
        return codes

    def _cut_by_steps(self, value: Any, bits: Any, made: Conversion) -> Any:
        """`_cut` by instructions that every processor has."""
        builder, number = self.builder, made.target
        down = self.whole(23 - number.mantissa, 32)
        codes = builder.lshr(bits, down)
        if made.exact:
            return codes
        half = self.whole((1 << (22 - number.mantissa)) - 1, 32)
        odd = builder.and_(codes, self.whole(1, 32))
        rounded = builder.lshr(builder.add(builder.add(bits, half), odd), down)
        lost = builder.fcmp_unordered("uno", value, value)
        sign = builder.and_(codes, self.whole(1 << (number.bits - 1), 32))
        return builder.select(lost, builder.or_(sign, self.whole(number.nan, 32)), rounded)

    def _rounded(self, value: Any, bits: Any, made: Conversion) -> Any:
        """Codes of floats narrower than 32 bits, rounded to the nearest, ties to even."""
        builder, number = self.builder, made.target
        mantissa, bias = number.mantissa, number.bias
        cut = 23 - mantissa
        magnitude = builder.and_(bits, self.whole(0x7FFFFFFF, 32))
        odd = builder.and_(builder.lshr(magnitude, self.whole(cut, 32)), self.whole(1, 32))
        half = builder.add(odd, self.whole((1 << (cut - 1)) - 1, 32))
        codes = builder.lshr(builder.add(magnitude, half), self.whole(cut, 32))
        lost = builder.icmp_signed(">", magnitude, self.whole(0x7F800000, 32))
        codes = builder.sub(codes, self.whole((127 - bias) << mantissa, 32))
        # Adding a number whose last bit is the smallest subnormal number rounds to it.
        magic = 2.0 ** (1 - bias - mantissa + 23)
        least = builder.fadd(builder.bitcast(magnitude, self.floats(32)), self.real(magic, 32))
        bottom = self.whole((151 - bias - mantissa) << 23, 32)
        least = builder.sub(builder.bitcast(least, self.ints(32)), bottom)
        small = builder.icmp_signed("<", magnitude, self.whole((128 - bias) << 23, 32))
        codes = builder.select(small, least, codes)
        return self._finished(codes, lost, bits, made)

    def _finished(self, codes: Any, lost: Any, signs: Any, made: Conversion) -> Any:
        """Rounded codes with what is too large, NaN, and signs: the top bits of `signs`."""
        builder, number, bits = self.builder, made.target, codes.type.element.width
        most = number.infinity if number.special == "ieee" else number.largest + 1
        over = builder.icmp_signed(">=", codes, self.whole(most, bits))
        codes = builder.select(over, self.whole(number.beyond(made.saturate), bits), codes)
        top = number.exponent + number.mantissa
        sign = builder.and_(
            builder.lshr(signs, self.whole(bits - 1 - top, bits)), self.whole(1 << top, bits)
        )
        if number.special == "finite":
            # As in ml_dtypes: NaN is zero with its sign turned around.
            sign = builder.xor(
                sign, builder.shl(builder.zext(lost, self.ints(bits)), self.whole(top, bits))
            )
            return builder.or_(builder.select(lost, self.whole(0, bits), codes), sign)
        if number.special == "fnuz":
            plain = builder.icmp_signed("==", codes, self.whole(0, bits))
            signed = builder.select(plain, codes, builder.or_(codes, sign))
            if not made.saturate:
                over = builder.icmp_signed("==", codes, self.whole(1 << top, bits))
                signed = builder.select(over, codes, signed)
            return builder.select(lost, self.whole(1 << top, bits), signed)
        return builder.or_(builder.select(lost, self.whole(number.nan, bits), codes), sign)

    def _power_of_two(self, value: Any, bits: Any, made: Conversion) -> Any:
        """Codes of powers of two; what is negative is NaN, what is less the least one or NaN."""
        builder = self.builder
        minus_zero = builder.icmp_unsigned("==", bits, self.whole(1 << 31, 32))
        bits = builder.select(minus_zero, self.whole(0, 32), bits)
        if made.round_mode == "nearest":  # ties upwards, to the even significand
            normal = builder.icmp_unsigned(">=", bits, self.whole(1 << 23, 32))
            half = self.whole((1 << 22) - 1, 32)
            more = builder.add(half, builder.zext(normal, self.ints(32)))
            codes = builder.lshr(builder.add(bits, more), self.whole(23, 32))
        elif made.round_mode == "up":
            codes = builder.lshr(
                builder.add(bits, self.whole((1 << 23) - 1, 32)), self.whole(23, 32)
            )
            least = builder.icmp_unsigned("<=", bits, self.whole(1 << 22, 32))
            codes = builder.select(least, self.whole(0, 32), codes)
        else:
            codes = builder.lshr(bits, self.whole(23, 32))
        if made.saturate:
            over = builder.icmp_unsigned(">", codes, self.whole(254, 32))
            codes = builder.select(over, self.whole(254, 32), codes)
            lost = builder.icmp_unsigned(">", bits, self.whole(0x7F800000, 32))
        else:
            least = 1 << 22
            above = builder.sub(bits, self.whole(least, 32))
            lost = builder.icmp_unsigned(">=", above, self.whole(0x7F800000 - least, 32))
            if made.arithmetic == 64:  # whose bits, rounded to odd, are no infinity
                large = builder.fcmp_ordered(">=", value, self.real(2.0**128, 64))
                lost = builder.or_(lost, large)
        return builder.select(lost, self.whole(255, 32), codes)
