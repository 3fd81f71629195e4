"""Addresses of the arrays and results of a map, read from their structs and checked in one call."""

from __future__ import annotations

from .array_structs import is_like, read_alike
from .jit import Address, Numbers, Table, kernel
from .memory import address_of, load_word as word
from .object_layouts import CONTIGUOUS_WRITEABLE, DATA, TYPE


@kernel
def sort(numbers: Numbers) -> None:
    """Sort numbers in place, by Shell's method."""
    gap = (len(numbers) + 1) // 3
    while gap > 0:
        for i in range(gap, len(numbers)):
            number, at = numbers[i], i
            while at >= gap and numbers[at - gap] > number:
                numbers[at] = numbers[at - gap]
                at -= gap
            numbers[at] = number
        gap = (gap + 1) // 3


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
    results' addresses are sorted in `addresses[2]`: without that a `map` into a list of outs is
    left to Python, which takes 9 to 16 times as long.
    """
    nbytes, begins, ordered = span[2], addresses[1], addresses[2]
    if read_alike(items, count, kind, 0, addresses[0]) < count:
        return 0
    if word(outs + TYPE) != kind[0]:
        if read_alike(outs, count, made, CONTIGUOUS_WRITEABLE, begins) < count:
            return 0
    elif is_like(outs, address_of(made), CONTIGUOUS_WRITEABLE):
        for i in range(count):
            begins[i] = word(outs + DATA) + i * nbytes
    else:
        return 0
    ascending = True
    for i in range(count):
        ordered[i] = begins[i]
        ascending = ascending and begins[max(i - 1, 0)] <= begins[i]
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
