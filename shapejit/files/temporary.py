"""Atomic writing of a file: it is written beside its destination, then renamed."""

from __future__ import annotations

import errno
import os
import re
import secrets
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from ..errors import FileFormatError
from ..runtime import system
from .paths import Path, file_name

Check = Callable[[str], None]  # of a written file, before it is renamed

_TEMPORARY_NAME = re.compile(r"\.shapejit-[0-9a-f]{32}\.tmp")


@contextmanager
def replacing(path: Path, size: int | None = None, check: Check | None = None) -> Iterator[int]:
    """A descriptor to write to; at the end the file at `path` is replaced.

    The data go to a temporary file in the folder of `path`, which is synced and then renamed to
    `path` (or to the file that this links to). On any error the temporary file is removed and
    `path` is unchanged. A replaced file passes on its permissions, a new one gets those of the
    umask. OSErrors contain `path`; one is raised before the work if the disk has no room for `size`
    bytes (nothing is reserved: in tmpfs that takes half as long as writing the file, and blocks
    reading and converting). `check` is called with the temporary file.

    A killed process leaves its temporary file behind; the next call for the same folder removes it.
    Each writer holds a lock (flock) on its file, which ends with the process: a file with such a
    name that can be locked is abandoned. Files that cannot be locked, as on Windows, are kept.
    """
    name = file_name(path)
    if os.path.basename(name) in ("", os.curdir, os.pardir):
        raise FileFormatError(name, None, "it names a folder, not a file: give a name in it")
    target = name
    try:
        target = os.path.realpath(name)
        mode = _mode_of(target, name)
        _remove_abandoned(os.path.dirname(target))
        with _locked(target) as (temporary, descriptor):
            if mode is not None:
                system.change_mode(descriptor, temporary, mode)
            free = system.free_space(descriptor)
            if size is not None and free is not None and free < size:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            yield descriptor
            os.fsync(descriptor)
            if check is not None:
                check(temporary)
    except OSError as fault:
        if fault.filename not in (None, target) and not _TEMPORARY_NAME.search(str(fault.filename)):
            raise
        # Errors name the destination, not the temporary file.
        raise OSError(fault.errno, fault.strerror, name) from fault
    sync_folder(os.path.dirname(target))


@contextmanager
def _locked(target: str) -> Iterator[tuple[str, int]]:
    """A new file and its locked descriptor; it replaces `target`, or is removed on errors."""
    held, folder = False, os.path.dirname(target)
    while not held:
        temporary = os.path.join(folder, f".shapejit-{secrets.token_hex(16)}.tmp")
        descriptor = -1
        try:
            # Within the try: a signal may raise before the next line.
            descriptor = system.open_file(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
            # Until it is locked, another process may remove it as abandoned.
            # Without locks no process can lock the file, so none removes it.
            held = system.lock(descriptor) is not False and os.fstat(descriptor).st_nlink > 0
            if held:
                yield temporary, descriptor
                if not system.RENAMES_OPEN_FILES:
                    closing, descriptor = descriptor, -1
                    os.close(closing)
                os.replace(temporary, target)  # while the lock is held, if there is one
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary)
            raise
        finally:
            if descriptor >= 0:
                os.close(descriptor)


def _remove_abandoned(folder: str) -> None:
    """Remove the temporary files whose writers are dead."""
    with suppress(OSError):
        for name in filter(is_temporary, os.listdir(folder)):
            _remove_if_abandoned(os.path.join(folder, name))


def _remove_if_abandoned(path: str) -> None:
    with suppress(OSError):
        # Opened for writing: NFS requires that for exclusive locks.
        descriptor = system.open_file(path, os.O_WRONLY, follow=False)
        try:
            if stat.S_ISREG(os.fstat(descriptor).st_mode) and system.lock(descriptor):
                os.unlink(path)
        finally:
            os.close(descriptor)


def is_temporary(path: str) -> bool:
    """Whether a file has the name of a temporary file."""
    return _TEMPORARY_NAME.fullmatch(os.path.basename(path)) is not None


def _mode_of(target: str, path: str) -> int | None:
    """The permissions of the file to replace; None if there is none."""
    try:
        mode = os.stat(target).st_mode
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(mode):
        what = "a folder" if stat.S_ISDIR(mode) else "not a regular file"
        raise FileFormatError(path, None, f"it is {what}, so it cannot be replaced by a file")
    return stat.S_IMODE(mode)


def sync_folder(folder: str) -> None:
    """fsync a folder after a rename. Failures are ignored: the new file is in place already."""
    with suppress(OSError):
        system.sync(folder)
