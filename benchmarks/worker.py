"""One side of a comparison, run through `pipe` by a Python that has one commit installed.

Requests: take a case, run one of its ways so many times, count, say where a package is, drop
what was taken.
"""

import gc
import sys
import time
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

# After a parallel copy its threads wait busily for 1 ms, on the other side's cores.
REST = 0.003


def load_benchmarks():
    """This folder as the package it is, without the shapejit beside it on the path."""
    here = Path(__file__).resolve().parent
    spec = spec_from_file_location(
        here.name, here / "__init__.py", submodule_search_locations=[str(here)]
    )
    package = module_from_spec(spec)
    sys.modules[here.name] = package
    spec.loader.exec_module(package)
    return here.name


def made_of(package, name):
    """An instance of the class MODULE.CLASS, or what stands for it in a file of cases."""
    if name.endswith(".toml"):
        return import_module(f"{package}.statements").Statements(name)
    module, kind = name.rsplit(".", 1)
    return getattr(import_module(f"{package}.{module}"), kind)()


def drop(held):
    """Let go of what was taken, files and memory."""
    if "kept" in held:
        held["kept"].close()
    held.clear()
    gc.collect()


def take(package, request, held):
    """Hold the ways of a case, each called once: the first call compiles."""
    made = made_of(package, request["take"])
    held["kept"] = made.kept
    held["ways"] = made.ways(request["case"])
    for way in request["ways"]:
        held["ways"][way]()


def count(package, name, method, case):
    """What a counter says."""
    made = made_of(package, name)
    values = () if case is None else (case,)
    made.setup(*values)
    return getattr(made, method)(*values)


def answer(package, request, held):
    """The reply to one request."""
    try:
        return _answer(package, request, held)
    except NotImplementedError as fault:
        return {"missing": str(fault)}


def _answer(package, request, held):
    match request:
        case {"take": _}:
            drop(held)
            take(package, request, held)
            return {}
        case {"run": way, "calls": calls}:
            function = held["ways"][way]
            function()  # threads wake, and caches forget the other sides
            start = time.perf_counter()
            for _ in range(calls):
                function()
            seconds = time.perf_counter() - start
            if seconds > REST / 10:
                time.sleep(REST)
            return {"seconds": seconds}
        case {"where": name}:
            return import_module(f"{package}.statements").where(name)
        case {"count": name, "method": method, "case": case}:
            return {"value": count(package, name, method, case)}
    drop(held)
    return {}


def answering():
    """What answers requests."""
    package, held = load_benchmarks(), {}
    return lambda request: answer(package, request, held)
