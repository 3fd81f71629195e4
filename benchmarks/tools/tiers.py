"""The time of calls in new processes, from the first on: first NumPy's, later that of kernels.

Each row of the suite `tiers` is called for some seconds by a process that finds its kernels on disk
("warm"), and by one with an empty cache, both at the defaults; before them a process that waits for
kernels measures their time. All of that is done three times; each value is the median. No call may
take longer than 1.5 times NumPy's time plus 60 ms, all but five plus 10 ms; with an empty cache
twice NumPy's time, since the builder takes a core. After 0.3 s of work, or 5 s with an empty cache,
calls must be as fast as kernels: as those of another process, or of the same process later, once
nothing is built (the same kernels may take 1.5 times as long in one process as in another).
--record writes the table of benchmarks/README.md. Exit code 1: a limit is not met.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from array import array
from importlib import import_module
from itertools import pairwise
from statistics import median
from time import perf_counter

import numpy as np

from shapejit.bench.cases import OURS

from . import readme
from .exits import SAME, WORSE, MeasureError, ending, parser_of
from .lines import numpys
from .machines import described, keep, must_be_quiet
from .repository import ROOT
from .timelines import CACHES, TIERS, settled, table, unmet

VALUES = "numpy", "second", "longest", "sixth", "last", "settled"  # of a timeline
NUMPYS = 0.3  # seconds that NumPy's way is measured for
DECADE = 20  # points of a curve while the time of the work grows tenfold
KERNELS, BEFORE = 1.0, 5  # seconds that kernels are measured for, and calls that wait for them
BUILT = 30.0  # seconds that are waited for at most until nothing is being built
PROCESSES = 1.5  # times the time of kernels in another process is still that of kernels


def timeline(name, seconds, cache, **variables):
    """What a fresh process with this folder for kernels says of a row."""
    kept = {k: v for k, v in os.environ.items() if k != "SHAPEJIT_PATIENCE"}
    kept |= {"NUMBA_CACHE_DIR": cache, **variables}
    command = [sys.executable, "-m", __spec__.name, "--one", name, "--seconds", str(seconds)]
    done = subprocess.run(command, cwd=ROOT, env=kept, capture_output=True, text=True, check=False)
    if done.returncode:
        raise MeasureError(f"{name}: {done.stderr.strip()[-300:]}")
    return json.loads(done.stdout)


def middle(rounds):
    """The medians."""
    row = {"kernels": median(found["kernels"] for found in rounds), "rounds": len(rounds)}
    for cache in CACHES:
        lines = [dict(found[cache]) for found in rounds]
        for line in lines:
            here, other = line["later"], row["kernels"]
            line["settled"] = settled(line["curve"], min(max(here, other), PROCESSES * other))
        row[cache] = {key: median(line[key] for line in lines) for key in VALUES}
    return row


def one_round(name, seconds):
    """What three fresh processes say of a row."""
    with tempfile.TemporaryDirectory(prefix="shapejit-") as folder:
        kernels = timeline(name, min(seconds, KERNELS), folder, SHAPEJIT_PATIENCE="0")
        row = {"kernels": kernels["last"], "warm": timeline(name, seconds, folder)}
    with tempfile.TemporaryDirectory(prefix="shapejit-", ignore_cleanup_errors=True) as folder:
        return row | {"empty": timeline(name, seconds, folder)}


def one(name, seconds):
    """The timeline of a row in this process."""
    shapejit, tiers = import_module("shapejit"), import_module("shapejit.bench.tiers")
    (case,) = (case for case in tiers.cases() if case.name == name)
    before = BEFORE if os.environ.get("SHAPEJIT_PATIENCE") == "0" else 0
    print(json.dumps(calls(case, shapejit, seconds, before)))
    return SAME


def calls(case, sj, seconds, before=0):
    """How long calls take one after the other, for so many seconds, and NumPy's.

    So many calls `before` are left out, as those that wait for kernels. `later` is the median of
    calls once no kernel is being built.

    A point of the `curve`, `DECADE` of them while the time since the first call grows tenfold, is
    when the last of its calls ended, and their median. `sixth` is the longest call
    but five, `last` the median of the last tenth of the time. All are seconds.
    """
    ways = case.ways(sj)
    ours = ways[OURS]
    taken = _durations(numpys(ways), NUMPYS)
    for _ in range(before):
        ours()
    calls = _durations(ours, seconds)
    at = np.cumsum(calls)
    points = np.floor(DECADE * np.log10(np.maximum(at, 1e-4))).astype(int)
    edges = [0, *(np.flatnonzero(np.diff(points)) + 1).tolist(), len(calls)]
    curve = [
        (float(at[high - 1]), float(np.median(calls[low:high]))) for low, high in pairwise(edges)
    ]
    longest = np.sort(calls)[::-1]
    until = perf_counter() + BUILT
    while perf_counter() < until and "asked for" in _states(sj):
        ours()
    found = {
        "numpy": np.median(taken),
        "second": calls[1],
        "longest": longest[0],
        "sixth": longest[min(5, len(calls) - 1)],
        "last": np.median(calls[at > 0.9 * at[-1]]),
        "later": np.median(_durations(ours, KERNELS)),
    }
    return {name: float(value) for name, value in found.items()} | {"curve": curve}


def _states(sj):
    return {kernel.state for kernel in sj.kernel_status().values()}


def _durations(call, seconds):
    """How long calls take, one after the other, for so many seconds: at least of three."""
    taken, end = array("d"), perf_counter() + seconds
    while len(taken) < 3 or perf_counter() < end:
        start = perf_counter()
        call()
        taken.append(perf_counter() - start)
    return np.array(taken)


@ending
def main(argv=None):
    """0 all limits are met, 1 some are not, 2 something could not be measured."""
    parser = parser_of(__file__, __doc__)
    parser.add_argument("--seconds", type=float, default=7.0, metavar="N", help="of each process")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="whose medians count")
    parser.add_argument("--rows", default="", metavar="REGEX")
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--busy", action="store_true", help="even if others have the cores")
    parser.add_argument("--one", metavar="NAME", help="a row, in this process, as JSON")
    args = parser.parse_args(argv)
    if args.one:
        return one(args.one, args.seconds)
    must_be_quiet(args.busy)
    names = [case.name for case in import_module("shapejit.bench.tiers").cases()]
    chosen = [name for name in names if re.search(args.rows, name)]
    if not chosen:
        raise MeasureError(f"--rows {args.rows} matches no row")
    rows = {}
    for name in chosen:
        rows[name] = middle([one_round(name, args.seconds) for _ in range(args.rounds)])
    text = json.dumps(described() | {"rows": rows})
    record = json.loads(text, parse_float=lambda number: float(f"{float(number):.4g}"))
    print(table(record), *unmet(record), sep="\n")
    if args.record:
        keep(TIERS, json.dumps(record, indent=1) + "\n")
        readme.main([])
    return WORSE if unmet(record) else SAME


if __name__ == "__main__":
    sys.exit(main())
