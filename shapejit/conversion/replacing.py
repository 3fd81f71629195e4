"""A folder that appears as a whole or not at all: made beside its destination, then exchanged."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

from ..errors import FileFormatError
from ..files.paths import Path
from ..files.temporary import sync_folder

__all__ = ["exchanged", "replaced_folder"]

_EXCHANGE = 2  # RENAME_EXCHANGE of Linux's renameat2
_HERE = -100  # AT_FDCWD


@contextmanager
def replaced_folder(target: str, path: Path, needed: int, keep: bool) -> Iterator[str]:
    """A new folder to write to; at the end it takes the place of the folder `target`.

    It lies beside `target`, is synced as a whole, and then renamed, or exchanged with the
    old folder, which is removed after that: both are one step. On any error `target` stays
    as it was, and the new folder is removed, unless it is to `keep`: then the next call gets
    it as it is. A killed process leaves its folder behind, and the next call removes it or
    gets it. `needed` bytes must be free. Raises FileFormatError where the file system cannot
    exchange folders, or another process writes to `target`; OSErrors carry `path`.
    """
    name = os.fspath(path)
    parent, base = os.path.split(target)
    if not base:
        raise FileFormatError(name, None, "this folder cannot be replaced")
    work = os.path.join(parent, f".{base}.shapejit")
    with ExitStack() as stack:
        try:
            old = _is_there(target, name)
            if shutil.disk_usage(parent).free + _held(work) < needed:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), name)
            stack.callback(os.close, _made(work, name))
            if old:  # or another process would take it for an abandoned one, once exchanged
                stack.callback(os.close, _locked(target, name))
        except OSError as fault:
            raise OSError(fault.errno, fault.strerror, name) from None
        whole = False
        try:
            if old:
                _check_exchange(work, target, name)
                shutil.copymode(target, work)
            yield work
            _sync(work)
            if old:
                exchanged(work, target)
            else:
                os.rename(work, target)
            whole = True
            sync_folder(parent)
        except OSError as fault:
            if fault.filename is not None and not str(fault.filename).startswith(work):
                raise
            raise OSError(fault.errno, fault.strerror, name) from fault
        finally:
            if whole or not keep:
                shutil.rmtree(work, ignore_errors=True)


def _held(folder: str) -> int:
    """The bytes of the files in a folder, if there is one: they are removed, or needed."""
    with suppress(OSError):
        return sum(entry.stat(follow_symlinks=False).st_size for entry in os.scandir(folder))
    return 0


def _is_there(target: str, name: str) -> bool:
    """Whether there is a folder to be replaced that is not empty."""
    if not os.path.lexists(target):
        return False
    if not os.path.isdir(target):
        raise FileFormatError(name, None, "it is not a folder")
    return bool(os.listdir(target))


def _made(work: str, name: str) -> int:
    """A locked descriptor of a folder, which is made if it is not there."""
    while True:
        with suppress(FileExistsError):
            os.mkdir(work)
        descriptor = -1
        with suppress(FileNotFoundError):
            descriptor = _locked(work, name)
            # Before it was locked another process may have removed it.
            if os.path.samestat(os.stat(work), os.fstat(descriptor)):
                return descriptor
        if descriptor >= 0:
            os.close(descriptor)


def _locked(folder: str, name: str) -> int:
    """A locked descriptor of a folder; FileFormatError where another process has the lock."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(folder, flags)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise FileFormatError(name, None, "another conversion is writing it") from None
    except OSError:
        pass  # a file system without locks
    return descriptor


def _check_exchange(work: str, target: str, name: str) -> None:
    """FileFormatError unless the folders can be exchanged, tried with two others."""
    reason = "a folder that is not empty cannot be replaced in one step here"
    if os.stat(target).st_dev != os.stat(work).st_dev:
        raise FileFormatError(name, None, f"{reason}: it is the root of a file system")
    if os.path.commonpath([os.getcwd(), target]) == target:
        raise FileFormatError(name, None, f"{reason}: it is, or holds, the current folder")
    trial = [os.path.join(work, f".trial{k}") for k in range(2)]
    try:
        for each in trial:  # which a process that was killed here may have left
            os.makedirs(each, exist_ok=True)
        exchanged(*trial)
    except (OSError, AttributeError):
        raise FileFormatError(name, None, reason) from None
    finally:
        for each in trial:
            with suppress(OSError):
                os.rmdir(each)


def exchanged(first: str, second: str) -> None:
    """Let two folders exchange their names, in one step."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.renameat2(_HERE, os.fsencode(first), _HERE, os.fsencode(second), _EXCHANGE):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), second)


def _sync(work: str) -> None:
    """Make all that a folder holds last."""
    for folder, _, files in os.walk(work):
        for file in files:
            path = os.path.join(folder, file)
            if not os.path.islink(path):
                descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                try:
                    os.fsync(descriptor)
                finally:
                    os.close(descriptor)
        sync_folder(folder)
