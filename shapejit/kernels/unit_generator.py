"""Generator of the function of a Unit: reads the codes of units of planes (see `planes`)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import gcd
from typing import Any

import numpy as np
from llvmlite import ir

from ..runtime.cpu_caches import LINE
from . import llvm
from .bit_permutations import Piece, bits_of, loaded, permuted, picked, side_by_side
from .llvm import POINTER
from .planes import Unit
from .pointers import moved

# source, target, a table of offsets, blocks, step to the next block in both, distances of
# prefetching in both
SIGNATURE = ir.FunctionType(ir.VoidType(), [POINTER] * 3 + [llvm.I64] * 5)


@contextmanager
def blocks(function: Any, size: int = 0) -> Iterator[tuple[Any, Any, Any]]:
    """The loop of a function with this SIGNATURE: a builder, and a block's source and target.

    If blocks have a `size`, they follow one another in the target.
    """
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    source, target, _, count, source_step, target_step, _, _ = function.args
    if size:
        target_step = llvm.number(size)
    with llvm.counted(builder, count, llvm.number(1)) as k:
        begin = moved(builder, source, builder.mul(k, source_step))
        yield builder, begin, moved(builder, target, builder.mul(k, target_step))
    builder.ret_void()


def write(function: Any, unit: Unit) -> None:
    """Write the function that reads units; it needs no table."""
    lanes, bits = gcd(unit.size, LINE), bits_of(unit.planes)
    with blocks(function, unit.size) as (builder, begin, into):
        for first in range(0, unit.size, lanes):
            value = permuted(builder, _bytes, begin, bits[first : first + lanes])
            llvm.store(builder, value, llvm.at(builder, into, first))


def _bytes(builder: Any, begin: Any, order: list[int]) -> Any:
    """Exactly the bytes at the given offsets, as a vector."""
    offsets, pieces = np.unique(order), list[Piece]()
    for run in np.split(offsets, np.flatnonzero(np.diff(offsets) > 1) + 1):
        first = int(run[0])
        pieces += loaded(builder, llvm.at(builder, begin, first), len(run), first)
    return picked(builder, side_by_side(builder, pieces), order)
