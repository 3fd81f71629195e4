"""Two commits measured in turns: a process for each side, asked by pipe."""

import json
import os
import subprocess
from contextlib import ExitStack
from dataclasses import dataclass
from math import log
from statistics import median

from .ratios import OURS, SECONDS
from .tables import measure
from .worker import __file__ as WORKER

SIDES = ("first", "again", "second")


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
        """The reply; `failed` where there is none."""
        try:
            print(json.dumps(request), file=self._process.stdin, flush=True)
            line = self._process.stdout.readline()
        except OSError:
            line = ""
        return json.loads(line) if line else {"failed": "its process has ended"}

    def clock(self, way):
        """Seconds of so many calls, by the process's own clock."""

        def run(calls):
            reply = self.ask(run=way, calls=calls)
            if "failed" in reply:
                raise CaseError(reply["failed"])
            return reply["seconds"]

        return run

    def close(self):
        """End the process."""
        self._process.kill()
        self._process.communicate()


@dataclass
class Trial:
    """log(second / first) and log(again / first) of one trial, and the ratios."""

    change: float
    noise: float
    first: float
    second: float


class CaseError(Exception):
    """A benchmark that fails, on the second commit if not on both."""


def replied(replies):
    """Whether both commits have it: False where one lacks it, or the first fails, too."""
    *first, second = replies
    if any(key in reply for reply in first for key in ("missing", "failed")):
        return False
    if "failed" in second:
        raise CaseError(second["failed"])
    return "missing" not in second


def trial(item, sides):
    """All sides take turns at one case, in new memory; None where one side lacks it."""
    ways = (OURS, item.baseline)
    replies = [side.ask(take=item.kind, case=item.case, ways=ways) for side in sides.values()]
    try:
        if not replied(replies):
            return None
        clocks = {(name, way): sides[name].clock(way) for way in ways for name in sides}
        taken = measure.samples(clocks, item.turns, SECONDS)
    except CaseError as fault:
        raise CaseError(f"{item}: {fault}") from None
    finally:
        for side in sides.values():
            side.ask()
    quick = {key: sorted(times)[len(times) // 4] for key, times in taken.items()}
    first, again, second = (quick[name, OURS] for name in SIDES)
    # One baseline for all, of all processes' turns: its own noise is in both values.
    base = median(quick[name, item.baseline] for name in SIDES)
    both = (first * again) ** 0.5
    return Trial(log(second / both), abs(log(again / first)), both / base, second / base)


def measured(chosen, pythons, times, fresh, tell):
    """Trials by item. `fresh`: each in new processes."""
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
                    made = trial(item, sides)
                    if made is not None:
                        found[item].append(made)
    return {item: made for item, made in found.items() if made}
