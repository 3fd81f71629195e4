"""Builder processes, which are sent the names of kernels through a pipe; they may crash safely.

A thread per builder starts it, sends it requests, and waits for the answers. It ends a builder that
is idle for a while. If no process can be started, the thread compiles by itself. If a builder ends,
hangs or sends garbage, its kernels are retried once, in another one; if that fails, too, they are
marked as failed.
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
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from queue import Empty, SimpleQueue
from typing import Any

from . import object_files, processor
from .kernel_names import Name
from .system import PerProcess, register_at_fork

BUILDER_IDLE = 10.0  # seconds after which a builder is no longer kept
SILENCE = 300.0  # seconds without a sign of life after which it is ended: cores may be busy
WAITS = (
    12  # into which SILENCE is divided: while all processes are stopped, only one of them passes
)
GRACE = 1.0  # seconds for a failing builder to end by itself
TRIES = 2  # builders that try to compile a kernel
NICE = 4  # niceness of a builder; more would starve it on busy cores

LOGGER = logging.getLogger("shapejit")

Names = tuple[Name, ...]
Answer = Callable[[Name, "bytes | None", str], object]  # a kernel, its code unless kept, an error

_CODE = (
    "import json, sys; sys.path[{at}] = json.loads(sys.argv[1]); "
    "from {package}.builder.__main__ import main; main()"
)


class Builders:
    """The builders of this process, at most `most` at once."""

    def __init__(self) -> None:
        self.most = 1
        self._asked: SimpleQueue[tuple[Names, Answer]] = SimpleQueue()
        self._lock = threading.Lock()
        self._waiting = self._count = 0

    def ask(self, names: Names, answer: Answer, urgent: bool = False) -> None:
        """Request kernels; `answer` is called for each of them on another thread."""
        if self.most > 1 < len(names):  # divided among builders
            for name in names:
                self.ask((name,), answer, urgent)
            return
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
                names, answer = self._asked.get(timeout=BUILDER_IDLE)
            except Empty:
                with self._lock:
                    self._waiting -= 1
                    if not self._asked.empty():
                        continue
                    self._count -= 1
                break
            with self._lock:
                self._waiting -= 1
            process = _built(process, list(names), answer, urgent)
        if process is not None:
            process.end()


def _built(
    process: _Process | None, names: list[Name], answer: Answer, urgent: bool
) -> _Process | None:
    """Answer for all names; return the last builder, if there is one."""
    failures = 0
    while names:
        process = process or _started(urgent)
        if process is None:
            _build_here(names, answer)
            return None
        before = len(names)
        fault = process.build(names, answer)
        if not fault:
            break
        process.end(GRACE)
        fault = f"{fault} (exit code {process.process.returncode})"
        process = None
        failures = 1 if len(names) < before else failures + 1
        if failures == TRIES:
            for name in names:
                answer(name, None, f"builders failed: {fault}")
            break
        LOGGER.warning("a kernel builder failed, another one continues: %s", fault)
    return process


class _Process:
    """A builder process."""

    def __init__(self, urgent: bool) -> None:
        variables = {k: v for k, v in os.environ.items() if k != "NUMBA_DISABLE_JIT"}
        options: dict[str, Any] = {"process_group": 0} if os.name == "posix" else {}
        python, paths, at = sys.executable, [p for p in sys.path if isinstance(p, str)], ":"
        if other := os.environ.get("SHAPEJIT_BUILDER"):  # an interpreter with packages of its own
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
        self.lines: SimpleQueue[bytes] = SimpleQueue()
        threading.Thread(target=self._listen, name="shapejit-listener", daemon=True).start()
        if not urgent:
            with suppress(OSError, AttributeError):
                os.setpriority(os.PRIO_PROCESS, self.process.pid, NICE)

    def build(self, names: list[Name], answer: Answer) -> str:
        """Build `names`, removing each with its answer; return the failed ones if some are left."""
        try:
            content = pickle.dumps(tuple(names))
            assert self.process.stdin is not None
            with suppress(BrokenPipeError):  # it ended; reading its answers shows that
                self.process.stdin.write(len(content).to_bytes(4, "little") + content)
            while names:
                error, code = self._answer()
                answer(names.pop(0), code, error)
        except (OSError, ValueError, TypeError) as fault:
            return str(fault) or type(fault).__name__
        return ""

    def _answer(self) -> tuple[str, bytes | None]:
        """The error or "", and the code if the builder could not store it."""
        while True:
            line = self._line().strip()
            if line:
                error, code = json.loads(line)
                return str(error or ""), None if code is None else base64.b64decode(code)

    def _line(self) -> bytes:
        for _ in range(WAITS):
            with suppress(Empty):
                line = self.lines.get(timeout=SILENCE / WAITS)
                if not line:
                    raise ValueError("it ended")
                return line
        raise ValueError(f"it did not respond for {SILENCE:.0f} seconds")

    def _listen(self) -> None:
        """Read its lines. If another process holds its end of the pipe, only this thread waits."""
        pipe = self.process.stdout
        assert pipe is not None
        line = b"\n"
        while line:
            line = b""
            with suppress(OSError, ValueError):
                line = pipe.readline()
            self.lines.put(line)
        pipe.close()

    def end(self, seconds: float = SILENCE) -> None:
        """Close its pipe, and kill it unless it ends within `seconds`."""
        assert self.process.stdin is not None
        with suppress(OSError):
            self.process.stdin.close()
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        with suppress(ValueError):
            _running.remove(self.process)


def _started(urgent: bool) -> _Process | None:
    """A new builder; None if processes cannot be started, or would run another program."""
    if not sys.executable or getattr(sys, "frozen", False):
        return None
    with suppress(OSError):
        return _Process(urgent)
    return None


def _build_here(names: Sequence[Name], answer: Answer) -> None:
    """Compile on this thread, which imports numba."""
    for name in names:
        code, error = None, ""
        try:
            code = import_module("..builder.objects", __package__).kept(name)
        except Exception as fault:
            error = f"{type(fault).__name__}: {fault}"
        answer(name, code, error)


_running: list[subprocess.Popen[bytes]] = []
_builders = PerProcess(Builders)


def builders() -> Builders:
    """The Builders of this process; a forked child has its own."""
    return _builders.value


@atexit.register
def _leave() -> None:
    """At exit, let builders finish without this process."""
    for process in _running:
        process.returncode = 0  # otherwise Python would warn that it still runs
        if process.stdin is not None:
            with suppress(OSError):
                process.stdin.close()


@contextmanager
def at_most(count: int) -> Iterator[None]:
    """A context that allows `count` builders at once."""
    own = builders()
    before, own.most = own.most, max(own.most, count)
    try:
        yield
    finally:
        own.most = before


def _after_fork() -> None:
    """Leave builders to the parent, and close their pipes, so that they notice when it ends."""
    for process in _running:
        process.returncode = 0  # not a child of this process
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()
    _running.clear()


register_at_fork(after_in_child=_after_fork)
