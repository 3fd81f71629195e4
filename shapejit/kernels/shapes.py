"""Shapes of thousands of tensors: the resolver's own function, compiled, and small plans."""

from __future__ import annotations

from typing import Any

from ..shapes.arithmetic import OK, resolve_dims, view_strides
from .array_structs import complete_kind, is_like, item, read_dims, span_of
from .constants import APART, COPY, MAX_RANK, REFUSED, VIEW
from .jit import Address, Numbers, Table, kernel
from .memory import address_of, load_address, load_word as word, number_of, prefetch
from .object_layouts import (
    BATCH_DIMS,
    CONTIGUOUS_WRITEABLE,
    DATA,
    DESCR,
    DTYPE_FLAGS,
    HAS_OBJECTS,
    ITEMSIZE,
    LENGTH,
    ROOM_GAPS,
    ROOM_SIZES,
    ROOM_STRIDES,
    SHAPE,
    TYPE,
)
from .small import merge_dims, row_major, write_plan

PREFETCHED_OBJECTS = 12  # ahead; without, batches of 8 000 transposed arrays take 1.1 to 1.2 x
# Of arrays, where they say sequences.
resolved: Any = kernel(resolve_dims)
has_view: Any = kernel(view_strides)


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
def resolve_all(
    items: Address,
    outs: Address,
    ndarray: int,
    tokens: Numbers,
    starts: Numbers,
    targets: Numbers,
    copies: int,
    verdicts: Numbers,
    spans: Table,
    plans: Table,
    room: Numbers,
) -> int:
    """Resolve the shapes of all tensors (Array API), write a small plan for each that is copied.

    `items` is a tuple; `outs` has as many, or no objects. The request of tensor i is
    `tokens[starts[i] : starts[i + 1]]`; the resolved dims are written to `targets` there. With
    `copies`, views are copied, too. `spans` gets for each: the address of the first element, the
    bytes, the first byte spanned, the byte past the last, the address of the dtype, and that of
    the first element of an output that fits. Returns the index of the first tensor with an error,
    or their number. `room` has ROOM_WORDS.
    """
    end = len(verdicts)
    sizes, strides, gaps = room[ROOM_SIZES:], room[ROOM_STRIDES:], room[ROOM_GAPS:]
    for i in range(end):
        low, high = starts[i], starts[i + 1]
        target = targets[low:high]
        spans[i, :] = 0
        verdicts[i] = APART
        if i + 2 * PREFETCHED_OBJECTS < end:
            prefetch(item(items, i + 2 * PREFETCHED_OBJECTS) + DESCR)
            later = item(items, i + PREFETCHED_OBJECTS)
            if word(later + TYPE) == ndarray:
                prefetch(load_address(later + SHAPE))
        x = item(items, i)
        if word(x + TYPE) != ndarray or high - low > MAX_RANK:
            continue
        dtype = load_address(x + DESCR)
        itemsize = word(dtype + ITEMSIZE)
        if word(dtype + DTYPE_FLAGS) & HAS_OBJECTS:
            continue
        rank, nbytes = read_dims(x, sizes, strides), itemsize
        for k in range(rank):
            nbytes *= sizes[k]
        status, _ = resolved(sizes[:rank], tokens[low:high], False, target)
        if status != OK:
            verdicts[i] = REFUSED
            return i
        if nbytes == 0:
            continue
        first, past = span_of(x, itemsize)
        kept = merge_dims(sizes, (strides,), rank)
        if copies == 0 and has_view(sizes, strides, kept, itemsize, target, gaps):
            verdicts[i] = VIEW
            continue
        if kept > BATCH_DIMS:
            continue
        verdicts[i] = COPY
        spans[i, 0], spans[i, 1], spans[i, 2], spans[i, 3] = word(x + DATA), nbytes, first, past
        spans[i, 4] = number_of(dtype)
        if word(outs + LENGTH):
            for k in range(high - low):
                room[3 + k] = target[k]
            complete_kind(room, x, high - low)
            out = item(outs, i)
            if is_like(out, address_of(room), CONTIGUOUS_WRITEABLE):
                spans[i, 5] = word(out + DATA)
        row_major(sizes, kept, itemsize, gaps)
        write_plan(sizes, strides, gaps, kept, itemsize, plans[i])
    return end
