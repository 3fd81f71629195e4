"""Steps on vectors of numbers, whatever they stand for."""

from __future__ import annotations

from typing import Any

from llvmlite import ir


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
