"""Moves between bit addresses: intrinsics with explicit vectors, and plain Python with the JIT off.

Elements lie least significant bits first. A code is an element in a byte of its
own. The width of elements, 1, 2, 3, 4 or 6 bits, travels as the length of a tuple.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from . import emit
from .constants import LINE, PIECE
from .jit import COMPILED, kernel


def spaced(bits: int, apart: int, total: int) -> int:
    """The mask of `bits` ones at every multiple of `apart` below `total`."""
    return sum(((1 << bits) - 1) << at for at in range(0, total, apart))


def factor_of(width: int) -> int:
    """How many elements of `width` bits a byte holds whole, 1 where they cross bytes."""
    return 8 // width if 8 % width == 0 else 1


def group_of(width: int) -> int:
    """How many elements of `width` bits fill whole bytes, one or three."""
    return {1: 8, 2: 4, 3: 8, 4: 2, 6: 4}[width]


if COMPILED:

    def _shifted(nbytes: int, streamed: bool) -> Callable[..., Any]:
        """The intrinsic that copies so many bytes from `shift` bits, 1 to 7, behind an address."""

        @intrinsic
        def move(context: Any, target: Any, source: Any, shift: Any) -> Any:
            def emitted(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
                target, source, shift = arguments
                value = _load_shifted(builder, source, shift, nbytes)
                stored = emit.store(builder, value, target)
                if streamed:
                    emit.once(builder, stored, nbytes)
                return context.get_dummy_value()

            return types.void(types.int64, types.int64, types.int64), emitted

        return move  # type: ignore[no-any-return]  # numba is not type-checked

    def _load_shifted(builder: Any, source: Any, shift: Any, nbytes: int) -> Any:
        """So many bytes from `shift` bits behind an address, as words; one byte more is read."""
        kind = ir.VectorType(emit.I64, nbytes // 8)
        low = emit.load(builder, source, kind)
        high = emit.load(builder, builder.add(source, ir.Constant(emit.I64, 1)), kind)
        right = emit.splat(builder, shift, kind.count)
        left = builder.sub(emit.constant(8, kind), right)
        return builder.or_(builder.lshr(low, right), builder.shl(high, left))

    shift_line = _shifted(LINE, False)
    shift_piece = _shifted(PIECE, False)
    stream_shifted = _shifted(LINE, True)

    @intrinsic
    def load_word(context: Any, address: Any) -> Any:
        """The 8 bytes at an address."""

        def emitted(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return emit.load(builder, arguments[0], emit.I64)

        return types.int64(types.int64), emitted

    @intrinsic
    def store_word(context: Any, address: Any, word: Any) -> Any:
        """Write 8 bytes at an address."""

        def emitted(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            emit.store(builder, arguments[1], arguments[0])
            return context.get_dummy_value()

        return types.void(types.int64, types.int64), emitted

    @intrinsic
    def set_bits(context: Any, address: Any, mask: Any, value: Any) -> Any:
        """Let the bits of `mask` in a byte be those of `value`; others may set the rest."""

        def emitted(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            place = builder.inttoptr(arguments[0], emit.POINTER)
            mask, value = (builder.trunc(bits, emit.I8) for bits in arguments[1:])
            builder.atomic_rmw("and", place, builder.not_(mask), "monotonic")
            builder.atomic_rmw("or", place, builder.and_(value, mask), "monotonic")
            return context.get_dummy_value()

        return types.void(types.int64, types.int64, types.int64), emitted

    @intrinsic
    def exchange(context: Any, address: Any, apart: Any, bits: Any) -> Any:
        """Transpose elements between rows: element c of row r's bytes goes to place r of row c's.

        There are as many rows of 64 bytes as a byte holds elements, `apart` bytes apart.
        """

        def emitted(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            address, apart = arguments[:2]
            width, count = bits.count, factor_of(bits.count)
            kind = ir.VectorType(emit.I64, LINE // 8)
            places = [
                builder.add(address, builder.mul(apart, ir.Constant(emit.I64, row)))
                for row in range(count)
            ]
            rows = [emit.load(builder, place, kind) for place in places]
            step = 1
            while step < count:
                apart_bits = step * width
                shift = emit.constant(apart_bits, kind)
                mask = emit.constant(spaced(apart_bits, 2 * apart_bits, 64), kind)
                for row in (row for row in range(count) if not row & step):
                    a, b = rows[row], rows[row + step]
                    differ = builder.and_(builder.xor(builder.lshr(a, shift), b), mask)
                    rows[row] = builder.xor(a, builder.shl(differ, shift))
                    rows[row + step] = builder.xor(b, differ)
                step *= 2
            for place, row in zip(places, rows, strict=True):
                emit.store(builder, row, place)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64, bits), emitted

    def _widen(count: int) -> Callable[..., Any]:
        """The intrinsic that writes so many codes, elements from `shift` bits behind an address.

        With a shift of 0 nothing is read behind the last element's byte.
        """

        @intrinsic
        def widened(context: Any, target: Any, source: Any, shift: Any, bits: Any) -> Any:
            def emitted(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
                target, source, shift = arguments[:3]
                none = builder.icmp_signed("==", shift, ir.Constant(emit.I64, 0))
                with builder.if_else(none) as (on_bytes, between):
                    with on_bytes:
                        straight = _grouped(builder, source, None, count, bits.count)
                        straight_from = builder.block
                    with between:
                        shifted = _grouped(builder, source, shift, count, bits.count)
                        shifted_from = builder.block
                value = builder.phi(straight.type)
                value.add_incoming(straight, straight_from)
                value.add_incoming(shifted, shifted_from)
                for near, far, apart in _steps(bits.count):
                    low = builder.and_(value, emit.constant(near, value.type))
                    high = builder.shl(value, emit.constant(apart, value.type))
                    high = builder.and_(high, emit.constant(far, value.type))
                    value = builder.or_(low, high)
                emit.store(builder, value, target)
                return context.get_dummy_value()

            return types.void(types.int64, types.int64, types.int64, bits), emitted

        return widened  # type: ignore[no-any-return]  # numba is not type-checked

    def _grouped(builder: Any, source: Any, shift: Any, count: int, width: int) -> Any:
        """`count` elements, each group in a lane that will hold its codes; `shift` may be None."""
        group = group_of(width)
        wide = ir.VectorType(ir.IntType(8 * group), count // group)
        if 8 % width == 0:
            packed = _load_bytes(builder, source, shift, 0, count // group)
            return builder.zext(packed, wide)
        # Three bytes a group: each 16 codes take theirs from two loads of two thirds.
        used = 2 * width
        half = used * 2 // 3
        parts = []
        for at in range(0, count * width // 8, used):
            low = _load_bytes(builder, source, shift, at, half)
            high = _load_bytes(builder, source, shift, at + used - half, half)
            places = [3 * (byte // group) + min(byte % group, 2) for byte in range(PIECE)]
            order = [place if place < half else place + 2 * half - used for place in places]
            parts.append(emit.shuffle(builder, low, high, order))
        return builder.bitcast(emit.joined(builder, parts), wide)

    def _load_bytes(builder: Any, source: Any, shift: Any, at: int, nbytes: int) -> Any:
        """So many bytes `at` bytes, and `shift` bits unless it is None, behind an address."""
        place = builder.add(source, ir.Constant(emit.I64, at))
        kind = ir.VectorType(emit.I8, nbytes)
        if shift is None:
            return emit.load(builder, place, kind)
        if nbytes >= 8:
            return builder.bitcast(_load_shifted(builder, place, shift, nbytes), kind)
        word = builder.zext(emit.load(builder, place, ir.IntType(8 * nbytes)), emit.I64)
        behind = emit.load(builder, builder.add(place, ir.Constant(emit.I64, nbytes)), emit.I8)
        behind = builder.shl(builder.zext(behind, emit.I64), ir.Constant(emit.I64, 8 * nbytes))
        moved = builder.lshr(builder.or_(word, behind), shift)
        return builder.bitcast(builder.trunc(moved, ir.IntType(8 * nbytes)), kind)

    widen_line = _widen(LINE)
    widen_piece = _widen(PIECE)

    @intrinsic
    def narrow_line(context: Any, target: Any, source: Any, bits: Any) -> Any:
        """Write 64 elements from 64 codes with any high bits; 4 more bytes may change."""

        def emitted(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            target, source = arguments[:2]
            width, group = bits.count, group_of(bits.count)
            wide = ir.VectorType(ir.IntType(8 * group), LINE // group)
            value = emit.load(builder, source, wide)
            for near, far, apart in reversed(_steps(width)):
                low = builder.and_(value, emit.constant(near, wide))
                high = builder.and_(value, emit.constant(far, wide))
                value = builder.or_(low, builder.lshr(high, emit.constant(apart, wide)))
            if 8 % width == 0:
                packed = builder.trunc(value, ir.VectorType(emit.I8, wide.count))
                emit.store(builder, packed, target)
                return context.get_dummy_value()
            value = builder.bitcast(value, ir.VectorType(emit.I8, LINE))
            used = 2 * width
            for k in range(LINE // PIECE):
                kept = [PIECE * k + group * (byte // 3) + byte % 3 for byte in range(used)]
                kept += [PIECE * k] * ((16 if width == 6 else 8) - used)
                part = emit.shuffle(builder, value, value, kept)
                emit.store(builder, part, builder.add(target, ir.Constant(emit.I64, k * used)))
            return context.get_dummy_value()

        return types.void(types.int64, types.int64, bits), emitted

    def _steps(width: int) -> list[tuple[int, int, int]]:
        """Each step from packed elements to codes: what stays, what moves when moved, how far."""
        group, steps = group_of(width), []
        count = group // 2
        while count:
            half, apart = count * width, count * (8 - width)
            near = spaced(half, 16 * count, 8 * group)
            steps.append((near, near << 8 * count, apart))
            count //= 2
        return steps

else:

    def _bytes(source: int, shift: int, nbytes: int) -> bytes:
        """So many bytes from `shift` bits behind an address."""
        read = ctypes.string_at(int(source), nbytes + (shift > 0))
        bits = int.from_bytes(read, "little") >> int(shift) & ((1 << 8 * nbytes) - 1)
        return bits.to_bytes(nbytes, "little")

    def shift_line(target: int, source: int, shift: int) -> None:
        """Copy 64 bytes from `shift` bits behind an address."""
        ctypes.memmove(int(target), _bytes(source, shift, LINE), LINE)

    def shift_piece(target: int, source: int, shift: int) -> None:
        """Copy 16 bytes from `shift` bits behind an address."""
        ctypes.memmove(int(target), _bytes(source, shift, PIECE), PIECE)

    stream_shifted = shift_line

    def load_word(address: int) -> int:
        """The 8 bytes at an address."""
        return ctypes.c_int64.from_address(int(address)).value

    def store_word(address: int, word: int) -> None:
        """Write 8 bytes at an address."""
        ctypes.c_int64.from_address(int(address)).value = word

    def set_bits(address: int, mask: int, value: int) -> None:
        """Let the bits of `mask` in a byte be those of `value`."""
        byte = ctypes.c_uint8.from_address(int(address))
        byte.value = (byte.value & ~mask) | (value & mask)

    def exchange(address: int, apart: int, bits: Any) -> None:
        """Transpose elements between rows, element by element."""
        width, nbytes = len(bits), LINE
        count, mask = factor_of(width), (1 << width) - 1
        rows = [ctypes.string_at(int(address + r * apart), nbytes) for r in range(count)]
        for c in range(count):
            turned = bytes(
                sum((row[i] >> c * width & mask) << r * width for r, row in enumerate(rows))
                for i in range(nbytes)
            )
            ctypes.memmove(int(address + c * apart), turned, nbytes)

    def _widen_each(target: int, source: int, shift: int, count: int, width: int) -> None:
        """Write the codes of `count` elements."""
        stream = int.from_bytes(_bytes(source, shift, count * width // 8), "little")
        codes = bytes(stream >> i * width & ((1 << width) - 1) for i in range(count))
        ctypes.memmove(int(target), codes, count)

    def widen_line(target: int, source: int, shift: int, bits: Any) -> None:
        """Write the codes of 64 elements."""
        _widen_each(target, source, shift, LINE, len(bits))

    def widen_piece(target: int, source: int, shift: int, bits: Any) -> None:
        """Write the codes of 16 elements."""
        _widen_each(target, source, shift, PIECE, len(bits))

    def narrow_line(target: int, source: int, bits: Any) -> None:
        """Write 64 elements from 64 codes."""
        width = len(bits)
        codes = ctypes.string_at(int(source), LINE)
        stream = sum((code & ((1 << width) - 1)) << i * width for i, code in enumerate(codes))
        ctypes.memmove(int(target), stream.to_bytes(8 * width, "little"), 8 * width)


@kernel
def spread(word: int, width: int) -> int:
    """8 codes from the low 8 * `width` bits of a word, which hold 8 elements; width is below 8."""
    four, two, one = (1 << 4 * width) - 1, (1 << 2 * width) - 1, (1 << width) - 1
    gap = 8 - width
    word = (word & four) | (word << 4 * gap & four << 32)
    word = (word & two * 0x0000000100000001) | (word << 2 * gap & two * 0x0001000000010000)
    return (word & one * 0x0001000100010001) | (word << gap & one * 0x0100010001000100)


@kernel
def gathered(word: int, width: int) -> int:
    """8 elements from 8 codes, whose high bits may be dirty."""
    four, two, one = (1 << 4 * width) - 1, (1 << 2 * width) - 1, (1 << width) - 1
    gap = 8 - width
    word = (word & one * 0x0001000100010001) | (
        word >> gap & two * 0x0001000100010001 - one * 0x0001000100010001
    )
    word = (word & two * 0x0000000100000001) | (
        word >> 2 * gap & four * 0x0000000100000001 - two * 0x0000000100000001
    )
    return (word & four) | (word >> 4 * gap & four << 4 * width)
