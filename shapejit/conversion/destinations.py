"""Destination folders: local ones, written beside the target and exchanged with it, or at URLs."""

from __future__ import annotations

import errno
import os
import re
import shutil
import warnings
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress

from ..errors import FileFormatError
from ..files.paths import files_in
from ..files.places import file_system, put
from ..files.sharded import SINGLE, SUFFIX
from ..files.temporary import is_temporary, sync_folder
from ..files.urls import is_url
from ..runtime import system
from .folders import Folder, shards_of

_PLAN = ".shapejit-plan.json"


def destination(folder: Folder) -> LocalFolder | RemoteFolder:
    """The destination folder, local or at a URL, which several processes may write.

    Each process has its own object for it. Errors contain `path`, the user's name for it. Files are
    written to `folder` until they are published: no reader sees an incomplete checkpoint.
    """
    return RemoteFolder(folder) if is_url(folder.path) else LocalFolder(folder)


class LocalFolder:
    """A folder that appears as a whole or not at all (see `destination`).

    Files are written to a hidden folder beside it, whose name contains the hash of the plan, so
    that files of other conversions are not mistaken for this one's. It is synced, and then renamed,
    or exchanged with the old folder, which is removed afterwards: both are one atomic step. A
    killed process leaves the hidden folder behind; the next one removes it or continues. If folders
    cannot be exchanged, two renames take the place of the exchange, with a warning: a process that
    is killed between them leaves the old folder beside it, and the next conversion puts it back.
    """

    def __init__(self, plan: Folder) -> None:
        self._plan, self.path, self._target = plan, plan.path, os.path.realpath(plan.path)
        self._parent, base = os.path.split(self._target)
        if not base:
            raise FileFormatError(plan.path, None, "this folder cannot be replaced")
        self._begins = f".{base}.shapejit-"
        self.folder = self._beside(plan.hash)
        # The name of the new folder during an exchange, then of the old one; and for two renames.
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
        """A context for writing: begin, or continue with `keep` if files of the same plan exist.

        Other processes may write as well, unless this one is `alone`. Raises FileFormatError if
        that is impossible, or the folder cannot be replaced. `needed` bytes must be free. Without a
        call of `publish` the old folder stays, and written files are removed unless `keep` is set.
        """
        name, work, target = self.path, self.folder, self._target
        own = os.path.join(self._parent, self._begins)
        with ExitStack() as stack:
            try:
                self._put_back()
                old = _is_there(target, name)
                stack.enter_context(_made(work, name, alone))
                if old:  # otherwise another process could remove it as abandoned after the exchange
                    stack.enter_context(_locked(target, name, alone))
                stack.callback(self._clean_up, keep)
                self._clear(alone, keep)
                if shutil.disk_usage(self._parent).free + _held(work) < needed:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                if old:
                    self._check_exchange()
                if not os.path.lexists(os.path.join(work, _PLAN)):
                    put(work, _PLAN, self._plan.plan)
                yield
            except OSError as fault:
                if fault.filename in (None, target) or str(fault.filename).startswith(own):
                    missing = self._parent if not os.path.isdir(self._parent) else name
                    raise OSError(fault.errno, fault.strerror, missing) from fault
                raise

    def _clean_up(self, keep: bool) -> None:
        gone = [] if keep else [self.folder, self._new]
        gone += [self._new, self._aside] if self._published else []
        for folder in gone:
            shutil.rmtree(folder, ignore_errors=True)
        with suppress(OSError):  # nothing was written
            os.rmdir(self.folder)

    def tidy(self) -> None:
        """Remove the temporary files of killed processes."""
        self._empty({_PLAN, *(shard.name for shard in self._plan.shards)})

    def publish(self) -> None:
        """Rename the hidden folder, or exchange it with the old one.

        Other files of the old folder are kept, except the shards of its index and those that the
        plan removes.
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
        written = {*self._plan.texts, *(shard.name for shard in self._plan.shards)}
        for name, path in files_in(work).items():
            # The others have been synced.
            if name not in written and not os.path.islink(path) and not is_temporary(name):
                system.sync(path)
        for folder, *_ in os.walk(work):
            sync_folder(folder)
        os.unlink(os.path.join(work, _PLAN))
        sync_folder(work)
        if old:
            self._replace()
        else:
            os.rename(work, target)
        self._published = True
        # A cluster may compute a shard twice; the writer that is late finds no folder to go on in.
        for name, path in files_in(target).items():
            if is_temporary(name):
                with suppress(FileNotFoundError):
                    os.unlink(path)
        sync_folder(self._parent)

    def _clear(self, alone: bool, keep: bool) -> None:
        """Remove the remains of other conversions, and of this one unless it continues.

        Raises FileFormatError if a conversion that continues, or has parts, finds another plan.
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
                with _locked(other, self.path, True):
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
        """Raise FileFormatError unless the folder can be replaced."""
        name, work, target = self.path, self.folder, self._target
        reason = "a folder that is not empty cannot be replaced here"
        if os.stat(target).st_dev != os.stat(work).st_dev:
            raise FileFormatError(name, None, f"{reason}: it is the root of a file system")
        if os.path.join(os.getcwd(), "").startswith(os.path.join(target, "")):
            raise FileFormatError(name, None, f"{reason}: it is, or holds, the current folder")

    def _replace(self) -> None:
        """Replace the old folder by the hidden one, in one step or in two."""
        # From now on its name no longer marks it as holding shards of the plan.
        os.rename(self.folder, self._new)
        try:
            system.exchange(self._new, self._target)
            return
        except OSError:
            text = f"{self.path} is replaced by two renames, as folders cannot be exchanged here: "
            text += f"a process killed between them leaves the old folder as {self._aside}"
            warnings.warn(text, stacklevel=2)
        os.rename(self._target, self._aside)
        try:
            os.rename(self._new, self._target)
        except BaseException:
            os.rename(self._aside, self._target)
            os.rename(self._new, self.folder)
            raise

    def _put_back(self) -> None:
        """Finish the replacement of a killed process: restore the old folder, or remove it."""
        if not os.path.lexists(self._aside):
            return
        with _locked(self._aside, self.path, True):
            if os.path.lexists(self._target):
                shutil.rmtree(self._aside)
            else:
                os.rename(self._aside, self._target)


def _link(found: str, path: str) -> None:
    """Hard-link a file, or copy it if links are not supported."""
    try:
        os.link(found, path, follow_symlinks=False)
    except (OSError, NotImplementedError):  # of links to links
        shutil.copy2(found, path, follow_symlinks=False)


def _held(folder: str) -> int:
    """The bytes of the files in a folder, if it exists: they are deleted, or count as needed."""
    with suppress(OSError):
        return sum(system.disk_size(e.stat(follow_symlinks=False)) for e in os.scandir(folder))
    return 0


def _is_there(target: str, name: str) -> bool:
    """Whether a non-empty folder is to be replaced."""
    if not os.path.lexists(target):
        return False
    if not os.path.isdir(target):
        raise FileFormatError(name, None, "it is not a folder")
    return bool(os.listdir(target))


def _made(work: str, name: str, alone: bool) -> ExitStack:
    """A context with the lock of a folder, which is created if necessary."""
    while True:
        with suppress(FileExistsError):
            os.mkdir(work)
        with suppress(FileNotFoundError), ExitStack() as stack:
            descriptor = stack.enter_context(_locked(work, name, alone))
            # Another process may have removed it before it was locked.
            if descriptor is None or os.path.samestat(os.stat(work), os.fstat(descriptor)):
                return stack.pop_all()


@contextmanager
def _locked(folder: str, name: str, alone: bool) -> Iterator[int | None]:
    """A context with the lock of a folder. Raises FileFormatError if another process has it."""
    descriptor = system.open_folder(folder)
    try:
        if descriptor is not None and system.lock(descriptor, alone) is False:
            raise FileFormatError(name, None, "another conversion is writing it")
        yield descriptor
    finally:
        if descriptor is not None:
            os.close(descriptor)


_PLANS = ".shapejit-plan-"  # what the names of plans begin with


class RemoteFolder:
    """A folder at a URL (see `destination`).

    Files cannot be renamed there: each appears when it has been sent completely. The index is sent
    last, so readers find no incomplete checkpoint; a checkpoint of a single file has no index, and
    is found when that file has been sent. An existing checkpoint is not replaced, and nothing is
    written if the folder cannot be listed. Until the end the plan is stored next to the files,
    under a name with its hash. There are no locks: two conversions must not write to it at a time.
    """

    def __init__(self, plan: Folder) -> None:
        self._plan, self.path, self._place = plan, plan.path, file_system(plan.path)
        self.folder = self.path
        self._name, self._published = f"{_PLANS}{plan.hash}.json", False

    @property
    def begun(self) -> bool:
        """Whether something was sent for this plan."""
        self._place.fresh(self.path)
        return self._name in self._place.listed(self.path)

    @contextmanager
    def taken(self, alone: bool, keep: bool, needed: int) -> Iterator[None]:
        """Begin to write, or continue. Raises FileFormatError if there is a checkpoint."""
        self._place.fresh(self.path)
        before = {*self._place.listed(self.path)}
        plans = {name for name in before if name.startswith(_PLANS)}
        whole = (SINGLE in before and not plans) or any(name.endswith(SUFFIX) for name in before)
        if whole and not (keep and self._name in before):  # only its last steps are missing
            reason = "it holds a checkpoint, which cannot be replaced in one step by URL"
            raise FileFormatError(self.path, None, f"{reason}: remove it, or name another folder")
        if keep:
            for name in plans - {self._name}:
                url = self._place.join(self.path, name)
                file = self._place.open(url)
                text = file.bytes(0, file.size).decode(errors="replace")
                raise self._plan.begun_otherwise(text, alone, url)
        else:
            gone = plans | ({shard.name for shard in self._plan.shards} & before)
            self._remove(gone)
            before -= gone
        if self._name not in before:
            put(self.path, self._name, self._plan.plan)
        try:
            yield
        finally:
            if not self._published and not keep:
                self._place.fresh(self.path)
                for name in {self._name, *self._plan.names} - before:
                    with suppress(OSError):
                        self._remove({name})

    def tidy(self) -> None:
        """Do nothing: other files may belong to anyone."""

    def publish(self) -> None:
        """All files are in place: remove those that the folder no longer has."""
        self._remove({*(self._plan.gone - self._plan.names), self._name})
        self._published = True

    def _remove(self, names: set[str]) -> None:
        for name in names:
            self._place.remove(self._place.join(self.path, name))
