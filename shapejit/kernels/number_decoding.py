"""Codes in vector registers become numbers, whatever representation they are of."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from . import llvm
from .memory import ARM64, FEATURES, VECTOR
from .number_words import Words
from .numbers import Conversion, Number
from .plain_conversions import bits_of

# Whether float16 is widened and rounded by instructions, which every processor of arm64 has.
HALVES = "f16c" in FEATURES or ARM64
PERMUTED = 16  # float32 in a vector of AVX-512, whose elements one instruction looks up


class Decoding(Words):
    """Steps from codes to floats, or to other integers."""

    def unshifted(self, codes: Any, number: Number, shift: Any) -> Any:
        """The codes in bytes, without the bits beside them."""
        if number.bits >= 8:
            return codes
        lone = self.builder.trunc(shift, llvm.I8)
        codes = self.builder.lshr(codes, llvm.splat(self.builder, lone, self.lanes))
        return self.builder.and_(codes, self.whole((1 << number.bits) - 1, 8))

    def integers(self, codes: Any, number: Number, bits: int) -> Any:
        """The values of integer codes, in so many bits or more."""
        signed = number.kind == "int"
        if signed and number.bits < 8:
            up = self.whole(8 - number.bits, 8)
            codes = self.builder.ashr(self.builder.shl(codes, up), up)
        return self.widened(codes, max(bits, codes.type.element.width), signed)

    def resized(self, codes: Any, made: Conversion) -> Any:
        """Integers (or bools) as others, plus a bias: the low bits are kept."""
        builder, source, target = self.builder, made.source, made.target
        zero = self.whole(0, codes.type.element.width)
        if target.kind == "bool":
            return builder.zext(builder.icmp_unsigned("!=", codes, zero), self.ints(8))
        if source.kind == "bool":
            codes = builder.zext(builder.icmp_unsigned("!=", codes, zero), self.ints(8))
        value = self.integers(codes, source, 8 * target.nbytes)
        value = self.narrowed(value, 8 * target.nbytes)
        if made.bias:
            value = builder.add(value, self.whole(made.bias, 8 * target.nbytes))
        if target.bits < 8:
            value = builder.and_(value, self.whole((1 << target.bits) - 1, 8))
        return value

    def decoded(self, codes: Any, made: Conversion) -> Any:
        """The values as floats of the conversion's arithmetic."""
        builder, bits, number = self.builder, made.arithmetic, made.source
        if number.kind == "bool":
            one = builder.icmp_unsigned("!=", codes, self.whole(0, 8))
            return builder.uitofp(one, self.floats(bits))
        if number.kind in ("int", "uint"):
            value = self.integers(codes, number, 32)
            direct = made.step != "cast" or made.target.bits >= bits
            if number.bits == 64 and bits == 64 and not direct:
                value = self._to_odd_53(value, number.kind == "int")
            narrow = number.bits < value.type.element.width or number.kind == "int"
            return (builder.sitofp if narrow else builder.uitofp)(value, self.floats(bits))
        if number.bits == 64:
            value = builder.bitcast(codes, self.floats(64))
            return value if bits == 64 else builder.fptrunc(value, self.floats(32))
        value = self._decoded_float(codes, number)
        return value if bits == 32 else builder.fpext(value, self.floats(64))

    def _to_odd_53(self, value: Any, signed: bool) -> Any:
        """64-bit integers cut to 53 bits, rounded to odd: a later rounding is the only one."""
        builder, low = self.builder, (1 << 11) - 1
        mask = self.whole(low, 64)
        rest = builder.and_(value, mask)
        inexact = builder.icmp_unsigned("!=", rest, self.whole(0, 64))
        sticky = builder.shl(builder.zext(inexact, self.ints(64)), self.whole(11, 64))
        cut = builder.or_(builder.and_(value, self.whole(~low, 64)), sticky)
        if signed:  # |value| >= 2**53
            moved = builder.add(value, self.whole(1 << 53, 64))
            large = builder.icmp_unsigned(">=", moved, self.whole(1 << 54, 64))
        else:
            large = builder.icmp_unsigned(">=", value, self.whole(1 << 53, 64))
        return builder.select(large, cut, value)

    def _decoded_float(self, codes: Any, number: Number) -> Any:
        """The float32 values of float codes of 32 bits or fewer."""
        builder = self.builder
        if number.bits == 32:
            return builder.bitcast(codes, self.floats(32))
        wide = self.widened(codes, 32)
        if number.bits <= 4 and self.lanes % PERMUTED == 0 and VECTOR == 64:
            return self._permuted(wide, bits_of(number))
        if self.looks_up(number):
            words = self.widened(self.words_of(codes, number), 32)
            return builder.bitcast(builder.shl(words, self.whole(16, 32)), self.floats(32))
        if number.kind == "table":
            return self._looked_up(wide, number.table)
        exponent, mantissa, bias = number.exponent, number.mantissa, number.bias
        up = self.whole(23 - mantissa, 32)
        if number.special == "unsigned":
            bits = builder.shl(wide, up)
            tiny = builder.icmp_unsigned("==", wide, self.whole(0, 32))
            bits = builder.select(tiny, self.whole(1 << 22, 32), bits)
            lost = builder.icmp_unsigned("==", wide, self.whole(255, 32))
            bits = builder.select(lost, self.whole(0x7FC00000, 32), bits)
            return builder.bitcast(bits, self.floats(32))
        if exponent == 8:
            return builder.bitcast(builder.shl(wide, up), self.floats(32))
        if HALVES and (exponent < 5 or (exponent == 5 and number.special == "ieee")):
            return self._from_half(codes, number)
        magnitude = builder.and_(wide, self.whole((1 << (exponent + mantissa)) - 1, 32))
        sign = builder.shl(
            builder.and_(wide, self.whole(1 << (exponent + mantissa), 32)),
            self.whole(31 - exponent - mantissa, 32),
        )
        raised = self.whole((127 - bias) << 23, 32)
        bits = builder.add(builder.shl(magnitude, up), raised)
        # Subnormal numbers are integers times the smallest one.
        small = builder.icmp_signed("<", magnitude, self.whole(1 << mantissa, 32))
        whole = builder.sitofp(magnitude, self.floats(32))
        least = builder.fmul(whole, self.real(2.0 ** (1 - bias - mantissa), 32))
        bits = builder.select(small, builder.bitcast(least, self.ints(32)), bits)
        nan = self.whole(0x7FC00000, 32)
        if number.special == "ieee":
            top = self.whole(number.infinity, 32)
            infinite = builder.icmp_signed("==", magnitude, top)
            bits = builder.select(infinite, self.whole(0x7F800000, 32), bits)
            lost = builder.icmp_signed(">", magnitude, top)
            bits = builder.select(lost, nan, bits)
        elif number.special == "fn":
            lost = builder.icmp_signed("==", magnitude, self.whole(number.largest + 1, 32))
            bits = builder.select(lost, nan, bits)
        bits = builder.or_(bits, sign)
        if number.special == "fnuz":
            lost = builder.icmp_signed("==", wide, self.whole(1 << (exponent + mantissa), 32))
            # As in ml_dtypes: the one NaN has the sign bit.
            bits = builder.select(lost, self.whole(0xFFC00000, 32), bits)
        return builder.bitcast(bits, self.floats(32))

    def _from_half(self, codes: Any, number: Number) -> Any:
        """The float32 values of floats whose fields fit into those of float16."""
        builder, top = self.builder, number.exponent + number.mantissa
        wide = self.widened(codes, 16)
        magnitude = builder.and_(wide, self.whole((1 << top) - 1, 16))
        sign = builder.shl(builder.and_(wide, self.whole(1 << top, 16)), self.whole(15 - top, 16))
        half = builder.or_(builder.shl(magnitude, self.whole(10 - number.mantissa, 16)), sign)
        value = builder.fpext(builder.bitcast(half, self.of(ir.HalfType())), self.floats(32))
        if number.bias != 15:
            value = builder.fmul(value, self.real(2.0 ** (15 - number.bias), 32))
        if number.special == "finite":
            return value
        if number.special == "fnuz":
            # As in ml_dtypes: the one NaN has the sign bit.
            lost = builder.icmp_unsigned("==", wide, self.whole(1 << top, 16))
            nan = self.whole(0xFFC00000, 32)
        else:
            least = number.infinity if number.special == "ieee" else number.largest
            lost = builder.icmp_signed(">", magnitude, self.whole(least, 16))
            signs = builder.shl(self.widened(sign, 32), self.whole(16, 32))
            nan = builder.or_(signs, self.whole(0x7FC00000, 32))
        bits = builder.bitcast(value, self.ints(32))
        if number.special == "ieee" and number.exponent < 5:
            infinite = builder.icmp_signed("==", magnitude, self.whole(number.infinity, 16))
            bits = builder.select(infinite, builder.or_(signs, self.whole(0x7F800000, 32)), bits)
        return builder.bitcast(builder.select(lost, nan, bits), self.floats(32))

    def _permuted(self, codes: Any, values: tuple[int, ...]) -> Any:
        """The values at codes of 4 bits or fewer, given their bits: from a register."""
        builder, kind = self.builder, ir.VectorType(ir.IntType(32), PERMUTED)
        permute = self.declared("llvm.x86.avx512.permvar.si.512", kind, [kind, kind])
        table = ir.Constant(kind, [values[k % len(values)] for k in range(PERMUTED)])
        parts = [builder.call(permute, [table, part]) for part in self.parts(codes, PERMUTED)]
        return builder.bitcast(llvm.joined(builder, parts), self.floats(32))

    def _looked_up(self, codes: Any, table: tuple[float, ...]) -> Any:
        """The values at the codes of a small table: halved by each bit in turn.

        A load per lane took three times as long.
        """
        builder, bit = self.builder, 1
        values = [self.real(value, 32) for value in table]
        while len(values) > 1:
            found = builder.and_(codes, self.whole(bit, 32))
            odd = builder.icmp_unsigned("!=", found, self.whole(0, 32))
            pairs = zip(values[::2], values[1::2], strict=True)
            values = [builder.select(odd, high, low) for low, high in pairs]
            bit *= 2
        return values[0]
