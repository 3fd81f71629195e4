"""Moves between addresses: numba intrinsics with explicit vectors, and ctypes with the JIT off.

Widths, counts and the sizes of vectors travel as types: see `constants`.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from llvmlite import binding, ir
from numba import config, types
from numba.extending import intrinsic

from . import emit
from .constants import LINE, PIECE
from .jit import COMPILED


def _vector_bytes() -> int:
    """The widest vector whose byte shuffles stay in registers on the machine compiled for."""
    if config.CPU_FEATURES is not None:
        have = {f[1:] for f in str(config.CPU_FEATURES).split(",") if f.startswith("+")}
    elif config.CPU_NAME == "generic":
        have = set()
    else:
        have = {name for name, there in binding.get_host_cpu_features().items() if there}
    return 64 if {"avx512f", "avx512bw"} <= have else 32 if "avx2" in have else 16


VECTOR = _vector_bytes()


def _picked(builder: Any, vectors: list[Any], wanted: list[tuple[int, int]]) -> Any:
    """One vector whose element j is element wanted[j][1] of vectors[wanted[j][0]]."""
    count = len(wanted)
    value = vectors[0]
    order = [at if part == 0 else 0 for part, at in wanted]
    for k in range(1, max(len(vectors), 2)):
        other = vectors[k] if k < len(vectors) else value
        value = emit.shuffle(
            builder,
            value,
            other,
            [count + at if part == k else o for (part, at), o in zip(wanted, order, strict=True)],
        )
        order = list(range(count))
    return value


def _turned(count: int, size: int) -> list[int]:
    """Where each of 16 bytes comes from when groups of `count` elements are turned around."""
    order = list(range(PIECE))
    group = count * size
    for start in range(0, PIECE - group + 1, group):
        for i in range(count):
            for byte in range(size):
                order[start + i * size + byte] = start + (count - 1 - i) * size + byte
    return order


if COMPILED:

    @intrinsic
    def size_of(context: Any, tag: Any) -> Any:
        """The bytes that a tag stands for, a constant of the compiled kernel."""

        def emitted(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return ir.Constant(emit.I64, emit.size(tag))

        return types.int64(tag), emitted

    @intrinsic
    def move(context: Any, target: Any, source: Any, width: Any) -> Any:
        """Copy one element from address to address; neither need be aligned."""

        def emitted(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            value = emit.load(builder, arguments[1], emit.element(emit.size(width)))
            emit.store(builder, value, arguments[0])
            return context.get_dummy_value()

        return types.void(types.int64, types.int64, width), emitted

    @intrinsic
    def move_line(context: Any, target: Any, source: Any) -> Any:
        """Copy 64 bytes from address to address; neither need be aligned."""

        def emitted(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            emit.store(builder, emit.load(builder, arguments[1], emit.element(LINE)), arguments[0])
            return context.get_dummy_value()

        return types.void(types.int64, types.int64), emitted

    @intrinsic
    def stream_line(context: Any, target: Any, source: Any) -> Any:
        """Copy 64 bytes to an aligned line of memory, past the caches."""

        def emitted(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            value = emit.load(builder, arguments[1], emit.element(LINE))
            emit.once(builder, emit.store(builder, value, arguments[0]), LINE)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64), emitted

    @intrinsic
    def prefetch(context: Any, address: Any) -> Any:
        """Ask for the line at an address, which need not exist."""

        def emitted(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            emit.ask(builder, arguments[0])
            return context.get_dummy_value()

        return types.void(types.int64), emitted

    @intrinsic
    def fence(context: Any) -> Any:
        """Order streamed lines before whatever tells another thread that they are there."""

        def emitted(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            builder.fence("seq_cst")
            return context.get_dummy_value()

        return types.void(), emitted

    @intrinsic
    def copy(context: Any, target: Any, source: Any, nbytes: Any) -> Any:
        """memcpy."""

        def emitted(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            kinds = [emit.POINTER, emit.POINTER, emit.I64]
            memcpy = builder.module.declare_intrinsic("llvm.memcpy", kinds)
            to = builder.inttoptr(arguments[0], emit.POINTER)
            come = builder.inttoptr(arguments[1], emit.POINTER)
            builder.call(memcpy, [to, come, arguments[2], ir.Constant(ir.IntType(1), 0)])
            return context.get_dummy_value()

        return types.void(types.int64, types.int64, types.int64), emitted

    @intrinsic
    def transpose_block(
        context: Any, source: Any, rows: Any, target: Any, columns: Any, width: Any, pieces: Any
    ) -> Any:
        """Transpose one block in registers.

        Row i is 16 bytes at `source` + rows[i]; there are `pieces` * 16 / width
        of them. Column k of all rows goes side by side to `target` + columns[k].
        """

        def emitted(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            source, rows, target, columns = arguments[:4]
            size, lanes = emit.size(width), emit.size(pieces)
            per_piece = PIECE // size
            piece = ir.VectorType(emit.element(min(size, 8)), PIECE // min(size, 8))

            def entry(table: Any, index: int) -> Any:
                return emit.load(
                    builder, builder.add(table, ir.Constant(emit.I64, 8 * index)), emit.I64
                )

            vectors = []
            for k in range(per_piece):
                offsets = [entry(rows, i * per_piece + k) for i in range(lanes)]
                parts = [emit.load(builder, builder.add(source, at), piece) for at in offsets]
                vectors.append(emit.joined(builder, parts))
            for k, column in enumerate(emit.interleaved(builder, vectors, piece.count)):
                emit.store(builder, column, builder.add(target, entry(columns, k)))
            return context.get_dummy_value()

        address = types.int64
        return types.void(address, address, address, address, width, pieces), emitted

    @intrinsic
    def transpose_even(
        context: Any, source: Any, pitch: Any, target: Any, apart: Any, width: Any, pieces: Any
    ) -> Any:
        """`transpose_block` of rows `pitch` bytes apart, whose columns go `apart` bytes apart."""

        def emitted(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            source, pitch, target, apart = arguments[:4]
            size, lanes = emit.size(width), emit.size(pieces)
            per_piece = PIECE // size
            piece = ir.VectorType(emit.element(min(size, 8)), PIECE // min(size, 8))

            def at(base: Any, index: int, step: Any) -> Any:
                return builder.add(base, builder.mul(step, ir.Constant(emit.I64, index)))

            vectors = []
            for k in range(per_piece):
                places = [at(source, i * per_piece + k, pitch) for i in range(lanes)]
                parts = [emit.load(builder, place, piece) for place in places]
                vectors.append(emit.joined(builder, parts))
            for k, column in enumerate(emit.interleaved(builder, vectors, piece.count)):
                emit.store(builder, column, at(target, k, apart))
            return context.get_dummy_value()

        address = types.int64
        return types.void(address, address, address, address, width, pieces), emitted

    @intrinsic
    def transpose_dealt(
        context: Any, source: Any, target: Any, columns: Any, width: Any, pieces: Any
    ) -> Any:
        """`transpose_block` of rows that were dealt to vectors: no piece has to be put in place.

        Vector k at `source` holds rows k, k + n, k + 2n ..., 16 bytes of each; n = 16 / width.
        """

        def emitted(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            source, target, columns = arguments[:3]
            size, lanes = emit.size(width), emit.size(pieces)
            per_piece = PIECE // size
            vector = ir.VectorType(emit.element(min(size, 8)), lanes * PIECE // min(size, 8))

            def at(base: Any, nbytes: int) -> Any:
                return builder.add(base, ir.Constant(emit.I64, nbytes))

            places = [at(source, k * lanes * PIECE) for k in range(per_piece)]
            vectors = [emit.load(builder, place, vector) for place in places]
            for k, column in enumerate(emit.interleaved(builder, vectors, PIECE // min(size, 8))):
                offset = emit.load(builder, at(columns, 8 * k), emit.I64)
                emit.store(builder, column, builder.add(target, offset))
            return context.get_dummy_value()

        address = types.int64
        return types.void(address, address, address, width, pieces), emitted

    @intrinsic
    def move_piece(context: Any, target: Any, source: Any) -> Any:
        """Copy 16 bytes from address to address; neither need be aligned."""

        def emitted(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            emit.store(builder, emit.load(builder, arguments[1], emit.element(PIECE)), arguments[0])
            return context.get_dummy_value()

        return types.void(types.int64, types.int64), emitted

    @intrinsic
    def interleave(
        context: Any, source: Any, rows: Any, target: Any, factor: Any, width: Any, pieces: Any
    ) -> Any:
        """Write the elements of `factor` rows in turn: a0 b0 c0 a1 b1 c1 and so on.

        Row i is `pieces` * 16 bytes at `source` + rows[i]; `target` takes them all.
        """

        def emitted(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            source, rows, target = arguments[:3]
            count = PIECE * emit.size(pieces) // emit.size(width)
            vector = ir.VectorType(ir.IntType(8 * emit.size(width)), count)
            loaded = []
            for i in range(factor.count):
                at = emit.load(builder, builder.add(rows, ir.Constant(emit.I64, 8 * i)), emit.I64)
                loaded.append(emit.load(builder, builder.add(source, at), vector))
            for k in range(factor.count):
                places = [k * count + j for j in range(count)]
                wanted = [(place % factor.count, place // factor.count) for place in places]
                value = _picked(builder, loaded, wanted)
                at = builder.add(target, ir.Constant(emit.I64, k * PIECE * emit.size(pieces)))
                emit.store(builder, value, at)
            return context.get_dummy_value()

        address = types.int64
        return types.void(address, address, address, factor, width, pieces), emitted

    @intrinsic
    def pick(
        context: Any, source: Any, target: Any, step: Any, back: Any, width: Any, pieces: Any
    ) -> Any:
        """Write `pieces` * 16 bytes of elements that lie `step` apart in the source.

        `back` of one byte means forwards, from `source` up; of two bytes backwards,
        from the element at `source` down. Nothing outside the first and last
        element's stretch is read.
        """

        def emitted(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            source, target = arguments[:2]
            size = emit.size(width)
            count, apart = PIECE * emit.size(pieces) // size, step.count
            vector = ir.VectorType(ir.IntType(8 * size), count)
            backwards = emit.size(back) == 2
            # The stretch has (count - 1) * apart + 1 elements: the last load reaches back.
            length = (count - 1) * apart + 1
            first = ir.Constant(emit.I64, -(length - 1) * size if backwards else 0)
            start = builder.add(source, first)
            begins = [min(i * count, length - count) for i in range(apart)]
            loaded = [
                emit.load(builder, builder.add(start, ir.Constant(emit.I64, b * size)), vector)
                for b in begins
            ]
            wanted = []
            for j in range(count):
                place = (count - 1 - j if backwards else j) * apart
                part = min(place // count, apart - 1)
                wanted.append((part, place - begins[part]))
            emit.store(builder, _picked(builder, loaded, wanted), target)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64, step, back, width, pieces), emitted

    @intrinsic
    def turn_groups(context: Any, source: Any, target: Any, count: Any, width: Any) -> Any:
        """Copy 16 bytes with the elements of each whole group of `count` in the other order."""

        def emitted(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            loaded = emit.load(builder, arguments[0], ir.VectorType(emit.I8, PIECE))
            order = _turned(count.count, emit.size(width))
            emit.store(builder, emit.shuffle(builder, loaded, loaded, order), arguments[1])
            return context.get_dummy_value()

        return types.void(types.int64, types.int64, count, width), emitted

    @intrinsic
    def load_byte(context: Any, address: Any) -> Any:
        """The byte at an address."""

        def emitted(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return emit.load(builder, arguments[0], emit.I8)

        return types.uint8(types.int64), emitted

    @intrinsic
    def store_byte(context: Any, address: Any, value: Any) -> Any:
        """Write a byte at an address."""

        def emitted(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            emit.store(builder, arguments[1], arguments[0])
            return context.get_dummy_value()

        return types.void(types.int64, types.uint8), emitted

else:

    def size_of(tag: Any) -> int:
        """The bytes that a tag stands for."""
        return np.dtype(type(tag)).itemsize

    def move(target: int, source: int, width: Any) -> None:
        """Copy one element from address to address; neither need be aligned."""
        ctypes.memmove(int(target), int(source), size_of(width))

    def move_line(target: int, source: int) -> None:
        """Copy 64 bytes."""
        ctypes.memmove(int(target), int(source), LINE)

    stream_line = move_line

    def prefetch(address: int) -> None:
        """Nothing: ctypes has no word for it."""

    def fence() -> None:
        """Nothing: Python's stores are ordered."""

    def copy(target: int, source: int, nbytes: int) -> None:
        """memcpy."""
        ctypes.memmove(int(target), int(source), int(nbytes))

    def transpose_block(
        source: int, rows: int, target: int, columns: int, width: Any, pieces: Any
    ) -> None:
        """Transpose one block, element by element."""
        size = size_of(width)
        per_piece = PIECE // size
        for i in range(size_of(pieces) * per_piece):
            come = source + ctypes.c_int64.from_address(int(rows) + 8 * i).value
            for k in range(per_piece):
                to = target + ctypes.c_int64.from_address(int(columns) + 8 * k).value
                move(to + i * size, come + k * size, width)

    def transpose_even(
        source: int, pitch: int, target: int, apart: int, width: Any, pieces: Any
    ) -> None:
        """Transpose one block of evenly spaced rows and columns, element by element."""
        size = size_of(width)
        per_piece = PIECE // size
        for i in range(size_of(pieces) * per_piece):
            for k in range(per_piece):
                move(target + k * apart + i * size, source + i * pitch + k * size, width)

    def transpose_dealt(source: int, target: int, columns: int, width: Any, pieces: Any) -> None:
        """Transpose one block whose rows were dealt to vectors, element by element."""
        size, lanes = size_of(width), size_of(pieces)
        per_piece = PIECE // size
        for i in range(lanes * per_piece):
            come = source + (i % per_piece * lanes + i // per_piece) * PIECE
            for k in range(per_piece):
                to = target + ctypes.c_int64.from_address(int(columns) + 8 * k).value
                move(to + i * size, come + k * size, width)

    def move_piece(target: int, source: int) -> None:
        """Copy 16 bytes."""
        ctypes.memmove(int(target), int(source), PIECE)

    def interleave(
        source: int, rows: int, target: int, factor: Any, width: Any, pieces: Any
    ) -> None:
        """Write the elements of rows in turn, element by element."""
        size = size_of(width)
        for i in range(len(factor)):
            come = source + ctypes.c_int64.from_address(int(rows) + 8 * i).value
            for j in range(PIECE * size_of(pieces) // size):
                move(target + (j * len(factor) + i) * size, come + j * size, width)

    def pick(source: int, target: int, step: Any, back: Any, width: Any, pieces: Any) -> None:
        """Write elements that lie apart in the source, element by element."""
        size = size_of(width)
        apart = -len(step) if size_of(back) == 2 else len(step)
        for j in range(PIECE * size_of(pieces) // size):
            move(target + j * size, source + j * apart * size, width)

    def turn_groups(source: int, target: int, count: Any, width: Any) -> None:
        """Copy 16 bytes with the elements of each whole group in the other order."""
        piece = ctypes.string_at(int(source), PIECE)
        turned = bytes(piece[at] for at in _turned(len(count), size_of(width)))
        ctypes.memmove(int(target), turned, PIECE)

    def load_byte(address: int) -> int:
        """The byte at an address."""
        return ctypes.c_uint8.from_address(int(address)).value

    def store_byte(address: int, value: int) -> None:
        """Write a byte at an address."""
        ctypes.c_uint8.from_address(int(address)).value = value
