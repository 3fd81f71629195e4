"""Shapes of thousands of tensors: the resolver's own function, compiled, and small plans."""

from __future__ import annotations

from typing import Any

from ..shapes.arithmetic import OK, resolve_dims
from .array_structs import item, read_dims
from .constants import APART, COPY, MAX_RANK, REFUSED, VIEW
from .jit import Address, Numbers, Table, kernel
from .memory import load_address, load_half as half, load_word as word, prefetch
from .object_layouts import (
    CONTIGUOUS_WRITEABLE,
    DATA,
    DESCR,
    FLAGS,
    OTHER,
    PREFETCHED_OBJECTS,
    RANK,
    SHAPE,
    TYPE,
)
from .small import merge_dims, row_major, write_plan

resolved: Any = kernel(resolve_dims)  # of arrays, where it says sequences


@kernel
def resolve_rows(
    sources: Numbers, starts: Numbers, dims: Numbers, cancel: int, targets: Table
) -> int:
    """Resolve one request for many shapes, the i-th in `sources[starts[i] : starts[i + 1]]`.

    Returns the number of shapes before the first error.
    """
    for i in range(len(targets)):
        source = sources[starts[i] : starts[i + 1]]
        status, _ = resolved(source, dims, cancel != 0, targets[i])
        if status != OK:
            return i
    return len(targets)


@kernel
def has_view(sizes: Numbers, kept: int, target: Numbers) -> bool:
    """Whether merged dims have a view of shape `target`, of equally many elements (not 0).

    The rule of `Layout.reshape`.
    """
    left = 1
    for k in range(len(target) - 1, -1, -1):
        if target[k] > 1 and left == 1:
            kept -= 1
            left = sizes[kept]
        if left % target[k] != 0:
            return False
        left //= target[k]
    return True


@kernel
def write_span(
    span: Numbers, address: int, sizes: Numbers, strides: Numbers, kept: int, itemsize: int
) -> None:
    """Write the address of the first element, the size in bytes, and the range of bytes spanned.

    Dims are merged; strides are in bytes.
    """
    nbytes, span[2], span[3] = itemsize, address, address + itemsize
    for k in range(kept):
        nbytes *= sizes[k]
        reach = (sizes[k] - 1) * strides[k]
        span[2] += min(reach, 0)
        span[3] += max(reach, 0)
    span[0], span[1] = address, nbytes


@kernel
def resolve_all(
    items: Address,
    groups: Numbers,
    itemsizes: Numbers,
    tokens: Numbers,
    starts: Numbers,
    targets: Numbers,
    copies: int,
    verdicts: Numbers,
    spans: Table,
    plans: Numbers,
    places: Numbers,
    room: Table,
) -> int:
    """Resolve the shapes of all tensors (Array API), write a small plan for each that is copied.

    `items` is a tuple's address; `groups` and `itemsizes` (0: skip) give the bytes of elements. The
    request of tensor i is `tokens[starts[i] : starts[i + 1]]`; the resolved dims are written to
    `targets` there. With `copies`, views are copied, too. `spans` gets for each: the address of the
    first element, the bytes, the first byte spanned, the byte past the last. Returns the index of
    the first tensor with an error, or their number. `room` has space for the sizes and the
    strides of MAX_RANK dims on both sides.
    """
    end = len(verdicts)
    sizes, strides, gaps = room[0], room[1], room[2]
    for i in range(end):
        low, high = starts[i], starts[i + 1]
        target = targets[low:high]
        spans[i, :] = 0
        itemsize = 0 if groups[i] == OTHER else itemsizes[groups[i]]
        if itemsize == 0 or high - low > MAX_RANK:
            verdicts[i] = APART
            continue
        if i + PREFETCHED_OBJECTS < end and groups[i + PREFETCHED_OBJECTS] != OTHER:
            prefetch(load_address(item(items, i + PREFETCHED_OBJECTS) + SHAPE))
        x = item(items, i)
        rank, count = read_dims(x, sizes, strides), 1
        for k in range(rank):
            count *= sizes[k]
        status, _ = resolved(sizes[:rank], tokens[low:high], False, target)
        if status != OK:
            verdicts[i] = REFUSED
            return i
        if count == 0:
            verdicts[i] = APART
            continue
        kept = merge_dims(sizes, (strides,), rank)
        if copies == 0 and has_view(sizes, kept, target):
            verdicts[i] = VIEW
            continue
        verdicts[i] = COPY
        write_span(spans[i], word(x + DATA), sizes, strides, kept, itemsize)
        row_major(sizes, kept, itemsize, gaps)
        write_plan(sizes, strides, gaps, kept, itemsize, plans, places[i])
    return end


@kernel
def match(
    items: Address,
    outs: Address,
    groups: Numbers,
    targets: Numbers,
    starts: Numbers,
    fits: Numbers,
    addresses: Numbers,
) -> None:
    """Mark each of `outs` that is an exact ndarray that fits the result of its tensor.

    Both are addresses of tuples. An output has the dtype of its item and the dims found by
    `resolve_all`; it is contiguous and writable.
    """
    for i in range(len(fits)):
        low, rank = starts[i], starts[i + 1] - starts[i]
        x, out = item(items, i), item(outs, i)
        fits[i] = 0
        if groups[i] == OTHER:
            continue
        if fits_type(x, out) and half(out + RANK) == rank:
            shape, same = load_address(out + SHAPE), True
            for k in range(rank):
                same = same and word(shape + 8 * k) == targets[low + k]
            if same and half(out + FLAGS) & CONTIGUOUS_WRITEABLE == CONTIGUOUS_WRITEABLE:
                fits[i] = 1
                addresses[i] = word(out + DATA)


@kernel
def fits_type(x: Address, out: Address) -> bool:
    """Whether two objects, the first an ndarray, have the same type and dtype."""
    return bool(word(x + TYPE) == word(out + TYPE) and word(x + DESCR) == word(out + DESCR))
