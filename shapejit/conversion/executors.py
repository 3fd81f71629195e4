"""Who does the items of a conversion: any `Executor`, one row per kind that has a name."""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import os
import signal
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    CancelledError,
    Executor,
    Future,
    ProcessPoolExecutor,
    wait,
)
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from threading import Thread, current_thread, main_thread
from typing import Any, NamedTuple

from ..errors import FileFormatError, FormatError, ShapeJitError, about, quoted
from ..files.ahead import Threads, read_until
from ..runtime.workers import threads
from .items import Item, Mark
from .jobs import Work, run_item
from .runs import Add

__all__ = ["EXECUTORS", "opened", "run"]

AHEAD = 3  # items per worker that are in flight: one is done, the others wait
LAST = 60  # seconds that an item of a distant worker may take when nobody wants it any more
TRIES = 3  # how often an item may lose its worker
IDLE = 20  # seconds between two looks for workers; the third that finds none ends the run


@dataclass
class Pool:
    """Workers: how many there are, and how many threads each of their jobs may have (0: any).

    `lost` are the errors that say that a worker is gone, `renewed` makes new workers then.
    Futures of the pool can be cancelled (`cancels`) if that leaves alone what has begun.
    `advice` is added to the error for an item that loses worker after worker; `stop` has
    workers give up what they wait for.
    """

    executor: Executor
    count: Callable[[], int]
    threads: int = 0
    lost: tuple[type[BaseException], ...] = (BrokenExecutor, CancelledError)
    renewed: Callable[[], Executor] | None = None
    cancels: bool = True
    advice: str = ""
    stop: Callable[[], None] = lambda: None


class Kind(NamedTuple):
    """A kind of executor that has a name: how it is written, and what opens it."""

    form: str
    opens: Callable[[str], Any]  # a context manager of a Pool, from what stands behind the name


def run(pool: Pool, work: Work, items: Sequence[Item], done: Add) -> None:
    """Have items done, a few per worker in flight, and call `done` with each one's checksums.

    The items of a worker that was lost are done again, each `TRIES` times at most. The first
    error of an item ends the run, when what has begun is done; it names a tensor.
    """
    left, flying, tries = deque(items), dict[Future[Any], Item](), Counter[int]()
    work = replace(work, threads=pool.threads)
    try:
        while left or flying:
            while left and len(flying) < AHEAD * max(1, pool.count()):
                future = _submitted(pool, work, left[0].number)
                flying[future] = left.popleft()
            for future in _landed(pool, flying):
                item = flying.pop(future)
                try:
                    number, marks = _result(future, item, pool.lost)
                except pool.lost as fault:
                    tries[item.number] += 1
                    if tries[item.number] >= TRIES:
                        reason = f"{TRIES} workers were lost{pool.advice}"
                        raise FormatError(f"{_named(item)}: {reason}") from fault
                    left.appendleft(item)
                else:
                    done(number, marks)
    except BaseException as fault:
        if not isinstance(fault, Exception):  # a user who does not wait
            pool.stop()
        raise
    finally:
        workers = pool.count()
        for future in flying:
            if pool.cancels or not workers:
                future.cancel()
        # What is removed must not be written any more; who is gone will not write.
        wait(flying, (None if pool.cancels else LAST) if workers else 0)


def _landed(pool: Pool, flying: Collection[Future[Any]]) -> Collection[Future[Any]]:
    """Futures that are done, perhaps none yet; FormatError without workers."""
    for _ in range(3):
        done = wait(flying, IDLE, return_when=FIRST_COMPLETED).done
        if done or pool.count():
            return done
    raise FormatError(f"the executor has had no workers for {3 * IDLE} seconds")


def _submitted(pool: Pool, work: Work, number: int) -> Future[tuple[int, list[Mark]]]:
    try:
        return pool.executor.submit(run_item, work, number)
    except BrokenExecutor:
        if pool.renewed is None:
            raise
        pool.executor = pool.renewed()
        return pool.executor.submit(run_item, work, number)


def _result(
    future: Future[tuple[int, list[Mark]]], item: Item, lost: tuple[type[BaseException], ...]
) -> tuple[int, list[Mark]]:
    """What a worker returned; its errors name a tensor."""
    try:
        return future.result()
    except lost:
        raise
    except (FileFormatError, OSError):
        raise
    except ShapeJitError as fault:
        with about(_named(item)):
            raise fault from None
    except Exception as fault:
        raise FormatError(f"{_named(item)}: {type(fault).__name__}: {fault}") from fault


def _named(item: Item) -> str:
    """An item, by its first tensor."""
    names = [span.name for span in item.spans if span.name]
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f"{item.file}: tensor {quoted(names[0] if names else '')}{more}"


def _count(text: str) -> int:
    """The number of workers that is asked for: one per core if there is none."""
    if not text:
        return threads()
    if not text.isdecimal() or not 0 < int(text) < 10_000:
        raise FormatError(f"{quoted(text)} is not a number of workers")
    return int(text)


@contextmanager
def _threads(text: str) -> Iterator[Pool]:
    count = _count(text)
    with Threads(count) as executor:
        yield Pool(executor, lambda: count, stop=executor.stop)


@contextmanager
def _processes(text: str) -> Iterator[Pool]:
    count = _count(text)
    context = multiprocessing.get_context("spawn")  # threads do not survive a fork
    opened, (stopped, stop) = list[ProcessPoolExecutor](), context.Pipe(duplex=False)

    def renewed() -> Executor:
        opened.append(ProcessPoolExecutor(count, context, _begin, (stopped,)))
        return opened[-1]

    try:
        made = Pool(renewed(), lambda: count, max(1, threads() // count), renewed=renewed)
        made.stop = stop.close
        made.advice = (
            "; a script that starts processes has to do so under if __name__ == '__main__'"
        )
        yield made
    finally:
        for executor in opened:
            executor.shutdown(cancel_futures=True)


def _begin(stopped: Connection) -> None:
    """It stops when the pipe is closed, and ends with its parent, which alone hears Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    stop = Future[None]()
    read_until(stop)
    Thread(target=_end_with_parent, args=(stopped, stop), daemon=True).start()


def _end_with_parent(stopped: Connection, stop: Future[None]) -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        multiprocessing.connection.wait([stopped, parent.sentinel])
        stop.set_result(None)
        parent.join()
        os._exit(1)


@contextmanager
def _dask(text: str) -> Iterator[Pool]:
    """A scheduler by its address, or `local`: a cluster of worker processes here."""
    distributed = _distributed()
    name, _, count = text.partition(":")
    if name != "local":
        if not name or not count.isdecimal():
            raise _unknown(f"dask://{text}")
        with distributed.Client(f"tcp://{text}") as client:
            yield _of_client(client)
        return
    settings = {
        "n_workers": _count(count),
        "threads_per_worker": 1,
        "dashboard_address": "127.0.0.1:0",
    }
    with _unheard():
        cluster = distributed.LocalCluster(**settings)
    with cluster, distributed.Client(cluster) as client:
        yield _of_client(client)


@contextmanager
def _unheard() -> Iterator[None]:
    """Processes that are started meanwhile do not hear Ctrl-C, which this one has to."""
    before = None
    if current_thread() is main_thread():
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        if before is not None:
            signal.signal(signal.SIGINT, before)


def _distributed() -> Any:
    try:
        import distributed
    except ImportError:
        raise ImportError("dask needs distributed: pip install 'shapejit[distributed]'") from None
    return distributed


def _of_client(client: Any, given: Mapping[str, Any] | None = None) -> Pool:
    """The workers of a scheduler, as many as there are at the time; each thread is one.

    `given` are the arguments of the executor. The scheduler itself gives the items of lost
    workers to others, as often as its `allowed-failures` say: its KilledWorker is final.
    """
    executor = client.get_executor(**{**(given or {}), "pure": False})
    made = Pool(executor, lambda: sum(client.nthreads().values()), cancels=False)
    made.threads = min(client.nthreads().values(), default=1)
    return made


EXECUTORS = {
    "threads": Kind("threads[:N]", _threads),
    "processes": Kind("processes[:N]", _processes),
    "dask://": Kind("dask://HOST:PORT or dask://local[:N]", _dask),
}


def _unknown(text: str) -> FormatError:
    known = ", ".join(kind.form for kind in EXECUTORS.values())
    return FormatError(f"unknown executor {quoted(text)}; known are {known}")


@contextmanager
def opened(given: Any) -> Iterator[Pool]:
    """The pool of an executor: a text as `EXECUTORS` have it, or an object.

    Objects are `concurrent.futures.Executor`s or clients of dask's, which stay open.
    """
    if isinstance(given, str):
        for name, kind in EXECUTORS.items():
            rest = given.removeprefix(name)
            if rest != given and (name.endswith("/") or rest[:1] in ("", ":")):
                with kind.opens(rest.removeprefix(":")) as pool:
                    yield pool
                return
        raise _unknown(given)
    if hasattr(given, "get_executor"):
        yield _of_client(given)
    elif type(given).__module__.startswith("distributed"):
        yield _of_client(given._client, given._kwargs)
    elif not hasattr(given, "submit"):
        raise FormatError(f"an executor has a method submit, {quoted(repr(given))} has none")
    else:
        count = getattr(given, "_max_workers", None) or os.cpu_count() or 1
        yield Pool(given, lambda: count)
