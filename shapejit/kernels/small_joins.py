"""Ndarrays copied or joined in one call, which reads their structs in place.

Each part is copied by a small plan (see `small_plans`) whose target strides are the result's.
"""

from __future__ import annotations

from .array_structs import (
    complete_kind,
    dims_of,
    is_like,
    is_small,
    item,
    new_array,
    no_result,
    owned,
    read_dims,
    restore_thread,
    save_thread,
    small,
    span_of,
)
from .constants import MAX_RANK
from .jit import Address, Numbers, kernel
from .memory import (
    address_of,
    load_address,
    load_half as half,
    load_word as word,
    number_of,
    pointer,
)
from .object_layouts import (
    CONTIGUOUS_WRITEABLE,
    DATA,
    DESCR,
    DTYPE_FLAGS,
    HAS_OBJECTS,
    INT,
    ITEMSIZE,
    JOIN_MOST,
    JOIN_MOVER,
    LENGTH,
    NDARRAY,
    NONE,
    RANK,
    ROOM_GAPS,
    ROOM_PLAN,
    ROOM_POSITIONS,
    ROOM_SIZES,
    ROOM_STRIDES,
    SHAPE,
    STRIDES,
    SWITCH,
    TUPLE,
    TYPE,
)
from .small import merge_dims, put, write_plan

UNFIT = -1
RUN_COST = 3  # bytes: shorter runs take as long


@kernel
def dims_agree(x: Address, y: Address, rank: int, axis: int) -> bool:
    """Whether two shapes, at these addresses, are equal except along dim `axis`."""
    agree = True
    for k in range(rank):
        agree = agree and (k == axis or word(x + 8 * k) == word(y + 8 * k))
    return agree


@kernel
def write_kind(items: Address, axis: Address, new: int, routes: Address, kind: Numbers) -> int:
    """Write the kind of the result of joining a tuple's ndarrays; return its bytes.

    `kind` is the scratch of `join`. Returns UNFIT for other arguments, if the arrays cannot be
    joined, if elements have references, and if there are more bytes than JOIN_MOST; there a run
    counts as at least RUN_COST bytes.
    """
    if word(items + TYPE) != word(routes + TUPLE) or word(axis + TYPE) != word(routes + INT):
        return UNFIT
    count = word(items + LENGTH)
    if count == 0 or not is_small(axis):
        return UNFIT
    first, ndarray = item(items, 0), word(routes + NDARRAY)
    if word(first + TYPE) != ndarray:
        return UNFIT
    descr, rank, model = word(first + DESCR), half(first + RANK), load_address(first + SHAPE)
    after, at = rank + new, small(axis)
    at += after if at < 0 else 0
    if word(pointer(descr) + DTYPE_FLAGS) & HAS_OBJECTS or not 0 <= at < after <= MAX_RANK:
        return UNFIT
    itemsize, along, nbytes = word(pointer(descr) + ITEMSIZE), 0, 0
    for i in range(count):
        x, own = item(items, i), itemsize
        if word(x + TYPE) != ndarray or word(x + DESCR) != descr or half(x + RANK) != rank:
            return UNFIT
        shape = load_address(x + SHAPE)
        if not dims_agree(shape, model, rank, UNFIT if new else at):
            return UNFIT
        for k in range(rank):
            own *= word(shape + 8 * k)
        if own > kind[JOIN_MOST]:
            return UNFIT
        nbytes += own
        along += 1 if new else word(shape + 8 * at)
    cost = RUN_COST * count
    for k in range(at):
        cost *= word(model + 8 * k)
    if nbytes == 0 or max(nbytes, cost) > kind[JOIN_MOST]:
        return UNFIT
    for k in range(after):
        kind[3 + k] = along if k == at else word(model + 8 * (k - (new if k > at else 0)))
    complete_kind(kind, first, after)
    return nbytes


@kernel
def is_disjoint(items: Address, begin: int, nbytes: int) -> bool:
    """Whether none of a tuple's ndarrays spans any of `nbytes` bytes."""
    for i in range(word(items + LENGTH)):
        x = item(items, i)
        low, high = span_of(x, word(load_address(x + DESCR) + ITEMSIZE))
        if low < begin + nbytes and begin < high:
            return False
    return True


@kernel
def plan_part(x: Address, at: int, new: int, scratch: Numbers) -> None:
    """Write the small plan of a part `x` of the result whose kind is at the start of `scratch`."""
    after, width = scratch[2], word(load_address(x + DESCR) + ITEMSIZE)
    sizes, strides, gaps = scratch[ROOM_SIZES:], scratch[ROOM_STRIDES:], scratch[ROOM_GAPS:]
    rank = read_dims(x, sizes, strides)
    for k in range(rank):
        gaps[k] = scratch[3 + after + k + (new if k >= at else 0)]
    kept = merge_dims(sizes, (strides, gaps), rank)
    write_plan(sizes, strides, gaps, kept, width, scratch[ROOM_PLAN:])


@kernel
def copy_whole(x: Address, out: Address, scratch: Numbers, mover: int) -> None:
    """Copy ndarray `x` (any strides) to the contiguous `out` on one thread; release the GIL.

    The small plan is not cached, so shapes that never repeat cost no more than others. `scratch`
    has ROOM_WORDS.
    """
    rank = read_dims(x, scratch[3:], scratch[ROOM_STRIDES:])
    complete_kind(scratch, x, rank)
    plan_part(x, rank, 0, scratch)
    begin = address_of(scratch)
    plan, position = begin + 8 * ROOM_PLAN, begin + 8 * ROOM_POSITIONS
    state = save_thread((0,))
    put(load_address(x + DATA), load_address(out + DATA), plan, position, mover)
    restore_thread((state,))


@kernel
def copy_parts(items: Address, target: Address, at: int, new: int, scratch: Numbers) -> None:
    """Copy a tuple's ndarrays into the result, whose kind is known."""
    gap, before = scratch[3 + scratch[2] + at], pointer(0)
    plan, position = address_of(scratch) + 8 * ROOM_PLAN, address_of(scratch) + 8 * ROOM_POSITIONS
    for i in range(word(items + LENGTH)):
        x = item(items, i)
        rank, shape, strides = dims_of(x)
        along = 1 if new else word(shape + 8 * at)
        if along == 0:
            continue
        like = before != 0 and dims_agree(shape, load_address(before + SHAPE), rank, UNFIT)
        if not like or not dims_agree(strides, load_address(before + STRIDES), rank, UNFIT):
            plan_part(x, at, new, scratch)
            before = x
        put(load_address(x + DATA), target, plan, position, scratch[JOIN_MOVER])
        target += along * gap


@kernel
def join(
    items: Address, out: Address, axis: Address, new: int, scratch: Numbers, table: Address
) -> int:
    """Join a tuple's ndarrays along a dim of theirs, or a `new` one, into `out` or a new array.

    Returns a new reference to the result; to None if an argument does not fit, or if `out` may
    share bytes with a part; 0 if memory is exhausted. `scratch` has JOIN_WORDS,
    and `table` is the ndarray of a table of Routes, whose first words are read.
    """
    routes = load_address(table + DATA)
    target, nbytes = out, UNFIT
    if word(load_address(routes + SWITCH)) == 0:
        nbytes = write_kind(items, axis, new, routes, scratch)
    if nbytes > 0 and number_of(out) == word(routes + NONE):
        target = new_array(address_of(scratch), routes)
        if target == 0:
            return 0
    elif (
        nbytes > 0
        and is_like(out, address_of(scratch), CONTIGUOUS_WRITEABLE)
        and is_disjoint(items, word(out + DATA), nbytes)
    ):
        owned(number_of(out))
    else:
        return int(no_result(routes))
    at = small(axis)
    at += scratch[2] if at < 0 else 0
    copy_parts(items, load_address(target + DATA), at, new, scratch)
    return int(number_of(target))
