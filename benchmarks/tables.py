"""The case tables, the dtype table and the clocks of this checkout, whichever shapejit runs.

They are imported under another name than the package that is measured: a curve
needs the same cases and the same measurement for every commit.
"""

import sys
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import module_from_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

_NAME = "shapejit_of_this_checkout"
_spec = ModuleSpec(_NAME, None, is_package=True)
_spec.submodule_search_locations = [str(ROOT / "shapejit")]
# Without its __init__, so that nothing but the tables comes with it.
sys.modules.setdefault(_NAME, module_from_spec(_spec))

dtypes = import_module(f"{_NAME}.dtypes")
cases = import_module(f"{_NAME}.bench.cases")
machine = import_module(f"{_NAME}.bench.machine")
measure = import_module(f"{_NAME}.bench.measure")
pipe = import_module(f"{_NAME}.bench.pipe")
reshapes = import_module(f"{_NAME}.bench.reshapes")
spinning = import_module(f"{_NAME}.bench.spinning")
suites = import_module(f"{_NAME}.bench.suites")

measure.wait_shortly()


def suite(name, every=1):
    """Every n-th case of a suite by its id: cases that are appended move no other."""
    return {case.id: case for case in suites.select((name,))[::every]}


def first_of_each(name):
    """The first case of each kind: workloads are named KIND-SIZES-ORDER."""
    kinds = {}
    for case in suites.select((name,)):
        kinds.setdefault(case.name.rsplit("-", 2)[0], case)
    return {case.id: case for case in kinds.values()}
