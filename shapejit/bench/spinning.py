"""A busy machine: every core has a process that computes without end."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from ..runtime.system import usable_cores

# It ends with its standard input, and so with the process that started it.
SPIN = """
import os, sys, threading
def wait():
    sys.stdin.read()
    os._exit(0)
threading.Thread(target=wait).start()
while True:
    pass
"""


@contextmanager
def spinning() -> Iterator[None]:
    """One endlessly computing process per core that this process may use."""
    command = [sys.executable, "-S", "-c", SPIN]
    running = [subprocess.Popen(command, stdin=subprocess.PIPE) for _ in usable_cores()]
    try:
        yield
    finally:
        for process in running:
            process.communicate()
