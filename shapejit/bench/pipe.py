"""Requests and replies between processes: both ends of a pipe that carries lines of JSON.

Run as a script, `pipe.py FILE WORDS...` answers requests from stdin. {"run": NAME, "calls": N}
calls a stored function N times, after `before` untimed calls. `answer(REQUEST, HELD, *WORDS)` of
the Python file answers all others, and stores functions in HELD. The script does not import
shapejit, so a Python with another version of it, or with none, can run it.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib.util import module_from_spec, spec_from_file_location
from threading import Timer
from typing import Any

TIMEOUT = 600  # seconds for one reply
# After a turn threads still wait busily (see `measure.wait_shortly`), on the next one's cores.
REST = 0.005
_PROCESS_GROUPS = hasattr(os, "killpg")


class Process:
    """A process of a Python that answers requests by `answer(request, held, *words)` of a file."""

    def __init__(
        self,
        python: str,
        file: str,
        *words: str,
        environment: Mapping[str, str] | None = None,
        quiet: bool = False,
    ) -> None:
        # -P: the folder of the script, with its modules, stays off the path.
        self._process = subprocess.Popen(
            [python, "-P", __file__, file, *words],
            env=environment,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL if quiet else None,
            process_group=0 if _PROCESS_GROUPS else None,
        )

    @property
    def ended(self) -> bool:
        """Whether it answers no more."""
        return self._process.poll() is not None

    def ask(self, **request: object) -> dict[str, Any]:
        """The reply; `failed` says why there is none."""
        self.send(**request)
        return self.reply()

    def send(self, **request: object) -> None:
        """Send a request without waiting, so that several processes can work in parallel."""
        assert self._process.stdin is not None
        # Where the process has ended, there is no reply either.
        with suppress(OSError):
            print(json.dumps(request), file=self._process.stdin, flush=True)

    def reply(self) -> dict[str, Any]:
        """The reply to the sent request."""
        assert self._process.stdout is not None
        limit = Timer(TIMEOUT, self._process.kill)
        limit.start()
        try:
            line = self._process.stdout.readline()
        finally:
            limit.cancel()
        if line:
            reply: dict[str, Any] = json.loads(line)
            return reply
        self._process.wait()
        return {"failed": f"its process has ended ({self._process.returncode})"}

    def close(self) -> None:
        """Kill the process, and any that it started, as OpenVINO does."""
        if _PROCESS_GROUPS:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self._process.kill()
        for stream in (self._process.stdin, self._process.stdout):
            # Not read to its end: a process that this one started may still hold it.
            with suppress(OSError):
                if stream is not None:
                    stream.close()
        self._process.wait()


def _seconds(way: Callable[[], object], calls: int, before: int = 0, **others: object) -> float:
    for _ in range(before):  # threads wake, and caches forget the others
        way()
    start = time.perf_counter()
    for _ in range(calls):
        way()
    seconds = time.perf_counter() - start
    if seconds > REST / 10:
        time.sleep(REST)
    return seconds


def main(file: str, *words: str) -> None:
    """Answer requests until stdin ends."""
    # What anything prints must not stand among the replies.
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    spec = spec_from_file_location("answers", file)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[spec.name] = module  # what it loads may import it
    spec.loader.exec_module(module)
    held: dict[str, Callable[[], object]] = {}
    for line in sys.stdin:
        request = json.loads(line)
        reply: dict[str, Any]
        try:
            if "run" in request:
                reply = {"seconds": _seconds(held[request["run"]], **request)}
            else:
                held.clear()  # before the next case needs the memory
                gc.collect()
                reply = module.answer(request, held, *words)
        except Exception as fault:
            reply = {"failed": f"{type(fault).__name__}: {fault}"}
        print(json.dumps(reply), file=replies, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
