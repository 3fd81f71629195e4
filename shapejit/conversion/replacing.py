"""A local folder as the destination: made beside it, then renamed or exchanged with it."""

from __future__ import annotations

import errno
import os
import re
import secrets
import shutil
import warnings
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress

from ..errors import FileFormatError
from ..files.paths import files_in
from ..files.places import put
from ..files.temporary import sync_folder
from ..runtime import system
from .folders import Folder, shards_of

__all__ = ["LocalFolder"]

_PLAN = ".shapejit-plan.json"


class LocalFolder:
    """A folder that appears as a whole or not at all (see `runs.destination`).

    What is written lies in a hidden folder beside it, whose name has the hash of the plan, so
    that nothing is taken for this conversion's that another one wrote. It is synced as a whole,
    and then renamed, or exchanged with the old folder, which is removed after that: both are
    one step. A killed process leaves the hidden folder behind, and the next one removes it or
    goes on. Where folders cannot be exchanged two are renamed, of which a warning tells: a
    process that is killed in between leaves the old one beside it, which the next one for it
    puts back.
    """

    def __init__(self, plan: Folder) -> None:
        self._plan, self.path, self._target = plan, plan.path, os.path.realpath(plan.path)
        self._parent, base = os.path.split(self._target)
        if not base:
            raise FileFormatError(plan.path, None, "this folder cannot be replaced")
        self._begins = f".{base}.shapejit-"
        self.folder = self._beside(plan.hash)
        # What takes the place of the old folder, and is the old one then; the same in two steps.
        self._new, self._aside = self._beside("new"), self._beside("old")
        self._published = False

    def _beside(self, name: str) -> str:
        return os.path.join(self._parent, f"{self._begins}{name}")

    @property
    def begun(self) -> bool:
        """Whether something was written for this plan."""
        return os.path.isdir(self.folder)

    @contextmanager
    def taken(self, alone: bool, keep: bool, needed: int) -> Iterator[None]:
        """Begin to write, or go on where files of the same plan are there and are to be kept.

        Others may take part at the same time unless this process is `alone`; FileFormatError
        where that cannot be, or the folder cannot be replaced. `needed` bytes must be free.
        Without a call of `publish` the old folder stays as it is; what has been written is
        removed at the end unless it is to be kept. Workers write for the process that has it.
        """
        name, work, target = self.path, self.folder, self._target
        with ExitStack() as stack:
            try:
                self._put_back()
                old = _is_there(target, name)
                stack.enter_context(_holding(_made(work, name, alone)))
                if old:  # or another process would take it for an abandoned one, once exchanged
                    stack.enter_context(_holding(_locked(target, name, alone)))
            except OSError as fault:
                raise OSError(fault.errno, fault.strerror, name) from None
            try:
                self._clear(alone, keep)
                if shutil.disk_usage(self._parent).free + _held(work) < needed:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), name)
                if old:
                    self._check_exchange()
                if not os.path.lexists(os.path.join(work, _PLAN)):
                    put(work, _PLAN, self._plan.plan)
                yield
            except OSError as fault:
                if fault.filename is not None and not str(fault.filename).startswith(work):
                    raise
                raise OSError(fault.errno, fault.strerror, name) from fault
            finally:
                if not keep:
                    shutil.rmtree(work, ignore_errors=True)
                with suppress(OSError):  # nothing was written
                    os.rmdir(work)
                if self._published or not keep:
                    shutil.rmtree(self._new, ignore_errors=True)
                if self._published:
                    shutil.rmtree(self._aside, ignore_errors=True)

    def tidy(self) -> None:
        """Remove what a process that was killed left beside the shards."""
        self._empty({_PLAN, *(shard.name for shard in self._plan.shards)})

    def publish(self) -> None:
        """Rename the hidden folder, or exchange it with the old one.

        What that has beside it stays, but the shards that its index names, and what the plan
        says is gone.
        """
        work, target = self.folder, self._target
        old = _is_there(target, self.path)
        if old:
            shutil.copymode(target, work)
            leave = {*files_in(work), *shards_of(target, self._plan.index), *self._plan.gone}
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
        os.unlink(os.path.join(work, _PLAN))
        sync_folder(work)
        if old:
            self._replace()
        else:
            os.rename(work, target)
        self._published = True
        sync_folder(self._parent)

    def _clear(self, alone: bool, keep: bool) -> None:
        """Remove what other conversions left, and this one unless it goes on.

        FileFormatError where one that goes on, or has parts, finds another plan.
        """
        for name in os.listdir(self._parent):
            number, other = name.removeprefix(self._begins), os.path.join(self._parent, name)
            hidden = number != name and re.fullmatch(r"[0-9a-f]{16}|new", number)
            if not hidden or other == self.folder:
                continue
            text = None
            with suppress(OSError), open(os.path.join(other, _PLAN), encoding="utf-8") as file:
                text = file.read()
            if keep and text is not None and number != "new":
                raise self._plan.begun_otherwise(text, alone, other)
            if alone:
                with _holding(_locked(other, self.path, True)):
                    shutil.rmtree(other)
        if not keep:
            self._empty(())

    def _empty(self, keep: Collection[str]) -> None:
        for name in os.listdir(self.folder):
            path = os.path.join(self.folder, name)
            if name in keep:
                continue
            if os.path.isdir(path) and not os.path.islink(path):
                shutil.rmtree(path)
            else:
                os.unlink(path)

    def _check_exchange(self) -> None:
        """FileFormatError unless the folder can be replaced; a warning if in two steps."""
        name, work, target = self.path, self.folder, self._target
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
        # From now on its name does not say any more that it holds the shards of the plan.
        os.rename(self.folder, self._new)
        if _exchanged(self._new, self._target):
            return
        os.rename(self._target, self._aside)
        try:
            os.rename(self._new, self._target)
        except BaseException:
            os.rename(self._aside, self._target)
            os.rename(self._new, self.folder)
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
