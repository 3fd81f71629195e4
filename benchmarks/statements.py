"""Cases of other packages: a TOML file of statements, as `timeit` takes them.

    package = "numpy"                  # what is imported, and said to differ

    [cases.transpose]
    setup = "import numpy as np; x = np.ones((1024, 1024)); out = np.empty_like(x)"
    call = "np.copyto(out, x.T)"       # what is measured
    nbytes = 8388608                   # beside a memmove of so many bytes;
    # baseline = "out[:] = x"          # or beside another statement

Only the standard library is imported here: whatever Python has the package can measure it.
"""

import ctypes
import sys
import textwrap
import tomllib
from contextlib import ExitStack
from functools import partial
from importlib import import_module
from pathlib import Path

from .exits import MeasureError

OURS = "shapejit"  # as comparisons call what is measured, whatever it is
NEEDED, KNOWN = {"call"}, {"setup", "call", "nbytes", "baseline"}


def read(path):
    """The package's name and {case: its statements} of a file."""
    try:
        found = tomllib.loads(Path(path).read_text())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as fault:
        raise MeasureError(f"{path}: {fault}") from None
    package, cases = found.get("package"), found.get("cases")
    if not isinstance(package, str) or not isinstance(cases, dict) or not cases:
        raise MeasureError(f'{path}: wants package = "NAME" and [cases.NAME] with a call each')
    for name, case in cases.items():
        one = isinstance(case, dict) and ("nbytes" in case) != ("baseline" in case)
        if not one or not NEEDED <= case.keys() <= KNOWN:
            raise MeasureError(f"{path}: case {name!r} wants call, and either nbytes or baseline")
    return package, cases


class Statements:
    """The cases of a file, as benchmark classes have them."""

    def __init__(self, path):
        self.cases = read(path)[1]
        self.kept = ExitStack()

    def ways(self, case):
        """The statement that is measured, and its baseline, as functions."""
        found = self.cases[case]
        names = {}
        exec(found.get("setup", ""), names)
        ways = {OURS: _function(found["call"], names)}
        if "baseline" in found:
            return {**ways, baseline(found): _function(found["baseline"], names)}
        return {**ways, baseline(found): _memmove(found["nbytes"])}


def baseline(case):
    """What a case is measured beside."""
    return "baseline" if "baseline" in case else "memmove"


def _function(statements, names):
    exec(f"def measured():\n{textwrap.indent(textwrap.dedent(statements), '    ')}\n", names)
    return names.pop("measured")


def _memmove(nbytes):
    source, target = (bytearray(b"\1") * nbytes for _ in range(2))
    places = [(ctypes.c_char * nbytes).from_buffer(memory) for memory in (target, source)]
    return partial(ctypes.memmove, *places, nbytes)


def where(package):
    """Where a package is imported from, and its version."""
    module = import_module(package)
    version = getattr(module, "__version__", "of an unknown version")
    return {"file": module.__file__, "version": version, "python": sys.version.split()[0]}
