"""Interleaved timing: on a shared machine only ratios inside one run mean anything."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from statistics import median
from time import perf_counter


def interleaved(
    ways: Mapping[str, Callable[[], object]], rounds: int = 15, seconds: float = 0.002
) -> dict[str, float]:
    """Median seconds a call of each way, the ways taking turns in every round.

    Each turn repeats its way for about `seconds`, at least once.

    >>> sorted(interleaved({"a": lambda: None, "b": lambda: 1}, rounds=3, seconds=1e-5))
    ['a', 'b']
    """
    repeats = {}
    for name, way in ways.items():
        way()  # compile, fault the pages in
        once = _time(way, 1)
        repeats[name] = max(1, min(100_000, int(seconds / max(once, 1e-8))))
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            times[name].append(_time(way, repeats[name]) / repeats[name])
    return {name: median(taken) for name, taken in times.items()}


def _time(way: Callable[[], object], repeats: int) -> float:
    start = perf_counter()
    for _ in range(repeats):
        way()
    return perf_counter() - start
