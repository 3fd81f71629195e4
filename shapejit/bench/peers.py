"""Peers: other libraries, each measured in its own process, which is asked through pipes."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from .pipe import REST, Process
from .worker import PEERS

_WORKER = Path(__file__).with_name("worker.py")
_UNASKED = ("torch", "onnxruntime", "jax")
_NEEDS = {"onnxruntime": ("onnx",)}


class PeerError(ValueError):
    """A peer that was requested by name and cannot run, or that has died."""


class Peer(Process):
    """A process that repeats copies of its current case."""

    version = ""

    def __init__(self, name: str, python: str) -> None:
        self.name = name
        try:
            super().__init__(python, str(_WORKER), name, quiet=True)
        except OSError as fault:
            raise PeerError(f"peer {name}: {python}: {fault.strerror}") from None

    def ask(self, **request: object) -> dict[str, Any]:
        """The reply; raises PeerError if there is none."""
        reply = super().ask(**request)
        if "failed" in reply:
            raise PeerError(f"peer {self.name}: {reply['failed']}")
        return reply

    def take(self, job: dict[str, Any] | None, threads: int) -> int | None:
        """Do a case once: its checksum, None if the peer cannot do it.

        It is UNCHECKED if the result is not comparable with ours.
        """
        if job is None:
            return None
        found: int | None = self.ask(job=job | {"threads": threads}).get("checksum")
        return found

    def run(self, calls: int) -> float:
        """Seconds of `calls` copies, by the peer's own clock."""
        time.sleep(REST)
        seconds: float = self.ask(run="run", calls=calls)["seconds"]
        return seconds


@contextmanager
def started(asked: tuple[str, ...] = ()) -> Iterator[list[Peer]]:
    """A context with the peers in `asked`, NAME or NAME=PYTHON, or else all that are installed.

    "none" means none. The processes end with the context.
    """
    with ExitStack() as stack:
        peers = []
        for name, python in _wanted(asked).items():
            peer = Peer(name, python)
            stack.callback(peer.close)
            hello = peer.ask(hello=True)
            if "unable" in hello:
                raise PeerError(f"peer {name}: {python} cannot import it ({hello['unable']})")
            peer.version = hello["version"]
            peers.append(peer)
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
    """Whether a peer and its dependencies can be imported."""
    return all(find_spec(part) is not None for part in (name, *_NEEDS.get(name, ())))
