"""Progress on stderr, unless --quiet: bars on terminals, a line a minute elsewhere."""

from __future__ import annotations

import sys
import threading
import time
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tqdm import tqdm

from ..errors import escaped, shortened

_TICK = 0.5  # seconds between two updates of a clock
_MINUTE = 60.0  # seconds between two lines where there is no terminal
_NAME_WIDTH = 60  # characters of a tensor's name


def bar(args: Namespace, **options: Any) -> Any:
    """A tqdm bar, which shows nothing if stderr is not a terminal."""
    # None asks tqdm whether it is one.
    return tqdm(leave=False, disable=True if args.quiet else None, **options)


class ByteCounter:
    """Shows the number of bytes written, of `total`.

    On a terminal it is a bar, which appears with the first byte, so that earlier errors stand
    alone; elsewhere it prints a line per minute.
    """

    def __init__(self, args: Namespace) -> None:
        self.args, self.total, self.done = args, 0, 0
        self._bar: Any = None
        self._next = time.monotonic() + _MINUTE

    def add(self, count: int) -> None:
        """Count more bytes; a `files.writing.Written` also names the tensor."""
        self.done += count
        tensor = shortened(escaped(getattr(count, "tensor", "")), _NAME_WIDTH)
        if sys.stderr.isatty():
            if self._bar is None:
                kind = {"unit": "B", "unit_scale": True, "desc": "convert"}
                self._bar = bar(self.args, total=self.total, **kind)
            self._bar.set_postfix_str(tensor, refresh=False)
            self._bar.update(count)
        elif time.monotonic() >= self._next and not self.args.quiet:
            self._next = time.monotonic() + _MINUTE
            share = 100 * self.done // max(1, self.total)
            sizes = f"{self.done / 1e6:.1f} of {self.total / 1e6:.1f} MB ({share} %)"
            print(f"convert: {sizes}", tensor, file=sys.stderr, flush=True)

    def close(self) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._bar.close()


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
