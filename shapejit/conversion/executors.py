"""Shards that others write: any `Executor`, or one that is opened by its name."""

from __future__ import annotations

import multiprocessing
import os
import re
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import (
    BrokenExecutor,
    Executor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
    as_completed,
    wait,
)
from contextlib import contextmanager
from functools import partial
from threading import Lock, Thread
from typing import Any

from ..errors import FormatError, ShapeJitError, quoted
from ..files.ahead import read_until
from ..files.writing import Progress
from ..runtime.workers import limit, threads
from .folders import Shard

__all__ = ["written_by"]

_NAME = re.compile(r"(?:(threads|processes)(?::([1-9][0-9]{0,3}))?|dask://([^/]+:[0-9]+))")
_KNOWN = "threads[:N], processes[:N], dask://HOST:PORT"
_MAIN = "; a script that starts processes has to do so under if __name__ == '__main__'"


def written_by(
    executor: Any,
    here: Callable[[Shard, Progress], None],
    there: Callable[[Shard], Callable[[], None]],
    shards: Sequence[Shard],
    progress: Progress | None,
) -> None:
    """Have shards written by an executor.

    Threads call `here`; what `there` returns pickles, and is called by others. The first error
    ends the run, when what has begun is done.
    """
    lock, stop, futures = Lock(), Future[None](), dict[Future[None], Shard]()

    def tell(count: int) -> None:
        if stop.done():
            raise InterruptedError("nobody wants the shard any more")
        if progress is not None:
            with lock:
                progress(count)

    def write(shard: Shard) -> None:
        with read_until(stop):
            here(shard, tell)

    with _opened(executor) as pool:
        shared = isinstance(pool, ThreadPoolExecutor)
        try:
            for shard in shards:
                futures[pool.submit(partial(write, shard) if shared else there(shard))] = shard
            for future in as_completed(futures):
                _check(future, futures[future])
                if not shared:
                    tell(futures[future].nbytes)
        except BaseException as fault:
            stop.set_result(None)
            begun = [future for future in futures if not future.cancel()]
            if isinstance(fault, Exception):  # else a user does not wait
                wait(begun)
            raise


def _check(future: Future[None], shard: Shard) -> None:
    """The error of a worker; one that is not ours, nor the disk's, names the shard."""
    try:
        future.result()
    except (ShapeJitError, OSError):
        raise
    except Exception as fault:
        text = f"{fault}{_MAIN if isinstance(fault, BrokenExecutor) else ''}"
        raise FormatError(f"{shard.name}: {type(fault).__name__}: {text}") from fault


@contextmanager
def _opened(given: Any) -> Iterator[Executor]:
    """An executor that is given, or that of a client of dask's, stays open."""
    found = _NAME.fullmatch(given) if isinstance(given, str) else None
    if found is None:
        if isinstance(given, str):
            raise FormatError(f"unknown executor {quoted(given)}; known are {_KNOWN}")
        pool = given.get_executor(pure=False) if hasattr(given, "get_executor") else given
        if not hasattr(pool, "submit"):
            raise FormatError(f"an executor has a method submit, {quoted(repr(given))} has none")
        yield pool
        return
    kind, number, address = found.groups()
    count = int(number or threads())
    if kind == "threads":
        with ThreadPoolExecutor(count) as pool:
            yield pool
    elif kind == "processes":
        yield from _processes(count)
    else:
        try:
            from distributed import Client
        except ImportError:
            text = "dask needs distributed: pip install 'shapejit[distributed]'"
            raise ImportError(text) from None
        with Client(f"tcp://{address}") as client:
            yield client.get_executor(pure=False)


def _processes(count: int) -> Iterator[Executor]:
    before = {*multiprocessing.active_children()}
    context = multiprocessing.get_context("spawn")  # threads do not survive a fork
    with ProcessPoolExecutor(count, context, _begin, (max(1, threads() // count),)) as pool:
        try:
            yield pool
        except BaseException as fault:
            if not isinstance(fault, Exception):
                for child in {*multiprocessing.active_children()} - before:
                    child.kill()
            raise


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
