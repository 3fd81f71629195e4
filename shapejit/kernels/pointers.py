"""The types of addresses in kernels: a byte pointer, or a byte pointer and a number of bits.

Adding an integer moves them, by `getelementptr`; all other operations treat them as integers. The
integer of a bit's address is 8 times that of its byte, plus the bit.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core.typing.templates import ConcreteTemplate, infer_global, signature
from numba.extending import lower_builtin

I64 = ir.IntType(64)
ADDRESS = types.Opaque("Address")


BITS = types.Tuple((ADDRESS, types.int64))  # the address of a byte, and a number of bits after it
POINTER_TYPES: dict[str, Any] = {"Address": ADDRESS, "BitAddress": BITS}
"""Those of parameters with these annotations."""


def moved(builder: Any, address: Any, by: Any) -> Any:
    """The address `by` bytes, or bits, after another one."""
    if isinstance(address.type, ir.PointerType):
        return builder.gep(address, [by])
    bit = builder.add(builder.extract_value(address, 1), by)
    return builder.insert_value(address, bit, 1)


def number(builder: Any, value: Any) -> Any:
    """An address as an int."""
    if isinstance(value.type, ir.PointerType):
        return builder.ptrtoint(value, I64)
    if value.type == I64:
        return value
    base, bit = (builder.extract_value(value, k) for k in range(2))
    return builder.add(builder.shl(builder.ptrtoint(base, I64), ir.Constant(I64, 3)), bit)


def of_number(builder: Any, value: Any, kind: Any) -> Any:
    """The byte or bit address of an int."""
    pointer = ir.IntType(8).as_pointer()
    if kind == ADDRESS:
        return builder.inttoptr(value, pointer)
    base = builder.inttoptr(builder.lshr(value, ir.Constant(I64, 3)), pointer)
    return bits(builder, base, builder.and_(value, ir.Constant(I64, 7)))


def bits(builder: Any, base: Any, bit: Any) -> Any:
    """The address of a bit after the byte at `base`."""
    none = ir.Constant(ir.LiteralStructType([base.type, I64]), ir.Undefined)
    return builder.insert_value(builder.insert_value(none, base, 0), bit, 1)


def byte(builder: Any, address: Any) -> Any:
    """The address of the byte that contains a bit."""
    base, bit = (builder.extract_value(address, k) for k in range(2))
    return moved(builder, base, builder.ashr(bit, ir.Constant(I64, 3)))


def _numbers(step: str, *before: str) -> Callable[..., Any]:
    """An operation of the builder on addresses as ints."""

    def write(builder: Any, *values: Any) -> Any:
        return getattr(builder, step)(*before, *(number(builder, value) for value in values))

    return write


def _backwards(builder: Any, address: Any, by: Any) -> Any:
    return moved(builder, address, builder.neg(by))


def _define(operation: Any, write: Callable[..., Any], returns: Any, *given: Any) -> None:
    """Define an operator on arguments of these types by `write`, which emits LLVM."""
    case = signature(returns, *given)
    infer_global(operation)(type(operation.__name__, (ConcreteTemplate,), {"cases": [case]}))

    def lower(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return write(builder, *values)

    lower_builtin(operation, *given)(lower)


INT = types.int64
for _kind in POINTER_TYPES.values():
    for _add in (operator.add, operator.iadd):
        _define(_add, moved, _kind, _kind, INT)
    _define(operator.add, lambda builder, by, to: moved(builder, to, by), _kind, INT, _kind)
    for _subtract in (operator.sub, operator.isub):
        _define(_subtract, _backwards, _kind, _kind, INT)
    _define(operator.sub, _numbers("sub"), INT, _kind, _kind)
    _define(operator.neg, _numbers("neg"), INT, _kind)
    _define(operator.and_, _numbers("and_"), INT, _kind, INT)
for _name, _sign in {"eq": "==", "ne": "!=", "lt": "<", "le": "<="}.items():
    for _other in (ADDRESS, INT):
        _compared = _numbers("icmp_unsigned", _sign)
        _define(getattr(operator, _name), _compared, types.boolean, ADDRESS, _other)
_define(operator.rshift, lambda builder, it, _: byte(builder, it), ADDRESS, BITS, types.literal(3))
_define(
    operator.mul,
    lambda builder, _, base: bits(builder, base, ir.Constant(I64, 0)),
    BITS, types.literal(8), ADDRESS,
)  # fmt: skip
