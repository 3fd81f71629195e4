"""Small ndarrays joined in one call, which reads their structs in place."""

from __future__ import annotations

from typing import Any

from ..runtime.cpu_caches import LINE
from .array_structs import is_like
from .constants import WIDTHS
from .copies import fragment
from .jit import Address, Numbers, kernel
from .memory import address_of, copy, load_address, move, prefetch, size_of
from .object_layouts import AHEAD, CONTIGUOUS_WRITEABLE, DATA, DESCR, ITEMS

W1, W2, W4, W8 = (WIDTHS[width] for width in (1, 2, 4, 8))


@kernel
def spread_elements(target: Address, apart: int, source: Address, rows: int, width: Any) -> None:
    """Copy contiguous elements to evenly spaced places."""
    for row in range(rows):
        move(target + row * apart, source + row * size_of(width), width)


@kernel
def spread(target: Address, apart: int, source: Address, rows: int, run: int) -> None:
    """Copy contiguous runs to evenly spaced places."""
    if run == 1:
        spread_elements(target, apart, source, rows, W1)
    elif run == 2:
        spread_elements(target, apart, source, rows, W2)
    elif run == 4:
        spread_elements(target, apart, source, rows, W4)
    elif run == 8:
        spread_elements(target, apart, source, rows, W8)
    elif run < LINE:
        for row in range(rows):
            fragment(target + row * apart, source + row * run, run)
    else:
        for row in range(rows):
            copy(target + row * apart, source + row * run, run)


@kernel
def join_alike(
    items: Address, out: Address, count: int, kind: Numbers, out_kind: Numbers, rows: int, run: int
) -> bool:
    """Interleave the rows of a tuple's ndarrays into `out`, if all fit.

    They fit if all have one `kind` (see `kind_of`), are contiguous, have equally many rows of `run`
    bytes, and share no byte with `out`. `items` is the tuple's address, `out` that of an ndarray.
    """
    if not is_like(out, address_of(out_kind), CONTIGUOUS_WRITEABLE):
        return False
    begin = load_address(out + DATA)
    end = begin + count * rows * run
    for k in range(count):
        if k + AHEAD < count:
            prefetch(load_address(items + ITEMS + 8 * (k + AHEAD)) + DESCR)
        x = load_address(items + ITEMS + 8 * k)
        if not is_like(x, address_of(kind), 0):
            return False
        source = load_address(x + DATA)
        if source < end and begin < source + rows * run:
            return False
    for k in range(count):
        source = load_address(load_address(items + ITEMS + 8 * k) + DATA)
        spread(begin + k * run, count * run, source, rows, run)
    return True
