"""What `shapejit bench` prints: a table per kind of measurement, and what they mean."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..bench.comparison import Row, Summary
from ..bench.firstcall import FirstCall
from ..bench.throughput import Figure, Goal
from .output import Columns, print_table, print_text, ratio, same, shape

_MEASURES = {"at most": "time over", "at least": "times faster than", "beyond": "us beyond"}

_FIRST_CALLS: Columns = {
    "first call": "{0.name}",
    "cold s": "{0.cold:.2f}",
    "trivial cold s": "{0.cold_trivial:.2f}",
    "warm s": "{0.warm:.2f}",
    "trivial warm s": "{0.warm_trivial:.2f}",
    "beyond s": "{0.warm_beyond:+.2f}",
    "cold beyond s": "{0.cold_beyond:+.2f}",
    "wanted": "at most {0.limit:g}",
}
_SUMMARIES: Columns = {
    "suite": "{0.suite}",
    "dtype": "{0.dtype}",
    "cases": "{0.cases}",
    "measure": lambda part: part.measure.replace("_", " "),
    "geometric mean": "{0.geometric_mean:.2f}",
    "worst": "{0.worst:.2f}",
    "worst case": "{0.worst_case}",
}
_FIGURES: Columns = {
    "batch": "{0[0].name}",
    "ms": lambda row: f"{1e3 * row[0].seconds['shapejit']:.4g}",
    "measure": lambda row: f"{_MEASURES[row[1].kind]} {row[1].way}",
    "found": lambda row: _found(row[1], row[0].ratio(row[1])),
    "wanted": lambda row: _limit(row[1]),
    "same": lambda row: same(row[0]),
}


def print_found(
    rows: Sequence[Row],
    summaries: Sequence[Summary],
    calls: Sequence[FirstCall],
    figures: Sequence[Figure],
    ways: Sequence[str],
) -> None:
    """Print the tables of what was measured, and each result that was wrong."""
    _print(
        _copies(ways),
        [row for row in rows if row.case.suite != "small"],
        "GB/s: 10^9 bytes read and written per second. time/memcpy: our time over that of a "
        "memcpy of as many bytes, on all threads, or on one (1T): lower is better. time/limit: "
        "over the fastest plain copy, on all threads past the caches. "
        "faster than: their time over ours: higher is better.",
    )
    small = [row for row in rows if row.case.suite == "small"]
    _print(_small_copies(ways), small, "us: microseconds per call.")
    _print(
        _FIRST_CALLS,
        calls,
        "Seconds from import to result in a new process, numba's disk cache cold or warm; "
        "trivial: a parallel numba function that does nothing. beyond: warm - trivial warm; "
        "cold beyond: cold - trivial cold.",
    )
    _print(_SUMMARIES, summaries)
    for row in rows:
        if not row.same:
            print(f"NOT the bits of NumPy's copy: {row.case.id}")
        for name in row.differing:
            print(f"another result than {name}'s: {row.case.id}")
    _print(_FIGURES, [(figure, goal) for figure in figures for goal in figure.goals])


def _print(columns: Columns, rows: Sequence[object], note: str = "") -> None:
    """A table, if it has rows, and what its columns mean."""
    if not rows:
        return
    print_table(columns, rows)
    print()
    if note:
        print_text(note)
        print()


def _copies(ways: Sequence[str]) -> Columns:
    return {
        "case": "{0.case.id}",
        "shape": _dims,
        "MiB": lambda row: f"{row.case.nbytes / 2**20:.0f}",
        "GB/s": "{0.gb_per_s:.2f}",
        "time/memcpy": lambda row: ratio(row.over("memcpy")),
        "time/limit": lambda row: ratio(row.over("limit")),
        "time/memcpy 1T": lambda row: ratio(row.over("memcpy_one_thread")),
        **{f"faster than {way}": _faster(way) for way in ways},
        "same": same,
    }


def _dims(row: Row) -> str:
    many = row.case.axes is not None and len(row.case.shape) > 8
    return f"{len(row.case.shape)} dims" if many else shape(row.case.shape)


def _small_copies(ways: Sequence[str]) -> Columns:
    return {
        "case": "{0.case.id}",
        "bytes": "{0.case.nbytes}",
        **{f"{way} us": _microseconds(way) for way in ("shapejit", *ways)},
        "beyond numpy us": lambda row: (
            f"{1e6 * (row.seconds['shapejit'] - row.seconds['numpy']):+.2f}"
        ),
        "same": same,
    }


def _faster(way: str) -> Callable[[Row], str]:
    return lambda row: ratio(row.times_faster(way))


def _microseconds(way: str) -> Callable[[Row], str]:
    return lambda row: f"{1e6 * row.seconds[way]:.2f}" if way in row.seconds else "-"


def _found(goal: Goal, value: float) -> str:
    return f"{1e6 * value:+.2f}" if goal.kind == "beyond" else ratio(value)


def _limit(goal: Goal) -> str:
    if goal.kind == "beyond":
        return f"at most {1e6 * goal.limit:g}"
    return f"{goal.kind} {goal.limit:g}x"
