"""Kernels that others call by their address: compiled once, and when they are needed.

LLVM would inline a kernel into each one that calls it, for every width that may occur, and
optimise it again there: that was most of a first call. What is called so takes ints, which may be
addresses, and tags that are part of its name.
"""

from __future__ import annotations

from llvmlite import ir
from numba import types

from .llvm import I64, Builder, Value, Values, emits
from .pointers import number


@emits(types.int64)
def call(builder: Builder, entry: Value, arguments: Values) -> Value:
    """What the native function at `entry` returns for a tuple of ints and addresses."""
    values = (builder.extract_value(arguments, k) for k in range(len(arguments.type)))
    given = [number(builder, value) for value in values]
    kind = ir.FunctionType(I64, [I64] * len(given))
    return builder.call(builder.inttoptr(entry, kind.as_pointer()), given)
