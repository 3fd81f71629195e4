"""Native functions that kernels call: other kernels by address, those of the process by name.

A kernel that is called by address is compiled once, and when it is needed. LLVM would inline it
into each of its callers, for every possible width, and optimise it again there: that was most of
the time of a first call. Such functions take ints, which may be addresses, and tags, which are part
of their names.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core.cgutils import get_or_insert_function

from .llvm import I64, Builder, Value, Values, emits
from .pointers import number


@emits(types.int64)
def call(builder: Builder, entry: Value, arguments: Values) -> Value:
    """Call the native function at `entry` with a tuple of ints and addresses.

    The result means nothing if that function has none.
    """
    kind, given = _ints(builder, arguments)
    return builder.call(builder.inttoptr(entry, kind.as_pointer()), given)


def imported(name: str) -> Any:
    """The intrinsic that calls a function of the process by its name, as `call` does by address.

    The builder has the names that object code may import.
    """

    @emits(types.int64)
    def call_imported(builder: Builder, arguments: Values) -> Value:
        kind, given = _ints(builder, arguments)
        return builder.call(get_or_insert_function(builder.module, kind, name), given)

    return call_imported


def _ints(builder: Builder, arguments: Value) -> tuple[ir.FunctionType, list[Value]]:
    """The type of a function of ints, and the ints of a tuple of ints and addresses."""
    values = (builder.extract_value(arguments, k) for k in range(len(arguments.type)))
    given = [number(builder, value) for value in values]
    return ir.FunctionType(I64, [I64] * len(given)), given
