"""Loads, stores and copies at an address: numba intrinsics, and ctypes with the JIT off.

A width travels as the type of a scalar, `WIDTHS[n]`: numba compiles a kernel
once for each type of it, and a kernel never looks at its value.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from .jit import COMPILED

WIDTHS: dict[int, Any] = {
    1: np.uint8(0),
    2: np.uint16(0),
    4: np.uint32(0),
    8: np.uint64(0),
    16: 0j,
}

_BYTE = ir.IntType(8)


def _element(width: Any) -> ir.Type:
    """The LLVM type that moves one element; 16 bytes go through one vector register."""
    if isinstance(width, types.Complex):
        return ir.VectorType(ir.IntType(64), 2)
    return ir.IntType(width.bitwidth)


if COMPILED:

    @intrinsic
    def move(context: Any, target: Any, source: Any, width: Any) -> Any:
        """Copy one element from address to address; neither need be aligned."""

        def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            pointer = _element(signature.args[2]).as_pointer()
            value = builder.load(builder.inttoptr(arguments[1], pointer))
            value.align = 1
            builder.store(value, builder.inttoptr(arguments[0], pointer)).align = 1
            return context.get_dummy_value()

        return types.void(types.int64, types.int64, width), emit

    @intrinsic
    def copy(context: Any, target: Any, source: Any, nbytes: Any) -> Any:
        """memcpy."""

        def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            pointer, size = _BYTE.as_pointer(), ir.IntType(64)
            memcpy = builder.module.declare_intrinsic("llvm.memcpy", [pointer, pointer, size])
            to = builder.inttoptr(arguments[0], pointer)
            come = builder.inttoptr(arguments[1], pointer)
            builder.call(memcpy, [to, come, arguments[2], ir.Constant(ir.IntType(1), 0)])
            return context.get_dummy_value()

        return types.void(types.int64, types.int64, types.int64), emit

    @intrinsic
    def load_byte(context: Any, address: Any) -> Any:
        """The byte at an address."""

        def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.load(builder.inttoptr(arguments[0], _BYTE.as_pointer()))

        return types.uint8(types.int64), emit

    @intrinsic
    def store_byte(context: Any, address: Any, value: Any) -> Any:
        """Write a byte at an address."""

        def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            builder.store(arguments[1], builder.inttoptr(arguments[0], _BYTE.as_pointer()))
            return context.get_dummy_value()

        return types.void(types.int64, types.uint8), emit

else:

    def move(target: int, source: int, width: Any) -> None:
        """Copy one element from address to address; neither need be aligned."""
        ctypes.memmove(int(target), int(source), np.dtype(type(width)).itemsize)

    def copy(target: int, source: int, nbytes: int) -> None:
        """memcpy."""
        ctypes.memmove(int(target), int(source), int(nbytes))

    def load_byte(address: int) -> int:
        """The byte at an address."""
        return ctypes.c_uint8.from_address(int(address)).value

    def store_byte(address: int, value: int) -> None:
        """Write a byte at an address."""
        ctypes.c_uint8.from_address(int(address)).value = value
