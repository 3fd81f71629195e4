"""Addresses of the arrays and results of a map, read from their structs and checked in one call."""

from __future__ import annotations

from .array_structs import is_like, item
from .jit import Address, Numbers, Table, kernel
from .memory import address_of, load_word as word
from .object_layouts import CONTIGUOUS_WRITEABLE, DATA, TYPE


@kernel
def sort(numbers: Numbers) -> None:
    """Sort numbers in place, by heapsort."""
    begin, end = len(numbers) // 2, len(numbers)
    while end > 1:
        if begin > 0:
            begin -= 1
        else:
            end -= 1
            numbers[0], numbers[end] = numbers[end], numbers[0]
        at, child = begin, 2 * begin + 1
        while child < end:
            if child + 1 < end and numbers[child] < numbers[child + 1]:
                child += 1
            if numbers[at] < numbers[child]:
                numbers[at], numbers[child] = numbers[child], numbers[at]
                at, child = child, 2 * child + 1
            else:
                child = end


@kernel
def locate(
    items: Address,
    outs: Address,
    count: int,
    kind: Numbers,
    made: Numbers,
    span: Numbers,
    addresses: Table,
) -> int:
    """Write the addresses of a tuple's ndarrays and of their results; 0 if one does not fit.

    `outs` is a tuple of ndarrays of the kind `made`, or one ndarray with all results as rows. The
    elements of an array begin and end `span[0]` and `span[1]` bytes after its address; those of a
    result have `span[2]` bytes. Results must be writable, and share no byte of these spans. The
    written addresses are shifted by `span[3]`, plus `span[4]` (arrays) or `span[5]` (results). The
    results' addresses are sorted in `addresses[2]`.
    """
    rows, nbytes = word(outs + TYPE) == kind[0], span[2]
    ordered, ascending = addresses[2], True
    if rows and not is_like(outs, address_of(made), CONTIGUOUS_WRITEABLE):
        return 0
    for i in range(count):
        x = item(items, i)
        if not is_like(x, address_of(kind), 0):
            return 0
        addresses[0, i] = word(x + DATA)
        if rows:
            addresses[1, i] = word(outs + DATA) + i * nbytes
        else:
            out = item(outs, i)
            if not is_like(out, address_of(made), CONTIGUOUS_WRITEABLE):
                return 0
            addresses[1, i] = word(out + DATA)
        ordered[i] = addresses[1, i]
        ascending = ascending and (i == 0 or ordered[i - 1] <= ordered[i])
    if not ascending:
        sort(ordered)
    for i in range(count - 1):
        if ordered[i] + nbytes > ordered[i + 1]:
            return 0
    for i in range(count):
        # The first result that ends after the array begins.
        begin, low, high = addresses[0, i] + span[0], 0, count
        while low < high:
            middle = (low + high) // 2
            if ordered[middle] + nbytes <= begin:
                low = middle + 1
            else:
                high = middle
        if low < count and ordered[low] < addresses[0, i] + span[1]:
            return 0
        addresses[0, i] = (addresses[0, i] << span[3]) + span[4]
        addresses[1, i] = (addresses[1, i] << span[3]) + span[5]
    return 1
