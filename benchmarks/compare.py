"""Compare two commits in one run, and fail if the second is slower.

Each is installed into an environment of its own. Three processes, two of the
first commit and one of the second, take turns at every benchmark; the two of one
commit say what noise there is. A benchmark is reported when time / memcpy's (or
NumPy's, where there is nothing to copy) got worse by more than 10 % and by more
than the noise, again and again in new processes. Exit code 0: none is; 1: some
are; 2: bad arguments, or a commit that cannot be installed.
"""

import argparse
import json
import re
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from math import exp, log
from pathlib import Path
from statistics import median

from .catalogue import items
from .installs import InstallError, differing, install
from .record import ROOT, RecordError, commit_named
from .trials import CaseError, Side, measured, replied

WORSE = 0.10
SUSPECT = 0.05  # a logarithm
# Trials of all, then of those that were slower, in new processes each time.
TRIALS = (2, 3, 6)


@dataclass(frozen=True)
class Verdict:
    """Both values and the noise of one item, `change` a fraction of the first value.

    `steady`: most trials saw it worse; `slower`: and by more than the noise.
    """

    benchmark: str
    unit: str
    first: float
    second: float
    noise: float
    slower: bool
    change: float
    steady: bool = True


def verdict(item, trials):
    """Slower, if most trials say so and by more than 10 % and than the noise.

    The noise is what most trials of one commit beside itself stayed within.
    """
    change = median(s.change for s in trials)
    noises = sorted(s.noise for s in trials)
    # Of three trials all count, of six one may have been disturbed.
    odd = len(trials) // 6
    noise = noises[-1 - odd]
    steady = sum(s.change > SUSPECT for s in trials) >= len(trials) - odd
    slower = steady and change > _least(noise)
    first, second = median(s.first for s in trials), median(s.second for s in trials)
    unit = f"time / {item.baseline}'s"
    factors = exp(noise) - 1, slower, exp(change) - 1, steady
    return Verdict(str(item), unit, first, second, *factors)


def _least(noise):
    """The logarithm of the least ratio of ratios that counts."""
    return max(log(1 + WORSE), noise)


def timed(chosen, pythons, tell=lambda item: None):
    """A Verdict an item: those that look slower are looked at again, in new processes."""
    verdicts, usual = {}, 0.0
    for stage, times in enumerate(TRIALS):
        if not chosen:
            break
        trials = measured(chosen, pythons, times, stage > 0, tell)
        if stage == 0:
            noises = sorted(s.noise for made in trials.values() for s in made)
            usual = noises[len(noises) * 9 // 10] if noises else 0.0
        found = {item: verdict(item, made) for item, made in trials.items()}
        verdicts |= found
        chosen = [item for item, v in found.items() if _doubtful(v, stage, usual)]
    return list(verdicts.values())


def _doubtful(v, stage, usual):
    """Whether to look again: always where something seems slower for the first time.

    Then no longer at what only some trials saw, nor at what is slower by twice
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
            try:
                if not replied(replies):
                    continue
            except CaseError as fault:
                raise CaseError(f"{item}: {fault}") from None
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
    different = differing(pythons["first"], pythons["second"])
    if different:
        raise InstallError(f"the environments have other versions of {', '.join(different)}")
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
    noises = [v.noise for v in verdicts] or [0.0]
    lines.append(
        f"{len(verdicts)} compared, {slower} slower; "
        f"noise {median(noises):.0%} in the middle, {max(noises):.0%} at most"
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
