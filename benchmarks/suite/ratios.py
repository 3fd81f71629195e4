"""Ratios of each case: our time divided by that of memcpy, of NumPy, or of the call itself.

A suite of `shapejit bench` is a class with the cases that the history has, or, with
SHAPEJIT_BENCHMARKS=all in the environment, with all cases. Lower is better.
"""

import os
import re
from contextlib import nullcontext
from statistics import geometric_mean, median

from .ratio_benchmark import TURNS, ratios
from .tables import OURS, batches, measure, pair, suites

EVERYTHING = os.environ.get("SHAPEJIT_BENCHMARKS") == "all"
FEW_TURNS = 3
SUITES = {name: suites.recorded(name, EVERYTHING) for name, suite in suites.SUITES.items()}
SUITES = {name: cases for name, cases in SUITES.items() if cases}


class _Ratios:
    """Time over that of a baseline."""

    param_names = ("case",)
    timeout = 300

    def setup(self, case):
        with self.surroundings():
            self.ways = pair(self.cases[case], self.baseline)

    def surroundings(self):
        """What runs beside these cases."""
        return batches.spinning() if self.suite == suites.BUSY else nullcontext()

    def measured(self, case, turns=TURNS):
        """Ratios, one a turn."""
        with self.surroundings():
            return ratios(measure, self.ways, turns)


def _class(name, cases):
    """The benchmark class of a suite."""
    suite = suites.SUITES[name]
    word = re.sub(r"\W+", "_", suite.baseline).strip("_")

    def ratio(self, case, turns=TURNS):
        return self.measured(case, turns)

    ratio.unit = f"time / {suite.baseline}'s"
    facts = {"suite": name, "cases": cases, "params": list(cases), "baseline": suite.baseline}
    title = name.title().replace("-", "")
    return type(title, (_Ratios,), {**facts, "version": suite.version, f"ratio_over_{word}": ratio})


for _name, _cases in SUITES.items():
    _made = _class(_name, _cases)
    globals()[_made.__name__] = _made
del _made  # asv takes every class of a module


class Control(_Ratios):
    """The same call twice: its own baseline. How far its ratio is from 1 is the noise."""

    suite = ""
    cases = {
        case: SUITES[case.split("/")[0]][case.split("/", 1)[1]]
        for case in ("calls/reshape-sliced/ndarray", "small/8x8/uint8", "ttc/ttc-01/float32")
    }
    params = list(cases)
    version = "1"

    def setup(self, case):
        # One pair of arrays: two would lie differently, which the ratios do not.
        suite = suites.SUITES[case.split("/")[0]]
        way = pair(self.cases[case], suite.baseline)[OURS]
        self.ways = {OURS: way, "again": way}

    def ratio_over_itself(self, case, turns=TURNS):
        return self.measured(case, turns)

    ratio_over_itself.unit = "time / its own"


class Means:
    """The geometric mean of a suite's ratios, each of few turns; n/a where a case is"""

    params = [name for name in SUITES if name not in (suites.BUSY, "first-call")]
    param_names = ("suite",)
    timeout = 300
    version = "2"

    def setup(self, name):
        suite = suites.SUITES[name]
        cases = (SUITES[name][case] for case in suite.recorded)
        pairs = (pair(case, suite.baseline) for case in cases)
        self.ratios = [median(ratios(measure, ways, FEW_TURNS)) for ways in pairs]

    def track_geometric_mean(self, name):
        return geometric_mean(self.ratios)

    track_geometric_mean.unit = "time / the baseline's"
