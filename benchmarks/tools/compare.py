"""Compare two commits in one run, and fail if the second is slower.

Each is installed into an environment of its own. Three processes, two of the
first commit and one of the second, take turns at every benchmark. A benchmark is
reported when time / memcpy's (or NumPy's, where there is nothing to copy) got
worse by more than 10 % (--least) and by more than the noise: what the two processes of one
commit differ by, and what the change itself differs by from session to session;
what seems to differ is measured again in new processes. Exit code 0: none is slower; 1: some are,
or fail on the second commit alone; 2: bad arguments, a commit that cannot be installed, or nothing
that could be compared.
"""

import json
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from math import exp, log
from pathlib import Path
from statistics import fmean, median

from . import exits
from .exits import SAME, MeasureError, ending, parser_of
from .installs import InstallError, differing, install
from .repository import ROOT, RecordError, commit_named
from .trials import Sides, items, left, measured

WORSE = 0.10
# Trials of all, then of those that differ, in new processes each time.
TRIALS = (2, 3, 6)


@dataclass(frozen=True)
class Verdict:
    """Both values of one item, its change and the noise as fractions of the first value."""

    benchmark: str
    unit: str
    first: float
    second: float
    noise: float
    slower: bool
    faster: bool
    change: float


@dataclass(frozen=True)
class Found:
    """What was compared, and what could not be."""

    verdicts: list
    left: list

    @property
    def slower(self):
        """What is slower on the second commit."""
        return [v for v in self.verdicts if v.slower]

    @property
    def faster(self):
        """What is faster on the second commit."""
        return [v for v in self.verdicts if v.faster]

    @property
    def fails(self):
        """What fails on the second commit alone."""
        return [one for one in self.left if one.fails]


def verdict(item, trials, worse=WORSE):
    """Slower, or faster, if by more than `worse` and by more than the noise.

    The noise is what the trials of one commit beside itself stayed within, and
    what the change in any trial fell short of the change that is reported.
    """
    changes, noises = sorted(s.change for s in trials), sorted(s.noise for s in trials)
    # Of three trials all count, of six one may have been disturbed.
    odd = len(trials) // 6
    change = median(changes)
    short = change - changes[odd] if change > 0 else changes[-1 - odd] - change
    noise = max(noises[-1 - odd], short)
    first, factor, least = median(s.first for s in trials), exp(change), _least(noise, worse)
    values = first, first * factor, exp(noise) - 1
    return Verdict(str(item), item.unit, *values, change > least, change < -least, factor - 1)


def _least(noise, worse):
    """The logarithm of the least ratio of ratios that counts."""
    return max(log(1 + worse), noise)


def timed(chosen, pythons, tell=lambda item: None, worse=WORSE):
    """What is Found of ratios: what seems to differ is looked at again, in new processes."""
    verdicts, hindered, usual = {}, {}, 0.0
    for stage, times in enumerate(TRIALS):
        if not chosen:
            break
        trials, more = measured(chosen, pythons, times, stage > 0, tell)
        hindered |= more
        if stage == 0:
            noises = sorted(s.noise for made in trials.values() for s in made)
            usual = noises[len(noises) * 9 // 10] if noises else 0.0
        found = {item: verdict(item, made, worse) for item, made in trials.items()}
        verdicts |= found
        chosen = [item for item, v in found.items() if _doubtful(v, stage, usual, worse)]
    return Found([v for item, v in verdicts.items() if item not in hindered], [*hindered.values()])


def _doubtful(v, stage, usual, worse):
    """Whether to look again: always where something seems to differ for the first time.

    Then no longer at what differs by twice as much as needs be with the noise
    that it, and this run as a rule, has.
    """
    change = abs(log(1 + v.change))
    if stage == 0:
        return change > log(1 + worse) / 2
    return log(1 + worse) < change <= 2 * max(_least(log(1 + v.noise), worse), usual)


def counted(chosen, pythons):
    """What is Found of counters: no noise, no turns."""
    found = Found([], [])
    if not chosen:
        return found
    with Sides(pythons, ("first", "second")) as sides:
        for item in chosen:
            sides.revive()
            replies = {n: side.ask(count=item.counter, call=item.case) for n, side in sides.items()}
            hindrance = left(item, replies)
            if hindrance is not None:
                found.left.append(hindrance)
                continue
            first, second = (replies[name]["value"] for name in ("first", "second"))
            change = second / first - 1 if first else (float("inf") if second else 0.0)
            marks = change > WORSE, change < -WORSE
            found.verdicts.append(Verdict(str(item), item.unit, first, second, 0.0, *marks, change))
    return found


def compare(repository, first, second, folder, chosen, tell=lambda item: None, worse=WORSE):
    """What is Found over two commits of a repository."""
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
    return of_places(pythons, chosen, tell, worse)


def of_places(pythons, chosen, tell=lambda item: None, worse=WORSE):
    """What is Found over "first" and "second", and "again", which is the first once more."""
    numbers = counted([item for item in chosen if item.counter], pythons)
    times = timed([item for item in chosen if not item.counter], pythons, tell, worse)
    return Found(numbers.verdicts + times.verdicts, numbers.left + times.left)


def means(verdicts):
    """The geometric mean of second over first per suite, and of how many: {suite: (mean, n)}."""
    changes = {}
    for v in verdicts:
        suite, slash, _ = v.benchmark.partition("/")
        if slash and v.first and v.second:
            changes.setdefault(suite, []).append(log(1 + v.change))
    return {suite: (exp(fmean(made)), len(made)) for suite, made in changes.items()}


def text(found):
    """What is slower, with both values and the noise; what is faster; what was not compared.

    Between them the mean of each suite.
    """
    lines = [
        f"slower: {v.benchmark}: {v.first:.4g} -> {v.second:.4g} {v.unit}, "
        f"{v.change:+.0%}, noise {v.noise:.0%}"
        for v in found.slower
    ]
    lines += [
        f"faster: {v.benchmark}: {v.first:.4g} -> {v.second:.4g} {v.unit}, {v.change:+.0%}"
        for v in found.faster
    ]
    lines += [
        f"suite {suite}: {mean - 1:+.1%} in the mean of {count}"
        for suite, (mean, count) in means(found.verdicts).items()
    ]
    lines += [f"not compared: {one.benchmark}: {one.reason}" for one in found.left]
    noises = [v.noise for v in found.verdicts] or [0.0]
    lines.append(
        f"{len(found.verdicts)} compared, {len(found.slower)} slower, {len(found.left)} left; "
        f"noise {median(noises):.0%} in the middle, {max(noises):.0%} at most"
    )
    return "\n".join(lines)


@ending
def main(argv=None):
    """0 nothing is slower, 1 something is or fails, 2 bad arguments or nothing to compare."""
    args = _parsed(argv)
    with tempfile.TemporaryDirectory(prefix="shapejit-compare-") as folder:
        chosen = items(args.bench, args.all)
        if not chosen:
            raise RecordError(f"no benchmark matches {' and '.join(args.bench)}")
        commits = [commit_named(name, args.repository) for name in args.commits]
        place = args.environments or folder
        found = compare(args.repository, *commits, place, chosen, tell, args.least / 100)
    print(json.dumps(asdict(found), indent=1) if args.json else text(found))
    return code(found)


def code(found):
    """The exit code: 1 where something is slower or fails."""
    if not found.verdicts and not found.fails:
        raise MeasureError("nothing could be compared")
    return exits.WORSE if found.slower or found.fails else SAME


def _parsed(argv):
    parser = parser_of(__file__, __doc__)
    add = parser.add_argument
    add("commits", nargs=2, metavar="COMMIT")
    add("--bench", action="append", default=[], metavar="REGEX")
    add("--all", action="store_true", help="all cases, not only a choice of them")
    add("--least", type=float, default=100 * WORSE, metavar="PERCENT", help="that count as slower")
    add("--json", action="store_true")
    add("--repository", default=ROOT, metavar="FOLDER", help="another clone")
    add("--environments", metavar="FOLDER", help="keep the environments there, to use them again")
    return parser.parse_args(argv)


def tell(item):
    """Show on a terminal what is measured."""
    if sys.stderr.isatty():
        print(f"\r\033[K{item}", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
