"""The intrinsics in plain Python: with the JIT off these functions take their place."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..runtime.cpu_caches import LINE
from .constants import PIECE, per_byte
from .networks import runner
from .plain_conversions import plain
from .planes import runner as unit_runner


def size_of(tag: Any) -> int:
    """The number of bytes that a tag represents."""
    return np.dtype(type(tag)).itemsize


def address_of(array: NDArray[Any]) -> int:
    """The address of an array's first element."""
    return int(array.ctypes.data)


def pointer(number: int) -> int:
    """The address that a table stores as an int."""
    return int(number)


bit_pointer = number_of = pointer


def copy(dst: int, src: int, nbytes: int) -> None:
    """memcpy."""
    ctypes.memmove(int(dst), int(src), int(nbytes))


def move(dst: int, src: int, width: Any) -> None:
    """Copy one element."""
    copy(dst, src, size_of(width))


def move_piece(dst: int, src: int) -> None:
    """Copy 16 bytes."""
    copy(dst, src, PIECE)


def move_line(dst: int, src: int) -> None:
    """Copy 64 bytes."""
    copy(dst, src, LINE)


stream_line = move_line


def prefetch(address: int) -> None:
    """Does nothing: ctypes cannot prefetch."""


def fence() -> None:
    """Does nothing: Python's stores are ordered."""


pause = fence


def sleep(microseconds: int) -> None:
    """Give this core away for so long at least."""
    time.sleep(1e-6 * microseconds)


def load_byte(address: int) -> int:
    """The byte at an address."""
    return ctypes.c_uint8.from_address(int(address)).value


def store_byte(address: int, value: int) -> None:
    """Write a byte."""
    ctypes.c_uint8.from_address(int(address)).value = value


def load_half(address: int) -> int:
    """The int32 at an address."""
    return ctypes.c_int32.from_address(int(address)).value


def load_word(address: int) -> int:
    """The 8 bytes at an address."""
    return ctypes.c_int64.from_address(int(address)).value


load_atomic = load_address = load_word


def store_word(address: int, word: int) -> None:
    """Write 8 bytes."""
    ctypes.c_int64.from_address(int(address)).value = word


def fetch_add(address: int, value: int) -> int:
    """Add to the int64 at an address; return what it was."""
    before = load_word(address)
    store_word(address, before + int(value))
    return before


def transpose_block(src: int, rows: int, dst: int, columns: int, width: Any, pieces: Any) -> None:
    """Transpose one block, element by element."""
    size = size_of(width)
    each = PIECE // size
    for k in range(each):
        column = dst + load_word(columns + 8 * k)
        for i in range(size_of(pieces) * each):
            move(column + i * size, src + load_word(rows + 8 * i) + k * size, width)


transpose_streamed = transpose_block


def transpose_even(src: int, pitch: int, dst: int, apart: int, width: Any, pieces: Any) -> None:
    """Transpose one block of evenly spaced rows and columns, element by element."""
    size = size_of(width)
    each = PIECE // size
    for i in range(size_of(pieces) * each):
        for k in range(each):
            move(dst + k * apart + i * size, src + i * pitch + k * size, width)


def transpose_interleaved(src: int, dst: int, columns: int, width: Any, pieces: Any) -> None:
    """Transpose one block of interleaved rows, element by element."""
    size, lanes = size_of(width), size_of(pieces)
    each = PIECE // size
    for k in range(each):
        column = dst + load_word(columns + 8 * k)
        for i in range(lanes * each):
            row = src + (i % each * lanes + i // each) * PIECE
            move(column + i * size, row + k * size, width)


def interleave(src: int, rows: int, dst: int, factor: Any, width: Any, pieces: Any) -> None:
    """Interleave the elements of rows, element by element."""
    size = size_of(width)
    for i in range(len(factor)):
        row = src + load_word(rows + 8 * i)
        for j in range(PIECE * size_of(pieces) // size):
            move(dst + (j * len(factor) + i) * size, row + j * size, width)


def pick(src: int, dst: int, apart: Any, direction: Any, width: Any, pieces: Any) -> None:
    """Copy evenly spaced elements, element by element."""
    size = size_of(width)
    step = -len(apart) if size_of(direction) == 2 else len(apart)
    for j in range(PIECE * size_of(pieces) // size):
        move(dst + j * size, src + j * step * size, width)


def turned(count: int, size: int, nbytes: int) -> list[int]:
    """The source index of each of `nbytes` bytes if groups of `count` elements are reversed."""
    order = list(range(nbytes))
    group = count * size
    for start in range(0, nbytes - group + 1, group):
        for i in range(count):
            for byte in range(size):
                order[start + i * size + byte] = start + (count - 1 - i) * size + byte
    return order


def turn_groups(src: int, dst: int, count: Any, width: Any, pieces: Any) -> None:
    """Copy pieces of 16 bytes with the elements of each whole group reversed."""
    nbytes = PIECE * size_of(pieces)
    read = ctypes.string_at(int(src), nbytes)
    _write(dst, bytes(read[at] for at in turned(len(count), size_of(width), nbytes)))


def _write(dst: int, content: bytes) -> None:
    ctypes.memmove(int(dst), content, len(content))


def _shifted(src: int, shift: int, nbytes: int) -> int:
    """So many bytes from `shift` bits behind an address, as a number."""
    read = ctypes.string_at(int(src), nbytes + (shift > 0))
    return int.from_bytes(read, "little") >> int(shift) & ((1 << 8 * nbytes) - 1)


def shift_line(dst: int, src: int, shift: int) -> None:
    """Copy 64 bytes from `shift` bits behind an address."""
    _write(dst, _shifted(src, shift, LINE).to_bytes(LINE, "little"))


def shift_piece(dst: int, src: int, shift: int) -> None:
    """Copy 16 bytes from `shift` bits behind an address."""
    _write(dst, _shifted(src, shift, PIECE).to_bytes(PIECE, "little"))


stream_shifted = shift_line


def set_bits(address: int, mask: int, value: int) -> None:
    """Let the bits of `mask` in a byte be those of `value`."""
    store_byte(address, (load_byte(address) & ~mask) | (value & mask))


def exchange(address: int, apart: int, bits: Any) -> None:
    """Transpose elements between rows, element by element."""
    width = len(bits)
    count, mask = per_byte(width), (1 << width) - 1
    rows = [ctypes.string_at(int(address + r * apart), LINE) for r in range(count)]
    for c in range(count):
        made = (
            sum((row[i] >> c * width & mask) << r * width for r, row in enumerate(rows))
            for i in range(LINE)
        )
        _write(address + c * apart, bytes(made))


def _unpack(dst: int, src: int, shift: int, count: int, width: int) -> None:
    """Write the codes of `count` elements."""
    stream = _shifted(src, shift, count * width // 8)
    _write(dst, bytes(stream >> i * width & ((1 << width) - 1) for i in range(count)))


def unpack_line(dst: int, src: int, shift: int, bits: Any) -> None:
    """Write the codes of 64 elements."""
    _unpack(dst, src, shift, LINE, len(bits))


def unpack_piece(dst: int, src: int, shift: int, bits: Any) -> None:
    """Write the codes of 16 elements."""
    _unpack(dst, src, shift, PIECE, len(bits))


def pack_line(dst: int, src: int, bits: Any) -> None:
    """Write 64 elements from 64 codes."""
    width = len(bits)
    codes = ctypes.string_at(int(src), LINE)
    stream = sum((code & ((1 << width) - 1)) << i * width for i, code in enumerate(codes))
    _write(dst, stream.to_bytes(8 * width, "little"))


_entries: list[Callable[..., Any]] = [plain]  # no entry is 0


def entry_of(function: Callable[..., Any]) -> int:
    """The number of a function for `call`, in place of its address."""
    _entries.append(function)
    return len(_entries) - 1


def call(entry: int, arguments: tuple[int, ...]) -> Any:
    """Call a function with ints."""
    return _entries[int(entry)](*map(int, arguments))


def written(writer: str, what: Any) -> int:
    """The number of a function that the module `writer` generates, for `call`."""
    return entry_of(_WRITTEN[writer](what))


_WRITTEN: dict[str, Callable[[Any], Callable[..., Any]]] = {
    "conversions": lambda what: plain(what[0]),
    "network_code": runner,
    "unit_code": unit_runner,
}


def convert(entry: int, *arguments: int) -> None:
    """Convert elements from address to address."""
    call(entry, arguments)


def shuffle(entry: int, *arguments: int) -> None:
    """Permute blocks from address to address."""
    call(entry, arguments)


def read_units(entry: int, *arguments: int) -> None:
    """Read the codes of units from address to address."""
    call(entry, arguments)
