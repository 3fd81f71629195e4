"""Measure recorded steps again, both commits of each in one run: confirmed or refuted.

`report` shows where recorded ratios move from one level to another; noise and drift of
the machine do so, too. Here the two commits between which a step lies are compared as
`compare` does, in turns. What is found is kept in benchmarks/verdicts.json, to be
committed, and shown in the report.
"""

import argparse
import sys
import tempfile
from itertools import groupby
from pathlib import Path

from . import steps
from .catalogue import items
from .compare import Found, compare
from .exits import MeasureError, ending
from .history import benchmarks, runs
from .record import machine
from .repository import RESULTS, ROOT
from .trials import Left

NOT_MEASURED = "not measured"


def judged(step, found):
    """What a comparison of its two commits says of a step."""
    name = f"{step.benchmark.rsplit('.', 1)[0]}({step.case})"
    for verdict in found.verdicts:
        if verdict.benchmark == name:
            same = verdict.slower if step.change > 0 else verdict.faster
            facts = {"change": round(verdict.change, 3), "noise": round(verdict.noise, 3)}
            said = "confirmed" if same else "refuted"
            return {"verdict": said, **facts, "machine": machine()["machine"]}
    reason = next((one.reason for one in found.left if one.benchmark == name), "no such case")
    return {"verdict": NOT_MEASURED, "reason": reason}


def confirm(chosen, repository=ROOT, tell=print):
    """Yield the verdicts of steps by their keys, those of two commits from one comparison."""
    known = {str(item): item for item in items(everything=True)}
    pairs = sorted(chosen, key=lambda step: (step.first, step.second))
    for (first, second), group in groupby(pairs, key=lambda step: (step.first, step.second)):
        own = list(group)
        names = [f"{step.benchmark.rsplit('.', 1)[0]}({step.case})" for step in own]
        wanted = [known[name] for name in dict.fromkeys(names) if name in known]
        found = _compared(repository, first, second, wanted)
        made = {step.key: judged(step, found) for step in own}
        for step in own:
            tell(f"{made[step.key]['verdict']}: {step.key}: {step.change:+.0%}")
        yield made


def _compared(repository, first, second, wanted):
    """What is Found; what cannot be installed leaves the other steps to be measured."""
    try:
        with tempfile.TemporaryDirectory(prefix="shapejit-confirm-") as folder:
            return compare(repository, first, second, Path(folder), wanted)
    except MeasureError as fault:
        return Found([], [Left(str(item), str(fault), False) for item in wanted])


@ending
def main(argv=None):
    """0 nothing slower is confirmed, 1 something is, 2 bad arguments or nothing measured."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.confirm",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="FOLDER")
    parser.add_argument("--verdicts", type=Path, default=steps.VERDICTS, metavar="FILE")
    parser.add_argument("--most", type=int, metavar="N", help="the newest N steps")
    parser.add_argument("--again", action="store_true", help="those with a verdict, too")
    args = parser.parse_args(argv)
    said = steps.verdicts(args.verdicts)
    names = [n for n in benchmarks(args.results) if ".track_over_" in n]
    found = steps.found(runs(args.results), names)
    settled = {key for key, one in said.items() if one["verdict"] != NOT_MEASURED}
    open_ = [step for step in found if args.again or step.key not in settled]
    made = {}
    for more in confirm(open_[: args.most]):
        made |= more
        steps.save({**said, **made}, args.verdicts)  # what is measured stays, whatever follows
    if made and all(one["verdict"] == NOT_MEASURED for one in made.values()):
        raise MeasureError("nothing could be measured")
    slower = {step.key for step in open_ if step.change > 0}
    return int(any(made[key]["verdict"] == "confirmed" for key in slower & set(made)))


if __name__ == "__main__":
    sys.exit(main())
