"""Compare two commits in one run, and fail if the second is slower.

The sources of each are extracted into a folder of its own, and run by this Python. Three processes,
two of the first commit and one of the second, run each case interleaved. A case is reported if time
/ memcpy's (or NumPy's, if nothing is copied) got worse by more than 10 % (--least) and by more than
the noise: the difference between the two processes of one commit, and the variation of the change
between sessions. Cases that seem to differ are measured again in new processes. With --with the
second side has other values of module variables, which shows what a strategy or a threshold gains.
Exit code 0: none is slower; 1: some are, or fail on the second commit alone; 2: bad arguments, or
nothing that could be compared.
"""

import ast
import sys
import tempfile
from collections import defaultdict
from dataclasses import dataclass
from math import exp, log
from pathlib import Path
from statistics import geometric_mean, median

from . import exits
from .exits import SAME, MeasureError, ending, parser_of
from .repository import ROOT, RecordError, commit_named, extract
from .trials import Source, chosen, measured

WORSE = 0.10
TRIALS, AGAIN = 2, 6  # of all cases; of those that seem to differ, in new processes each time


@dataclass(frozen=True)
class Verdict:
    """Both values of one case, its change and the noise as fractions of the first value."""

    benchmark: str
    unit: str
    first: float
    second: float
    noise: float
    slower: bool
    faster: bool
    change: float


@dataclass(frozen=True)
class Comparisons:
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


def verdict(case, baseline, trials, worse=WORSE):
    """Slower, or faster, if by more than `worse` and by more than the noise.

    The noise is what the trials of one commit beside itself stayed within, and
    what the change in any trial fell short of the change that is reported.
    """
    changes, noises = sorted(s.change for s in trials), sorted(s.noise for s in trials)
    # Of few trials all count, of six one may have been disturbed.
    odd = len(trials) // 6
    change = median(changes)
    short = change - changes[odd] if change > 0 else changes[-1 - odd] - change
    noise = max(noises[-1 - odd], short)
    first, factor, least = median(s.first for s in trials), exp(change), max(log(1 + worse), noise)
    values = first, first * factor, exp(noise) - 1
    unit = f"time / {baseline}'s"
    return Verdict(case, unit, *values, change > least, change < -least, factor - 1)


def timed(cases, sources, tell=lambda case: None, worse=WORSE):
    """The Comparisons of all cases: what seems to differ is looked at again, in new processes."""
    verdicts, hindered = {}, {}
    for times, fresh in ((TRIALS, False), (AGAIN, True)):
        trials, more = measured(cases, sources, times, fresh, tell)
        hindered |= more
        verdicts |= {case: verdict(case, cases[case], made, worse) for case, made in trials.items()}
        differ = log(1 + worse) / 2
        cases = {
            case: cases[case] for case in trials if abs(log(1 + verdicts[case].change)) > differ
        }
    return Comparisons(
        [v for case, v in verdicts.items() if case not in hindered], [*hindered.values()]
    )


def means(verdicts):
    """The geometric mean of second over first per suite, and of how many: {suite: (mean, n)}."""
    factors = defaultdict(list)
    for v in verdicts:
        factors[v.benchmark.partition("/")[0]].append(1 + v.change)
    return {suite: (geometric_mean(made), len(made)) for suite, made in factors.items()}


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


def given(word):
    """MODULE.NAME=VALUE, a Python literal."""
    name, found, value = word.partition("=")
    try:
        if not found or "." not in name:
            raise ValueError
        return name, ast.literal_eval(value)
    except (ValueError, SyntaxError):
        raise MeasureError(f"{word}: wants MODULE.NAME=VALUE, the value a literal") from None


@ending
def main(argv=None):
    """0 nothing is slower, 1 something is or fails, 2 bad arguments or nothing to compare."""
    args = _parsed(argv)
    cases = chosen(args.bench, args.all)
    if not cases:
        raise RecordError(f"no benchmark matches {' and '.join(args.bench)}")
    commits = [commit_named(name, args.repository) for name in args.commits]
    with tempfile.TemporaryDirectory(prefix="shapejit-compare-") as folder:
        first, second = (
            Source(extract(commit, Path(folder, str(k)), args.repository))
            for k, commit in enumerate(commits)
        )
        second = second._replace(ablated=dict(map(given, args.ablated)))
        sources = {"first": first, "again": first, "second": second}
        found = timed(cases, sources, tell, args.least / 100)
    print(text(found))
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
    add("--with", action="append", default=[], metavar="MODULE.NAME=VALUE", dest="ablated",
        help="a literal that a name of the second side's modules has")  # fmt: skip
    add("--least", type=float, default=100 * WORSE, metavar="PERCENT", help="that count as slower")
    add("--repository", default=ROOT, metavar="FOLDER", help="another clone")
    return parser.parse_args(argv)


def tell(case):
    """Show on a terminal what is measured."""
    if sys.stderr.isatty():
        print(f"\r\033[K{case}", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
