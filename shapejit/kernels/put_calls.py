"""`small.put` as a function of its own that kernels call by its address.

LLVM would inline it into each kernel that calls it, and optimise it again there: that
took 40 s where two kernels called it.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from llvmlite import ir
from numba import types

from ..compilation import apart
from . import llvm, small
from .jit import COMPILED
from .llvm import Builder, Value, emits

_INTS = types.Array(types.int64, 1, "C")
_KINDS = (types.int64, types.int64, _INTS, types.int64, _INTS, *(types.int64,) * 3)
_POINTER = llvm.POINTER
# What numba passes: where the result goes, where an exception goes, then the arguments,
# an array as (memory, parent, items, bytes of an item, data, length, stride).
_ARRAY = [_POINTER, _POINTER, llvm.I64, llvm.I64, _POINTER, llvm.I64, llvm.I64]
_CALL = ir.FunctionType(
    llvm.I32,
    [
        llvm.I64.as_pointer(),
        _POINTER.as_pointer(),
        *(llvm.I64, llvm.I64),
        *_ARRAY,
        llvm.I64,
        *_ARRAY,
        *(llvm.I64,) * 3,
    ],
)


@cache
def put_entry() -> int:
    """The address of the compiled `small.put`, for `put_by`."""
    return apart(_compiled) if COMPILED else 0


def _compiled() -> int:
    put: Any = small.put
    put.compile(_KINDS)
    made = put.overloads[_KINDS]
    return int(made.library.get_pointer_to_function(made.fndesc.llvm_func_name))


@emits()
def put_by(
    builder: Builder,
    entry: Value,
    src: Value,
    dst: Value,
    table: Value,
    position: Value,
    apart: Value,
) -> None:
    """`small.put` by the table at an address, with scratch at `position` (an address)."""
    nothing = ir.Constant(_POINTER, None)
    count, eight = llvm.number(small.MOST_WORDS), llvm.number(8)

    def array(address: Value) -> list[Any]:
        data = builder.inttoptr(address, _POINTER)
        return [nothing, nothing, count, eight, data, count, eight]

    zero = llvm.number(0)
    result = builder.alloca(llvm.I64)
    fault = builder.alloca(_POINTER)
    given = [src, dst, *array(table), zero, *array(position), zero, zero, apart]
    builder.call(builder.inttoptr(entry, _CALL.as_pointer()), [result, fault, *given])
