"""Compare two commits in one run, and fail if the second is slower.

Each is installed into an environment of its own. Three processes, two of the
first commit and one of the second, take turns at every benchmark; the two of one
commit say what noise there is. A benchmark is reported when time / memcpy's (or
NumPy's, where there is nothing to copy) got worse by more than 10 % and by more
than the noise, again and again in new processes. Exit code 0: none is; 1: some
are; 2: bad arguments, or a commit that cannot be installed.
"""

import argparse
import inspect
import json
import os
import pkgutil
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from importlib import import_module
from math import exp, log
from pathlib import Path
from statistics import median

from .installs import InstallError, install, versions
from .record import ROOT, RecordError, commit_named
from .worker import __file__ as WORKER

WORSE = 0.10
SUSPECT = 0.05  # a logarithm
# Sessions of all, then of those that were slower, in new processes each time.
SESSIONS = (2, 3, 6)
TURNS = 6
SIDES = ("first", "again", "second")


@dataclass(frozen=True)
class Item:
    """A case of a benchmark class, and the baseline it is compared over; or a counter."""

    kind: str
    case: str | None
    baseline: str = ""
    method: str = ""
    unit: str = ""
    turns: int = 0

    def __str__(self):
        name = f"{self.kind}.{self.method}" if self.method else self.kind
        return name if self.case is None else f"{name}({self.case})"


@dataclass(frozen=True)
class Verdict:
    """Both values and the noise of one item, `change` a fraction of the first value.

    `steady`: most sessions saw it worse; `slower`: and by more than the noise.
    """

    benchmark: str
    unit: str
    first: float
    second: float
    noise: float
    slower: bool
    change: float
    steady: bool = True


class Side:
    """A process in which one commit is measured."""

    def __init__(self, python):
        environment = {k: v for k, v in os.environ.items() if not k.startswith("NUMBA_CACHE")}
        environment |= {"PYTHONHASHSEED": "0"}
        environment.pop("PYTHONPATH", None)
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            [python, "-P", WORKER], env=environment, text=True, stdin=pipe, stdout=pipe
        )

    def ask(self, **request):
        """The reply."""
        print(json.dumps(request), file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        return json.loads(line) if line else {"failed": "its process has ended"}

    def clock(self, way):
        """Seconds of so many calls, by the process's own clock."""
        return lambda calls: self.ask(run=way, calls=calls)["seconds"]

    def close(self):
        """End the process."""
        self._process.kill()
        self._process.communicate()


def classes():
    """The benchmark classes by name, MODULE.CLASS."""
    from . import __path__ as folder

    for _, name, _ in pkgutil.iter_modules(folder):
        module = import_module(f"{__package__}.{name}")
        for _, kind in inspect.getmembers(module, inspect.isclass):
            own = kind.__module__ == module.__name__ and not inspect.isabstract(kind)
            if own and hasattr(kind, "version"):
                yield f"{name}.{kind.__name__}", kind


def items(patterns=(), everything=False):
    """What is compared: cases of the ratio classes, and the counters."""
    from .ratios import Ratios

    found = []
    for name, kind in classes():
        if issubclass(kind, Ratios):
            found += _ratio_items(name, kind, everything)
        elif getattr(kind, "counted", False):
            found += _counter_items(name, kind)
    return [item for item in found if all(re.search(p, str(item)) for p in patterns)]


def _ratio_items(name, kind, everything):
    cases = kind.params if everything or kind.compared is None else kind.compared
    return [Item(name, case, kind.baseline, turns=min(TURNS, kind.turns)) for case in cases]


def _counter_items(name, kind):
    methods = [method for method in dir(kind) if method.startswith("track_")]
    return [
        Item(name, case, method=method, unit=getattr(kind, method).unit)
        for method in methods
        for case in getattr(kind, "params", [None])
    ]


@dataclass
class Session:
    """log(second / first) and log(again / first) of one session, and the ratios."""

    change: float
    noise: float
    first: float
    second: float


class CaseError(Exception):
    """A benchmark that works on the first commit and fails on the second."""


def replied(item, replies):
    """Whether both commits have it: False where one lacks it, or the first fails, too."""
    *first, second = replies
    if any(key in reply for reply in first for key in ("missing", "failed")):
        return False
    if "failed" in second:
        raise CaseError(f"{item}: {second['failed']}")
    return "missing" not in second


def session(item, sides):
    """All sides take turns at one case, in new memory; None where one side lacks it."""
    from .ratios import OURS, SECONDS
    from .tables import measure

    ways = (OURS, item.baseline)
    replies = [side.ask(take=item.kind, case=item.case, ways=ways) for side in sides.values()]
    try:
        if not replied(item, replies):
            return None
        clocks = {(name, way): sides[name].clock(way) for way in ways for name in sides}
        taken = measure.samples(clocks, item.turns, SECONDS)
    finally:
        for side in sides.values():
            side.ask()
    quick = {key: sorted(times)[len(times) // 4] for key, times in taken.items()}
    first, again, second = (quick[name, OURS] for name in SIDES)
    # One baseline for all, of all processes' turns: its own noise is in both values.
    base = median(quick[name, item.baseline] for name in SIDES)
    both = (first * again) ** 0.5
    return Session(log(second / both), abs(log(again / first)), both / base, second / base)


def measured(chosen, pythons, times, fresh, tell):
    """Sessions by item. `fresh`: each in new processes."""
    found = {item: [] for item in chosen}
    rounds = [(chosen, 1)] * times if fresh else [(chosen, times)]
    for part, repeats in rounds:
        with ExitStack() as stack:
            sides = {}
            for name in SIDES:
                sides[name] = Side(pythons[name])
                stack.callback(sides[name].close)
            for item in part:
                tell(item)
                for _ in range(repeats):
                    made = session(item, sides)
                    if made is not None:
                        found[item].append(made)
    return {item: made for item, made in found.items() if made}


def verdict(item, sessions):
    """Slower, if most sessions say so and by more than 10 % and than the noise.

    The noise is what most sessions of one commit beside itself stayed within.
    """
    change = median(s.change for s in sessions)
    noises = sorted(s.noise for s in sessions)
    # Of three sessions all count, of six one may have been disturbed.
    odd = len(sessions) // 6
    noise = noises[-1 - odd]
    steady = sum(s.change > SUSPECT for s in sessions) >= len(sessions) - odd
    slower = steady and change > _least(noise)
    first, second = median(s.first for s in sessions), median(s.second for s in sessions)
    unit = f"time / {item.baseline}'s"
    factors = exp(noise) - 1, slower, exp(change) - 1, steady
    return Verdict(str(item), unit, first, second, *factors)


def _least(noise):
    """The logarithm of the least ratio of ratios that counts."""
    return max(log(1 + WORSE), noise)


def timed(chosen, pythons, tell=lambda item: None):
    """A Verdict an item: those that look slower are looked at again, in new processes."""
    verdicts, usual = {}, 0.0
    for stage, times in enumerate(SESSIONS):
        if not chosen:
            break
        sessions = measured(chosen, pythons, times, stage > 0, tell)
        if stage == 0:
            noises = sorted(s.noise for made in sessions.values() for s in made)
            usual = noises[len(noises) * 9 // 10] if noises else 0.0
        found = {item: verdict(item, made) for item, made in sessions.items()}
        verdicts |= found
        chosen = [item for item, v in found.items() if _doubtful(v, stage, usual)]
    return list(verdicts.values())


def _doubtful(v, stage, usual):
    """Whether to look again: always where something seems slower for the first time.

    Then no longer at what only some sessions saw, nor at what is slower by twice
    as much as needs be with the noise that this run has as a rule.
    """
    change = log(1 + v.change)
    if stage == 0:
        return change > SUSPECT
    return v.steady and change <= 2 * max(_least(log(1 + v.noise)), usual)


def counted(chosen, pythons):
    """A Verdict a counter: no noise, no turns."""
    found = []
    # A counter class may count what its process did before.
    for kind in dict.fromkeys(item.kind for item in chosen):
        own = [item for item in chosen if item.kind == kind]
        found += _counted(own, pythons)
    return found


def _counted(chosen, pythons):
    found = []
    with ExitStack() as stack:
        sides = []
        for name in ("first", "second"):
            sides.append(Side(pythons[name]))
            stack.callback(sides[-1].close)
        for item in chosen:
            replies = [s.ask(count=item.kind, method=item.method, case=item.case) for s in sides]
            if not replied(item, replies):
                continue
            first, second = (reply["value"] for reply in replies)
            change = second / first - 1 if first else (float("inf") if second else 0.0)
            slower = change > WORSE
            found.append(Verdict(str(item), item.unit, first, second, 0.0, slower, change))
    return found


def compare(repository, first, second, folder, chosen, tell=lambda item: None):
    """The Verdicts over two commits of a repository."""
    commits = {"first": first, "second": second}
    with ThreadPoolExecutor() as pool:
        made = pool.map(
            lambda side: install(repository, commits[side], Path(folder, side)), commits
        )
        pythons = dict(zip(commits, made, strict=True))
    pythons["again"] = pythons["first"]
    different = versions(pythons["first"]) ^ versions(pythons["second"])
    if different:
        raise InstallError(f"the environments differ in {', '.join(sorted(different))}")
    counters = [item for item in chosen if item.method]
    ratios = [item for item in chosen if not item.method]
    return counted(counters, pythons) + timed(ratios, pythons, tell)


def text(verdicts):
    """What is slower, with both values and the noise; what is faster; how many there were."""
    lines = [
        f"slower: {v.benchmark}: {v.first:.4g} -> {v.second:.4g} {v.unit}, "
        f"{v.change:+.0%}, noise {v.noise:.0%}"
        for v in verdicts
        if v.slower
    ]
    faster = [v for v in verdicts if v.change < -max(WORSE, v.noise)]
    lines += [
        f"faster: {v.benchmark}: {v.first:.4g} -> {v.second:.4g} {v.unit}, {v.change:+.0%}"
        for v in faster
    ]
    slower = sum(v.slower for v in verdicts)
    noises = sorted(v.noise for v in verdicts)
    lines.append(
        f"{len(verdicts)} compared, {slower} slower; "
        f"noise {median(noises):.0%} in the middle, {noises[-1]:.0%} at most"
    )
    return "\n".join(lines)


def main(argv=None):
    """0 nothing is slower, 1 something is, 2 bad arguments."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.compare",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("first", metavar="A")
    parser.add_argument("second", metavar="B")
    parser.add_argument("--bench", action="append", default=[], metavar="REGEX")
    parser.add_argument("--all", action="store_true", help="all cases, not only a choice of them")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--repository", default=ROOT, metavar="FOLDER", help="another clone")
    parser.add_argument(
        "--environments", metavar="FOLDER", help="keep the environments there, and use them again"
    )
    args = parser.parse_args(argv)
    try:
        commits = [commit_named(name, args.repository) for name in (args.first, args.second)]
        chosen = items(args.bench, args.all)
        if not chosen:
            raise RecordError(f"no benchmark matches {' and '.join(args.bench)}")
        with tempfile.TemporaryDirectory(prefix="shapejit-compare-") as folder:
            place = args.environments or folder
            found = compare(args.repository, *commits, place, chosen, _tell)
    except (RecordError, InstallError, re.error, OSError) as fault:
        print(f"compare: error: {fault}", file=sys.stderr)
        return 2
    except CaseError as fault:
        print(f"compare: a benchmark fails: {fault}", file=sys.stderr)
        return 1
    print(json.dumps([asdict(v) for v in found], indent=1) if args.json else text(found))
    return int(any(v.slower for v in found))


def _tell(item):
    if sys.stderr.isatty():
        print(f"\r\033[K{item}", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
