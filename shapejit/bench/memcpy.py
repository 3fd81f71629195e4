"""The measure of every copy: memcpy on all threads, the same whatever package is measured."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np

PAGE = 4096


@cache
def _compiled() -> Any:
    """A function that copies so many bytes, by so many of numba's threads."""
    from numba import njit, prange, types
    from numba.core import cgutils
    from numba.extending import intrinsic

    @intrinsic  # type: ignore[untyped-decorator]  # numba is not type-checked
    def copy(_: Any, target: Any, source: Any, nbytes: Any) -> Any:
        def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            dst, src = (builder.inttoptr(a, cgutils.voidptr_t) for a in arguments[:2])
            cgutils.raw_memcpy(builder, dst, src, arguments[2], 1)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64, types.int64), emit

    @njit(nogil=True, parallel=True)  # type: ignore[untyped-decorator]
    def run(target: int, source: int, nbytes: int, threads: int) -> None:
        pages = -(-nbytes // PAGE)
        for i in prange(threads):
            low = pages * i // threads * PAGE
            high = min(pages * (i + 1) // threads * PAGE, nbytes)
            copy(target + low, source + low, high - low)

    return run


def thread_count() -> int:
    """How many threads a memcpy has, and a peer is told to take."""
    import numba

    return int(numba.get_num_threads())


def memcpy_of(nbytes: int, threads: int | None = None) -> Callable[[], None]:
    """memcpy of so many bytes between two arrays of its own; on all threads if not said."""
    source, target = (np.ones(nbytes, np.uint8) for _ in range(2))
    count = threads or thread_count()
    run = partial(_compiled(), target.ctypes.data, source.ctypes.data, nbytes, count)
    # An address keeps nothing alive: whoever holds the function holds the arrays.
    return partial(_called, run, (source, target))


def _called(run: Callable[[], None], arrays: object) -> None:
    run()
