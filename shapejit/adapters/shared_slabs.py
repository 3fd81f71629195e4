"""Shared memory that one process fills repeatedly and another one reads (Linux).

A slab is anonymous: it is freed with the last process that maps it, however that ends. Other
processes of the same user open it by `/proc/PID/fd/N` of the process that made it (see
proc_pid_fd(5)). The first cache line has one byte per process that uses it; only the receiver
clears that byte.
"""

from __future__ import annotations

import errno
import os
import select
import weakref
from typing import NamedTuple

import numpy as np

from ..arrays.buffers import Bytes
from ..runtime.cpu_caches import PAGE
from ..runtime.system import shared_pages

RECEIVERS = 64  # bytes in front, one per receiver
IDLE_SLABS_MAX = 4  # slabs that are kept while nobody uses them
EXIT_SECONDS = 5.0  # seconds that a process may take to end once its files are closed


class Sent(NamedTuple):
    """What another process needs to use a slab: its file, and that process's byte in front."""

    process: int
    descriptor: int
    inode: int
    nbytes: int
    receiver: int


class Slab:
    """`nbytes` of shared memory, made by this process."""

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        self._file = os.memfd_create("shapejit")
        weakref.finalize(self, os.close, self._file)
        os.ftruncate(self._file, RECEIVERS + nbytes)
        self._map = shared_pages(self._file, RECEIVERS + nbytes)
        self._lent: weakref.ref[Bytes] | None = None

    @property
    def free(self) -> bool:
        """Whether nobody uses the memory, here or elsewhere."""
        return (self._lent is None or self._lent() is None) and not any(self._map[:RECEIVERS])

    def memory(self, nbytes: int) -> Bytes:
        """The first bytes; the slab is in use until they, and views of them, are freed."""
        made = np.frombuffer(self._map, np.uint8, nbytes, RECEIVERS)
        self._lent = weakref.ref(made)
        return made

    def sent(self) -> Sent | None:
        """The argument of `received` in another process; None if too many processes use the slab.

        From now on the slab is in use until that process has freed the memory. This process must
        live until the other one has received it.
        """
        receiver = bytes(self._map[:RECEIVERS]).find(0)
        if receiver < 0:
            return None
        self._map[receiver] = 1
        inode = os.fstat(self._file).st_ino
        return Sent(os.getpid(), self._file, inode, RECEIVERS + self.nbytes, receiver)


def received(sent: Sent) -> Bytes:
    """The memory of a slab that another process has sent; OSError if that process has ended."""
    path = f"/proc/{sent.process}/fd/{sent.descriptor}"
    try:
        descriptor = os.open(path, os.O_RDWR)
    except OSError:
        _await_end(sent.process)
        raise
    try:
        if os.fstat(descriptor).st_ino != sent.inode:  # of a process that has the same number now
            raise FileNotFoundError(errno.ENOENT, "the process that sent this has ended", path)
        mapped = shared_pages(descriptor, sent.nbytes)
    finally:
        os.close(descriptor)
    made = np.frombuffer(mapped, np.uint8, sent.nbytes - RECEIVERS, RECEIVERS)
    weakref.finalize(made, mapped.__setitem__, sent.receiver, 0).atexit = False
    return made


def _await_end(process: int) -> None:
    """Wait until a process has ended.

    A killed process closes its files before it ends. In between, torch's loader would find it
    alive, although a dead worker is the cause of the error.
    """
    try:
        ends = os.pidfd_open(process)
    except OSError:  # it has ended
        return
    try:
        poll = select.poll()
        poll.register(ends, select.POLLIN)
        poll.poll(1000 * EXIT_SECONDS)
    finally:
        os.close(ends)


class Slabs:
    """The slabs of a process."""

    def __init__(self) -> None:
        self._slabs: list[Slab] = []

    def take(self, nbytes: int) -> Slab:
        """The smallest free slab that is large enough, but not far too large, or a new one."""
        free = sorted((slab for slab in self._slabs if slab.free), key=lambda slab: slab.nbytes)
        for slab in free:
            if nbytes <= slab.nbytes <= 2 * nbytes + PAGE:
                return slab
        for slab in free[: max(0, len(free) - IDLE_SLABS_MAX + 1)]:
            self._slabs.remove(slab)
        self._slabs.append(Slab(nbytes))
        return self._slabs[-1]
