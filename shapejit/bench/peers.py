"""Peers: other libraries, measured in processes of their own that answer through pipes."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from .pipe import Process
from .worker import PEERS

_WORKER = Path(__file__).with_name("worker.py")
_UNASKED = ("torch", "onnxruntime", "jax")
_NEEDS = {"onnxruntime": ("onnx",)}

# After a turn its threads still wait busily (see `measure.wait_shortly`), on the next one's cores.
_REST = 0.005


class PeerError(ValueError):
    """A peer that was asked for by name and cannot run, or that died."""


class Peer:
    """A process that repeats copies of the case it was given last."""

    def __init__(self, name: str, python: str) -> None:
        self.name = name
        try:
            self._process = Process(python, str(_WORKER), name, quiet=True)
        except OSError as fault:
            raise PeerError(f"peer {name}: {python}: {fault.strerror}") from None
        try:
            hello = self._ask(hello=True)
            if "unable" in hello:
                raise PeerError(f"peer {name}: {python} cannot import it ({hello['unable']})")
        except PeerError:
            self.close()
            raise
        self.version: str = hello["version"]

    @property
    def ended(self) -> bool:
        """Whether its process has ended."""
        return self._process.ended

    def take(self, job: dict[str, Any] | None, threads: int) -> int | None:
        """Do the job of a case once: its checksum, None if the peer has no way to do it.

        It is UNCHECKED where the result is not ours.
        """
        if job is None:
            return None
        found: int | None = self._ask(job=job | {"threads": threads}).get("checksum")
        return found

    def run(self, calls: int) -> float:
        """Seconds that so many copies took, by the peer's own clock."""
        time.sleep(_REST)
        seconds: float = self._ask(calls=calls)["seconds"]
        time.sleep(_REST)
        return seconds

    def drop(self) -> None:
        """Free the arrays of the case."""
        self._ask()

    def close(self) -> None:
        """End the process, whatever it is doing."""
        self._process.close()

    def _ask(self, **request: object) -> dict[str, Any]:
        reply = self._process.ask(**request)
        if "failed" in reply:
            raise PeerError(f"peer {self.name}: {reply['failed']}")
        return reply


@contextmanager
def started(asked: tuple[str, ...] = ()) -> Iterator[list[Peer]]:
    """The peers that `asked` names, NAME or NAME=PYTHON, else all that are installed here.

    "none" means none. The processes end with the block.
    """
    with ExitStack() as stack:
        peers = []
        for name, python in _wanted(asked).items():
            peers.append(Peer(name, python))
            stack.callback(peers[-1].close)
        yield peers


def _wanted(asked: tuple[str, ...]) -> dict[str, str]:
    """The Python of each peer."""
    if not asked:  # those that are often there
        return {name: sys.executable for name in _UNASKED if is_installed(name)}
    wanted = {}
    for word in asked:
        name, _, python = word.partition("=")
        if name == "none":
            continue
        if name not in PEERS:
            raise PeerError(f"--peer {word}: the peers are {', '.join(PEERS)} and none")
        wanted[name] = python or sys.executable
    return wanted


def is_installed(name: str) -> bool:
    """Whether a peer, and what it needs, can be imported."""
    return all(find_spec(part) is not None for part in (name, *_NEEDS.get(name, ())))
