"""Builder processes, asked for kernels through a pipe: nothing they do meets this process.

A thread per builder starts it, hands it what was asked for, and waits for the answers. It ends a
builder that has had nothing to do for a while. Where no process can be started, the thread builds
by itself. A builder that ends, hangs or answers rubbish costs the kernels that it was asked for.
"""

from __future__ import annotations

import atexit
import base64
import json
import logging
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from queue import Empty, SimpleQueue
from typing import Any

from . import object_files, processor
from .kernel_names import Name
from .system import register_at_fork

IDLE = 10.0  # seconds after which a builder is no longer kept
SILENCE = 60.0  # seconds without a sign of life after which it is ended
WAITS = 12  # in which these are waited for
NICE = 4  # a builder beside what this process does; more starves it on busy cores

LOGGER = logging.getLogger("shapejit")

Names = tuple[Name, ...]
Answer = Callable[[Name, "bytes | None", str], object]  # a kernel, its code unless kept, an error

_CODE = (
    "import json, sys; sys.path[{at}] = json.loads(sys.argv[1]); "
    "from {package}.builder.__main__ import main; main()"
)


class BuilderError(Exception):
    """A builder that does not do what it is there for."""


class Builders:
    """The builders of this process, at most `most` at once."""

    def __init__(self) -> None:
        self.most = 1
        self._asked: SimpleQueue[tuple[Names, Answer]] = SimpleQueue()
        self._lock = threading.Lock()
        self._waiting = self._count = 0

    def ask(self, names: Names, answer: Answer, urgent: bool = False) -> None:
        """Let kernels be built; `answer` is called for each of them, on another thread."""
        with self._lock:
            self._asked.put((names, answer))
            if self._waiting >= self._asked.qsize() or self._count >= self.most:
                return
            self._count += 1
        try:
            threading.Thread(
                target=self._serve, args=(urgent,), name="shapejit-builder", daemon=True
            ).start()
        except RuntimeError:  # no more threads may be started
            with self._lock:
                self._count -= 1
            for name in names:
                answer(name, None, "no thread could be started to build it")

    def _serve(self, urgent: bool) -> None:
        process: _Process | None = None
        while True:
            with self._lock:
                self._waiting += 1
            try:
                names, answer = self._asked.get(timeout=IDLE)
            except Empty:
                with self._lock:
                    self._waiting -= 1
                    if not self._asked.empty():
                        continue
                    self._count -= 1
                break
            with self._lock:
                self._waiting -= 1
            process = process or _started(urgent)
            try:
                if process is None:
                    _build_here(names, answer)
                else:
                    process.build(names, answer)
            except BuilderError as fault:
                LOGGER.warning("a builder of kernels failed, NumPy goes on: %s", fault)
                process = None
        if process is not None:
            process.end()


class _Process:
    """A builder process."""

    def __init__(self, urgent: bool) -> None:
        variables = {k: v for k, v in os.environ.items() if k != "NUMBA_DISABLE_JIT"}
        options: dict[str, Any] = {"process_group": 0} if os.name == "posix" else {}
        python, paths, at = sys.executable, [p for p in sys.path if isinstance(p, str)], ":"
        if other := os.environ.get("SHAPEJIT_BUILDER"):  # which has packages of its own
            python, paths, at = other, [str(object_files.PACKAGE.parent)], ":0"
            variables = {k: v for k, v in variables.items() if not k.startswith("PYTHON")}
            variables |= {"SHAPEJIT_TARGET": processor.triple(), "NUMBA_CPU_NAME": processor.name()}
        code = _CODE.format(at=at, package=__package__.partition(".")[0])
        self.process = subprocess.Popen(
            [python, "-c", code, json.dumps(paths)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            bufsize=0, env=variables, **options,
        )  # fmt: skip
        _running.append(self.process)
        if not urgent:
            with suppress(OSError, AttributeError):
                os.setpriority(os.PRIO_PROCESS, self.process.pid, NICE)

    def build(self, names: Names, answer: Answer) -> None:
        """Hand over the answers; BuilderError if some of them had to be errors."""
        left = list(names)
        try:
            content = pickle.dumps(names)
            assert self.process.stdin is not None
            self.process.stdin.write(len(content).to_bytes(4, "little") + content)
            while left:
                error, code = self._answer()
                answer(left.pop(0), code, error)
        except (OSError, ValueError, TypeError) as fault:
            self.process.kill()
            self.end()
            text = f"{fault or type(fault).__name__} (exit code {self.process.returncode})"
            for name in left:
                answer(name, None, f"its builder failed: {text}")
            raise BuilderError(text) from fault

    def _answer(self) -> tuple[str, bytes | None]:
        """An error or "", and the code if the builder has no folder for it."""
        while True:
            line = self._line().strip()
            if line:
                error, code = json.loads(line)
                return str(error or ""), None if code is None else base64.b64decode(code)

    def _line(self) -> bytes:
        assert self.process.stdout is not None
        heard = threading.Event()
        threading.Thread(target=self._watch, args=(heard,), daemon=True).start()
        try:
            line: bytes = self.process.stdout.readline()
        finally:
            heard.set()
        if not line:
            raise ValueError("it ended")
        return line

    def _watch(self, heard: threading.Event) -> None:
        """End it when nothing is heard of it; if all are stopped meanwhile, that is one wait."""
        if not any(heard.wait(SILENCE / WAITS) for _ in range(WAITS)):
            self.process.kill()

    def end(self) -> None:
        """Let it go when it has nothing more to do."""
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()
        self.process.wait()
        with suppress(ValueError):
            _running.remove(self.process)


def _started(urgent: bool) -> _Process | None:
    """A new builder; None where the system starts no processes, or would start another program."""
    if not sys.executable or getattr(sys, "frozen", False):
        return None
    with suppress(OSError):
        return _Process(urgent)
    return None


def _build_here(names: Names, answer: Answer) -> None:
    """Build on this thread, which imports numba."""
    objects = import_module("..builder.objects", __package__)
    for name in names:
        try:
            answer(name, objects.kept(name), "")
        except Exception as fault:
            answer(name, None, f"{type(fault).__name__}: {fault}")


_running: list[subprocess.Popen[bytes]] = []
_builders = Builders()


def builders() -> Builders:
    """Those of this process; a forked child has its own."""
    return _builders


@atexit.register
def _leave() -> None:
    """Let builders finish what they do without this process."""
    for process in _running:
        process.returncode = 0  # or Python would warn that it still runs
        if process.stdin is not None:
            with suppress(OSError):
                process.stdin.close()


@contextmanager
def at_most(count: int) -> Iterator[None]:
    """Let so many builders work at once meanwhile."""
    before = _builders.most
    _builders.most = max(before, count)
    try:
        yield
    finally:
        _builders.most = before


def _after_fork() -> None:
    """Leave builders to the parent, and close their pipes: else they would not see it go."""
    global _builders
    _builders = Builders()
    for process in _running:
        process.returncode = 0  # no child of this process
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()
    _running.clear()


register_at_fork(after_in_child=_after_fork)
