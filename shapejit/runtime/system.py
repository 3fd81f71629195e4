"""Everything that differs between Linux, macOS and Windows, with portable fallbacks.

No other module asks which system it runs on. Docstrings say where a fallback does less.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import signal
import stat
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache, partial
from threading import Lock
from typing import Any, Generic, TypeVar

try:
    import fcntl

    _fcntl: Any = fcntl
except ImportError:  # Windows
    _fcntl = None

Value = TypeVar("Value")

_POSIX = _fcntl is not None  # all but Windows
_O_BINARY = getattr(os, "O_BINARY", 0)  # Windows would translate line feeds
_O_NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)
_O_NONBLOCK = getattr(os, "O_NONBLOCK", 0)
_PRIVATE = getattr(mmap, "MAP_PRIVATE", 0) | getattr(mmap, "MAP_ANONYMOUS", 0)
_MAP_POPULATE = getattr(mmap, "MAP_POPULATE", 0)

_READ = 1 << 30  # bytes of a read: macOS refuses 2 GiB
_COPIED_READ = 1 << 23  # the same if the bytes are copied
_MEMORY = 8 << 30  # assumed if the machine's memory is unknown

# Whether a file can be renamed while it is open.
RENAMES_OPEN_FILES = _POSIX
# Whether a process can open another one's memory by its descriptor.
SHARES_MEMORY = (
    hasattr(os, "memfd_create") and hasattr(os, "pidfd_open") and os.path.isdir("/proc/self/fd")
)
# The signals that end a process by default; Windows has no SIGHUP.
ENDING_SIGNALS: tuple[signal.Signals, ...] = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)


# Processes and processors


def register_at_fork(**hooks: Callable[[], object]) -> None:
    """`os.register_at_fork`, if processes can fork."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(**hooks)


class PerProcess(Generic[Value]):
    """A `value` that each process creates for itself: a forked child does not use its parent's.

    >>> PerProcess(list).value
    []
    """

    def __init__(self, make: Callable[[], Value]) -> None:
        self.make = make
        self.renew()
        register_at_fork(after_in_child=self.renew)

    def renew(self) -> None:
        """Create it again."""
        self.value = self.make()


def _all_cores() -> set[int]:
    return set(range(os.cpu_count() or 1))


usable_cores: Callable[[], set[int]] = (
    partial(os.sched_getaffinity, 0) if hasattr(os, "sched_getaffinity") else _all_cores
)
"""The cores that this process may use; all, where the system does not bind processes."""


def bind(thread: int, cores: Iterable[int]) -> bool:
    """Let a thread run on these cores only; return whether the system allows it."""
    with suppress(OSError, AttributeError):
        os.sched_setaffinity(thread, cores)
        return True
    return False


@cache
def getcpu() -> Callable[[], int] | None:
    """The C library's sched_getcpu(3), if this system lets threads choose their cores."""
    if not (hasattr(os, "sched_setaffinity") and hasattr(os, "sched_getaffinity")):
        return None
    return getattr(ctypes.PyDLL(None), "sched_getcpu", None)


def open_library(path: str) -> None:
    """Open a library that is imported next, while other threads run: LLVM takes 8 ms.

    The import holds the GIL. Without dlopen(3) it still opens the library.
    """
    with suppress(OSError, TypeError, AttributeError):
        open_it = ctypes.CDLL(None).dlopen
        open_it.restype = ctypes.c_void_p
        open_it(os.fsencode(path), os.RTLD_NOW)


def load_average() -> float | None:
    """The load average of the last minute; None if the system has none."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else None


# Memory


def memory_size() -> int:
    """The bytes of this machine's memory; 8 GiB if unknown."""
    try:
        size = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return _MEMORY
    return size if size > 0 else _MEMORY


def new_pages(nbytes: int, now: bool) -> mmap.mmap:
    """Private memory, whose pages are created `now` or, if not supported, on first write."""
    if not _PRIVATE:
        return mmap.mmap(-1, nbytes)
    return mmap.mmap(-1, nbytes, flags=_PRIVATE | (_MAP_POPULATE if now else 0))


def use_huge_pages(pages: mmap.mmap, nbytes: int) -> None:
    """Request huge pages for the first bytes, if the system has them."""
    with suppress(OSError, AttributeError):
        pages.madvise(mmap.MADV_HUGEPAGE, 0, nbytes)


def drop_pages(pages: mmap.mmap) -> None:
    """Drop the pages of a memory-mapped file; Windows does so when it needs memory."""
    with suppress(AttributeError):
        pages.madvise(mmap.MADV_DONTNEED)


def shared_pages(descriptor: int, nbytes: int) -> mmap.mmap:
    """Map a file in shared memory, with all its pages at once."""
    return mmap.mmap(descriptor, nbytes, flags=mmap.MAP_SHARED | _MAP_POPULATE)


# Files


def open_file(path: str, flags: int, mode: int = 0o666, *, follow: bool = True) -> int:
    """`os.open` in binary mode that never blocks; OSError for a link unless `follow`.

    A named pipe is opened without its other end; if that is impossible, BlockingIOError is raised.
    """
    if not (follow or _O_NOFOLLOW):
        _refuse_link(path)
    if not _O_NONBLOCK and os.path.exists(path) and stat.S_ISFIFO(os.stat(path).st_mode):
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN), path)
    flags |= _O_BINARY | _O_NONBLOCK | (0 if follow else _O_NOFOLLOW)
    return os.open(path, flags, mode)


def _refuse_link(path: str) -> None:
    if os.path.islink(path):
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)


def open_folder(path: str) -> int | None:
    """A descriptor of a folder for locking; None if folders have none; OSError for a link."""
    if not _POSIX:
        _refuse_link(path)
        return None
    return open_file(path, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0), follow=False)


_seeking = Lock()


def read_at(descriptor: int, memory: memoryview, at: int) -> int:
    """Read from byte `at` of a file, at most one call's worth; return the count, 0 at the end."""
    if hasattr(os, "preadv"):
        return os.preadv(descriptor, (memory[:_READ],), at)
    count = min(len(memory), _COPIED_READ)
    if hasattr(os, "pread"):
        data = os.pread(descriptor, count, at)
    else:
        with _seeking:
            before = os.lseek(descriptor, 0, os.SEEK_CUR)
            try:
                os.lseek(descriptor, at, os.SEEK_SET)
                data = os.read(descriptor, count)
            finally:
                os.lseek(descriptor, before, os.SEEK_SET)
    memory[: len(data)] = data
    return len(data)


def copy_file_range(source: int, target: int, count: int, begin: int, at: int) -> int:
    """Copy bytes from file to file within the kernel. Raises OSError if it cannot."""
    if not hasattr(os, "copy_file_range"):
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    return os.copy_file_range(source, target, count, begin, at)


def lock(descriptor: int, alone: bool = True) -> bool | None:
    """Lock a file until it is closed; False if another process has it, None without locks."""
    if _fcntl is None:
        return None
    try:
        _fcntl.flock(descriptor, (_fcntl.LOCK_EX if alone else _fcntl.LOCK_SH) | _fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # the file system has no locks
        return None
    return True


def sync(path: str) -> None:
    """fsync a file, or the names in a folder.

    Windows cannot do so for read-only files and folders.
    """
    try:
        descriptor = open_file(path, os.O_RDONLY if _POSIX else os.O_RDWR)
    except (PermissionError, IsADirectoryError):
        if _POSIX:
            raise
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def change_mode(descriptor: int, path: str, mode: int) -> None:
    """Change the permissions of an open file."""
    if hasattr(os, "fchmod"):
        os.fchmod(descriptor, mode)
    else:
        os.chmod(path, mode)


def free_space(descriptor: int) -> int | None:
    """The free bytes of the disk of a file; None if unknown."""
    if not hasattr(os, "fstatvfs"):
        return None
    found = os.fstatvfs(descriptor)
    return found.f_bavail * found.f_frsize if found.f_blocks else None


def disk_size(status: os.stat_result) -> int:
    """The bytes that a file takes on disk; its size if the system does not say."""
    return 512 * status.st_blocks if hasattr(status, "st_blocks") else status.st_size


def exchange(first: str, second: str) -> None:
    """Exchange two files or folders in one atomic step. Raises OSError if that is impossible."""
    found = _exchanging()
    if found is None:
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP), second)
    if found(os.fsencode(first), os.fsencode(second)):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), second)


def _exchanging() -> Callable[[bytes, bytes], int] | None:
    """Linux's renameat2 or macOS's renamex_np, with the flag for an exchange."""
    library: Any = ctypes.CDLL(None, use_errno=True) if _POSIX else None
    if hasattr(library, "renameat2"):
        here, flag = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
        return lambda first, second: int(library.renameat2(here, first, here, second, flag))
    if hasattr(library, "renamex_np"):
        return lambda first, second: int(library.renamex_np(first, second, 2))  # RENAME_SWAP
    return None
