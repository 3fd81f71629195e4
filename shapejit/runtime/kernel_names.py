"""What a kernel is asked for by: frozen values, the same in every process.

The builder and whoever asks it share this module, which imports nothing of the package. A kind
is what one argument of a kernel is: "i" an int, "a" an int64 array of one dim, "t" of two, "o" a
Python object, which the kernel gets the address of. The others are tags, of which only the type
counts: "u1", "u2", "u4", "u8" and "c16" stand for a width in bytes, "n3" for the number 3.
"""

from __future__ import annotations

from typing import Any, NamedTuple

Kinds = tuple[str, ...]


class Entry(NamedTuple):
    """A kernel ("module.function") that threads run; the kinds of what it takes behind `STARTS`."""

    kernel: str
    kinds: Kinds


STARTS: Kinds = ("t", "a", "a", "i")  # places, work, span, stage: what every Entry begins with


class Function(NamedTuple):
    """A kernel that others call by its address: it takes so many ints, and tags behind them."""

    kernel: str
    ints: int
    tags: Kinds


class Code(NamedTuple):
    """A function that a module of `kernels` writes with LLVM's builder: its address."""

    writer: str
    what: Any


class Call(NamedTuple):
    """A kernel that Python calls; it returns an int ("i"), a bool ("b") or nothing ("").

    The GIL stays `held` for what reads Python's own objects.
    """

    kernel: str
    kinds: Kinds
    returns: str
    held: bool


Name = Entry | Function | Code | Call
