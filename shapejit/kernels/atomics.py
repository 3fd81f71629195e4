"""Memory that several threads change at a time: int64 at an address."""

from __future__ import annotations

import ctypes
from typing import Any

from llvmlite import binding, ir
from numba import types
from numba.extending import intrinsic

from . import emit
from .jit import COMPILED

_X86 = binding.get_default_triple().startswith(("x86", "i686"))


if COMPILED:

    @intrinsic
    def add(context: Any, address: Any, value: Any) -> Any:
        """Add to the int64 at an address; return what it was."""

        def emitted(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            place = builder.inttoptr(arguments[0], emit.I64.as_pointer())
            return builder.atomic_rmw("add", place, arguments[1], "seq_cst")

        return types.int64(types.int64, types.int64), emitted

    @intrinsic
    def load(context: Any, address: Any) -> Any:
        """The int64 at an address, which another thread may have written."""

        def emitted(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            place = builder.inttoptr(arguments[0], emit.I64.as_pointer())
            return builder.load_atomic(place, "seq_cst", 8)

        return types.int64(types.int64), emitted

    @intrinsic
    def pause(context: Any) -> Any:
        """Tell the core that this is a loop which waits."""

        def emitted(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            if _X86:
                kind = ir.FunctionType(ir.VoidType(), [])
                builder.call(builder.module.declare_intrinsic("llvm.x86.sse2.pause", (), kind), [])
            return context.get_dummy_value()

        return types.void(), emitted

    @intrinsic
    def yield_core(context: Any) -> Any:
        """Let another thread have this core (POSIX sched_yield)."""

        def emitted(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            kind = ir.FunctionType(emit.I32, [])
            function = builder.module.globals.get("sched_yield")
            if function is None:
                function = ir.Function(builder.module, kind, "sched_yield")
            builder.call(function, [])
            return context.get_dummy_value()

        return types.void(), emitted

else:

    def add(address: int, value: int) -> int:
        """Add to the int64 at an address; return what it was."""
        place = ctypes.c_int64.from_address(int(address))
        before = place.value
        place.value = before + int(value)
        return before

    def load(address: int) -> int:
        """The int64 at an address."""
        return ctypes.c_int64.from_address(int(address)).value

    def pause() -> None:
        """Nothing: there is one thread."""

    yield_core = pause
