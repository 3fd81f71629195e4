"""Atomic operations on an int64 that several threads change; waiting in loops."""

from __future__ import annotations

from llvmlite import ir
from numba import types

from ..runtime.processor import is_x86
from . import llvm
from .calls import imported
from .llvm import Address, Builder, Value, emits

_X86 = is_x86()

sleep = imported("usleep")  # yields this core for so many microseconds


@emits(types.int64)
def fetch_add(builder: Builder, address: Address, value: Value) -> Value:
    """Add to the int64 at an address; return the old value."""
    place = builder.bitcast(address, llvm.I64.as_pointer())
    return builder.atomic_rmw("add", place, value, "seq_cst")


@emits(types.int64)
def load_atomic(builder: Builder, address: Address) -> Value:
    """The int64 at an address, which another thread may have written."""
    place = builder.bitcast(address, llvm.I64.as_pointer())
    return builder.load_atomic(place, "seq_cst", 8)


@emits()
def pause(builder: Builder) -> None:
    """Hint to the core that this is a spin loop."""
    if _X86:
        kind = ir.FunctionType(ir.VoidType(), [])
        builder.call(builder.module.declare_intrinsic("llvm.x86.sse2.pause", (), kind), [])
