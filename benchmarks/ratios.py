"""What the benchmark classes are made of: ratios measured in turns, and plain times.

A class says which cases there are (`params`) and how one is run (`ways`); the
rest is here. These classes are abstract, so that asv takes none for a benchmark.
"""

import os
from abc import ABC, abstractmethod
from contextlib import ExitStack
from importlib import import_module
from itertools import repeat
from pkgutil import resolve_name

from .tables import cases, measure

# What is measured is compiled, however few bytes it moves.
os.environ.setdefault("SHAPEJIT_PATIENCE", "0")

NBYTES = 32 * cases.MIB  # of an array, unless its case says more; tests take less
SECONDS = 0.003  # a turn

OURS = "shapejit"


def installed(*names):
    """The package that is measured, which has these names.

    Otherwise NotImplementedError: asv then records "n/a". A package that cannot
    be imported is another fault.
    """
    package = import_module(OURS)
    for name in names:
        try:
            resolve_name(f"{OURS}.{name}")
        except (AttributeError, ImportError):
            raise NotImplementedError(f"this {OURS} has no {name}") from None
    return package


def seconds(ways, turns):
    """What a call of each way takes: its lower quartile, since others' work can only add."""
    clocks = {name: measure.clock(way) for name, way in ways.items()}
    taken = measure.samples(clocks, turns, SECONDS)
    return {name: sorted(times)[len(times) // 4] for name, times in taken.items()}


class Ratios(ABC):
    """Time over that of baselines, all taking turns in one process."""

    params = []
    param_names = ("case",)
    baseline = ""  # what `compare` measures beside
    compared = None  # the cases that `compare` takes unasked; None: all
    turns = 13
    timeout = 300

    def __init__(self):
        # Files that `ways` needs as long as its functions are called.
        self.kept = ExitStack()

    @property
    @abstractmethod
    def version(self):
        """Set by hand: history survives an edit that leaves the measurement as it is."""

    @abstractmethod
    def ways(self, case):
        """Functions without arguments by name: "shapejit", then its baselines.

        Raises NotImplementedError where `installed` finds something missing.
        """

    @abstractmethod
    def setup_cache(self):
        """What `measured` returns, in each class: asv tells the caches apart by their lines."""

    def measured(self):
        """Seconds of each way, by case; None is n/a, a text what went wrong."""
        found = {}
        for case in self.params:
            try:
                found[case] = seconds(self.ways(case), self.turns)
            except NotImplementedError:
                found[case] = None
            except Exception as fault:  # the other cases are measured all the same
                found[case] = f"{type(fault).__name__}: {fault}"
            finally:
                self.kept.close()
        return found

    def setup(self, found, case):
        if found[case] is None:
            raise NotImplementedError(case)
        if isinstance(found[case], str):
            raise RuntimeError(found[case])

    def over(self, found, case, baseline):
        """The ratio: below 1 is faster than the baseline."""
        return found[case][OURS] / found[case][baseline]


class OverMemcpy(Ratios):
    """Beside memcpy of as many bytes on all threads."""

    baseline = "memcpy"

    def track_over_memcpy(self, found, case):
        return self.over(found, case, "memcpy")

    track_over_memcpy.unit = "time / memcpy's"


class OverNumpy(Ratios):
    """Beside what one writes with NumPy alone."""

    baseline = "numpy"

    def track_over_numpy(self, found, case):
        return self.over(found, case, "numpy")

    track_over_numpy.unit = "time / NumPy's"


class Time(ABC):
    """Seconds of some cases of the Ratios `of`, by asv's own clock."""

    @property
    @abstractmethod
    def version(self):
        """Set by hand, as of Ratios."""

    of = Ratios
    params = []
    param_names = ("case",)
    rounds = 1
    repeat = (3, 15, 0.3)
    warmup_time = 0.05
    timeout = 120

    def setup(self, case):
        # asv sets up before each sample: the arrays and the kernels are kept.
        if not hasattr(self, "way"):
            self.way = self.of().ways(case)[OURS]
            self.way()


class TimeOfACall(Time):
    """Copies: a sample is a call."""

    def time_call(self, case):
        self.way()


class TimeOfAThousandCalls(Time):
    """Calls of microseconds: a sample is a thousand."""

    def time_thousand_calls(self, case):
        way = self.way
        for _ in repeat(None, 1000):
            way()
