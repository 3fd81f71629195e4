"""Change points: where a recorded ratio moves from one level to another.

A step lies between two commits, the last one of the old level and the first one of
the new: which of those in between made it, nobody knows. Machines are never mixed, and
what is recorded of an unknown one has no steps. `confirm` measures each again.
"""

import json
from dataclasses import dataclass
from itertools import pairwise
from math import exp, log
from pathlib import Path

from .history import CONTROL

VERDICTS = Path(__file__).with_name("verdicts.json")
LEAST = 0.05  # a smaller change of the level is none
FEWEST = 5  # commits of a curve in which levels can be told apart
LOPSIDED = 8, 3  # so many steps, of which one kind is so many times the other


@dataclass(frozen=True)
class Step:
    """A case of a benchmark on a curve: its levels, and the commits between which it moved."""

    benchmark: str
    case: str
    curve: str
    first: str
    second: str
    before: float
    after: float

    @property
    def change(self):
        """The fraction by which time grew."""
        return self.after / self.before - 1

    @property
    def key(self):
        """What a verdict is kept by."""
        return f"{self.benchmark}({self.case}) {self.first[:8]}..{self.second[:8]} {self.curve}"


def found(runs, names):
    """The Steps of these benchmarks, by the place of the second commit, newest first."""
    made = []
    for curve in dict.fromkeys(run.curve for run in runs if run.known):
        own = [run for run in runs if run.curve == curve]
        for name in names:
            if name == CONTROL:
                continue
            for case in dict.fromkeys(c for run in own for c in run.values.get(name, ())):
                points = [(run, run.values[name][case]) for run in own
                          if case in run.values.get(name, ())]  # fmt: skip
                made += _steps(name, case, curve, points)
    order = {run.commit: k for k, run in enumerate(runs)}
    return sorted(made, key=lambda step: -order[step.second])


def _steps(name, case, curve, points):
    from asv.step_detect import detect_steps

    if len(points) < FEWEST:
        return
    levels = detect_steps([log(value) for _, value in points])
    for (_, end, low, *_), (begin, _, high, *_) in pairwise(levels):
        noise = max(log(points[k][0].noise) for k in (end - 1, begin))
        if abs(high - low) > max(log(1 + LEAST), noise):
            commits = points[end - 1][0].commit, points[begin][0].commit
            yield Step(name, case, curve, *commits, exp(low), exp(high))


def lopsided(steps):
    """What a count of steps says against itself, if nearly all go one way; otherwise nothing."""
    slower = sum(step.change > 0 for step in steps)
    faster = len(steps) - slower
    most, least = max(slower, faster), min(slower, faster)
    if most + least < LOPSIDED[0] or most < LOPSIDED[1] * least:
        return ""
    way = "slower" if slower > faster else "faster"
    return (
        f"{most} of {most + least} steps say {way}: the machine may have drifted, "
        "which `python -m benchmarks.confirm` tells apart."
    )


def verdicts(path=VERDICTS):
    """What `confirm` said of steps, by their keys."""
    return json.loads(path.read_text()) if path.is_file() else {}


def save(made, path=VERDICTS):
    """Keep verdicts, a line each."""
    lines = ",\n".join(f" {json.dumps(k)}: {json.dumps(v)}" for k, v in sorted(made.items()))
    path.write_text("{\n" + lines + "\n}\n")
