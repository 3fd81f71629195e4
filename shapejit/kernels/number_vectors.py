"""Numbers in vector registers: decoded from their codes, scaled, and encoded again.

Every step is written for any representation (see `numbers`), in the steps of LLVM's builder.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from . import llvm
from .memory import FEATURES, VECTOR
from .numbers import Conversion, Number
from .plain_conversions import bits_of

HALVES = "f16c" in FEATURES  # float16 is widened and rounded by instructions
PERMUTED = 16  # float32 in a vector of AVX-512, whose elements one instruction looks up


class Vector:
    """Steps of a conversion on vectors of so many elements."""

    def __init__(self, builder: Any, lanes: int) -> None:
        self.builder, self.lanes = builder, lanes

    def of(self, kind: ir.Type) -> ir.VectorType:
        """The vector of a type."""
        return ir.VectorType(kind, self.lanes)

    def ints(self, bits: int) -> ir.VectorType:
        """The vector of integers of so many bits."""
        return self.of(ir.IntType(bits))

    @staticmethod
    def float_type(bits: int) -> ir.Type:
        """The float of 32 or 64 bits."""
        return ir.FloatType() if bits == 32 else ir.DoubleType()

    def floats(self, bits: int) -> ir.VectorType:
        """The vector of floats of 32 or 64 bits."""
        return self.of(self.float_type(bits))

    def whole(self, value: int, bits: int) -> Any:
        """A vector of one integer."""
        value &= (1 << bits) - 1
        return ir.Constant(self.ints(bits), [value] * self.lanes)

    def real(self, value: float, bits: int) -> Any:
        """A vector of one float."""
        return ir.Constant(self.floats(bits), [value] * self.lanes)

    def widened(self, value: Any, bits: int, signed: bool = False) -> Any:
        """Integers as wider ones, or the same."""
        if value.type.element.width == bits:
            return value
        extend = self.builder.sext if signed else self.builder.zext
        return extend(value, self.ints(bits))

    def narrowed(self, value: Any, bits: int) -> Any:
        """The low bits of integers."""
        kept = self.ints(bits)
        return value if value.type == kept else self.builder.trunc(value, kept)

    def called(self, name: str, value: Any) -> Any:
        """A unary intrinsic of LLVM on floats."""
        kind = value.type
        bits = 32 if isinstance(kind.element, ir.FloatType) else 64
        full = f"llvm.{name}.v{self.lanes}f{bits}"
        module = self.builder.module
        function = module.globals.get(full)
        if function is None:
            function = ir.Function(module, ir.FunctionType(kind, [kind]), full)
        return self.builder.call(function, [value])

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
        builder, count = self.builder, PERMUTED
        kind = ir.VectorType(ir.IntType(32), count)
        module, name = builder.module, "llvm.x86.avx512.permvar.si.512"
        permute = module.globals.get(name)
        if permute is None:
            permute = ir.Function(module, ir.FunctionType(kind, [kind, kind]), name)
        table = ir.Constant(kind, [values[k % len(values)] for k in range(count)])
        parts = []
        for first in range(0, self.lanes, count):
            part = llvm.shuffle(builder, codes, codes, list(range(first, first + count)))
            parts.append(builder.call(permute, [table, part]))
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

    def encoded(self, value: Any, made: Conversion) -> Any:
        """The codes of values."""
        builder, number = self.builder, made.target
        if number.kind == "bool":
            nonzero = builder.fcmp_unordered("!=", value, self.real(0.0, made.arithmetic))
            return builder.zext(nonzero, self.ints(8))
        if number.kind in ("int", "uint"):
            return self._clamped(value, made.arithmetic, number)
        if number.bits == 64:
            if made.arithmetic == 32:
                value = builder.fpext(value, self.floats(64))
            return builder.bitcast(value, self.ints(64))
        if made.arithmetic == 64:
            if number.bits == 32:
                value = builder.fptrunc(value, self.floats(32))
            else:
                value = self._to_odd_24(value)
        bits = builder.bitcast(value, self.ints(32))
        if number.bits == 32:
            return bits
        if number.special == "unsigned":
            codes = self._power_of_two(bits, made)
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
        most = number.infinity if number.special == "ieee" else number.largest + 1
        over = builder.icmp_signed(">=", codes, self.whole(most, 32))
        codes = builder.select(over, self.whole(number.beyond(made.saturate), 32), codes)
        top = number.exponent + mantissa
        sign = builder.lshr(builder.and_(bits, self.whole(1 << 31, 32)), self.whole(31 - top, 32))
        if number.special == "finite":
            # As in ml_dtypes: NaN is zero with its sign turned around.
            sign = builder.xor(
                sign, builder.shl(builder.zext(lost, self.ints(32)), self.whole(top, 32))
            )
            return builder.or_(builder.select(lost, self.whole(0, 32), codes), sign)
        if number.special == "fnuz":
            plain = builder.icmp_signed("==", codes, self.whole(0, 32))
            signed = builder.select(plain, codes, builder.or_(codes, sign))
            if not made.saturate:
                over = builder.icmp_signed("==", codes, self.whole(1 << top, 32))
                signed = builder.select(over, codes, signed)
            return builder.select(lost, self.whole(1 << top, 32), signed)
        return builder.or_(builder.select(lost, self.whole(number.nan, 32), codes), sign)

    def _power_of_two(self, bits: Any, made: Conversion) -> Any:
        """Codes of powers of two; what is negative is NaN, zero the least one or NaN."""
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
            before = builder.sub(bits, self.whole(1, 32))
            lost = builder.icmp_unsigned(">=", before, self.whole(0x7F7FFFFF, 32))
        return builder.select(lost, self.whole(255, 32), codes)
