"""Memory between pages that nobody may touch: the process ends where one is."""

import ctypes
import mmap
from functools import cache

import numpy as np

from shapejit.runtime import launches
from shapejit.runtime.cpu_caches import LINE

PAGE = mmap.PAGESIZE


def guarded(nbytes):
    """Whole pages, at least so many bytes, between two that are forbidden."""
    inner = -(-max(nbytes, 1) // PAGE) * PAGE
    pages = mmap.mmap(-1, inner + 2 * PAGE)
    first = ctypes.addressof(ctypes.c_char.from_buffer(pages))
    for guard in (first, first + PAGE + inner):
        assert libc().mprotect(ctypes.c_void_p(guard), PAGE, 0) == 0
    return np.frombuffer(pages, np.uint8, inner, PAGE)


@cache
def libc():
    return ctypes.CDLL(None)


def guard_stages():
    """From now on, the pages around the scratch memory of a kernel are forbidden."""
    launches.stage_memory = stage_memory


def stage_memory(nbytes):
    """What `launches.stage_memory` returns, not a line longer than it must be."""
    place = guarded(nbytes)
    return place, launches.address_of(place) + place.size - -(-nbytes // LINE) * LINE
