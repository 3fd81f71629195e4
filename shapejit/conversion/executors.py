"""Who writes the shards of a folder: any `Executor`, one row per kind that has a name."""

from __future__ import annotations

import multiprocessing
import os
import re
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Executor, ProcessPoolExecutor, as_completed, wait
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from threading import Event, Lock, Thread
from typing import Any, NamedTuple

from ..errors import FormatError, ShapeJitError, quoted
from ..files.ahead import Threads
from ..files.writing import Progress
from ..runtime.workers import limit, threads
from .folders import Folder
from .jobs import Job, write_planned
from .runs import write_shard
from .shards import Shard

__all__ = ["EXECUTORS", "write_shards"]

_MAIN = "; a script that starts processes has to do so under if __name__ == '__main__'"


def write_shards(
    executor: Any,
    job: Job,
    plan: Folder,
    folder: str,
    shards: Sequence[Shard],
    progress: Progress | None,
) -> None:
    """Have shards written to `folder` by an executor, or by one that is opened by its name.

    Threads share the plan, other workers make it again of the job. The first error ends the
    run, when what has begun is done.
    """
    lock, stopped = Lock(), Event()

    def tell(count: int) -> None:
        if stopped.is_set():
            raise InterruptedError("nobody wants the shard any more")
        if progress is not None:
            with lock:
                progress(count)

    with _opened(executor) as pool:
        here = isinstance(pool, Threads)
        calls = {
            partial(write_shard, shard, folder, job.most, tell)
            if here
            else partial(write_planned, job, plan.shards.index(shard), plan.hash): shard
            for shard in shards
        }
        futures = {pool.submit(call): shard for call, shard in calls.items()}
        try:
            for future in as_completed(futures):
                _check(future.result, futures[future])
                if not here:
                    tell(futures[future].nbytes)
        except BaseException as fault:
            stopped.set()
            begun = [future for future in futures if not future.cancel()]
            if isinstance(fault, Exception):  # else a user does not wait
                wait(begun)
            raise


def _check(result: Callable[[], None], shard: Shard) -> None:
    """The error of a worker; one that is not ours, nor the disk's, names the shard."""
    try:
        result()
    except (ShapeJitError, OSError):
        raise
    except Exception as fault:
        text = f"{fault}{_MAIN if isinstance(fault, BrokenExecutor) else ''}"
        raise FormatError(f"{shard.name}: {type(fault).__name__}: {text}") from fault


class Kind(NamedTuple):
    """A kind of executor that has a name: how it is written, its pattern, and what opens it."""

    form: str
    pattern: str
    opens: Callable[[Any], AbstractContextManager[Executor]]


@contextmanager
def _processes(count: int) -> Iterator[Executor]:
    before = {*multiprocessing.active_children()}
    context = multiprocessing.get_context("spawn")  # threads do not survive a fork
    pool = ProcessPoolExecutor(count, context, _begin, (max(1, threads() // count),))
    try:
        yield pool
    except BaseException as fault:
        if not isinstance(fault, Exception):
            for child in {*multiprocessing.active_children()} - before:
                child.kill()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _begin(count: int) -> None:
    """A process ends with its parent, which alone hears Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    limit(count)
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


@contextmanager
def _dask(address: str) -> Iterator[Executor]:
    try:
        from distributed import Client
    except ImportError:
        raise ImportError("dask needs distributed: pip install 'shapejit[distributed]'") from None
    with Client(f"tcp://{address}") as client:
        yield client.get_executor(pure=False)


EXECUTORS = (
    Kind("threads[:N]", r"threads(?::([1-9][0-9]{0,3}))?", lambda n: Threads(int(n or threads()))),
    Kind("processes[:N]", r"processes(?::([1-9][0-9]{0,3}))?",
         lambda n: _processes(int(n or threads()))),
    Kind("dask://HOST:PORT", r"dask://([^/]+:[0-9]+)", _dask),
)  # fmt: skip


@contextmanager
def _opened(given: Any) -> Iterator[Executor]:
    """An executor that is given, or that of a client of dask's, stays open."""
    if not isinstance(given, str):
        pool = given.get_executor(pure=False) if hasattr(given, "get_executor") else given
        if not hasattr(pool, "submit"):
            raise FormatError(f"an executor has a method submit, {quoted(repr(given))} has none")
        yield pool
        return
    for kind in EXECUTORS:
        found = re.fullmatch(kind.pattern, given)
        if found is not None:
            with kind.opens(found[1]) as pool:
                yield pool
            return
    known = ", ".join(kind.form for kind in EXECUTORS)
    raise FormatError(f"unknown executor {quoted(given)}; known are {known}")
