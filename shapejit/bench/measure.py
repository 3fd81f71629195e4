"""Interleaved timing: on a shared machine only ratios inside one run mean anything."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Mapping
from statistics import median
from time import perf_counter

# Seconds that a number of calls take, one after the other.
Clock = Callable[[int], float]

_FEWEST = 3  # rounds of a way that has used its time up
_SLOW_SECONDS = 1.0  # seconds for all rounds of one way that is slow
_TRIED = 3  # more calls before the first round, at most
_SLOW, _FASTER = 0.02, 1.5  # seconds from which, and times as fast as the one before that
# How long OpenMP's threads wait busily after a parallel loop: GNU's in turns of theirs
# (about 1 ms instead of 10), LLVM's in ms (instead of 200).
WAIT = {"GOMP_SPINCOUNT": "20000", "KMP_BLOCKTIME": "1"}


def wait_shortly() -> None:
    """Make OpenMP's threads release the cores soon, for the next measurement.

    OpenMP reads the environment once, before its first loop; child processes inherit it. A value
    set by the user stays.
    """
    for name, value in WAIT.items():
        os.environ.setdefault(name, value)


def turns(clocks: Mapping[str, Clock], rounds: int, seconds: float = 0.002) -> dict[str, float]:
    """Median seconds per call of each way, interleaved in every round; slow ones skip late rounds.

    Each turn repeats its way for about `seconds`, at least once.

    >>> turns({"a": lambda calls: 2.0 * calls, "b": lambda calls: 3.0 * calls}, rounds=5)
    {'a': 2.0, 'b': 3.0}
    """
    return {name: median(durations) for name, durations in samples(clocks, rounds, seconds).items()}


def samples(
    clocks: Mapping[str, Clock], rounds: int, seconds: float = 0.002
) -> dict[str, list[float]]:
    """The samples of which `turns` returns the medians: seconds per call, one for each turn.

    >>> samples({"a": lambda calls: 2.0 * calls}, rounds=5)
    {'a': [2.0, 2.0, 2.0]}
    """
    fastest = {name: max(_tried(run), 1e-8) for name, run in clocks.items()}
    times: dict[str, list[float]] = {name: [] for name in clocks}
    order = random.Random(0)
    for played in range(rounds):
        # None always follows the same one, nor meets what else runs here in the same phase.
        for name in order.sample(list(clocks), len(clocks)):
            run = clocks[name]
            if played < max(_FEWEST, int(_SLOW_SECONDS / fastest[name])):
                calls = max(1, min(100_000, int(seconds / fastest[name])))
                duration = run(calls) / calls
                times[name].append(duration)
                # What was tried may have waited for the compiler.
                fastest[name] = max(min(duration, fastest[name]), 1e-8)
    return times


def _tried(run: Clock) -> float:
    """Seconds of a call, after calls that compile and fault pages in.

    Those are over when a call is hardly faster than the previous one.
    """
    once = spent = run(1)
    for _ in range(_TRIED):  # more is compiled for what comes again, and kept
        if once >= _SLOW_SECONDS or spent >= 2 * _SLOW_SECONDS:
            break
        before, once = once, run(1)
        spent += once
        if _SLOW < before < _FASTER * once:
            break
    return once


def clock(way: Callable[[], object]) -> Clock:
    """The Clock of a function."""

    def run(calls: int) -> float:
        start = perf_counter()
        for _ in range(calls):
            way()
        return perf_counter() - start

    return run
