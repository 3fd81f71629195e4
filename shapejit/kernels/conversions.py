"""Loops that convert numbers: from one representation to another, scaled or not.

There is one generator: a Conversion names two representations and what is done between
them, and becomes one small function of machine code that converts `count` elements side
by side. Each element is decoded to a float32 or float64 (integers that only change
their width stay integers), scaled, and rounded once to what it becomes.

Codes narrower than a byte stand in a byte each, whose other bits are ignored in the
source and zero in the target. With the JIT off, `plain_conversions` does the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core.compiler_lock import global_compiler_lock
from numba.core.registry import cpu_target
from numba.extending import intrinsic

from ..compilation import apart
from . import emit
from .jit import COMPILED
from .numbers import Conversion, Number

LANES = 16  # elements of the narrower loop; the wide one takes as many more as `WIDE`
WIDE = 4


_compiled: dict[Conversion, tuple[int, Any]] = {}
_plain: list[Callable[..., None]] = []


def entry(conversion: Conversion) -> int:
    """What `convert` calls: the address of the compiled function."""
    found = _compiled.get(conversion)
    if found is None:
        found = _compiled[conversion] = apart(_made, conversion)
    return found[0]


def _made(conversion: Conversion) -> tuple[int, Any]:
    if not COMPILED:
        from .plain_conversions import plain

        _plain.append(plain(conversion))
        return len(_plain) - 1, None
    library = cpu_target.target_context.codegen().create_library("shapejit.conversion")
    module = library.create_ir_module("shapejit.conversion")
    _function(module, conversion)
    with global_compiler_lock:
        library.add_ir_module(module)
        library.finalize()
    # The library owns the machine code.
    return library.get_pointer_to_function(NAME), library


NAME = "shapejit_convert"
# source, target, count, block, scale, scale step (bytes), zero point, its step, shift
SIGNATURE = ir.FunctionType(ir.VoidType(), [emit.I64] * 9)


def _function(module: ir.Module, conversion: Conversion) -> None:
    function = ir.Function(module, SIGNATURE, NAME)
    function.linkage = "external"
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    source, target, count, block, scale, scale_step, zero, zero_step, shift = function.args
    loops = _Loops(builder, conversion, shift)
    one = ir.Constant(emit.I64, 1)
    if conversion.scales != "blocks":
        loops.run(source, target, count, scale, zero)
    else:
        blocks = builder.udiv(count, block)
        with _counted(builder, blocks, one) as k:
            done = builder.mul(k, block)
            operands = [
                builder.add(begin, builder.mul(k, step))
                for begin, step in ((scale, scale_step), (zero, zero_step))
            ]
            places = [
                builder.add(begin, builder.mul(done, ir.Constant(emit.I64, nbytes)))
                for begin, nbytes in (
                    (source, conversion.source.nbytes),
                    (target, conversion.target.nbytes),
                )
            ]
            loops.run(*places, block, *operands)
    builder.ret_void()


class _counted:
    """A loop of the builder: `with _counted(builder, count, step) as index`."""

    def __init__(self, builder: Any, count: Any, step: Any) -> None:
        self.builder, self.count, self.step = builder, count, step

    def __enter__(self) -> Any:
        builder = self.builder
        before = builder.block
        self.head = builder.append_basic_block("loop")
        body = builder.append_basic_block("body")
        self.after = builder.append_basic_block("after")
        builder.branch(self.head)
        builder.position_at_end(self.head)
        self.index = builder.phi(emit.I64)
        self.index.add_incoming(ir.Constant(emit.I64, 0), before)
        more = builder.icmp_signed("<", self.index, self.count)
        builder.cbranch(more, body, self.after)
        builder.position_at_end(body)
        return self.index

    def __exit__(self, *fault: object) -> None:
        builder = self.builder
        self.index.add_incoming(builder.add(self.index, self.step), builder.block)
        builder.branch(self.head)
        builder.position_at_end(self.after)


class _Loops:
    """The loops over one run: wide vectors, vectors of which the last reaches back, elements."""

    def __init__(self, builder: Any, conversion: Conversion, shift: Any) -> None:
        self.builder = builder
        self.conversion = conversion
        self.shift = shift

    def run(self, source: Any, target: Any, count: Any, scale: Any, zero: Any) -> None:
        """Convert `count` elements; scales and zero points are one, or as many."""
        builder, lanes = self.builder, ir.Constant(emit.I64, LANES)

        def convert(index: Any, width: int) -> None:
            self._elements(source, target, scale, zero, index, width)

        with builder.if_else(builder.icmp_signed("<", count, lanes)) as (few, many):
            with few, _counted(builder, count, ir.Constant(emit.I64, 1)) as index:
                convert(index, 1)
            with many:
                wide = ir.Constant(emit.I64, LANES * WIDE)
                whole = builder.and_(count, ir.Constant(emit.I64, -LANES * WIDE))
                with _counted(builder, whole, wide) as index:
                    convert(index, LANES * WIDE)
                rest = builder.sub(count, whole)
                last = builder.sub(count, lanes)
                with _counted(builder, rest, lanes) as index:
                    at = builder.add(whole, index)
                    short = builder.icmp_signed(">", at, last)
                    convert(builder.select(short, last, at), LANES)

    def _elements(
        self, source: Any, target: Any, scale: Any, zero: Any, index: Any, lanes: int
    ) -> None:
        made, builder = self.conversion, self.builder
        vector = _Vector(builder, lanes)

        def at(begin: Any, nbytes: int) -> Any:
            return builder.add(begin, builder.mul(index, ir.Constant(emit.I64, nbytes)))

        kind = vector.ints(8 * made.source.nbytes)
        codes = emit.load(builder, at(source, made.source.nbytes), kind)
        codes = vector.unshifted(codes, made.source, self.shift)
        if not made.arithmetic:
            value = vector.resized(codes, made.source, made.target)
        else:
            value = vector.decoded(codes, made)
            if made.scales:
                operands = []
                for begin, there in ((scale, True), (zero, bool(made.zeros))):
                    float_type = vector.float_type(made.arithmetic)
                    if not there:
                        operands.append(None)
                    elif made.scales == "each":
                        place = at(begin, made.arithmetic // 8)
                        operands.append(emit.load(builder, place, vector.of(float_type)))
                    else:
                        lone = emit.load(builder, begin, float_type)
                        operands.append(emit.splat(builder, lone, lanes))
                value = vector.scaled(value, made, *operands)
            value = vector.encoded(value, made)
        emit.store(builder, value, at(target, made.target.nbytes))


class _Vector:
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

    def int(self, value: int, bits: int) -> Any:
        """A vector of one integer."""
        value &= (1 << bits) - 1
        return ir.Constant(self.ints(bits), [value] * self.lanes)

    def float(self, value: float, bits: int) -> Any:
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
        lone = self.builder.trunc(shift, emit.I8)
        codes = self.builder.lshr(codes, emit.splat(self.builder, lone, self.lanes))
        return self.builder.and_(codes, self.int((1 << number.bits) - 1, 8))

    def integers(self, codes: Any, number: Number, bits: int) -> Any:
        """The values of integer codes, in so many bits or more."""
        signed = number.kind == "int"
        if signed and number.bits < 8:
            up = self.int(8 - number.bits, 8)
            codes = self.builder.ashr(self.builder.shl(codes, up), up)
        return self.widened(codes, max(bits, codes.type.element.width), signed)

    def resized(self, codes: Any, source: Number, target: Number) -> Any:
        """Integers (or bools) as others: the low bits are kept."""
        builder = self.builder
        zero = self.int(0, codes.type.element.width)
        if target.kind == "bool":
            return builder.zext(builder.icmp_unsigned("!=", codes, zero), self.ints(8))
        if source.kind == "bool":
            codes = builder.zext(builder.icmp_unsigned("!=", codes, zero), self.ints(8))
        value = self.integers(codes, source, 8 * target.nbytes)
        value = self.narrowed(value, 8 * target.nbytes)
        if target.bits < 8:
            value = builder.and_(value, self.int((1 << target.bits) - 1, 8))
        return value

    def decoded(self, codes: Any, made: Conversion) -> Any:
        """The values as floats of the conversion's arithmetic."""
        builder, bits, number = self.builder, made.arithmetic, made.source
        if number.kind == "bool":
            one = builder.icmp_unsigned("!=", codes, self.int(0, 8))
            return builder.uitofp(one, self.floats(bits))
        if number.kind in ("int", "uint"):
            value = self.integers(codes, number, 32)
            direct = made.step != "cast" or made.target.bits >= bits
            if number.bits == 64 and bits == 64 and not direct:
                value = self._to_odd_53(value, number.kind == "int")
            narrow = number.bits < value.type.element.width or number.kind == "int"
            return (builder.sitofp if narrow else builder.uitofp)(value, self.floats(bits))
        if number.bits == 64:
            return builder.bitcast(codes, self.floats(64))
        value = self._decoded_float(codes, number)
        return value if bits == 32 else builder.fpext(value, self.floats(64))

    def _to_odd_53(self, value: Any, signed: bool) -> Any:
        """64-bit integers cut to 53 bits, rounded to odd: a later rounding is the only one."""
        builder, low = self.builder, (1 << 11) - 1
        mask = self.int(low, 64)
        rest = builder.and_(value, mask)
        inexact = builder.icmp_unsigned("!=", rest, self.int(0, 64))
        sticky = builder.shl(builder.zext(inexact, self.ints(64)), self.int(11, 64))
        cut = builder.or_(builder.and_(value, self.int(~low, 64)), sticky)
        if signed:  # |value| >= 2**53
            moved = builder.add(value, self.int(1 << 53, 64))
            large = builder.icmp_unsigned(">=", moved, self.int(1 << 54, 64))
        else:
            large = builder.icmp_unsigned(">=", value, self.int(1 << 53, 64))
        return builder.select(large, cut, value)

    def _decoded_float(self, codes: Any, number: Number) -> Any:
        """The float32 values of float codes of 32 bits or fewer."""
        builder = self.builder
        if number.bits == 32:
            return builder.bitcast(codes, self.floats(32))
        wide = self.widened(codes, 32)
        if number.kind == "table":
            return self._looked_up(wide, number.table)
        exponent, mantissa, bias = number.exponent, number.mantissa, number.bias
        up = self.int(23 - mantissa, 32)
        if number.special == "unsigned":
            bits = builder.shl(wide, up)
            tiny = builder.icmp_unsigned("==", wide, self.int(0, 32))
            bits = builder.select(tiny, self.int(1 << 22, 32), bits)
            lost = builder.icmp_unsigned("==", wide, self.int(255, 32))
            bits = builder.select(lost, self.int(0x7FC00000, 32), bits)
            return builder.bitcast(bits, self.floats(32))
        if exponent == 8:
            return builder.bitcast(builder.shl(wide, up), self.floats(32))
        magnitude = builder.and_(wide, self.int((1 << (exponent + mantissa)) - 1, 32))
        sign = builder.shl(
            builder.and_(wide, self.int(1 << (exponent + mantissa), 32)),
            self.int(31 - exponent - mantissa, 32),
        )
        raised = self.int((127 - bias) << 23, 32)
        bits = builder.add(builder.shl(magnitude, up), raised)
        # Subnormal numbers are integers times the smallest one.
        small = builder.icmp_signed("<", magnitude, self.int(1 << mantissa, 32))
        whole = builder.sitofp(magnitude, self.floats(32))
        least = builder.fmul(whole, self.float(2.0 ** (1 - bias - mantissa), 32))
        bits = builder.select(small, builder.bitcast(least, self.ints(32)), bits)
        nan = self.int(0x7FC00000, 32)
        if number.special == "ieee":
            top = self.int(number.infinity, 32)
            infinite = builder.icmp_signed("==", magnitude, top)
            bits = builder.select(infinite, self.int(0x7F800000, 32), bits)
            lost = builder.icmp_signed(">", magnitude, top)
            bits = builder.select(lost, nan, bits)
        elif number.special == "fn":
            lost = builder.icmp_signed("==", magnitude, self.int(number.largest + 1, 32))
            bits = builder.select(lost, nan, bits)
        bits = builder.or_(bits, sign)
        if number.special == "fnuz":
            lost = builder.icmp_signed("==", wide, self.int(1 << (exponent + mantissa), 32))
            # As in ml_dtypes: the one NaN has the sign bit.
            bits = builder.select(lost, self.int(0xFFC00000, 32), bits)
        return builder.bitcast(bits, self.floats(32))

    def _looked_up(self, codes: Any, table: tuple[float, ...]) -> Any:
        """The values at the codes of a small table."""
        kind = ir.ArrayType(ir.FloatType(), len(table))
        module = self.builder.module
        place = module.globals.get("table")
        if place is None:
            place = ir.GlobalVariable(module, kind, "table")
            place.linkage, place.global_constant = "internal", True
            place.initializer = ir.Constant(kind, list(table))
        value = ir.Constant(self.floats(32), ir.Undefined)
        zero = ir.Constant(emit.I32, 0)
        for lane in range(self.lanes):
            at = ir.Constant(emit.I32, lane)
            index = self.builder.extract_element(codes, at)
            found = self.builder.load(self.builder.gep(place, [zero, index], inbounds=True))
            value = self.builder.insert_element(value, found, at)
        return value

    def scaled(self, value: Any, made: Conversion, scale: Any, zero: Any) -> Any:
        """The scaled values; see `Conversion`."""
        builder = self.builder
        if made.step == "dequantize":
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
            nonzero = builder.fcmp_unordered("!=", value, self.float(0.0, made.arithmetic))
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
        over = builder.fcmp_ordered(">=", value, self.float(above, bits))
        under = builder.fcmp_ordered("<=", value, self.float(below, bits))
        inside = builder.fcmp_ordered("<", self.called("fabs", value), self.float(above, bits))
        kept = builder.select(inside, value, self.float(0.0, bits))
        narrow = signed or number.bits < 32
        made = (builder.fptosi if narrow else builder.fptoui)(
            kept if narrow else builder.select(under, self.float(0.0, bits), kept), self.ints(wide)
        )
        made = builder.select(over, self.int(high, wide), made)
        made = builder.select(under, self.int(low, wide), made)
        made = self.narrowed(made, 8 * number.nbytes)
        if number.bits < 8:
            made = builder.and_(made, self.int((1 << number.bits) - 1, 8))
        return made

    def _rounded(self, value: Any, bits: Any, made: Conversion) -> Any:
        """Codes of floats narrower than 32 bits, rounded to the nearest, ties to even."""
        builder, number = self.builder, made.target
        mantissa, bias = number.mantissa, number.bias
        cut = 23 - mantissa
        magnitude = builder.and_(bits, self.int(0x7FFFFFFF, 32))
        odd = builder.and_(builder.lshr(magnitude, self.int(cut, 32)), self.int(1, 32))
        half = builder.add(odd, self.int((1 << (cut - 1)) - 1, 32))
        codes = builder.lshr(builder.add(magnitude, half), self.int(cut, 32))
        lost = builder.icmp_signed(">", magnitude, self.int(0x7F800000, 32))
        if number.exponent < 8:
            codes = builder.sub(codes, self.int((127 - bias) << mantissa, 32))
            # Adding a number whose last bit is the smallest subnormal number rounds to it.
            magic = 2.0 ** (1 - bias - mantissa + 23)
            least = builder.fadd(builder.bitcast(magnitude, self.floats(32)), self.float(magic, 32))
            bottom = self.int((151 - bias - mantissa) << 23, 32)
            least = builder.sub(builder.bitcast(least, self.ints(32)), bottom)
            small = builder.icmp_signed("<", magnitude, self.int((128 - bias) << 23, 32))
            codes = builder.select(small, least, codes)
        if number.special != "ieee" or number.exponent < 8:
            most = number.infinity if number.special == "ieee" else number.largest + 1
            over = builder.icmp_signed(">=", codes, self.int(most, 32))
            codes = builder.select(over, self.int(number.beyond(made.saturate), 32), codes)
        top = number.exponent + mantissa
        sign = builder.lshr(builder.and_(bits, self.int(1 << 31, 32)), self.int(31 - top, 32))
        if number.special == "finite":
            # As in ml_dtypes: NaN is zero with its sign turned around.
            sign = builder.xor(sign, builder.shl(builder.zext(lost, self.ints(32)), self.int(top, 32)))
            return builder.or_(builder.select(lost, self.int(0, 32), codes), sign)
        if number.special == "fnuz":
            plain = builder.icmp_signed("==", codes, self.int(0, 32))
            signed = builder.select(plain, codes, builder.or_(codes, sign))
            if not made.saturate:
                over = builder.icmp_signed("==", codes, self.int(1 << top, 32))
                signed = builder.select(over, codes, signed)
            return builder.select(lost, self.int(1 << top, 32), signed)
        return builder.or_(builder.select(lost, self.int(number.nan, 32), codes), sign)

    def _power_of_two(self, bits: Any, made: Conversion) -> Any:
        """Codes of powers of two; what is negative is NaN, zero the least one or NaN."""
        builder = self.builder
        minus_zero = builder.icmp_unsigned("==", bits, self.int(1 << 31, 32))
        bits = builder.select(minus_zero, self.int(0, 32), bits)
        if made.round_mode == "nearest":  # ties upwards, to the even significand
            normal = builder.icmp_unsigned(">=", bits, self.int(1 << 23, 32))
            half = self.int((1 << 22) - 1, 32)
            more = builder.add(half, builder.zext(normal, self.ints(32)))
            codes = builder.lshr(builder.add(bits, more), self.int(23, 32))
        elif made.round_mode == "up":
            codes = builder.lshr(builder.add(bits, self.int((1 << 23) - 1, 32)), self.int(23, 32))
            least = builder.icmp_unsigned("<=", bits, self.int(1 << 22, 32))
            codes = builder.select(least, self.int(0, 32), codes)
        else:
            codes = builder.lshr(bits, self.int(23, 32))
        if made.saturate:
            over = builder.icmp_unsigned(">", codes, self.int(254, 32))
            codes = builder.select(over, self.int(254, 32), codes)
            lost = builder.icmp_unsigned(">", bits, self.int(0x7F800000, 32))
        else:
            before = builder.sub(bits, self.int(1, 32))
            lost = builder.icmp_unsigned(">=", before, self.int(0x7F7FFFFF, 32))
        return builder.select(lost, self.int(255, 32), codes)


if COMPILED:

    @intrinsic
    def convert(
        context: Any,
        entry: Any,
        source: Any,
        target: Any,
        count: Any,
        block: Any,
        scale: Any,
        scale_step: Any,
        zero: Any,
        zero_step: Any,
        shift: Any,
    ) -> Any:
        """Convert `count` elements from address to address by the function at `entry`."""

        def emitted(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            function = builder.inttoptr(arguments[0], SIGNATURE.as_pointer())
            builder.call(function, arguments[1:])
            return context.get_dummy_value()

        return types.void(*[types.int64] * 10), emitted

else:

    def convert(entry: int, *arguments: int) -> None:
        """Convert `count` elements from address to address."""
        _plain[int(entry)](*map(int, arguments))
