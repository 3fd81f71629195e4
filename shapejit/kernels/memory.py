"""Moves between addresses, which need not be aligned unless stated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types

from ..runtime.cpu_caches import LINE
from ..runtime.processor import features, is_arm64, vector
from . import llvm, pointers
from .constants import PIECE, per_piece
from .llvm import Address, ArrayStruct, BitAddress, Builder, Byte, Tag, Value, emits
from .pointers import ADDRESS, BITS

# Bytes that are loaded before any of them is stored. A load waits for recent stores to the same
# bytes of any page, and large arrays begin at the same byte of theirs.
FOUR_LINES = 4 * LINE
FEATURES, VECTOR, ARM64 = features(), vector(), is_arm64()


@emits(ADDRESS)
def address_of(builder: Builder, array: ArrayStruct) -> Address:
    """The address of an array's first element."""
    return builder.bitcast(builder.extract_value(array, llvm.DATA), llvm.POINTER)


@emits(ADDRESS)
def pointer(builder: Builder, number: Value) -> Address:
    """The address that a table stores as an int."""
    return pointers.of_number(builder, number, ADDRESS)


@emits(BITS)
def bit_pointer(builder: Builder, number: Value) -> BitAddress:
    """The bit address that a table stores as an int."""
    return pointers.of_number(builder, number, BITS)


@emits(types.int64)
def number_of(builder: Builder, address: Address) -> Value:
    """The int that represents an address in a table."""
    return pointers.number(builder, address)


def _moved(builder: Builder, dst: Address, src: Address, nbytes: int) -> Value:
    """The store that moves an element."""
    return llvm.store(builder, llvm.load(builder, src, llvm.element(nbytes)), dst)


@emits(types.int64)
def size_of(builder: Builder, tag: Tag) -> Value:
    """The bytes that a tag stands for, a constant of the compiled kernel."""
    return llvm.number(llvm.size(tag))


@emits(types.int64)
def columns_of(builder: Builder, tag: Tag) -> Value:
    """The columns of a block of elements of this width, a constant of the compiled kernel."""
    return llvm.number(per_piece(llvm.size(tag)))


@emits()
def move(builder: Builder, dst: Address, src: Address, width: Tag) -> None:
    """Copy one element."""
    _moved(builder, dst, src, llvm.size(width))


def _moves(nbytes: int, nontemporal: bool = False) -> Callable[[Any, Any], None]:
    """The intrinsic that copies elements of one width; nontemporally to an aligned line."""

    def moved(builder: Builder, dst: Address, src: Address) -> None:
        stored = _moved(builder, dst, src, nbytes)
        if nontemporal:
            llvm.nontemporal(builder, stored, nbytes)

    return emits()(moved)


move_piece, move_half, move_line, move_lines = map(_moves, (PIECE, LINE // 2, LINE, FOUR_LINES))
stream_line, stream_lines = _moves(LINE, True), _moves(FOUR_LINES, True)


@emits()
def stream_joined(
    builder: Builder, dst: Address, first: Address, second: Address, count: Value
) -> None:
    """Write the first `count` bytes of the line at `first`, and those after them of `second`.

    By nontemporal stores, to an aligned line.
    """
    kind = ir.VectorType(llvm.I8, LINE)
    places = ir.Constant(kind, [*range(LINE)])
    counted = llvm.splat(builder, builder.trunc(count, llvm.I8), LINE)
    of_first = builder.icmp_signed("<", places, counted)
    lines = (llvm.load(builder, address, kind) for address in (first, second))
    stored = llvm.store(builder, builder.select(of_first, *lines), dst)
    llvm.nontemporal(builder, stored, LINE)


@emits()
def copy(builder: Builder, dst: Address, src: Address, nbytes: Value) -> None:
    """memcpy of less than a line; others are moved by `copies.move_run`."""
    llvm.copy(builder, dst, src, nbytes)


@emits()
def prefetch(builder: Builder, address: Address) -> None:
    """Prefetch the line at an address, which may be invalid."""
    llvm.prefetch(builder, address)


@emits()
def prefetch_to_write(builder: Builder, address: Address) -> None:
    """Prefetch the line at an address, which may be invalid, for writing."""
    llvm.prefetch(builder, address, True)


@emits()
def fence(builder: Builder) -> None:
    """Order nontemporal stores before a later store that signals them to another thread."""
    builder.fence("seq_cst")


def _loads(kind: ir.Type, returns: Any) -> Callable[[Any], Any]:
    """The intrinsic that loads a value of an LLVM type, which is of a numba type."""

    def loaded(builder: Builder, address: Address) -> Any:
        return llvm.load(builder, address, kind)

    return emits(returns)(loaded)


load_byte = _loads(llvm.I8, types.uint8)
load_word = _loads(llvm.I64, types.int64)
load_address = _loads(llvm.POINTER, ADDRESS)


@emits(types.int64)
def load_half(builder: Builder, address: Address) -> Value:
    """The int32 at an address."""
    return builder.sext(llvm.load(builder, address, llvm.I32), llvm.I64)


@emits()
def store_byte(builder: Builder, address: Address, value: Byte) -> None:
    """Write a byte."""
    llvm.store(builder, value, address)


@emits()
def store_word(builder: Builder, address: Address, word: Value) -> None:
    """Write 8 bytes."""
    llvm.store(builder, word, address)


@emits()
def store_address(builder: Builder, address: Address, value: Address) -> None:
    """Write an address: `load_address` finds a pointer that was never an int."""
    llvm.store(builder, value, address)
