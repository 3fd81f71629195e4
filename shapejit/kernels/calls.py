"""Kernels that other kernels call by address: each is compiled once, and when it is needed.

LLVM would inline a kernel into each of its callers, for every possible width, and optimise it again
there: that was most of the time of a first call. Such functions take ints, which may be addresses,
and tags, which are part of their names.
"""

from __future__ import annotations

from llvmlite import ir
from numba import types

from .llvm import I64, Builder, Value, Values, emits
from .pointers import number


@emits(types.int64)
def call(builder: Builder, entry: Value, arguments: Values) -> Value:
    """Call the native function at `entry` with a tuple of ints and addresses.

    The result means nothing if that function has none.
    """
    values = (builder.extract_value(arguments, k) for k in range(len(arguments.type)))
    given = [number(builder, value) for value in values]
    kind = ir.FunctionType(I64, [I64] * len(given))
    return builder.call(builder.inttoptr(entry, kind.as_pointer()), given)
