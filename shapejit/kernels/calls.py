"""Kernels that others call by their address: compiled once, and when they are needed.

LLVM would inline a kernel into each one that calls it, for every width that may occur, and
optimise it again there: that was most of a first call. What is called so takes ints, and
tags behind them.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils

from . import llvm, reference
from .jit import COMPILED, compile_apart
from .llvm import Builder, Value, Values, emits

_known: dict[object, int] = {}


def entry(function: Any, count: int, *tags: Any) -> int:
    """What stands for a kernel of `count` ints and these tags, for `call`: not 0."""
    key = function, *((type(tag), str(tag)) for tag in tags)
    if key not in _known:
        # An omitted argument is a constant of the compiled kernel.
        kinds = (*(types.int64,) * count, *map(types.Omitted, tags))
        _known[key] = (
            compile_apart(_compiled, function, kinds)
            if COMPILED
            else reference.entry_of(lambda *arguments: function(*arguments, *tags))
        )
    return _known[key]


def _compiled(function: Any, kinds: tuple[Any, ...]) -> int:
    function.compile(kinds)
    made = function.overloads[kinds]
    return int(made.library.get_pointer_to_function(made.fndesc.llvm_func_name))


@emits(types.int64)
def call(builder: Builder, entry: Value, arguments: Values) -> Value:
    """What the kernel at `entry` returns for a tuple of ints."""
    given = [builder.extract_value(arguments, k) for k in range(arguments.type.count)]
    # numba passes where the result goes and where an exception goes, then the arguments.
    places = [cgutils.alloca_once(builder, kind) for kind in (llvm.I64, llvm.POINTER)]
    kind = ir.FunctionType(llvm.I32, [value.type for value in (*places, *given)])
    builder.call(builder.inttoptr(entry, kind.as_pointer()), [*places, *given])
    return builder.load(places[0])
