"""Steps on vectors of numbers, whatever they stand for."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from . import llvm

HALF = 16  # float32 in a vector of AVX-512
UNUSUAL = 0x01 | 0x20 | 0x80  # what `fpclass` calls quiet NaNs, subnormal numbers, other NaNs


class Brain(ir.Type):  # type: ignore[misc]  # llvmlite has no types
    """LLVM's type of bfloat16, which llvmlite does not know."""

    def _to_string(self) -> str:
        return "bfloat"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Brain)

    def __hash__(self) -> int:
        return hash(Brain)


class Steps:
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

    def first_of(self, group: int, count: Any, bits: int) -> Any:
        """Which lanes, of so many bits, are among the first `count` of each `group` of lanes.

        It is a comparison, since NEON takes bits that become lanes apart one by one.
        """
        kind = self.ints(bits)
        places = ir.Constant(kind, [k % group for k in range(self.lanes)])
        lone = self.builder.trunc(count, kind.element) if bits < 64 else count
        return self.builder.icmp_signed("<", places, llvm.splat(self.builder, lone, self.lanes))

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

    def parts(self, value: Any, size: int = HALF) -> list[Any]:
        """A vector as vectors of `size` elements."""
        starts = range(0, self.lanes, size)
        return [llvm.shuffle(self.builder, value, value, [*range(k, k + size)]) for k in starts]

    def any_unusual(self, value: Any) -> Any:
        """Whether a float32 is NaN or subnormal, by an instruction of AVX-512."""
        builder, kind = self.builder, ir.VectorType(ir.FloatType(), HALF)
        flags = ir.VectorType(ir.IntType(1), HALF)
        function = self.declared("llvm.x86.avx512.fpclass.ps.512", flags, [kind, llvm.I32])
        classes = ir.Constant(llvm.I32, UNUSUAL)
        found = [builder.call(function, [part, classes]) for part in self.parts(value)]
        some = found[0]
        for more in found[1:]:
            some = builder.or_(some, more)
        whole = builder.bitcast(some, ir.IntType(HALF))
        return builder.icmp_unsigned("!=", whole, ir.Constant(ir.IntType(HALF), 0))

    def brain_codes(self, value: Any) -> Any:
        """The bfloat16 codes of float32, by an instruction of AVX-512."""
        builder, kind = self.builder, ir.VectorType(ir.FloatType(), HALF)
        codes, pair = ir.VectorType(Brain(), 2 * HALF), ir.VectorType(ir.IntType(16), 2 * HALF)
        name = "llvm.x86.avx512bf16.cvtne2ps2bf16.512"
        function, parts = self.declared(name, codes, [kind, kind]), self.parts(value)
        pairs = zip(parts[1::2], parts[::2], strict=True)  # the second one becomes the low half
        made = [builder.bitcast(builder.call(function, [*both]), pair) for both in pairs]
        return llvm.joined(builder, made)

    def declared(self, name: str, returns: ir.Type, takes: list[ir.Type]) -> Any:
        """A function of LLVM by its whole name."""
        module = self.builder.module
        known = module.globals.get(name)
        return known or ir.Function(module, ir.FunctionType(returns, takes), name)
