"""The size of a core's second-level cache, which limits the tiles and boxes of plans.

It is read for the first plan. Kernels do not depend on it, so machines may share kernels on disk;
they only use `LINE` and `PAGE`, which are the same everywhere. A first call waits for it: the files
are read without pathlib, which takes 5 ms to import.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterable, Iterator
from functools import cache

LINE = 64  # bytes of a cache line, and of a streaming store
PAGE = 4096  # bytes of a unit of work; the system's pages may have 16 or 64 KiB

LINUX = "/sys/devices/system/cpu/cpu0/cache"
MACOS = b"hw.perflevel0.l2cachesize", b"hw.l2cachesize"  # of the performance cores, or of all

# Bytes if unknown; and the bounds. Larger caches are shared by several cores.
DEFAULT = 2 * 1024 * 1024
LEAST, MOST = 256 * 1024, 2 * 1024 * 1024

_UNITS = {"K": 1 << 10, "M": 1 << 20}


@cache
def l2() -> int:
    """The bytes of a core's second-level cache, limited to `LEAST` to `MOST`.

    >>> LEAST <= l2() <= MOST
    True
    """
    found = next((size for level, size in data_caches() if level == 2), 0)
    return min(max(found or DEFAULT, LEAST), MOST)


def data_caches() -> Iterable[tuple[int, int]]:
    """The level and size of each data cache, in the system's order.

    Missing and malformed entries are left out.
    """
    return _macos() if sys.platform == "darwin" else _linux()


def _linux() -> Iterator[tuple[int, int]]:
    """The sizes in the files of the first core, which are read on demand."""
    for folder in sorted(os.listdir(LINUX)) if os.path.isdir(LINUX) else ():
        try:
            if _fact(folder, "type") != "Instruction":
                level, size = _fact(folder, "level"), _fact(folder, "size")
                yield int(level), int(size.rstrip("KM")) * _UNITS.get(size[-1:], 1)
        except (OSError, ValueError):
            continue


def _fact(folder: str, name: str) -> str:
    """The text of a file about a cache."""
    file = os.open(f"{LINUX}/{folder}/{name}", os.O_RDONLY)  # a third of the time of `open`
    try:
        return os.read(file, 64).decode().strip()
    finally:
        os.close(file)


def _macos() -> list[tuple[int, int]]:
    """The size in the system's parameters."""
    try:
        sysctl = ctypes.CDLL(None).sysctlbyname
    except (OSError, AttributeError):
        return []
    value = ctypes.c_uint64()
    size = ctypes.c_size_t(ctypes.sizeof(value))
    for name in MACOS:
        if sysctl(name, ctypes.byref(value), ctypes.byref(size), None, ctypes.c_size_t(0)) == 0:
            return [(2, value.value)]
    return []
