"""One side of a comparison, run through `pipe` by a Python that imports the package of one commit.

Requests: take a case of this checkout, run one of its ways so many times, ablate, drop what was
taken.
"""

import gc
import sys
import time
from importlib import import_module
from pathlib import Path

# After a parallel copy its threads wait busily for 1 ms, on the other side's cores.
REST = 0.003
SUITE = Path(__file__).resolve().parents[1] / "suite"


def ways_of(case, baseline):
    """The way that is measured and its baseline, each called once."""
    if str(SUITE) not in sys.path:
        sys.path.append(str(SUITE))
    tables = import_module("tables")  # of this checkout, whose package need not be measured
    group, name = case.split("/", 1)
    found = {one.name: one for one in tables.suites.SUITES[group].cases()}[name]
    ours, theirs = tables.pair(found, baseline).values()
    return {"ours": ours, "baseline": theirs}


def ablate(values):
    """Let names of the package's modules have other values: {MODULE.NAME: value}."""
    for name, value in values.items():
        module, _, attribute = name.rpartition(".")
        module = import_module(f"shapejit.{module}")
        getattr(module, attribute)  # it must be there
        setattr(module, attribute, value)


def answer(request, held):
    """The reply to one request."""
    match request:
        case {"take": case, "baseline": baseline}:
            held.clear()
            gc.collect()
            try:
                held |= ways_of(case, baseline)
            except NotImplementedError as fault:
                return {"missing": str(fault)}
        case {"run": way, "calls": calls}:
            function = held[way]
            function()  # threads wake, and caches forget the other sides
            start = time.perf_counter()
            for _ in range(calls):
                function()
            seconds = time.perf_counter() - start
            if seconds > REST / 10:
                time.sleep(REST)
            return {"seconds": seconds}
        case {"ablate": values}:
            ablate(values)
        case _:
            held.clear()
            gc.collect()
    return {}


def answering():
    """What answers requests."""
    held = {}
    return lambda request: answer(request, held)
