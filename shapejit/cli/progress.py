"""Progress on stderr, unless --quiet: bars on terminals, a line a minute elsewhere."""

from __future__ import annotations

import sys
import threading
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import Any

from tqdm import tqdm

from ..errors import escaped, shortened

_TICK = 0.5  # seconds between two updates of a clock
_MINUTE = 60.0  # seconds between two lines where there is no terminal
_NAME = 60  # characters of a tensor's name


def bar(args: Namespace, **options: Any) -> Any:
    """A tqdm bar, which shows nothing if stderr is not a terminal."""
    # None asks tqdm whether it is one.
    return tqdm(leave=False, disable=True if args.quiet else None, **options)


@contextmanager
def byte_counter(args: Namespace, total: int) -> Iterator[Callable[[int], object]]:
    """Yield a function to call with each number of bytes written, of `total` bytes.

    A number that is a `files.writing.Written` also names the tensor. On a terminal progress is a
    bar, which appears with the first byte, so that earlier errors stand alone; elsewhere it is a
    line a minute.
    """
    if args.quiet:
        yield lambda count: None
        return
    if not sys.stderr.isatty():
        yield _Lines(total).add
        return
    with ExitStack() as stack:
        shown = cache(
            lambda: stack.enter_context(
                bar(args, total=total, unit="B", unit_scale=True, desc="convert")
            )
        )

        def add(count: int) -> None:
            line = shown()
            line.set_postfix_str(_tensor(count), refresh=False)
            line.update(count)

        yield add


class _Lines:
    """Prints the progress of a conversion once a minute."""

    def __init__(self, total: int) -> None:
        self.total, self.done = total, 0
        self.next = time.monotonic() + _MINUTE

    def add(self, count: int) -> None:
        self.done += count
        if time.monotonic() >= self.next:
            self.next = time.monotonic() + _MINUTE
            share = 100 * self.done // max(1, self.total)
            sizes = f"{self.done / 1e6:.1f} of {self.total / 1e6:.1f} MB ({share} %)"
            print(f"convert: {sizes}", _tensor(count), file=sys.stderr, flush=True)


def _tensor(count: int) -> str:
    """The name of the tensor whose bytes were written, or "" if unknown."""
    return shortened(escaped(getattr(count, "tensor", "")), _NAME)


@contextmanager
def clock(args: Namespace) -> Iterator[Any]:
    """A line with the current step and the elapsed time, updated while the caller waits."""
    with bar(args, bar_format="{desc} {elapsed}") as line:
        if line.disable:
            yield line
            return
        done = threading.Event()

        def tick() -> None:
            while not done.wait(_TICK):
                line.refresh()

        ticking = threading.Thread(target=tick, daemon=True)
        ticking.start()
        try:
            yield line
        finally:
            done.set()
            ticking.join()
