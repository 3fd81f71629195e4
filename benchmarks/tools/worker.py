"""One side of a comparison, run through `pipe` by a Python that has one commit installed.

Requests: take a case of this checkout, run one of its ways so many times, count, drop what was
taken.
"""

import gc
import sys
import time
from functools import cache
from importlib import import_module
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

# After a parallel copy its threads wait busily for 1 ms, on the other side's cores.
REST = 0.003
SUITE = Path(__file__).resolve().parents[1] / "suite"


@cache
def load(path):
    """A Python file as a module."""
    loader = SourceFileLoader(Path(path).stem, str(path))
    spec = spec_from_file_location(loader.name, path, loader=loader)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def ways_of(case, baseline):
    """The way that is measured and its baseline, each called once."""
    tables = load(SUITE / "tables.py")
    group, name = case.split("/", 1)
    found = {one.name: one for one in tables.suites.SUITES[group].cases()}[name]
    ours, theirs = tables.pair(found, baseline).values()
    return {"ours": ours, "baseline": theirs}


def count(kind, call):
    """What a counter of the history says."""
    sys.modules.setdefault("suite", module_from_spec(spec_from_file_location(
        "suite", SUITE / "__init__.py", submodule_search_locations=[str(SUITE)])))  # fmt: skip
    made = getattr(import_module("suite.counters"), kind)()
    made.setup(call)
    return made.track_bytes(call)


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
        case {"count": kind, "call": call}:
            try:
                return {"value": count(kind, call)}
            except NotImplementedError as fault:
                return {"missing": str(fault)}
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
