"""Memory that a process fills again and again, and another one reads in place (Linux).

A slab has no name: it is gone with the last process that maps it, however that ends. Its first
line tells which of the receivers still use it, one byte each, which only the receiver clears.
"""

from __future__ import annotations

import mmap
import os
import weakref
from multiprocessing import reduction
from typing import Any

import numpy as np

from ..buffers import Bytes

LINE = 64  # bytes in front, one per receiver
KEPT = 4  # slabs that are kept while nobody uses them


class Slab:
    """`nbytes` of shared memory, made by this process."""

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        self._file = os.memfd_create("shapejit", os.MFD_CLOEXEC)
        weakref.finalize(self, os.close, self._file)
        os.ftruncate(self._file, LINE + nbytes)
        self._map = mmap.mmap(self._file, LINE + nbytes)
        self._lent: weakref.ref[Bytes] | None = None

    @property
    def free(self) -> bool:
        """Whether nobody uses the memory, here or elsewhere."""
        return (self._lent is None or self._lent() is None) and not any(self._map[:LINE])

    def memory(self, nbytes: int) -> Bytes:
        """The first bytes; the slab is in use for as long as they, or views of them, are."""
        made = np.frombuffer(self._map, np.uint8, nbytes, LINE)
        self._lent = weakref.ref(made)
        return made

    def sent(self) -> tuple[Any, int, int] | None:
        """What `received` takes in one other process; None if there are too many of them.

        From now on the slab is in use until that process has dropped the memory.
        """
        receiver = bytes(self._map[:LINE]).find(0)
        if receiver < 0:
            return None
        self._map[receiver] = 1
        return reduction.DupFd(self._file), LINE + self.nbytes, receiver


def received(file: Any, nbytes: int, receiver: int) -> Bytes:
    """The memory of a slab that another process has sent."""
    opened = file.detach()
    try:
        mapped = mmap.mmap(opened, nbytes, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE)
    finally:
        os.close(opened)
    made = np.frombuffer(mapped, np.uint8, nbytes - LINE, LINE)
    weakref.finalize(made, mapped.__setitem__, receiver, 0).atexit = False
    return made


class Slabs:
    """The slabs of a process."""

    def __init__(self) -> None:
        self.process = os.getpid()  # after a fork the child makes its own
        self._slabs: list[Slab] = []

    def take(self, nbytes: int) -> Slab:
        """The smallest free slab that is large enough, or a new one."""
        free = sorted((slab for slab in self._slabs if slab.free), key=lambda slab: slab.nbytes)
        for slab in free:
            if slab.nbytes >= nbytes:
                return slab
        for slab in free[: max(0, len(free) - KEPT + 1)]:
            self._slabs.remove(slab)
        self._slabs.append(Slab(nbytes))
        return self._slabs[-1]
