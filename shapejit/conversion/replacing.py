"""A local folder as the destination: made beside it, then renamed or exchanged with it."""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import warnings
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress

import numpy as np

from ..arrays.tensor import Bytes
from ..errors import FileFormatError
from ..files import sharded
from ..files.paths import files_in, open_regular
from ..files.places import places, send
from ..files.temporary import sync_folder
from ..files.urls import is_url
from ..runtime import system

__all__ = ["LocalFolder", "shards_of"]

_PIECE = 1 << 20  # bytes that are read at a time: they stay in the cache until they are looked at


class LocalFolder:
    """A folder that appears as a whole or not at all (a `Destination`).

    What is written lies in a hidden folder beside it, which is synced as a whole, and then
    renamed, or exchanged with the old folder, which is removed after that: both are one step.
    A killed process leaves the hidden folder behind, and the next one removes it or goes on.
    Where folders cannot be exchanged two are renamed, of which a warning tells: a process that
    is killed in between leaves the old one beside it, which the next one for it puts back.
    """

    whole = False

    def __init__(self, path: str) -> None:
        self.path, self._target = path, os.path.realpath(path)
        self._parent, base = os.path.split(self._target)
        if not base:
            raise FileFormatError(path, None, "this folder cannot be replaced")
        self.hidden = os.path.join(self._parent, f".{base}.shapejit")
        self._aside = os.path.join(self._parent, f".{base}.shapejit-old")
        self._published = False

    @contextmanager
    def taken(
        self, alone: bool, keep: bool, needed: int, others: Collection[str] = ()
    ) -> Iterator[None]:
        """Begin to write, or go on; FileFormatError where the folder cannot be replaced."""
        name, work, target = self.path, self.hidden, self._target
        with ExitStack() as stack:
            try:
                self._put_back()
                old = _is_there(target, name)
                if shutil.disk_usage(self._parent).free + _held(work) < needed:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), name)
                stack.enter_context(_holding(_made(work, name, alone)))
                if old:  # or another process would take it for an abandoned one, once exchanged
                    stack.enter_context(_holding(_locked(target, name, alone)))
            except OSError as fault:
                raise OSError(fault.errno, fault.strerror, name) from None
            try:
                if old:
                    self._check_exchange()
                yield
            except OSError as fault:
                if fault.filename is not None and not str(fault.filename).startswith(work):
                    raise
                raise OSError(fault.errno, fault.strerror, name) from fault
            finally:
                if self._published or not keep:
                    shutil.rmtree(work, ignore_errors=True)
                if self._published:
                    shutil.rmtree(self._aside, ignore_errors=True)

    @contextmanager
    def open(self, name: str, size: int) -> Iterator[int]:
        """A descriptor of a file of `size` bytes, which is made if it is not there."""
        path = os.path.join(self.hidden, name)
        descriptor = system.open_file(path, os.O_RDWR | os.O_CREAT, follow=False)
        try:
            found = os.fstat(descriptor)
            if found.st_nlink > 1:
                reason = f"{name} in {self.hidden} has other names, too, and is not written"
                raise FileFormatError(self.path, None, reason)
            if found.st_size != size:
                os.ftruncate(descriptor, size)
            yield descriptor
        finally:
            os.close(descriptor)

    def read(self, name: str, begin: int, end: int) -> Iterator[Bytes]:
        """Bytes that were written, piece by piece."""
        path = os.path.join(self.hidden, name)
        try:
            descriptor = open_regular(path, path, follow=False)
        except (OSError, FileFormatError):
            return
        try:
            memory = np.empty(min(_PIECE, end - begin), np.uint8)
            while begin < end:
                count = system.read_at(descriptor, memory[: end - begin].data, begin)
                if not count:
                    return
                yield memory[:count]
                begin += count
        finally:
            os.close(descriptor)

    def names(self) -> list[str]:
        """The files in it so far."""
        with suppress(FileNotFoundError):
            return os.listdir(self.hidden)
        return []

    def text(self, name: str) -> str | None:
        """A small file, if it is there."""
        with suppress(OSError), open(os.path.join(self.hidden, name), encoding="utf-8") as file:
            return file.read()
        return None

    def put(self, name: str, text: str) -> None:
        """Write a small file, and rename it."""
        path = os.path.join(self.hidden, name)
        new = f"{path}.{secrets.token_hex(8)}.new"
        with open(new, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(new, path)

    def remove(self, name: str) -> None:
        """Remove a file or a folder, if it is there."""
        path = os.path.join(self.hidden, name)
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path)
        elif os.path.lexists(path):
            os.unlink(path)

    def copy(self, found: str, name: str) -> None:
        """Copy a file."""
        path = os.path.join(self.hidden, name)
        self.remove(name)  # what is there may be another name of a file elsewhere
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if is_url(found):
            with self.open(name, places(found).size(found)) as descriptor:
                send(found, descriptor)
        else:
            shutil.copy2(found, path)

    def sync(self, name: str) -> None:
        """Make what was written to a file last."""
        system.sync(os.path.join(self.hidden, name))

    def publish(self, index: str, gone: Collection[str], receipts: Collection[str]) -> None:
        """Rename the hidden folder, or exchange it with the old one."""
        work, target = self.hidden, self._target
        old = _is_there(target, self.path)
        if old:
            shutil.copymode(target, work)
            leave = {*files_in(work), *shards_of(target, index), *gone}
            for name, found in files_in(target).items():
                if name not in leave:
                    path = os.path.join(work, name)
                    os.makedirs(os.path.dirname(path), exist_ok=True)
                    _link(found, path)
        for folder, _, files in os.walk(work):
            for file in files:
                path = os.path.join(folder, file)
                if not os.path.islink(path):
                    system.sync(path)
            sync_folder(folder)
        for name in receipts:
            self.remove(name)
        if old:
            self._replace()
        else:
            os.rename(work, target)
        self._published = True
        sync_folder(self._parent)

    def _check_exchange(self) -> None:
        """FileFormatError unless the folder can be replaced; a warning if in two steps."""
        name, work, target = self.path, self.hidden, self._target
        reason = "a folder that is not empty cannot be replaced here"
        if os.stat(target).st_dev != os.stat(work).st_dev:
            raise FileFormatError(name, None, f"{reason}: it is the root of a file system")
        if os.path.join(os.getcwd(), "").startswith(os.path.join(target, "")):
            raise FileFormatError(name, None, f"{reason}: it is, or holds, the current folder")
        trial = [os.path.join(work, f".trial-{secrets.token_hex(8)}") for _ in range(2)]
        try:
            for each in trial:
                os.mkdir(each)
            if not _exchanged(*trial):
                text = f"{name} is replaced by two renames, as folders cannot be exchanged here: "
                text += f"a process killed between them leaves the old folder as {self._aside}"
                warnings.warn(text, stacklevel=2)
        finally:
            for each in trial:
                with suppress(OSError):
                    os.rmdir(each)

    def _replace(self) -> None:
        """Let the hidden folder take the place of the old one, in one step or in two."""
        if _exchanged(self.hidden, self._target):
            return
        os.rename(self._target, self._aside)
        try:
            os.rename(self.hidden, self._target)
        except BaseException:
            os.rename(self._aside, self._target)
            raise

    def _put_back(self) -> None:
        """Finish what a killed process began: the old folder gets its name back, or is removed."""
        if not os.path.lexists(self._aside):
            return
        with _holding(_locked(self._aside, self.path, True)):
            if os.path.lexists(self._target):
                shutil.rmtree(self._aside)
            else:
                os.rename(self._aside, self._target)


def shards_of(folder: str, index: str) -> set[str]:
    """The files of the checkpoint of this index in a folder: the index, and those with tensors."""
    made = {index, index.removesuffix(sharded.SUFFIX) + ".safetensors"}
    with suppress(FileFormatError, OSError):
        made |= set(sharded.shards_named(places(folder).join(folder, index)))
    return made


def _exchanged(first: str, second: str) -> bool:
    """Let two folders exchange their names; whether that can be done here."""
    try:
        system.exchange(first, second)
    except OSError:
        return False
    return True


def _link(found: str, path: str) -> None:
    """The same file under another name, or a copy where there are no links."""
    try:
        os.link(found, path, follow_symlinks=False)
    except (OSError, NotImplementedError):  # of links to links
        shutil.copy2(found, path, follow_symlinks=False)


def _held(folder: str) -> int:
    """The bytes that the files in a folder take, if there is one: they are removed, or needed."""
    with suppress(OSError):
        return sum(system.disk_size(e.stat(follow_symlinks=False)) for e in os.scandir(folder))
    return 0


def _is_there(target: str, name: str) -> bool:
    """Whether there is a folder to be replaced that is not empty."""
    if not os.path.lexists(target):
        return False
    if not os.path.isdir(target):
        raise FileFormatError(name, None, "it is not a folder")
    return bool(os.listdir(target))


def _made(work: str, name: str, alone: bool) -> int | None:
    """A locked descriptor of a folder, which is made if it is not there."""
    while True:
        with suppress(FileExistsError):
            os.mkdir(work)
        descriptor = None
        with suppress(FileNotFoundError):
            descriptor = _locked(work, name, alone)
            # Before it was locked another process may have removed it.
            if descriptor is None or os.path.samestat(os.stat(work), os.fstat(descriptor)):
                return descriptor
        if descriptor is not None:
            os.close(descriptor)


def _locked(folder: str, name: str, alone: bool) -> int | None:
    """A locked descriptor of a folder; FileFormatError where another process has the lock."""
    descriptor = system.open_folder(folder)
    if descriptor is not None and system.lock(descriptor, alone) is False:
        os.close(descriptor)
        raise FileFormatError(name, None, "another conversion is writing it")
    return descriptor


@contextmanager
def _holding(*descriptors: int | None) -> Iterator[None]:
    """Close them at the end, and so let go of their locks."""
    try:
        yield
    finally:
        for descriptor in descriptors:
            if descriptor is not None:
                os.close(descriptor)
