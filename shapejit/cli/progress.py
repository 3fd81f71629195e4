"""Progress on stderr, unless --quiet: bars on terminals, of long conversions lines elsewhere."""

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
_NAME = 60  # signs of a tensor's name


def bar(args: Namespace, **options: Any) -> Any:
    """A bar of tqdm, which shows nothing if stderr is not a terminal."""
    # None asks tqdm whether it is one.
    return tqdm(leave=False, disable=True if args.quiet else None, **options)


@contextmanager
def written(args: Namespace, total: int) -> Iterator[Callable[[int], object]]:
    """What is called with numbers of bytes as they are written, of `total` altogether.

    Those that are `files.writing.Written` say of which tensor. A terminal shows it in a bar, which
    appears with the first byte, so that an error before it stands alone; elsewhere a line a
    minute says the same.
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
    """Prints how far a conversion is, once a minute."""

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
    """The tensor whose bytes these are, if that is known."""
    return shortened(escaped(getattr(count, "tensor", "")), _NAME)


@contextmanager
def clock(args: Namespace) -> Iterator[Any]:
    """A line that says what is done and how long it has taken, which goes on while it waits."""
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
