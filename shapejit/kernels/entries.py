"""How Python runs an Entry: by a table of int64 with all its arguments."""

from __future__ import annotations

from .calls import call
from .jit import Numbers, Table, kernel
from .memory import address_of, number_of


@kernel
def run(
    entry: int, table: Numbers, addresses: Table, work: Numbers, span: Numbers, stage: int
) -> int:
    """Fill the first words of a table, and run the kernel at `entry` with it."""
    table[0] = number_of(address_of(addresses))
    table[1] = addresses.shape[0]
    table[2] = addresses.shape[1]
    table[3] = number_of(address_of(work))
    table[4] = work.shape[0]
    table[5] = number_of(address_of(span))
    table[6] = span.shape[0]
    table[7] = stage
    status: int = call(entry, (address_of(table),))
    return status
