"""Small ndarrays joined in one call, which reads their structs in place."""

from __future__ import annotations

from .array_structs import is_like
from .copies import move_run
from .jit import Address, Numbers, kernel
from .memory import address_of, load_address, prefetch
from .object_layouts import AHEAD, CONTIGUOUS_WRITEABLE, DATA, DESCR, ITEMS
from .small import strip


@kernel
def spread(target: Address, apart: int, source: Address, rows: int, run: int) -> None:
    """Copy contiguous runs to evenly spaced places."""
    if run == 1 or run == 2 or run == 4 or run == 8:
        strip(source, run, target, apart, rows, run)
    else:
        for row in range(rows):
            move_run(target + row * apart, source + row * run, run)


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
