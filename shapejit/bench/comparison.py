"""The comparison that `shapejit bench` prints: every case, every way, in turns."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import geometric_mean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import engine
from ..operations import views
from . import casts, packed
from .cases import MIB, Case
from .machine import thread_count
from .measure import Clock, clock, turns
from .packed import RIVAL_BYTES, PackedCase, raw_of
from .peers import Peer
from .worker import CHECKED, UNCHECKED

_DISTURBED = 1.1  # on a quiet machine more threads are faster, or bandwidth makes them equal
MEMCPYS = "memcpy", "limit", "memcpy_one_thread"
_SMALL_ROUNDS = 3  # times as many rounds of cases that take microseconds


@dataclass(frozen=True)
class Row:
    """One case: median seconds a copy by each way, and whether ours had every bit right.

    `seconds` holds "shapejit", "memcpy" (all threads), "limit" (the same past the caches)
    and "memcpy_one_thread" (none of them for small copies), "numpy", and each peer that has
    such a copy.
    `differing` names the peers whose result was another. Where `rivals_nbytes`
    is not 0, the ways of `scaled` had so many bytes; their seconds are scaled up.
    """

    case: Case
    seconds: dict[str, float]
    same: bool
    differing: tuple[str, ...] = ()
    rivals_nbytes: int = 0
    scaled: tuple[str, ...] = ()

    @property
    def gb_per_s(self) -> float:
        """10^9 bytes read and written a second: of a copy twice the result's bytes."""
        return 2 * self.case.moved / 1e9 / self.seconds["shapejit"]

    @property
    def counted(self) -> bool:
        """Whether the result is too large for a cache."""
        return self.case.counted

    @property
    def disturbed(self) -> bool:
        """Whether memcpy was slower on all threads than on one: others had the cores.

        A region of all threads waits for the last one, so that this row's
        ratios say little. The reverse does not hold: False proves no silence.
        """
        taken = self.seconds
        if "memcpy" not in taken or self.case.nbytes < MIB:
            return False
        return taken["memcpy"] > _DISTURBED * taken["memcpy_one_thread"]

    def over(self, way: str) -> float | None:
        """Our time / the time of `way`: 1 is as fast as it, 2 takes twice as long."""
        taken = self.seconds.get(way)
        return None if taken is None else self.seconds["shapejit"] / taken

    def times_faster(self, way: str) -> float | None:
        """The time of `way` / our time: 2 means that we are twice as fast."""
        taken = self.seconds.get(way)
        return None if taken is None else taken / self.seconds["shapejit"]

    def rivals(self, ways: Sequence[str]) -> list[str]:
        """What this row alone was measured beside."""
        return [way for way in self.seconds if way not in ("shapejit", *MEMCPYS, *ways)]

    def as_json(self, ways: Sequence[str]) -> dict[str, Any]:
        """As JSON has it; `ways` are NumPy and the peers, null where they have no such copy."""
        case = self.case
        return {
            "suite": case.suite,
            "name": case.name,
            "dtype": case.dtype,
            "part": case.part,
            "shape": case.shape,
            "axes": case.axes,
            "note": case.note,
            "nbytes": case.nbytes,
            "counted": self.counted,
            "same": self.same,
            "disturbed": self.disturbed,
            "differing": self.differing,
            "rivals_nbytes": self.rivals_nbytes,
            "seconds": self.seconds,
            "gb_per_s": self.gb_per_s,
            "over_memcpy": self.over("memcpy"),
            "over_limit": self.over("limit"),
            "over_memcpy_one_thread": self.over("memcpy_one_thread"),
            "times_faster": {way: self.times_faster(way) for way in (*ways, *self.rivals(ways))},
        }


@dataclass(frozen=True)
class Summary:
    """A suite (and dtype or part) over one way: geometric mean and worst case."""

    suite: str
    dtype: str
    measure: str
    cases: int
    geometric_mean: float
    worst: float
    worst_case: str


def measured(
    cases: Sequence[Case], peers: Sequence[Peer], rounds: int, tell: Callable[[str], object]
) -> Iterator[Row]:
    """A Row a case; `tell` is called with the id of the one that comes next."""
    for case in cases:
        tell(case.id)
        yield measure(case, peers, rounds)


def measure(case: Case, peers: Sequence[Peer] = (), rounds: int = 9) -> Row:
    """Prove one case against NumPy, then time all ways in turns."""
    if isinstance(case, PackedCase):
        return _measure_packed(case, peers, rounds)
    base, out = case.source(), case.output()
    view = case.view(base)
    same = same_bytes(view, out, case)
    checksum = zlib.crc32(raw_bytes(out)[:CHECKED].tobytes())
    clocks = {name: clock(way) for name, way in _ways(case, base, view, out).items()}
    if case.suite == "small":
        for name in MEMCPYS:  # a launch costs more than the copy
            del clocks[name]
    else:
        clocks["memcpy_one_thread"] = one_thread(clocks["memcpy_one_thread"])
    differing = _taken(case, peers, checksum, clocks)
    times = _SMALL_ROUNDS if case.suite == "small" else 1
    seconds = turns(clocks, rounds * times)
    for peer in peers:
        peer.drop()
    return Row(case, seconds, same, differing)


def _taken(
    case: Case, peers: Sequence[Peer], checksum: int, clocks: dict[str, Clock]
) -> tuple[str, ...]:
    """Add the clock of each peer that has such a copy; the names of those that differ."""
    differing = []
    for peer in peers:
        theirs = peer.take(case, thread_count())
        if theirs is not None:
            clocks[peer.name] = peer.run
            if theirs not in (checksum, UNCHECKED):
                differing.append(peer.name)
    return tuple(differing)


def _measure_packed(case: PackedCase, peers: Sequence[Peer], rounds: int) -> Row:
    """The same of a packed case; rivals have a smaller one where they would take long."""
    base, out = case.source(), case.output()
    ours = case.ours(base, out)
    ours()
    same = case.proved(base, out)
    count = case.moved
    first = base[0] if isinstance(base, list) else base  # of parts that are joined
    source, target = (_bytes(raw_of(x), count) for x in (first, out))
    ways = {"shapejit": ours, **_memcpys(source, target)}
    smaller = case.rivals_case(RIVAL_BYTES)
    rivals = smaller.rivals()
    clocks = {name: clock(way) for name, way in (*ways.items(), *rivals.items())}
    clocks["memcpy_one_thread"] = one_thread(clocks["memcpy_one_thread"])
    checksum = zlib.crc32(raw_of(out)[:CHECKED].tobytes())
    differing = _taken(case, peers, checksum, clocks)
    seconds = turns(clocks, rounds)
    for peer in peers:
        peer.drop()
    for name in rivals:
        seconds[name] *= case.nbytes / smaller.nbytes
    if smaller == case:
        return Row(case, seconds, same, differing)
    return Row(case, seconds, same, differing, smaller.nbytes, tuple(rivals))


def _memcpys(
    source: NDArray[np.uint8], target: NDArray[np.uint8]
) -> dict[str, Callable[[], object]]:
    """memcpy on all threads, within caches and past them, and on one."""
    threads = thread_count()
    return {
        "memcpy": lambda: engine.memcpy(source, target, threads),
        "limit": lambda: engine.memcpy(source, target, threads, streamed=True),
        "memcpy_one_thread": lambda: engine.memcpy(source, target, 1),
    }


def one_thread(run: Clock) -> Clock:
    """The same with numba held to one thread.

    A parallel region of two waits for both, even where one has nothing to do:
    beside another busy process that took 8 ms for a copy of 1 ms.
    """
    import numba

    def alone(calls: int) -> float:
        before = thread_count()
        numba.set_num_threads(1)
        try:
            return run(calls)
        finally:
            numba.set_num_threads(before)

    return alone


def same_bytes(view: NDArray[Any], out: NDArray[Any], case: Case) -> bool:
    """Whether our copy equals NumPy's, bit for bit; `out` holds NumPy's then."""
    if case.fresh:
        ours = views.ascontiguous(view)
    else:
        views.ascontiguous(view, out=out)
        ours = out.copy()
    np.copyto(_carried(out), _carried(view))
    return ours.shape == out.shape and np.array_equal(raw_bytes(ours), raw_bytes(out))


def _ways(
    case: Case, base: NDArray[Any], view: NDArray[Any], out: NDArray[Any]
) -> dict[str, Callable[[], object]]:
    """Ours, memcpy of as many bytes, and NumPy's on plain integers or floats of that width.

    NumPy moves a bfloat16 one call at a time, a uint16 in a loop: it gets its best.
    """
    # A slice is smaller than its base, a broadcast larger.
    source, target = (_bytes(x, case.moved) for x in (base, out))
    carried, carrier = _carried(view), _carried(out)
    ways: dict[str, Callable[[], object]] = {
        "shapejit": lambda: views.ascontiguous(view, out=out),
        **_memcpys(source, target),
        "numpy": lambda: np.copyto(carrier, carried),
    }
    if case.fresh:
        ways["shapejit with out="] = ways["shapejit"]  # wanted: at most 1.2 times its time
        ways["shapejit"] = lambda: views.ascontiguous(view)
        ways["numpy"] = lambda: np.ascontiguousarray(carried)
    return ways


def raw_bytes(x: NDArray[Any]) -> NDArray[np.uint8]:
    """The memory of a contiguous array."""
    return x.reshape(-1).view(np.uint8)


def _bytes(x: NDArray[Any], count: int) -> NDArray[np.uint8]:
    """So many bytes of an array, or others where it has fewer."""
    raw = raw_bytes(x)
    return raw[:count] if raw.size >= count else np.ones(count, np.uint8)


def _carried(x: NDArray[Any]) -> NDArray[Any]:
    """The same elements as NumPy's own type of that width."""
    size = x.dtype.itemsize
    return x.view(np.dtype("complex128") if size == 16 else np.dtype(f"u{size}"))


def use_threads(count: int | None) -> None:
    """Let shapejit, memcpy and the peers have so many threads; None: as many as numba has."""
    import numba

    if count is not None:
        most = numba.config.NUMBA_NUM_THREADS
        if not 1 <= count <= most:
            raise ValueError(f"--threads {count}: this machine gives numba 1 to {most}")
        numba.set_num_threads(count)


def matching(cases: Sequence[Case], pattern: re.Pattern[str]) -> list[Case]:
    """The cases in whose id (suite/name/dtype) the regular expression is found."""
    return [case for case in cases if pattern.search(case.id)]


def summaries(rows: Sequence[Row], ways: Sequence[str]) -> list[Summary]:
    """Every suite by dtype or part: over memcpy, and times faster than each of `ways`.

    Results below 64 MiB are left out of the copies where the suite has larger
    ones; of the small copies all count.
    """
    found = []
    groups = dict.fromkeys(row.case.suite for row in rows)
    for suite in groups:
        own = [row for row in rows if row.case.suite == suite]
        names = list(dict.fromkeys(row.case.part for row in own))
        parts = [("all", own)]
        if len(names) > 1 or suite in (casts.SUITE, packed.SUITE):
            parts += [(name, [r for r in own if r.case.part == name]) for name in names]
        for name, part in parts:
            large = [row for row in part if row.counted] or part
            found += _part(suite, name, large, ways)
    return found


def _part(suite: str, dtype: str, rows: list[Row], ways: Sequence[str]) -> list[Summary]:
    found = []
    if suite != "small":
        for plain in MEMCPYS[:2]:
            ratios = [(row.over(plain), row) for row in rows]
            found += _summary(suite, dtype, f"over_{plain}", ratios, max)
    for way in dict.fromkeys((*ways, *(way for row in rows for way in row.rivals(ways)))):
        ratios = [(row.times_faster(way), row) for row in rows]
        measure = f"times_faster_than_{way}"
        if any(way in row.scaled for row in rows):
            measure += f"_scaled_from_{RIVAL_BYTES // MIB}_MiB"
        found += _summary(suite, dtype, measure, ratios, min)
    return found


def _summary(
    suite: str,
    dtype: str,
    measure: str,
    ratios: list[tuple[float | None, Row]],
    worst: Callable[..., tuple[float, Row]],
) -> list[Summary]:
    known = [(ratio, row) for ratio, row in ratios if ratio is not None]
    if not known:
        return []
    mean = geometric_mean(ratio for ratio, _ in known)
    bad, row = worst(known, key=lambda pair: pair[0])
    return [Summary(suite, dtype, measure, len(known), mean, bad, row.case.id)]
