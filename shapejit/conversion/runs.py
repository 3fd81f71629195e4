"""Writes a folder: all of it, here or by an executor; one part; or the commit of all parts."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor, as_completed, wait
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from threading import Lock
from typing import Any

from ..errors import FileFormatError, FormatError, ShapeJitError, quoted
from ..files import safetensors
from ..files.ahead import read_until
from ..files.places import file_system, put, send, writing
from ..files.urls import is_url
from ..files.writing import Progress
from ..runtime.workers import threads
from .changes import check_written
from .destinations import destination
from .folders import MAX_SHARD, Folder, Shard
from .weights import LAST_RESULT

_EXECUTOR = re.compile(r"threads(?::([1-9][0-9]{0,3}))?|dask://([^/]+:[0-9]+)")

WriteShards = Callable[[str, Sequence[Shard], Progress], None]  # to a folder


@dataclass(frozen=True)
class Settings:
    """How a folder is written: at most `max_shard` bytes of tensors per file.

    `resume` continues an interrupted conversion with the same plan from its finished shards, and
    keeps those of this run if an error stops it. `part` (i, n) writes every n-th shard from the
    i-th on; `commit` n checks the shards of n parts and publishes the folder. With `verify` all
    bytes are computed again, and compared with those written. Raises FormatError for impossible
    parts.
    """

    max_shard: int = MAX_SHARD
    resume: bool = False
    part: tuple[int, int] | None = None
    commit: int | None = None
    verify: bool = False

    def __post_init__(self) -> None:
        numbers = self.part if self.part is not None else (1, 1)
        good = isinstance(numbers, tuple) and [*map(type, numbers)] == [int, int]
        if not good or not 0 < numbers[0] <= numbers[1]:
            reason = "is not I/N with I from 1 to N (a pair of integers in Python)"
            several = isinstance(numbers, tuple)
            given = (
                "/".join(map(repr, numbers)) if several else repr(numbers)
            )  # as on command lines
            raise FormatError(f"part {given} {reason}")
        if self.commit is not None and (type(self.commit) is not int or self.commit < 1):
            raise FormatError(f"commit {self.commit!r} is not a number of parts from 1 on")
        if self.part is not None and self.commit is not None:
            raise FormatError("a call either writes a part or commits: not both")

    def own(self, folder: Folder) -> Sequence[Shard]:
        """The shards that are written: all, or those of a part."""
        first, step = self.part or (1, 1)
        return folder.shards[first - 1 :: step]


def shard_written(shard: Shard, folder: str, progress: Progress) -> AbstractContextManager[None]:
    """A context that writes a shard to a folder (see `files.places.writing`).

    The file gets its name once it is completely on disk, or sent.
    """
    path = file_system(folder).join(folder, shard.name)
    if os.path.islink(path):  # or the file that it points to would be replaced
        os.unlink(path)
    return writing(path, shard.file, progress)


def write_here(folder: str, shards: Sequence[Shard], progress: Progress) -> None:
    """Write shards in order; each is computed while the previous one is synced and renamed."""
    with ThreadPoolExecutor(1) as other:
        ended: Future[None] | None = None
        for shard in shards:
            with ExitStack() as stack:
                stack.enter_context(shard_written(shard, folder, progress))
                if ended is not None:
                    ended.result()
                if not is_url(folder):  # some remote file systems support one thread only
                    ended = other.submit(stack.pop_all().close)
        if ended is not None:
            ended.result()


def written_by(
    executor: Any, there: Callable[[str], None],
    folder: str, shards: Sequence[Shard], progress: Progress,
) -> None:  # fmt: skip
    """Write shards to a folder with an executor.

    Threads share this process; other executors call `there`, which pickles, with names. The first
    error ends the run after the current shards; errors other than ShapeJitError and OSError become
    FormatError with the name of the shard.
    """
    lock, stop, begun = Lock(), Future[None](), dict[Future[None], Shard]()

    def tell(count: int) -> None:
        if stop.done():
            raise InterruptedError("the run has stopped")
        with lock:
            progress(count)

    def write(shard: Shard) -> None:
        try:
            with read_until(stop), shard_written(shard, folder, tell):
                pass
        finally:
            LAST_RESULT.clear()

    with ExitStack() as stack:
        pool = _opened(executor, stack)
        shared = isinstance(pool, ThreadPoolExecutor)
        try:
            for shard in shards:
                call = pool.submit(write, shard) if shared else pool.submit(there, shard.name)
                begun[call] = shard
            for future in as_completed(begun):
                shard, fault = begun.pop(future), future.exception()
                if isinstance(fault, Exception) and not isinstance(fault, ShapeJitError | OSError):
                    raise FormatError(f"{shard.name}: {type(fault).__name__}: {fault}") from fault
                future.result()
                del future  # a cluster computes again what it loses while somebody refers to it
                if not shared:
                    tell(shard.nbytes)
        except BaseException as fault:
            stop.set_result(None)
            # After an interrupt nothing is waited for.
            wait([f for f in begun if not f.cancel()], None if isinstance(fault, Exception) else 0)
            raise


def _opened(given: Any, stack: ExitStack) -> Executor:
    """An executor; `stack` closes it if it is opened by name."""
    if isinstance(given, str):
        name = _EXECUTOR.fullmatch(given)
        if name is None:
            known = "known are threads[:N], dask://HOST:PORT"
            raise FormatError(f"unknown executor {quoted(given)}; {known}")
        if name[2] is None:
            return stack.enter_context(ThreadPoolExecutor(int(name[1] or threads())))
        try:
            from distributed import Client
        except ImportError:
            text = "dask needs distributed: pip install 'shapejit[distributed]'"
            raise ImportError(text) from None
        given = stack.enter_context(Client(f"tcp://{name[2]}"))
    pool: Any = given.get_executor(pure=False) if hasattr(given, "get_executor") else given
    if not hasattr(pool, "submit"):
        raise FormatError(f"an executor has a method submit, {quoted(repr(given))} has none")
    found: Executor = pool
    return found


def write_folder(
    folder: Folder, settings: Settings, progress: Progress, write: WriteShards = write_here
) -> int:
    """Write a folder, or a part of it, or publish the written parts.

    Returns the bytes of the tensors that were written, without shards that were finished before. If
    the process is killed at any moment, the destination is the old folder or the new one.
    """
    where, own, alone = destination(folder), settings.own(folder), settings.part is None
    if not own:  # of a part
        return 0
    if settings.commit is not None and not where.begun:
        reason = "no part of this conversion was written, or all were committed before"
        raise FileFormatError(folder.path, None, reason)
    goes_on = settings.resume or settings.commit is not None
    needed = sum(shard.file.size for shard in own) + folder.nbytes
    with where.taken(alone, goes_on or not alone, needed):
        left = [shard for shard in own if not (goes_on and shard.is_written(where.folder))]
        if settings.commit is not None:
            _refuse_missing(folder, left, settings.commit)
        done = sum(shard.nbytes for shard in own if shard not in left)
        if done:
            progress(done)
        write(where.folder, left, progress)
        for shard in own if settings.verify else ():
            written = safetensors.read(file_system(where.folder).join(where.folder, shard.name))
            check_written(shard.changes, written, where.path)
        if alone:
            where.tidy()
            for name, found in folder.copied.items():
                _copy(found, where.folder, name)
            for name, text in folder.texts.items():
                put(where.folder, name, text)
            where.publish()
    return sum(shard.nbytes for shard in left)


def _copy(found: str, folder: str, name: str) -> None:
    """Copy a file of the source to a folder that lacks it."""
    path = file_system(folder).join(folder, name)
    if not is_url(path):
        os.makedirs(os.path.dirname(path), exist_ok=True)
    if is_url(path) or is_url(found):
        send(found, path)
    else:
        shutil.copy2(found, path)


def _refuse_missing(folder: Folder, left: Sequence[Shard], count: int) -> None:
    if left:
        parts = sorted({folder.shards.index(shard) % count + 1 for shard in left})
        reason = f"{left[0].name} is missing, or is not as planned: run --part {parts[0]}/{count}"
        more = f" (and {', '.join(map(str, parts[1:]))})" if parts[1:] else ""
        raise FileFormatError(folder.path, None, reason + more)
