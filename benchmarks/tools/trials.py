"""Two sources of the package measured interleaved, each in a process that is asked by pipe."""

import os
import re
import sys
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from math import log
from statistics import median
from typing import NamedTuple

from ..suite.tables import __file__ as TABLES, measure, pipe, suites
from .exits import MeasureError

SIDES = ("first", "again", "second")
TURNS, SECONDS = 6, 0.003


class Source(NamedTuple):
    """A folder that the package is imported from, and names that have other values there."""

    folder: str
    ablated: dict = {}


def chosen(patterns=(), everything=False):
    """The cases that the history has, or all of them: {id: baseline}."""
    # Processes are slow to start, again and again; busy ones disturb the other side.
    left_out = {"busy", "first-call"}
    return {
        case.id: suite.baseline
        for name, suite in suites.SUITES.items()
        if name not in left_out
        for case in suites.recorded(name, everything).values()
        if all(re.search(p, case.id) for p in patterns)
    }


class CaseError(Exception):
    """A side that cannot do what it is asked: its name, and why."""


class Side(pipe.Process):
    """A process in which the package of one source is measured."""

    def __init__(self, name, source):
        environment = {k: v for k, v in os.environ.items() if not k.startswith("NUMBA_CACHE")}
        environment |= {"PYTHONHASHSEED": "0", "PYTHONPATH": source.folder}
        super().__init__(sys.executable, TABLES, environment=environment)
        self.name, self.source = name, source

    def run(self, way, calls):
        """Seconds of so many calls, by the process's own clock."""
        reply = self.ask(run=way, calls=calls, before=1)
        if "failed" in reply:
            raise CaseError(self.name, reply["failed"])
        return reply["seconds"]


@contextmanager
def started(sources):
    """The processes by name; each has ended with the block."""
    with ExitStack() as stack:
        sides = {}
        for name in SIDES:
            sides[name] = Side(name, sources[name])
            stack.callback(sides[name].close)
        for side in sides.values():
            found = side.ask(ablate=side.source.ablated) if side.source.ablated else {}
            if "failed" in found:
                raise MeasureError(found["failed"])
        yield sides


@dataclass(frozen=True)
class Left:
    """Why a case was not compared; `fails`: on the second side alone."""

    benchmark: str
    reason: str
    fails: bool


def left(case, replies):
    """What stands in the way of comparing, by the sides' replies; None where nothing does."""
    for name in (name for name in SIDES if name in replies):
        reply = replies[name]
        which = "second" if name == "second" else "first"
        if "failed" in reply:
            reason = f"fails on the {which} commit: {reply['failed']}"
            return Left(case, reason, fails=name == "second")
        if "missing" in reply:
            reason = f"the {which} commit lacks it: {reply['missing']}"
            return Left(case, reason, fails=False)
    return None


@dataclass
class Trial:
    """log(second / first) and |log(again / first)| of one trial, and the first's ratio."""

    change: float
    noise: float
    first: float


def trial(case, baseline, sides):
    """All sides are interleaved at one case, in new memory: a Trial, or what is Left."""
    try:
        for side in sides.values():
            side.send(take=case, baseline=baseline)
        replies = {name: side.reply() for name, side in sides.items()}
        hindrance = left(case, replies)
        if hindrance is not None:
            return hindrance
        ways = ("ours", "baseline")
        clocks = {(name, way): partial(sides[name].run, way) for way in ways for name in sides}
        taken = measure.samples(clocks, TURNS, SECONDS)
    except CaseError as fault:
        side, reason = fault.args
        return left(case, {side: {"failed": reason}})
    finally:
        for side in sides.values():
            side.ask()
    quick = {key: sorted(times)[len(times) // 4] for key, times in taken.items()}
    first, again, second = (quick[name, "ours"] for name in SIDES)
    # One baseline for all, of all processes' turns: its own noise is in both values.
    base = median(quick[name, "baseline"] for name in SIDES)
    both = (first * again) ** 0.5
    return Trial(log(second / both), abs(log(again / first)), both / base)


def measured(cases, sources, times, fresh, tell):
    """Trials by case, and what is Left by case. `fresh`: each trial in new processes."""
    found, hindered = {}, {}
    for case, baseline in cases.items():
        tell(case)
        trials = []
        for repeats in [1] * times if fresh else [times]:
            with started(sources) as sides:
                trials += [trial(case, baseline, sides) for _ in range(repeats)]
            lefts = [made for made in trials if isinstance(made, Left)]
            if lefts:
                hindered[case] = lefts[0]
                break
        else:
            found[case] = trials
    return found, hindered
