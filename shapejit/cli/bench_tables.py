"""What `shapejit bench` prints: a table of cases, one of suites, and what they mean."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..bench.cases import MIB, OURS
from ..bench.comparison import ONE_THREAD, Row, Summary
from .output import Columns, print_table, print_text, ratio

_SUMMARIES: Columns = {
    "suite": "{0.suite}",
    "cases": "{0.cases}",
    "measure": lambda part: f"time/{part.way}" if _plain(part.way) else f"faster than {part.way}",
    "geometric mean": lambda part: _told(part.way, part.geometric_mean),
    "worst": lambda part: _told(part.way, part.worst),
    "worst case": "{0.worst_case}",
}


def print_found(rows: Sequence[Row], summaries: Sequence[Summary]) -> None:
    """Print the tables of what was measured, and each result that was wrong."""
    ways = dict.fromkeys(way for row in rows for way in row.seconds if way != OURS)
    print_table(_columns(list(ways)), rows)
    print()
    print_text(
        "GB/s: 10^9 bytes read and written per second. time/memcpy: our time over that of a "
        "memcpy of as many bytes, on all threads, or on one: lower is better. "
        "faster than: their time over ours: higher is better."
    )
    print()
    print_table(_SUMMARIES, summaries)
    print()
    for row in rows:
        for name in row.differing:
            print(f"NOT the same bits as by {name}: {row.case.id}")


def _plain(way: str) -> bool:
    return way in ("memcpy", ONE_THREAD)


def _told(way: str, ours: float) -> str:
    """Our time over that of a way, or the reverse where others are compared."""
    return ratio(ours if _plain(way) else 1 / ours)


def _columns(ways: Sequence[str]) -> Columns:
    return {
        "case": "{0.case.id}",
        "MiB": lambda row: f"{row.case.moved / MIB:.0f}" if row.case.moved else "-",
        "time": lambda row: _time(row.seconds[OURS]),
        "GB/s": lambda row: f"{row.gb_per_s:.2f}" if row.case.moved else "-",
        **{f"time/{way}" if _plain(way) else f"faster than {way}": _over(way) for way in ways},
        "same": lambda row: "NO" if row.differing else "yes" if row.proved else "-",
    }


def _over(way: str) -> Callable[[Row], str]:
    def cell(row: Row) -> str:
        found = row.over(way)
        return "-" if found is None else _told(way, found)

    return cell


def _time(seconds: float) -> str:
    return f"{1e3 * seconds:.3g} ms" if seconds > 1e-4 else f"{1e6 * seconds:.3g} us"
