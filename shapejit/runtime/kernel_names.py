"""The names of kernels, and how each is called: callers use names, the builder compiles them.

The kinds of a kernel's arguments are "i" (an int), "a" and "t" (C-contiguous arrays of int64 of one
and of two dims), and tags, of which only the type counts: "u1", "u2", "u4", "u8" and "c16" mean a
width in bytes, "n3" a count of 3. The address of a function is an "i".

The module imports nothing of the package.
"""

from __future__ import annotations

from typing import Any, NamedTuple

STARTS = ("t", "a", "a", "i")
"""The kinds of what every Entry begins with: addresses, work, span and stage."""


class Entry(NamedTuple):
    """A kernel "module.function" that threads run; `kinds` are those of what follows `STARTS`."""

    kernel: str
    kinds: tuple[str, ...]


class Function(NamedTuple):
    """A kernel "module.function" that kernels call by its address: it takes ints, then tags."""

    kernel: str
    ints: int
    tags: tuple[str, ...] = ()


class Code(NamedTuple):
    """A function that a module of `kernels` writes with LLVM's builder.

    `writer` is "conversions", "network_generator", "unit_generator" or "encode_generator"; `what`
    is a Conversion and how it streams, a network, a unit, or an Encoding: its repr is the same in
    every process.
    """

    writer: str
    what: Any


class Functions(NamedTuple):
    """Functions whose addresses a kernel gets as an array, with 0 for None."""

    each: tuple[Function | Code | None, ...]


class Call(NamedTuple):
    """A kernel "module.function" that Python calls.

    Of its arguments, those of kind "o" come first: Python's objects, of which the kernel gets
    the address; for kind "v" it gets that of all arguments. It `returns` "i" (an int), "b" (a
    bool), "o" (an object, by a new reference to it) or "" (nothing). The GIL stays `held`, or
    others run meanwhile.
    """

    kernel: str
    kinds: tuple[str, ...]
    returns: str
    held: bool


Name = Entry | Function | Code | Call


def width_tag(nbytes: int) -> str:
    """The tag of a width of 1, 2, 4, 8 or 16 bytes."""
    return f"u{nbytes}" if nbytes < 16 else "c16"


def count_tag(count: int) -> str:
    """The tag of a count."""
    return f"n{count}"


def widest(nbytes: int) -> str:
    """The tag of the widest element of at most `nbytes` bytes."""
    return width_tag(min(16, 1 << (nbytes.bit_length() - 1)))
