"""Which package may import which, and the cost of importing the package."""

import ast
import os
import subprocess
import sys
from collections import Counter
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path
from typing import get_type_hints

import pytest
from compiled import takes_no_kernels

import shapejit
from shapejit.planning import thresholds

ROOT = Path(shapejit.__file__).parent

# A module may import only from packages above its own; the packages of a row from each other, too.
PACKAGES = [
    "errors",
    "runtime",
    "dtypes",
    "shapes",
    "arrays",
    "kernels",
    "planning",
    "engine",
    "operations",
    "packings",
    "quantization",
    "programs",
    "builder",
    "dialects",
    "files",
    "conversion",
    "bench",
    "adapters",
    "cli",
    "__main__",
]
LEVEL = {name: level for level, names in enumerate(PACKAGES) for name in names.split()}


def modules(root=ROOT):
    return [p for p in sorted(root.rglob("*.py")) if p != root / "__init__.py"]


@cache
def tree(path):
    """A module, parsed."""
    return ast.parse(path.read_text())


def package(path):
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


@cache
def imported(path, root=ROOT):
    """The modules of a package that a file imports, at the top or inside a function, as paths."""
    parents, found = [root.name, *path.relative_to(root).parts[:-1]], set()
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.ImportFrom):
            base = parents[: len(parents) - node.level + 1] if node.level else []
            base = [*base, *filter(None, (node.module or "").split("."))]
            names = [alias.name for alias in node.names]
            found |= {module([*base, n], root) or module(base, root) for n in names}
        elif isinstance(node, ast.Import):
            found |= {module(alias.name.split("."), root) for alias in node.names}
    return found - {None}


def module(parts, root):
    """The file of a module below a package; None if there is no such module."""
    if parts[:1] != [root.name] or len(parts) < 2:
        return None
    place = root.joinpath(*parts[1:])
    return next((f for f in (place.with_suffix(".py"), place / "__init__.py") if f.exists()), None)


def test_imports_go_upwards():
    for path in modules():
        here = package(path)
        assert here in LEVEL, f"{here} is not in PACKAGES"
        for other in map(package, imported(path)):
            assert other == here or LEVEL[other] <= LEVEL[here], f"{path} imports {other}"


def test_only_adapters_and_commands_name_adapters():
    """Nor are they imported by name: what they adapt to the core knows nothing of."""
    for path in modules():
        calls = [node for node in ast.walk(tree(path)) if isinstance(node, ast.Call)]
        named = [a.value for call in calls for a in call.args if isinstance(a, ast.Constant)]
        if package(path) not in ("adapters", "cli"):
            assert not [n for n in named if isinstance(n, str) and "adapters." in n], path


@pytest.mark.parametrize("root", [ROOT, ROOT.parent / "benchmarks"], ids=lambda p: p.name)
def test_no_modules_import_each_other(root):
    """Nor in a longer cycle: what only a type checker sees counts, too."""
    graph = {path: imported(path, root) - {path} for path in modules(root)}
    order = [*TopologicalSorter(graph).static_order()]  # or it names the cycle
    assert len(order) >= len(graph) > 10


def test_what_kernels_share_with_the_package_imports_nothing_of_it():
    """The stamp of the compiled code covers what kernels import, and no more.

    What the system has is compiled into none of them, and numba checks its own settings.
    """
    apart = {ROOT / "runtime" / name for name in ("system.py", "numba_settings.py")}
    for path in sorted((ROOT / "kernels").glob("*.py")):
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.ImportFrom) and node.level > 1:
                assert node.module, f"{path}: name the module whose names are imported"
                shared = ROOT / f"{node.module.replace('.', '/')}.py"
                assert imported(shared) <= apart, shared


# Who may import a compiler's packages, at the top or inside a function.
COMPILERS = {
    "numba": {"builder", "kernels"},
    "llvmlite": {
        "builder",
        "kernels",
        "bench/memcpy.py",
        "runtime/processor.py",
    },
}


@pytest.mark.parametrize("compiler", COMPILERS)
def test_compilers_stay_with_the_builder(compiler):
    users = set()
    for path in modules():
        for node in ast.walk(tree(path)):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and not node.level:
                names = [node.module]
            if compiler in [name.partition(".")[0] for name in names]:
                whole = package(path) in COMPILERS[compiler]
                users.add(package(path) if whole else path.relative_to(ROOT).as_posix())
    assert users == COMPILERS[compiler]


TESTS = ROOT.parent / "tests"
OUTSIDE = [*TESTS.rglob("*.py"), *(ROOT.parent / "benchmarks").rglob("*.py")]
OWN = {"shapejit", "benchmarks", "attack", *(path.stem for path in TESTS.glob("*.py"))}


def private_names(path):
    """The underscored names of other modules of the project that a module mentions."""
    own, found = set(), []
    nodes = list(ast.walk(tree(path)))
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and (
            node.level or (node.module or "").split(".")[0] in OWN
        ):
            own |= {alias.asname or alias.name for alias in node.names}
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [(alias.asname or alias.name).split(".")[0] for alias in node.names]
            own |= {name for name in names if name in OWN}
    for node in nodes:
        match node:
            case ast.Attribute(value=ast.Name(id=name) | ast.Attribute(attr=name), attr=attr):
                found += [attr] if name in own else []
            case ast.Call(args=[ast.Name(id=name), ast.Constant(value=str(attr)), *_]):
                found += [attr] if name in own else []  # getattr, setattr
    return [name for name in found if name.startswith("_") and not name.endswith("__")]


def test_underscored_names_stay_in_their_module():
    found = {path: private_names(path) for path in (*modules(), *OUTSIDE)}
    assert {path: names for path, names in found.items() if names} == {}


def test_constants_are_defined_once():
    for path in modules():
        statements = tree(path).body
        targets = [x for s in statements if isinstance(s, ast.Assign) for x in s.targets]
        inner = [name for x in targets for name in ast.walk(x) if isinstance(name, ast.Name)]
        names = [name.id for name in inner if isinstance(name.ctx, ast.Store)]
        twice = [name for name, count in Counter(names).items() if count > 1 and name.isupper()]
        assert twice == [], path


# What planning and the engine compare with beside `planning.thresholds`: sizes of blocks, vectors,
# tables and caches, and how NumPy and Python do their part.
SIZES = {
    "engine/addresses": {"RUNS"},
    "engine/patience": {"LOOKED_FOR", "_forced"},
    "planning/box_tables": {"SHORT_RUN"},
    "planning/boxes": {"LEAST_CODES"},
    "planning/casts": {"MIN_VECTOR_RUN"},
    "planning/decode_plans": {"MOST_RUN"},
    "planning/encode_plans": {"MAX_BLOCK"},
    "planning/planner": {"MOST_INTERLEAVED"},
    "planning/shuffles": {
        "LEAST_PIECE",
        "MOST_MIXED",
        "MOST_VECTORS",
        "VECTOR_BYTES",
    },
    "planning/units": {"MOST_UNIT", "WORTH"},
}
WIDEST = 64  # bits of an element that has a plan of its own, and bytes of a line
ORDERED = ast.Lt | ast.LtE | ast.Gt | ast.GtE


def compared(text):
    """The numbers of a module, its constants and bare ones, that comparisons of size ask for."""
    module, constants, found = ast.parse(text), set(), set()
    for statement in module.body:
        parts = list(ast.walk(statement)) if isinstance(statement, ast.Assign) else []
        if any(isinstance(x, ast.Constant) and type(x.value) in (int, float) for x in parts):
            constants |= {x.id for target in statement.targets for x in ast.walk(target)
                          if isinstance(x, ast.Name)}  # fmt: skip
    for node in ast.walk(module):
        if isinstance(node, ast.Compare) and any(isinstance(op, ORDERED) for op in node.ops):
            for x in ast.walk(node):
                if isinstance(x, ast.Name) and x.id in constants:
                    found.add(x.id)
                elif isinstance(x, ast.Constant) and type(x.value) in (int, float):
                    found |= {x.value} if x.value > WIDEST else set()
    return found


def test_numbers_that_are_compared_are_found():
    text = "FEW = 1 << 9\nA, B = 3, 4.5\nNAME = 'x'\nif a < FEW or b >= 2 * B or c > 100: pass"
    assert compared(text) == {"FEW", "B", 100}
    assert compared("A = 3\nif a == A or b < 8: pass") == set()


def test_what_decides_between_ways_stands_in_the_table():
    for path in modules():
        if package(path) in ("planning", "engine") and path.stem != "thresholds":
            place = path.relative_to(ROOT).with_suffix("").as_posix()
            assert compared(path.read_text()) == SIZES.get(place, set()), path


def test_tuning_constants_are_few_and_say_what_they_earn():
    rows = {name: row for name, row in get_type_hints(thresholds, include_extras=True).items()
            if name.isupper()}  # fmt: skip
    assert len(rows) <= 20
    assert {n for n in vars(thresholds) if n.isupper()} == {*rows, "KIB", "MIB"}
    package_text = "".join(p.read_text() for p in modules())
    for name, row in rows.items():
        (reported,) = row.__metadata__
        assert all(reported), name
        assert any(letter.isdigit() for letter in reported.earns), name
        assert f"thresholds.{name}" in package_text, name


def test_every_module_has_a_name_of_its_own():
    for path in modules():
        for word in ("util", "helper", "common", "misc"):
            assert word not in path.stem


@pytest.mark.parametrize(
    "use",
    [
        "pass",
        "sj.resolve((2, 3), sj.onnx.request([3, -1]))",
        "sj.reshape(numpy.zeros((2, 3)), (3, 2))",
        "sj.reshape(sj.asarray(numpy.zeros((2, 3))).T, (3, 2, 1))",
        "sj.onnx.reshape(numpy.zeros((2, 3)), [0, -1, 1])",
        "sj.ascontiguous(numpy.zeros((2, 3)).T)",
        "sj.onnx.slice(sj.onnx.transpose(numpy.zeros((2, 3))), [0], [1])",
        "sj.onnx.pad(sj.take(numpy.zeros((2, 3)), [0, 0], axis=1), [1] * 4)",
        "sj.openvino.split(sj.openvino.broadcast(numpy.zeros(3), [2, 3]), 0, 2)",
        "t = sj.asarray(numpy.zeros((2, 3))); t.transpose().tolist(); list(t); numpy.tile(t, 2)",
    ],
)
def test_views_and_small_copies_take_no_kernels(use):
    assert takes_no_kernels(f"import numpy, shapejit as sj; {use}")


WITHOUT_NUMBA = """
import contextlib, importlib, pkgutil, sys
import numpy as np, shapejit as sj
for found in pkgutil.walk_packages(sj.__path__, "shapejit."):
    parts = found.name.split(".")
    if parts[1] not in ("builder", "kernels") and parts[-1] != "__main__":
        with contextlib.suppress(ImportError):  # of a package that is not installed
            importlib.import_module(found.name)
def check():
    assert not {"numba", "llvmlite"} & sys.modules.keys()
check()

from shapejit.engine import array_structs, execution, patience
from shapejit.dtypes.table import dtype
from shapejit.planning import casts, planner, small_plans
from shapejit.engine.addresses import layout_of
from shapejit.quantization import decoding, runs
from shapejit.runtime import workers
from shapejit.shapes.layout import Layout

patience.LOOKED_FOR = float("inf")  # kernels are not looked for, however slow this machine is
met = set()
def planned(layout, count=1, unit=0):
    made = planner.plan(layout, unit, count=count)
    row = made.row
    met.add(made.strategy.name)
    if row.kernel:
        row.tables(made, 64), row.takes(made, 64), execution.kind_of(made)
    if made.small is not None:
        assert len(small_plans.small_plan_of(made))
x = np.zeros((2000, 600), np.float32)
for view in (x.T, x[:, ::2], x[:, 1:], x):
    planned(layout_of(view))
planned(layout_of(np.zeros((32, 997, 64), np.float32).transpose(1, 0, 2)))
planned(layout_of(x[:9, :9].T), count=2)
for bits, shape in ((4, (512, 512)), (3, (90, 80)), (4, (1 << 20, 4))):
    whole = Layout.row_major(shape, bits)
    for layout in (whole, whole.permute((1, 0))):
        planned(layout)
        planned(layout, unit=8)
assert met >= {"TILES", "RUN_TILES", "ROWS", "ONE_RUN", "SMALL", "BIT_TILES", "SHUFFLE"}
for view in (x, x.T):
    made = casts.cast_plan(layout_of(view), 16, None, None, 1)
    assert made.tiles or made.steps(1) and made.table is not None
decoded = []
decoding.unready = lambda *asked: ()
runs.Decoding.run = lambda self, *_: decoded.append(self.plan)
scheme = sj.schemes["gguf:q8_0"]
scheme.decode(scheme.encode(np.ones((64, 64), np.float32)), dtype="float32")
(plan,) = decoded
plan.tables([0] * len(plan.steps), [0] * len(plan.steps))
assert array_structs.verified() and workers.threads() >= 1
array_structs.kind_of(x.dtype, x.shape, x.strides)
check()
"""


def test_plans_need_no_compiler():
    """Small plans and all tables included; nor llvmlite, which knows the processor."""
    environment = {**os.environ, "SHAPEJIT_PATIENCE": "inf"}
    command = [sys.executable, "-c", WITHOUT_NUMBA]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
