"""Two commits measured interleaved: a process for each side, asked by pipe."""

import os
import re
from dataclasses import dataclass
from math import log
from statistics import median

from ..suite.counters import CALLS
from ..suite.tables import measure, pipe, suites
from .exits import MeasureError
from .installs import Place
from .worker import __file__ as WORKER

SIDES = ("first", "again", "second")
TURNS, SECONDS = 6, 0.003


@dataclass(frozen=True)
class Item:
    """What is compared: a case beside its baseline, or a counter."""

    case: str
    baseline: str = ""
    counter: str = ""

    def __str__(self):
        return f"{self.counter}({self.case})" if self.counter else self.case

    @property
    def unit(self):
        """Of what is compared."""
        return "bytes" if self.counter else f"time / {self.baseline}'s"


def items(patterns=(), everything=False):
    """The cases that the history has, or all of them; and the counters."""
    # Processes are slow to start, again and again; busy ones disturb the other side.
    left_out = {"busy", "first-call"}
    found = [
        Item(case.id, suites.SUITES[name].baseline)
        for name in suites.SUITES
        if name not in left_out
        for case in suites.recorded(name, everything).values()
    ]
    found += [Item(call, counter="Allocated") for call in CALLS]
    return [item for item in found if all(re.search(p, str(item)) for p in patterns)]


class CaseError(Exception):
    """A side that cannot do what it is asked."""

    def __init__(self, side, reason):
        super().__init__(side, reason)
        self.side = side
        self.reason = reason


class Side(pipe.Process):
    """A process in which one commit is measured."""

    def __init__(self, name, place):
        place = place if isinstance(place, Place) else Place(place)
        environment = {k: v for k, v in os.environ.items() if not k.startswith("NUMBA_CACHE")}
        environment |= {"PYTHONHASHSEED": "0"}
        environment.pop("PYTHONPATH", None)
        if place.folder:
            environment["PYTHONPATH"] = place.folder
        super().__init__(place.python, WORKER, environment=environment)
        self.name = name
        found = self.ask(ablate=place.ablated) if place.ablated else {}
        if "failed" in found:
            self.close()
            raise MeasureError(found["failed"])

    def clock(self, way):
        """Seconds of so many calls, by the process's own clock."""

        def run(calls):
            reply = self.ask(run=way, calls=calls)
            if "failed" in reply:
                raise CaseError(self.name, reply["failed"])
            return reply["seconds"]

        return run


class Sides(dict):
    """The processes by name, within a with-statement; those that ended are begun anew."""

    def __init__(self, pythons, names=SIDES):
        super().__init__()
        self._pythons = {name: pythons[name] for name in names}

    def __enter__(self):
        try:
            self.revive()
        except MeasureError:
            self.__exit__()
            raise
        return self

    def revive(self):
        """Let every process be one that answers."""
        for name, python in self._pythons.items():
            if name in self and self[name].ended:
                self.pop(name).close()
            if name not in self:
                self[name] = Side(name, python)

    def __exit__(self, *_):
        for side in self.values():
            side.close()


@dataclass(frozen=True)
class Left:
    """Why a benchmark was not compared; `fails`: on the second commit alone."""

    benchmark: str
    reason: str
    fails: bool


def left(item, replies):
    """What stands in the way of comparing, by the sides' replies; None where nothing does."""
    for name in (name for name in SIDES if name in replies):
        reply = replies[name]
        which = "second" if name == "second" else "first"
        if "failed" in reply:
            reason = f"fails on the {which} commit: {reply['failed']}"
            return Left(str(item), reason, fails=name == "second")
        if "missing" in reply:
            reason = f"the {which} commit lacks it: {reply['missing']}"
            return Left(str(item), reason, fails=False)
    return None


@dataclass
class Trial:
    """log(second / first) and |log(again / first)| of one trial, and the first's ratio."""

    change: float
    noise: float
    first: float


def trial(item, sides):
    """All sides are interleaved at one case, in new memory: a Trial, or what is Left."""
    try:
        for side in sides.values():
            side.send(take=item.case, baseline=item.baseline)
        replies = {name: side.reply() for name, side in sides.items()}
        hindrance = left(item, replies)
        if hindrance is not None:
            return hindrance
        ways = ("ours", "baseline")
        clocks = {(name, way): sides[name].clock(way) for way in ways for name in sides}
        taken = measure.samples(clocks, TURNS, SECONDS)
    except CaseError as fault:
        return left(item, {fault.side: {"failed": fault.reason}})
    finally:
        for side in sides.values():
            side.ask()
    quick = {key: sorted(times)[len(times) // 4] for key, times in taken.items()}
    first, again, second = (quick[name, "ours"] for name in SIDES)
    # One baseline for all, of all processes' turns: its own noise is in both values.
    base = median(quick[name, "baseline"] for name in SIDES)
    both = (first * again) ** 0.5
    return Trial(log(second / both), abs(log(again / first)), both / base)


def measured(chosen, pythons, times, fresh, tell):
    """Trials by item, and what is Left by item. `fresh`: each trial in new processes."""
    found, hindered = {item: [] for item in chosen}, {}
    rounds = [1] * times if fresh else [times]
    for repeats in rounds:
        with Sides(pythons) as sides:
            for item in found:
                tell(item)
                for _ in range(repeats):
                    if item in hindered:
                        break
                    sides.revive()
                    made = trial(item, sides)
                    if isinstance(made, Left):
                        hindered[item] = made
                    else:
                        found[item].append(made)
    return {item: made for item, made in found.items() if item not in hindered}, hindered
