"""Kernels that read the structs of ndarrays in place, one or thousands, holding the GIL.

Reading the address, shape and strides of an ndarray through Python costs 2 us. The caller has
verified that objects have the layout of `object_layouts`. Objects are passed by address.
"""

from __future__ import annotations

from .calls import call, imported
from .jit import Address, Numbers, inlined, kernel
from .memory import (
    address_of,
    load_address,
    load_half as half,
    load_word as word,
    number_of,
    pointer,
    store_byte,
    store_word as store,
)
from .object_layouts import (
    ADDRESSES_AT,
    ASKED,
    CONTIGUOUS_WRITEABLE,
    CONVERTED,
    DATA,
    DESCR,
    DIGITS,
    ENTRY,
    FIRST_ROUTE,
    FLAGS,
    INT,
    ITEMS,
    ITEMSIZE,
    LENGTH,
    MOVER,
    NBYTES,
    NDARRAY,
    NEW_ARRAY,
    NONE,
    OTHER,
    OUT_KIND,
    PLAN_AT,
    RANK,
    REACH_HIGH,
    REACH_LOW,
    RESULT_DTYPE,
    RUNNING,
    SHAPE,
    SHIFT,
    SIGN_BITS,
    SLOT_COUNT,
    SOURCE_BEGIN,
    STRIDES,
    SWITCH,
    TARGET_BEGIN,
    TUPLE,
    TYPE,
    UNHELD,
    WORK_WORDS,
    X_KIND,
)
from .small import put, row_major

increment, vectorcall = map(imported, ("Py_IncRef", "PyObject_Vectorcall"))
save_thread, restore_thread = map(imported, ("PyEval_SaveThread", "PyEval_RestoreThread"))


@kernel
def item(items: Address, i: int) -> Address:
    """Object `i` of a tuple."""
    return load_address(items + ITEMS + 8 * i)  # type: ignore[no-any-return]


@kernel
def dims_of(x: Address) -> tuple[int, Address, Address]:
    """The rank of an ndarray, and where its shape and its strides are."""
    return half(x + RANK), load_address(x + SHAPE), load_address(x + STRIDES)


@kernel
def read_dims(x: Address, sizes: Numbers, strides: Numbers) -> int:
    """Write the shape and the strides of an ndarray; return its rank."""
    rank, shape, steps = dims_of(x)
    for k in range(rank):
        sizes[k], strides[k] = word(shape + 8 * k), word(steps + 8 * k)
    return rank


@kernel
def span_of(x: Address, itemsize: int) -> tuple[int, int]:
    """The addresses of the first byte of a nonempty ndarray, and of that past its last one."""
    rank, shape, strides = dims_of(x)
    low = high = word(x + DATA)
    for k in range(rank):
        reach = (word(shape + 8 * k) - 1) * word(strides + 8 * k)
        low += min(reach, 0)
        high += max(reach, 0)
    return low, high + itemsize


@kernel
def is_small(x: Address) -> bool:
    """Whether the int `x` has at most one digit."""
    return bool(word(x + LENGTH) >> SIGN_BITS <= 1 and word(x + LENGTH) >= -1)


@kernel
def small(x: Address) -> int:
    """The value of an int of at most one digit."""
    digit, sign = int(half(x + DIGITS)), int(word(x + LENGTH))
    if SIGN_BITS == 0:
        return sign * digit
    return digit * (1 - (sign & 3)) if sign >> SIGN_BITS else 0


@kernel
def is_like(x: Address, kind: Address, flags: int) -> bool:
    """Whether `x` is an ndarray of the kind at this address: see `kind_of`.

    Strides of dims of size 1 are ignored; all `flags` must be set.
    """
    if word(x + TYPE) != word(kind):
        return False  # an object of another type may be smaller
    rank, shape, strides = dims_of(x)
    if word(x + DESCR) != word(kind + 8) or word(kind + 16) != rank:
        return False
    for k in range(rank):
        size = word(shape + 8 * k)
        if size != word(kind + 24 + 8 * k):
            return False
        if size != 1 and word(strides + 8 * k) != word(kind + 24 + 8 * (rank + k)):
            return False
    return bool(half(x + FLAGS) & flags == flags)


@kernel
def complete_kind(kind: Numbers, like: Address, rank: int) -> None:
    """Complete the kind of row-major ndarrays with the dtype of `like`, where the sizes are.

    See `is_like`.
    """
    kind[0], kind[1], kind[2] = word(like + TYPE), word(like + DESCR), rank
    row_major(kind[3:], rank, word(load_address(like + DESCR) + ITEMSIZE), kind[3 + rank :])


@kernel
def read_alike(items: Address, count: int, kind: Numbers, flags: int, addresses: Numbers) -> int:
    """Write the data addresses of a tuple's ndarrays of one kind; return how many there are.

    `items` is the address of the tuple.
    """
    for i in range(count):
        x = item(items, i)
        if not is_like(x, address_of(kind), flags):
            return i
        addresses[i] = word(x + DATA)
    return count


@inlined
def hash_of(x: Address, asked: Address, routes: Address) -> int:
    """The slot (of a power of two) of the Route for arrays like `x`, or its neighbour's."""
    mixed = word(x + DESCR) >> 4
    rank, shape, strides = dims_of(x)
    for k in range(rank):
        size = word(shape + 8 * k)
        mixed = 31 * mixed + size
        if size != 1:
            mixed = 31 * mixed + word(strides + 8 * k)
    if word(asked + TYPE) == word(routes + TUPLE):
        for k in range(word(asked + LENGTH)):
            size = item(asked, k)
            if word(size + TYPE) == word(routes + INT):
                mixed = 31 * mixed + small(size)
    else:
        mixed += number_of(asked) >> 4
    mixed ^= mixed >> 17
    return int((mixed ^ mixed >> 7) & (word(routes + SLOT_COUNT) - 1))


@kernel
def slot_of(x: Address, asked: Address, table: Address) -> int:
    """`hash_of` for a table of Routes in an ndarray."""
    return int(hash_of(x, asked, load_address(table + DATA)))


@kernel
def is_asked(asked: Address, wanted: Address, routes: Address) -> bool:
    """Whether `asked` is a tuple of these ints, or, if their number is -1, this object."""
    count = word(wanted)
    if count < 0:
        return bool(number_of(asked) == word(wanted + 8))
    if word(asked + TYPE) != word(routes + TUPLE) or word(asked + LENGTH) != count:
        return False
    for k in range(count):
        size = item(asked, k)
        if word(size + TYPE) != word(routes + INT) or not is_small(size):
            return False
        if small(size) != word(wanted + 8 + 8 * k):
            return False
    return True


@kernel
def run_route(
    x: Address, out: Address, asked: Address, table: Address, otherwise: Address, given: Address
) -> int:
    """Run the Route for `x` and what is `asked`, into `out`, or into a new array if that is None.

    If there is no Route, or an argument does not fit it, `otherwise` is called with the first three
    arguments, which are at the address `given`; if that is None, so is the result. Returns a new
    reference to the result, or 0 if there is an exception.
    """
    routes = load_address(table + DATA)
    if word(x + TYPE) == word(routes + NDARRAY):
        slot = hash_of(x, asked, routes)
        for other in range(2):
            route = load_address(routes + FIRST_ROUTE + 8 * (slot ^ other))
            if (
                route != 0
                and is_like(x, load_address(route + X_KIND), 0)
                and is_asked(asked, load_address(route + ASKED), routes)
            ):
                made = follow(x, out, route, routes)
                if made != word(routes + NONE):
                    return int(made)
    if number_of(otherwise) == word(routes + NONE):
        return int(no_result(routes))
    return int(vectorcall((otherwise, given, 3, 0)))


@kernel
def run_found(x: Address, out: Address, route: Address, table: Address) -> int:
    """As `run_route`, with the Route in an ndarray, which is known to be for arrays like `x`.

    Only this may release the GIL: the caller owns the Route.
    """
    routes = load_address(table + DATA)
    made = follow(x, out, load_address(route + DATA), routes)
    return int(no_result(routes) if made == word(routes + NONE) else made)


@kernel
def owned(x: int) -> int:
    """The object `x`, with a new reference to it."""
    increment((x,))
    return x


@kernel
def no_result(routes: Address) -> int:
    """A new reference to None."""
    return owned(word(routes + NONE))


@kernel
def new_array(kind: Address, routes: Address) -> Address:
    """A new ndarray of a kind, row-major; 0 if memory ran out."""
    dtype = owned(word(kind + 8))
    made = word(routes + NDARRAY), dtype, word(kind + 16), kind + 24, 0, 0, 0, 0
    return pointer(call(word(routes + NEW_ARRAY), made))  # type: ignore[no-any-return]


@kernel
def follow(x: Address, out: Address, route: Address, routes: Address) -> int:
    """`run_route` with the Route at an address; None is returned without a new reference."""
    if word(load_address(routes + SWITCH)) | word(route + RUNNING) != 0:
        return int(word(routes + NONE))
    target, source = out, load_address(x + DATA)
    if number_of(out) == word(routes + NONE):
        if word(route + RESULT_DTYPE) == 0:
            return int(word(routes + NONE))
        target = new_array(load_address(route + OUT_KIND), routes)
        if target == 0:
            return 0
        # Packed elements may leave bits of the last byte, which are to be 0.
        store_byte(load_address(target + DATA) + (word(route + NBYTES) - 1), 0)
    else:
        fit = is_like(out, load_address(route + OUT_KIND), CONTIGUOUS_WRITEABLE)
        if fit:
            begin = load_address(out + DATA)
            before = source + word(route + REACH_HIGH) <= begin
            fit = before or begin + word(route + NBYTES) <= source + word(route + REACH_LOW)
        if not fit:
            return int(word(routes + NONE))
        owned(number_of(out))
    begin, addresses = load_address(target + DATA), load_address(route + ADDRESSES_AT)
    entry, count = word(route + ENTRY), word(route + CONVERTED)
    if entry == 0:
        put(source, begin, load_address(route + PLAN_AT), addresses, word(route + MOVER))
    elif count != 0:
        first, to = source + word(route + SOURCE_BEGIN), begin + word(route + TARGET_BEGIN)
        call(entry, (first, to, count, count, 0, 0, 0, 0))
    else:
        # The addresses of one tensor, then work and span, as for threads that run the entry.
        shift, words = word(route + SHIFT), word(route + WORK_WORDS)
        store(addresses, (number_of(source) << shift) + word(route + SOURCE_BEGIN))
        store(addresses + 8, (number_of(begin) << shift) + word(route + TARGET_BEGIN))
        for k in range(words):
            store(addresses + 8 * (2 + k), word(addresses + 8 * (2 + words + k)))
        state, unheld = 0, word(route + UNHELD)
        if unheld != 0:
            store(route + RUNNING, 1)
            state = save_thread((0,))
        call(entry, (word(route + PLAN_AT),))
        if unheld != 0:
            restore_thread((state,))
            store(route + RUNNING, 0)
    return int(number_of(target))


@kernel
def read_shapes(rows: Address, count: int, kinds: Numbers, starts: Numbers, tokens: Numbers) -> int:
    """Read a tuple of tuples or lists of ints; return how many tokens there are, or OTHER.

    `rows` is its address and `kinds` the addresses of the types tuple, list and int.
    `starts` becomes where each row begins, and behind the last one. If there are more than fit in
    `tokens`, it is called again. OTHER: something else is among them.
    """
    total = 0
    for i in range(count):
        row = item(rows, i)
        length, values = word(row + LENGTH), row + ITEMS
        if word(row + TYPE) == kinds[1]:
            values = load_address(row + ITEMS)
        elif word(row + TYPE) != kinds[0]:
            return OTHER
        starts[i] = total
        if total + length <= len(tokens):
            for k in range(length):
                value = load_address(values + 8 * k)
                if word(value + TYPE) != kinds[2] or not is_small(value):
                    return OTHER
                tokens[total + k] = small(value)
        total += length
    starts[count] = total
    return total
