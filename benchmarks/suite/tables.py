"""The cases and the clocks of this checkout, whichever shapejit is measured.

They are imported by path, under a name of their own, without the package around them.
"""

import os
import sys
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from time import perf_counter

# What is measured is compiled, however few bytes it moves.
os.environ.setdefault("SHAPEJIT_PATIENCE", "0")

ROOT = Path(__file__).resolve().parents[2]
NBYTES = 32 << 20  # of a case, if it has not less
CALLS, SLOW = 5, 0.1  # calls that compile, unless they take so many seconds


def _bench():
    """The package, without the one that it is in."""
    file = ROOT / "shapejit" / "bench" / "__init__.py"
    folders = [str(file.parent)]
    spec = spec_from_file_location(
        "bench_of_this_checkout", file, submodule_search_locations=folders
    )
    sys.modules[spec.name] = module_from_spec(spec)
    return spec.name


_NAME = _bench()
suites = import_module(f"{_NAME}.suites")
measure = import_module(f"{_NAME}.measure")
pipe = import_module(f"{_NAME}.pipe")
batches = import_module(f"{_NAME}.batches")
OURS = suites.OURS

measure.wait_shortly()


def measured():
    """The package that is measured."""
    return import_module(OURS)


def sized(case, nbytes=None):
    """A case of at most so many bytes."""
    size = case.moved or getattr(case, "nbytes", 0)
    return case.scaled(min(1.0, (nbytes or NBYTES) / size)) if size else case


def pair(case, baseline, package=None):
    """Our way and that of the baseline, both called before: the first calls compile.

    Raises NotImplementedError, which asv records as n/a, where the package lacks what a case calls.
    """
    ways = called(lambda: suites.all_ways(sized(case), package or measured(), 1))
    chosen = {OURS: ways[OURS], baseline: ways[baseline]}
    for way in chosen.values():
        warm(way)
    return chosen


def warm(way):
    """Call it until all is compiled that is: more is for what comes again."""
    called(way)
    for _ in range(CALLS):
        start = perf_counter()
        way()
        if perf_counter() - start > SLOW:
            break


def called(way):
    """What a function returns; NotImplementedError where the package lacks what it asks for."""
    try:
        return way()
    except (AttributeError, LookupError) as fault:
        raise NotImplementedError(f"{type(fault).__name__}: {fault}") from fault
    except (TypeError, ValueError) as fault:
        known = ("unexpected keyword", "unknown dtype", "unknown name", "unknown format")
        if any(text in str(fault) for text in known):
            raise NotImplementedError(f"{type(fault).__name__}: {fault}") from fault
        raise


def answer(request, held):
    """The reply to a request of `benchmarks.tools.trials`, for which this module runs by `pipe`.

    To take a case of this checkout, and to let names of the measured package's modules have other
    values.
    """
    match request:
        case {"take": case, "baseline": baseline}:
            group, name = case.split("/", 1)
            found = {one.name: one for one in suites.SUITES[group].cases()}[name]
            try:
                held |= zip(("ours", "baseline"), pair(found, baseline).values(), strict=True)
            except NotImplementedError as fault:
                return {"missing": str(fault)}
        case {"ablate": values}:
            for name, value in values.items():
                module, _, attribute = name.rpartition(".")
                module = import_module(f"{OURS}.{module}")
                getattr(module, attribute)  # it must be there
                setattr(module, attribute, value)
    return {}
