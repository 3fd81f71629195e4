"""The builder process: reads names of kernels, and writes object files to disk.

A request is a length (4 bytes) and a pickle of names, sent by `runtime.building` of the parent. The
answer to each name is a line of JSON: an error or null, and the object code in base64 if it cannot
be stored on disk. Empty lines are heartbeats. If the parent has ended, pending requests are
finished and stored, for at most `LEFT` seconds.
"""

from __future__ import annotations

import base64
import gc
import json
import os
import pickle
import signal
import sys
import threading
import time
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, BinaryIO

BEAT = 5.0  # seconds between heartbeats
LEFT = 30.0  # seconds to finish in after the parent has ended


def main() -> None:
    """Serve requests until the pipe is closed."""
    for kind in (signal.SIGINT, signal.SIGTERM):
        with suppress(ValueError):
            signal.signal(kind, signal.SIG_IGN if kind == signal.SIGINT else signal.SIG_DFL)
    gc.disable()  # a tenth of every compilation
    answers = open(os.dup(1), "wb", buffering=0)  # noqa: SIM115  # for as long as the process
    os.dup2(2, 1)  # output of numba is no answer
    asked: SimpleQueue[Any] = SimpleQueue()
    lock = threading.Lock()

    def answer(line: str) -> None:
        with lock, suppress(OSError):  # the parent has ended
            answers.write(f"{line}\n".encode())

    def beat() -> None:
        while True:
            time.sleep(BEAT)
            answer("")

    threading.Thread(target=_read, args=(sys.stdin.buffer, asked), daemon=True).start()
    threading.Thread(target=beat, daemon=True).start()
    while (name := asked.get()) is not None:
        try:
            from .objects import kept  # a slow import, during which heartbeats are sent

            code = kept(name)
        except Exception as fault:  # other kernels may succeed
            answer(json.dumps([f"{type(fault).__name__}: {fault}", None]))
        else:
            answer(json.dumps([None, code and base64.b64encode(code).decode()]))
    with suppress(OSError):
        answers.close()
    os._exit(0)  # skips waiting threads, and the clean-up of LLVM


def _read(stream: BinaryIO, asked: SimpleQueue[Any]) -> None:
    """Queue the names of all requests, followed by None."""
    while len(head := stream.read(4)) == 4:
        content = stream.read(int.from_bytes(head, "little"))
        for name in pickle.loads(content):
            asked.put(name)
    asked.put(None)
    with suppress(OSError, AttributeError):
        os.nice(10)
    time.sleep(LEFT)
    os._exit(1)


if __name__ == "__main__":
    main()
