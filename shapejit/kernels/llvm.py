"""Building blocks of intrinsics: short LLVM sequences on addresses and vectors."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from . import pointers

Builder = Any  # llvmlite's IRBuilder
Value = Any  # of LLVM: an int64
Address = Any  # a pointer
BitAddress = Any  # a pointer, and bits behind it
Byte = Any  # an uint8
Values = Any  # int64 and pointers, which kernels write as a tuple
ArrayStruct = Any  # of numba: a struct
Tag = Any  # a width or a count: the numba type of the argument, whose value means nothing

Function = Callable[..., Any]

DATA = 4  # the field of an array's struct with a pointer to its elements

I8, I32, I64 = ir.IntType(8), ir.IntType(32), ir.IntType(64)
POINTER = I8.as_pointer()


def emits(returns: Any = types.void) -> Callable[[Function], Function]:
    """Make an intrinsic of a function that writes LLVM code with a builder, its first argument."""

    def made(write: Function) -> Function:
        parameters = list(inspect.signature(write).parameters.values())[1:]
        annotations = [p.annotation for p in parameters]

        def typed(context: Any, *given: Any) -> Any:
            wanted = [_type(a, tag) for a, tag in zip(annotations, given, strict=True)]

            def code(context: Any, builder: Builder, signature: Any, arguments: Any) -> Any:
                pairs = zip(annotations, wanted, arguments, strict=True)
                values = [tag if a == "Tag" else value for a, tag, value in pairs]
                value = write(builder, *values)
                return context.get_dummy_value() if value is None else value

            return returns(*wanted), code

        first = inspect.Parameter("context", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        typed.__name__, typed.__doc__ = write.__name__, write.__doc__
        typed.__signature__ = inspect.Signature([first, *parameters])  # type: ignore[attr-defined]  # for numba to read
        return intrinsic(typed)  # type: ignore[no-any-return]  # numba is not type-checked

    return made


def _type(annotation: str, given: Any) -> Any:
    """The numba type of a parameter with this annotation, given an argument's."""
    if annotation == "Values":
        kept = pointers.POINTER_TYPES.values()
        return types.Tuple([kind if kind in kept else types.int64 for kind in given])
    numbers = {"Byte": types.uint8, "Value": types.int64}
    return (numbers | pointers.POINTER_TYPES).get(annotation, given)


@contextmanager
def counted(builder: Builder, count: Value, step: Value) -> Iterator[Value]:
    """A loop over an index, from 0 to `count` by steps."""
    before = builder.block
    head, body, after = (builder.append_basic_block(name) for name in ("loop", "body", "after"))
    builder.branch(head)
    builder.position_at_end(head)
    index = builder.phi(I64)
    index.add_incoming(number(0), before)
    builder.cbranch(builder.icmp_signed("<", index, count), body, after)
    builder.position_at_end(body)
    yield index
    index.add_incoming(builder.add(index, step), builder.block)
    builder.branch(head)
    builder.position_at_end(after)


def number(value: int) -> Any:
    """A constant int64."""
    return ir.Constant(I64, value)


def at(builder: Builder, base: Address, index: int, step: Value | None = None) -> Address:
    """The address `index` bytes, or steps, after another one."""
    by = number(index)
    return pointers.moved(builder, base, by if step is None else builder.mul(step, by))


def entry(builder: Builder, table: Address, index: int) -> Value:
    """Word `index` of a table of int64."""
    return load(builder, at(builder, table, 8 * index), I64)


def size(tag: Any) -> int:
    """The number of bytes that a tag represents."""
    if isinstance(tag, types.UniTuple):
        return int(tag.count)
    return 16 if isinstance(tag, types.Complex) else tag.bitwidth // 8


def element(nbytes: int) -> ir.Type:
    """The LLVM type that moves elements of this size; beyond 8 bytes, a vector."""
    return ir.IntType(8 * nbytes) if nbytes <= 8 else ir.VectorType(I64, nbytes // 8)


def load(builder: Any, address: Address, kind: ir.Type) -> Any:
    """Load the value at an address that need not be aligned."""
    value = builder.load(builder.bitcast(address, kind.as_pointer()))
    value.align = 1
    return value


def store(builder: Any, value: Any, address: Address) -> Any:
    """Store a value to an address that need not be aligned; return the store."""
    stored = builder.store(value, builder.bitcast(address, value.type.as_pointer()))
    stored.align = 1
    return stored


def copy(builder: Builder, dst: Address, src: Address, nbytes: Value) -> None:
    """memcpy."""
    memcpy = builder.module.declare_intrinsic("llvm.memcpy", [POINTER, POINTER, I64])
    builder.call(memcpy, [dst, src, nbytes, ir.Constant(ir.IntType(1), 0)])


def prefetch(builder: Builder, address: Address, writes: bool = False) -> None:
    """Prefetch the line at an address, which may be invalid, for reading or writing."""
    kind = ir.FunctionType(ir.VoidType(), [POINTER, I32, I32, I32])
    function = builder.module.declare_intrinsic("llvm.prefetch", [POINTER], kind)
    read, keep, data = (ir.Constant(I32, n) for n in (int(writes), 3, 1))
    builder.call(function, [address, read, keep, data])


def nontemporal(builder: Any, stored: Any, align: int) -> None:
    """Make a store of a whole aligned line nontemporal."""
    stored.align = align
    stored.set_metadata("nontemporal", builder.module.add_metadata([ir.Constant(I32, 1)]))


def splat(builder: Any, value: Any, count: int) -> Any:
    """A vector of one value."""
    one = ir.VectorType(value.type, 1)
    lone = builder.insert_element(ir.Constant(one, ir.Undefined), value, ir.Constant(I32, 0))
    return shuffle(builder, lone, lone, [0] * count)


def constant(value: int, kind: ir.VectorType) -> Any:
    """A vector of one constant."""
    return ir.Constant(kind, value)


def shuffle(builder: Any, a: Any, b: Any, order: list[int]) -> Any:
    """Shuffle the elements of two vectors, which are numbered consecutively."""
    places = [*map(_place, order)]
    return builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(I32, len(order)), places))


@cache
def _place(index: int) -> Any:
    """The place of an element in a shuffle; constants take time to make, and to format."""
    return ir.Constant(I32, index)


def joined(builder: Any, parts: list[Any]) -> Any:
    """Vectors concatenated."""
    while len(parts) > 1:
        both = list(range(2 * parts[0].type.count))
        pairs = zip(parts[::2], parts[1::2], strict=True)
        parts = [shuffle(builder, a, b, both) for a, b in pairs]
    return parts[0]
