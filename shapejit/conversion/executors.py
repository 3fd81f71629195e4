"""Shards written by an executor: any `Executor`, or one that a name such as threads:4 opens."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor, as_completed, wait
from contextlib import contextmanager
from threading import Lock
from typing import Any

from ..errors import FormatError, ShapeJitError, quoted
from ..files.ahead import read_until
from ..files.writing import Progress
from ..runtime.workers import threads
from .folders import Shard
from .runs import shard_written

_NAME = re.compile(r"threads(?::([1-9][0-9]{0,3}))?|dask://([^/]+:[0-9]+)")


def written_by(
    executor: Any, there: Callable[[str], None],
    folder: str, shards: Sequence[Shard], progress: Progress,
) -> None:  # fmt: skip
    """Have shards written to a folder by an executor.

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
        with read_until(stop), shard_written(shard, folder, tell):
            pass

    with _opened(executor) as pool:
        shared = isinstance(pool, ThreadPoolExecutor)
        try:
            for shard in shards:
                call = pool.submit(write, shard) if shared else pool.submit(there, shard.name)
                begun[call] = shard
            for future in as_completed(begun):
                shard, fault = begun[future], future.exception()
                if isinstance(fault, Exception) and not isinstance(fault, ShapeJitError | OSError):
                    raise FormatError(f"{shard.name}: {type(fault).__name__}: {fault}") from fault
                future.result()
                if not shared:
                    tell(shard.nbytes)
        except BaseException as fault:
            stop.set_result(None)
            # After an interrupt nothing is waited for.
            wait([f for f in begun if not f.cancel()], None if isinstance(fault, Exception) else 0)
            raise


@contextmanager
def _opened(given: Any) -> Iterator[Executor]:
    """Open an executor by its name and close it later; one that is passed in stays open."""
    if not isinstance(given, str):
        pool = given.get_executor(pure=False) if hasattr(given, "get_executor") else given
        if not hasattr(pool, "submit"):
            raise FormatError(f"an executor has a method submit, {quoted(repr(given))} has none")
        yield pool
    elif (name := _NAME.fullmatch(given)) is None:
        known = "known are threads[:N], dask://HOST:PORT"
        raise FormatError(f"unknown executor {quoted(given)}; {known}")
    elif name[2] is None:
        with ThreadPoolExecutor(int(name[1] or threads())) as pool:
            yield pool
    else:
        try:
            from distributed import Client
        except ImportError:
            text = "dask needs distributed: pip install 'shapejit[distributed]'"
            raise ImportError(text) from None
        with Client(f"tcp://{name[2]}") as client:
            yield client.get_executor(pure=False)
