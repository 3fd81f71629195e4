"""Progress on stderr: on terminals only, and not with --quiet."""

from __future__ import annotations

import threading
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tqdm import tqdm

_TICK = 0.5  # seconds between two updates of a clock


def bar(args: Namespace, **options: Any) -> Any:
    """A bar of tqdm, which shows nothing if stderr is not a terminal."""
    # None asks tqdm whether it is one.
    return tqdm(leave=False, disable=True if args.quiet else None, **options)


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
