"""The measure of every copy: memcpy on all of numba's threads, the same for all commits."""

import numpy as np
from numba import get_num_threads, njit, prange, types
from numba.core import cgutils
from numba.extending import intrinsic

_PAGE = 4096


@intrinsic
def _memcpy(_, target, source, nbytes):
    def emit(context, builder, signature, arguments):
        dst, src = (builder.inttoptr(a, cgutils.voidptr_t) for a in arguments[:2])
        cgutils.raw_memcpy(builder, dst, src, arguments[2], 1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), emit


@njit(nogil=True, parallel=True, cache=True)
def _run(target, source, nbytes, threads):
    pages = -(-nbytes // _PAGE)
    for i in prange(threads):
        low = pages * i // threads * _PAGE
        high = min(pages * (i + 1) // threads * _PAGE, nbytes)
        _memcpy(target + low, source + low, high - low)


def memcpy(source, target):
    """A function that copies contiguous memory to as much other memory."""
    assert source.nbytes == target.nbytes
    src, dst, nbytes = source.ctypes.data, target.ctypes.data, source.nbytes
    threads = get_num_threads()
    # An address keeps nothing alive: whoever holds the function holds the arrays.
    return lambda _arrays=(source, target): _run(dst, src, nbytes, threads)


def memcpy_of(nbytes):
    """memcpy of so many bytes, between two arrays of its own."""
    return memcpy(np.ones(nbytes, np.uint8), np.ones(nbytes, np.uint8))
