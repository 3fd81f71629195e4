"""The comparison that `shapejit bench` prints: every case, every way, interleaved."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import groupby
from statistics import geometric_mean
from typing import Any

import numpy as np

from ..runtime import workers
from . import memcpy
from .batches import spinning
from .cases import MIB, OURS, Case
from .measure import Clock, clock, turns
from .memcpy import memcpy_of, thread_count
from .peers import Peer
from .suites import BUSY, all_ways
from .worker import CHECKED, UNCHECKED

_DISTURBED_FROM = 1.1  # on a quiet machine more threads are faster, or bandwidth makes them equal
ONE_THREAD = "memcpy of one thread"
# Seconds of a turn beside other programs: several slices of the scheduler's, of 3 ms each, so
# that they take their part of every turn, and not the whole of one and nothing of the next.
_TURN, _SHARED_TURN = 0.002, 0.05


@dataclass(frozen=True)
class Measured:
    """One case: median seconds per call of each way, and whether all results were equal.

    `differing` names the ways and peers whose result differed from ours; `proved`: whether any of
    them had a result to compare.
    """

    case: Case
    seconds: dict[str, float]
    differing: tuple[str, ...] = ()
    proved: bool = True

    @property
    def gb_per_s(self) -> float:
        """10^9 bytes read and written per second."""
        return 2 * self.case.moved / 1e9 / self.seconds[OURS]

    @property
    def disturbed(self) -> bool:
        """Whether memcpy was slower on all threads than on one: other programs had the cores.

        A parallel region waits for its last thread, so the ratios of this row mean little. False
        does not prove that the machine was idle.
        """
        alone = self.seconds.get(ONE_THREAD, 0)
        return alone > 0 and self.seconds["memcpy"] > _DISTURBED_FROM * alone

    def over(self, way: str) -> float | None:
        """Our time / the time of `way`: 1 is equal, 2 is twice as long."""
        seconds = self.seconds.get(way)
        return None if seconds is None else self.seconds[OURS] / seconds

    def as_json(self) -> dict[str, Any]:
        """The measurement for JSON."""
        case, facts = self.case, {"moved": self.case.moved, "seconds": self.seconds}
        wrong = {"disturbed": self.disturbed, "proved": self.proved, "differing": self.differing}
        return {"suite": case.group, "name": case.name, **facts, **wrong}


@dataclass(frozen=True)
class Summary:
    """A suite compared with one way: mean and maximum of our time / its time."""

    suite: str
    way: str
    cases: int
    geometric_mean: float
    worst: float
    worst_case: str


def measured(
    sj: Any,
    cases: Sequence[Case],
    peers: Sequence[Peer],
    rounds: int,
    tell: Callable[[str], object] = lambda text: None,
) -> Iterator[Measured]:
    """The measurement of each case; `tell` is called with the name of the next one."""
    for group, own in groupby(cases, key=lambda case: case.group):
        with ExitStack() as stack:
            if group == BUSY:
                stack.enter_context(spinning())
            for case in own:
                yield measure(sj, case, peers, rounds, tell)


def measure(
    sj: Any,
    case: Case,
    peers: Sequence[Peer] = (),
    rounds: int = 9,
    tell: Callable[[str], object] = lambda text: None,
) -> Measured:
    """Check one case against the other ways, then time all of them, interleaved."""
    tell(f"{case.id}: compiling kernels, comparing results")
    ways = all_ways(case, sj)
    proved, differing, checksum = prove(case, sj, ways)
    tell(case.id)
    clocks: dict[str, Clock] = {name: clock(way) for name, way in ways.items()}
    if case.moved >= MIB:
        clocks[ONE_THREAD] = clock(memcpy_of(case.moved, threads=1))
    for peer in peers:
        theirs = peer.take(case.job, thread_count())
        if theirs is not None:
            clocks[peer.name] = peer.run
            if theirs not in (checksum, UNCHECKED):
                differing.append(peer.name)
    seconds = turns(clocks, rounds, _SHARED_TURN if case.group == BUSY else _TURN)
    for peer in peers:
        peer.ask()  # it frees the arrays of the case
    return Measured(case, seconds, tuple(differing), proved)


def prove(
    case: Case, sj: Any, ways: Mapping[str, Callable[[], Any]]
) -> tuple[bool, list[str], int]:
    """Whether another way has a result, the ways whose result differs from ours, our checksum.

    Ways may share output memory, so each result is read before the next way runs.
    """
    results = {name: raw(case.result(sj, way())) for name, way in ways.items()}
    ours = results.pop(OURS)
    found = {name: theirs for name, theirs in results.items() if None not in (ours, theirs)}
    differing = [name for name, theirs in found.items() if theirs != ours]
    return bool(found), differing, zlib.crc32((ours or b"")[:CHECKED])


def raw(result: Any) -> bytes | None:
    """The bytes of an array or Tensor in row-major order; numbers and names as written.

    Of several, all their bytes; None for anything else.
    """
    if isinstance(result, (list, tuple)):
        parts = [raw(one) for one in result]
        return b"".join(part for part in parts if part) if None not in parts else None
    if isinstance(result, (bool, int, str)):
        return repr(result).encode() + b" "
    if isinstance(result, bytes):
        return result
    if isinstance(result, np.ndarray) or hasattr(result, "frombuffer"):
        made: bytes = result.tobytes()
        return made
    return None


def use_threads(count: int | None) -> None:
    """Let shapejit, memcpy and the peers have `count` threads; None: all."""
    if count is not None:
        most = workers.threads()
        if not 1 <= count <= most:
            raise ValueError(f"--threads {count}: this process may have 1 to {most}")
        workers.limit(count)
        memcpy.limit(count)


def summaries(rows: Sequence[Measured]) -> list[Summary]:
    """Every suite compared with each way that its cases have."""
    found = []
    for suite in dict.fromkeys(row.case.group for row in rows):
        own = [row for row in rows if row.case.group == suite]
        for way in dict.fromkeys(way for row in own for way in row.seconds):
            ratios = {row.case.id: ratio for row in own if (ratio := row.over(way))}
            if way not in (OURS, ONE_THREAD):
                worst = max(ratios, key=ratios.__getitem__)
                mean = geometric_mean(ratios.values())
                found.append(Summary(suite, way, len(ratios), mean, ratios[worst], worst))
    return found
