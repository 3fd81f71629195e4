"""What the planner's thresholds cost on this machine, beside the better of both choices.

    python -m benchmarks.thresholds
    python -m benchmarks.thresholds --only 'PARALLEL|STREAM' --record

Each is measured at half of it, at it and at twice it: the copy as it is done below the threshold
and as it is done from there on, taking turns in one process. A cost of 1.00 says that the planner
takes the faster one, 1.20 that the other would save a sixth of the time. `--record` writes the
figures to benchmarks/measured/thresholds/MACHINE.json.
"""

import argparse
import json
import os
import re
import sys
from functools import partial
from importlib import import_module
from time import perf_counter
from typing import NamedTuple

import numpy as np

from .exits import SAME, WORSE, MeasureError, ending
from .ratios import OURS, installed
from .record import machine
from .repository import ROOT, git
from .tables import measure

MEASURED = ROOT / "benchmarks" / "measured" / "thresholds"
NEVER = 2**62
SCALES = 0.5, 1, 2
KIB, MIB = 1 << 10, 1 << 20
TURNS, SECONDS = 21, 0.004
LEAST = 0.10  # of the better side's time: what is worth moving a threshold


def module(name):
    """A module of the package that is measured."""
    return import_module(f"{OURS}.{name}")


def copy(x):
    """A function that copies a view as an operation does, but for checks and fast calls."""
    out = np.zeros(x.shape, x.dtype)
    return partial(module("copying").copy, x, out, False)


def transposed(nbytes, dtype=np.float32):
    """A matrix, twice as wide as it is high."""
    side = max(2, int((nbytes / np.dtype(dtype).itemsize / 2) ** 0.5))
    return copy(np.ones((2 * side, side), dtype).T)


def reversed_dims(nbytes, dtype=np.float32):
    """A cube, its dims in the other order: of no power of two."""
    side = max(2, round((nbytes / np.dtype(dtype).itemsize) ** (1 / 3)) | 1)
    return copy(np.ones((side, side, side), dtype).T)


def runs(nbytes, run):
    """Rows that lie twice as far apart."""
    return copy(np.ones((max(2, nbytes // run), 2 * run), np.uint8)[:, :run])


def run_of(run):
    """Rows of so many bytes, of half a MiB."""
    return runs(512 * KIB, int(run))


def narrow_last(nbytes, dtype=np.uint8):
    """A matrix of 15 columns, transposed."""
    return copy(np.ones((max(2, nbytes // 15 // np.dtype(dtype).itemsize), 15), dtype).T)


def reversed_rows(nbytes):
    """Rows of 64 bytes, backwards."""
    return copy(np.ones((max(2, nbytes // 64), 64), np.uint8)[:, ::-1])


def channels_first(nbytes):
    """Three channels that lie side by side, one behind the other."""
    return copy(np.ones((max(2, nbytes // 3), 3), np.uint8).T)


def matrices(nbytes):
    """Matrices of 4 x 8, each transposed."""
    return copy(np.ones((max(2, nbytes // 128), 4, 8), np.float32).mT)


def packed(shape, axes, bits):
    """A Tensor of narrow elements, permuted."""
    t = installed("pack").pack(np.zeros(shape, np.uint8), f"uint{bits}").permute_dims(axes)
    out = installed("pack").pack(np.zeros(t.shape, np.uint8), f"uint{bits}")
    return partial(module("copying").copy, t, out, False)


def packed_rows(nbytes):
    """Channels of int4 that go first."""
    return packed((max(16, nbytes * 2 // 64), 64), (1, 0), 4)


def filled(nbytes):
    """A transposed matrix, into a part of a larger array."""
    side = max(16, int((nbytes / 8) ** 0.5))
    x, region = np.ones((2 * side, side), np.float32).T, np.zeros((side, 4 * side), np.float32)
    fill = module("operations.regions").fill_region
    return partial(fill, x, region[:, : 2 * side])


def rows_filled(run, nbytes=512 * KIB):
    """Rows of so many bytes into a part of a larger array."""
    count = max(2, nbytes // int(run))
    x, region = np.ones((count, 2 * int(run)), np.uint8), np.zeros((count, 2 * int(run)), np.uint8)
    fill = module("operations.regions").fill_region
    return partial(fill, x[:, : int(run)], region[:, : int(run)])


def run_filled(nbytes):
    """Rows of 2 KiB into a part of a larger array."""
    return rows_filled(2 * KIB, nbytes)


def first_met(nbytes):
    """A transposed matrix whose kind was never met before."""
    way = transposed(nbytes)

    def once():
        forget()
        way()

    return once


def many(nbytes):
    """64 small arrays in the other order, in one launch."""
    planner, engine = module("planning.planner"), module("engine")
    x, out = np.ones((64, nbytes // 4), np.float32), np.zeros((64, nbytes // 4), np.float32)
    layout = module("shapes.layout").Layout.row_major((nbytes // 4,), 32).flip((0,))
    sources, targets = ([8 * row.ctypes.data for row in side] for side in (x, out))
    # An address keeps nothing alive.
    return lambda _arrays=(x, out): engine.run(planner.plan(layout, 32, count=64), sources, targets)


def many_transposed(nbytes):
    """16 matrices, each transposed, in one launch."""
    planner, engine = module("planning.planner"), module("engine")
    side = max(2, int((nbytes / 8) ** 0.5))
    x = np.ones((16, 2 * side, side), np.float32)
    out = np.zeros((16, side, 2 * side), np.float32)
    layout = module("shapes.layout").Layout.row_major((2 * side, side), 32).permute((1, 0))
    sources, targets = ([8 * each.ctypes.data for each in kept] for kept in (x, out))
    return lambda _arrays=(x, out): engine.run(planner.plan(layout, 32, count=16), sources, targets)


def stacked(elements, count, dtype=np.uint8):
    """Arrays of so many elements in all, stacked along the last axis."""
    parts = [np.ones(max(1, elements // count), dtype) for _ in range(count)]
    out = np.zeros((parts[0].size, count), dtype)
    return partial(installed("stack").stack, parts, axis=-1, out=out)


def joined(nbytes, rows=1):
    """8 arrays of some rows, side by side."""
    parts = [np.ones((rows, max(1, nbytes // (8 * rows))), np.uint8) for _ in range(8)]
    out = np.zeros((rows, 8 * parts[0].shape[1]), np.uint8)
    return partial(installed("concat").concat, parts, axis=1, out=out)


def halves_joined(count):
    """The left halves of so many arrays of 4 KiB, one behind the other."""
    parts = [np.ones((4, 1024), np.uint8)[:, :512] for _ in range(count)]
    out = np.zeros((4 * count, 512), np.uint8)
    return partial(installed("concat").concat, parts, out=out)


def converted(nbytes):
    """A transposed matrix in half precision; `nbytes` are those of both."""
    side = max(2, int((nbytes / 12) ** 0.5))
    x, out = np.ones((2 * side, side), np.float32).T, np.zeros((side, 2 * side), np.float16)
    return partial(installed("cast").cast, x, np.float16, out=out)


def taken(nbytes, run=4 * KIB):
    """Rows by their indices."""
    count = max(2, nbytes // run)
    indices = np.random.default_rng(0).permutation(count)
    x, out = np.ones((count, run), np.uint8), np.zeros((count, run), np.uint8)
    return partial(installed("take").take, x, indices, axis=0, out=out)


def then_read(nbytes):
    """A transposed matrix, whose copy is read at once."""
    way = transposed(nbytes)

    def copied_and_read():
        way()
        way.args[1].max()

    return copied_and_read


class Threshold(NamedTuple):
    """What a threshold decides, and at what; `cases` make a copy of a size in its unit.

    `below` and `above` are the values, by module and name, that force the choice. `each`:
    bytes of what it counts, if not of one; `of`: what of `cpu_caches` it is a part of.
    """

    module: str
    name: str
    decides: str
    cases: tuple
    below: dict
    above: dict
    each: int = 1
    of: str = ""

    @property
    def value(self):
        """In bytes."""
        unit = getattr(module("runtime.cpu_caches"), self.of)() if self.of else self.each
        return int(getattr(module(self.module), self.name) * unit)


PLANNER, CASTS = "planning.planner", "planning.casts"


def between(name, decides, *cases, below=NEVER, above=0, room=PLANNER, **more):
    """A threshold, below which the value `below` makes the choice, and from which on `above`."""
    key = room, name
    return Threshold(room, name, decides, cases, {key: below}, {key: above}, **more)


THRESHOLDS = (
    between("NUMPYS_OWN_BELOW", "NumPy's assignment | a kernel without a plan", transposed),
    between("NUMPYS_RUN", "runs: a kernel | NumPy's memcpy of each", run_of),
    between(
        "NUMPYS_RUNS_BELOW",
        "NumPy's memcpy of each run | all threads",
        partial(runs, run=256),
        partial(runs, run=2 * KIB),
    ),
    between("NUMPYS_GAPS_BELOW", "runs into a region: NumPy's memcpy | all threads", run_filled),
    between("NUMPY_BELOW", "elements into a region: NumPy | a plan", filled, each=4),
    between("SHORT", "runs into a region: NumPy | a plan", rows_filled, room="operations.regions"),
    between(
        "SMALL_BELOW",
        "a kernel without a plan | a plan",
        transposed,
        partial(transposed, dtype=np.uint8),
        reversed_dims,
        partial(narrow_last, dtype=np.uint16),
    ),
    between("WHOLE_BELOW", "elements without a plan | vectors by a plan", reversed_rows),
    between("FEW_ELEMENTS", "many tensors: by elements | by vectors", many),
    between("MANY_BELOW", "many tensors: one thread each | all threads", many_transposed),
    between(
        "JOINED_BELOW",
        "dense arrays joined: one thread | a plan",
        joined,
        partial(joined, rows=64),
    ),
    between("NUMPYS_PARTS", "arrays joined: NumPy, one by one | a launch", halves_joined),
    between(
        "RUNS",
        "runs joined, several in a line: one thread | a plan",
        partial(stacked, count=4),
        partial(stacked, count=16),
        room="fast_joins",
    ),
    between(
        "FAR_RUNS",
        "runs joined, each in its line: one thread | a plan",
        partial(stacked, count=64, dtype=np.float32),
        room="fast_joins",
    ),
    between("ONCE_BELOW", "an array met once: without a plan | with one", first_met),
    between(
        "PARALLEL_FROM",
        "one thread | all",
        transposed,
        partial(transposed, dtype=np.uint8),
        partial(runs, run=96),
    ),
    between(
        "STREAM_FROM",
        "through the caches | past them",
        transposed,
        then_read,
        partial(runs, run=2 * KIB),
    ),
    between("SHUFFLES_FROM", "tiles of bits | networks, which take 0.1 s to compile", packed_rows),
    between("GATHERED_FROM", "elements one by one | boxes", narrow_last, of="l2"),
    between("PICKED_FROM", "elements picked | boxes", channels_first, of="l2"),
    between("BOXES_FROM", "tiles | boxes", matrices, of="l2"),
    between("TILES_FROM", "casts: boxes | tiles", converted, room=CASTS),
    between("LARGE", "taken rows: NumPy | all threads", taken, room="operations.gathering"),
)


def forget():
    """Let the next copy be planned anew."""
    recent = module("runtime.recent").Recent
    for name in (PLANNER, CASTS, "copying", "fast_joins"):
        for kept in vars(module(name)).values():
            if isinstance(kept, recent):
                kept.clear()


def forced(way, values):
    """The clock of a function as it is with these values of (module, name)."""

    def run(calls):
        before = {key: getattr(module(key[0]), key[1]) for key in values}
        try:
            for (room, name), value in values.items():
                setattr(module(room), name, value)
            forget()
            for _ in range(2):  # what is met twice has a plan
                way()
            start = perf_counter()
            for _ in range(calls):
                way()
            return perf_counter() - start
        finally:
            for (room, name), value in before.items():
                setattr(module(room), name, value)
            forget()

    return run


def seconds(way, sides):
    """Of a call on each side: the lower quartile, since others' work can only add."""
    clocks = {name: forced(way, values) for name, values in sides.items()}
    found = measure.samples(clocks, TURNS, SECONDS)
    return {name: sorted(times)[len(times) // 4] for name, times in found.items()}


def label(case):
    """The name of a case."""
    if not isinstance(case, partial):
        return case.__name__
    words = (getattr(v, "__name__", v) for v in case.keywords.values())
    return " ".join([case.func.__name__, *map(str, words)])


def measured(threshold):
    """A row for each case and size: seconds as it is, and of both sides; the cost of the former."""
    sides = {"taken": {}, "below": threshold.below, "above": threshold.above}
    rows = []
    for case in threshold.cases:
        for size in (int(threshold.value * scale) for scale in SCALES):
            way = case(size)
            found = seconds(way, sides)
            if cost(found) > 1 + LEAST:  # perhaps others' work
                again = seconds(way, sides)
                found = {name: min(found[name], again[name]) for name in found}
            each = {name: float(f"{s:.4g}") for name, s in found.items()}
            row = {"case": label(case), "size": size, "cost": round(cost(found), 3)}
            rows.append({**row, "seconds": each})
    return rows


def cost(found):
    """The time as it is over that of the better side."""
    return found["taken"] / min(found["below"], found["above"])


def line(row):
    """A row in words."""
    both = "  ".join(f"{name} {s * 1e6:.1f} us" for name, s in row["seconds"].items())
    return f"  {row['case']:20} {row['size']:>10}  cost {row['cost']:.2f}  {both}"


@ending
def main(argv=None):
    """0 no choice costs more than 10 %; 1 one does; 2 nothing could be measured."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.thresholds",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", metavar="REGEX", default="", help="the thresholds of such names")
    parser.add_argument("--record", action="store_true", help="write the figures of all")
    parser.add_argument("--machine", metavar="NAME", help="if not by its processor and cores")
    args = parser.parse_args(argv)
    if args.record and args.only:
        raise MeasureError("--record: the figures of all thresholds, without --only")
    chosen = [each for each in THRESHOLDS if re.search(args.only, each.name)]
    if not chosen:
        raise MeasureError(f"no threshold is named {args.only}")
    facts, load = machine(args.machine), os.getloadavg()[0]
    print(facts["machine"])
    figures = {}
    for each in chosen:
        print(f"{each.module}.{each.name} = {each.value}: {each.decides}", flush=True)
        figures[each.name] = {"value": each.value, "decides": each.decides, "rows": measured(each)}
        for row in figures[each.name]["rows"]:
            print(line(row), flush=True)
    if args.record:
        MEASURED.mkdir(parents=True, exist_ok=True)
        path = MEASURED / f"{facts['machine']}.json"
        made = {"machine": facts, "commit": git("rev-parse", "HEAD"), "load_average": load}
        made["thresholds"] = figures
        path.write_text(json.dumps(made, indent=1) + "\n")
    worst = max(row["cost"] for each in figures.values() for row in each["rows"])
    return WORSE if worst > 1 + LEAST else SAME


if __name__ == "__main__":
    sys.exit(main())
