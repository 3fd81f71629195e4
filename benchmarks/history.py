"""What is recorded, read: runs of commits on machines, their values by benchmark and case."""

import ast
import itertools
import json
from dataclasses import dataclass
from math import exp, isfinite, log

from .repository import RESULTS, RecordError, git, places

CONTROL = "control.Control.track_over_itself"
UNKNOWN = "unknown-"  # what the names of machines begin with that may be several kinds


@dataclass(frozen=True)
class Run:
    """One commit on one machine; values {benchmark: {case: value}}, n/a left out."""

    machine: str
    python: str
    commit: str
    date: int
    values: dict

    @property
    def curve(self):
        """What one line of a chart belongs to."""
        return f"{self.machine}, Python {self.python}"

    @property
    def known(self):
        """Whether all runs of the curve were on one kind of machine."""
        return not self.machine.startswith(UNKNOWN)

    @property
    def noise(self):
        """The largest factor by which a call differed from itself; 1 is none."""
        return exp(max((abs(log(v)) for v in self.values.get(CONTROL, {}).values()), default=0.0))


def benchmarks(results=RESULTS):
    """asv's facts of each benchmark by its name."""
    path = results / "benchmarks.json"
    if not path.is_file():
        raise RecordError(f"nothing is recorded in {results}: python -m benchmarks.record")
    return {name: b for name, b in json.loads(path.read_text()).items() if isinstance(b, dict)}


def runs(results=RESULTS):
    """All runs, oldest commit first, as far as their benchmarks are of today's versions."""
    known = benchmarks(results)
    order = places()
    found = [
        _run(json.loads(path.read_text()), known)
        for path in results.glob("*/*.json")
        if path.name != "machine.json"
    ]
    # A commit that is no ancestor (any more) stands among those by its date.
    dates = sorted((run.date, order[run.commit]) for run in found if run.commit in order)

    def place(run):
        if run.commit in order:
            return order[run.commit], 0, run.date
        return max((k for date, k in dates if date <= run.date), default=-1), 1, run.date

    return sorted(found, key=place)


def subjects():
    """The first line of each commit's message."""
    try:
        lines = git("log", "--format=%H %s", "HEAD").splitlines()
    except (RecordError, OSError):
        return {}
    return dict(line.split(" ", 1) for line in lines)


def _run(found, known):
    columns = found["result_columns"]
    values = {}
    for name, row in found["results"].items():
        entry = dict(zip(columns, row, strict=False))
        if name in known and entry.get("version") == known[name]["version"]:
            made = _values(entry, known[name]["params"])
            if made:
                values[name] = made
    params = found["params"]
    return Run(params["machine"], params["python"], found["commit_hash"], found["date"], values)


def _values(entry, params):
    """{case: value} of the cases that the benchmark has today; {"": value} without cases."""
    cases = [", ".join(map(_plain, case)) for case in itertools.product(*entry["params"])]
    today = {", ".join(map(_plain, case)) for case in itertools.product(*params)}
    pairs = zip(cases, entry["result"] or [], strict=False)
    return {
        case: value
        for case, value in pairs
        if case in today and value is not None and isfinite(value)
    }


def _plain(text):
    """asv keeps the repr of a parameter."""
    try:
        return str(ast.literal_eval(text))
    except (ValueError, SyntaxError):
        return text
