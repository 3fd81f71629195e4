"""The rooms of the house: who may import whom, and what importing the package costs."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import shapejit

ROOT = Path(shapejit.__file__).parent

# A module may import only what stands above it.
ROOMS = [
    ["errors"],
    ["runtime"],
    ["dtypes"],
    ["shapes"],
    ["arrays"],
    ["kernels"],
    ["patience", "few"],
    ["planning"],
    ["engine"],
    ["places"],
    ["outputs"],
    ["fast_calls"],
    ["copying"],
    ["fast_joins"],
    ["converting"],
    ["operations"],
    ["packings"],
    ["quantization"],
    ["programs"],
    ["warming"],
    ["dialects"],
    ["files"],
    ["conversion"],
    ["bench"],
    ["adapters"],
    ["cli"],
    ["__main__"],
]
FLOOR = {name: level for level, names in enumerate(ROOMS) for name in names}


def modules():
    return [p for p in sorted(ROOT.rglob("*.py")) if p != ROOT / "__init__.py"]


def room(path):
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imported(path):
    """The rooms of shapejit that a module imports, at the top or inside a function.

    What only a type checker sees is not imported.
    """
    package = ["shapejit", *path.relative_to(ROOT).parts[:-1]]
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING":
            node.body = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            parts = [*base, *(node.module or "").split(".")]
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "shapejit":
                    yield alias.name.split(".")[1] if "." in alias.name else ""
            continue
        else:
            continue
        parts = [p for p in parts if p]
        if parts[:1] == ["shapejit"]:
            yield from parts[1:2] or names


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_go_upwards(path):
    here = room(path)
    assert here in FLOOR, f"{here} is not in ROOMS"
    for other in imported(path):
        if other in FLOOR and other != here:
            assert FLOOR[other] < FLOOR[here], f"{here} imports {other}"


def test_what_kernels_share_with_the_package_imports_nothing_of_it():
    """The stamp of the compiled code covers what kernels import, and no more."""
    for path in sorted((ROOT / "kernels").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.level > 1:
                assert node.module, f"{path}: name the module whose names are imported"
                shared = ROOT / f"{node.module.replace('.', '/')}.py"
                assert list(imported(shared)) == [], shared


def offered(path):
    """The names in a module's `__all__`; None without one."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign) and [ast.unparse(t) for t in node.targets] == ["__all__"]:
            return set(ast.literal_eval(node.value))
    return None


@pytest.mark.parametrize("room", ["files", "conversion"])
def test_what_modules_of_files_offer_is_in_their_all(room):
    used = {}
    for path in modules():
        package = path.relative_to(ROOT).parts[:-1]
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.level:
                base = package[: len(package) - node.level + 1]
                source = ROOT.joinpath(*base, *(node.module or "").split("."))
                used.setdefault(source, set()).update(alias.name for alias in node.names)
    for path in (ROOT / room).rglob("*.py"):
        names = offered(path)
        asked = used.get(path.with_suffix(""), set())
        if path.name != "__init__.py":
            assert names is not None, path
            assert asked <= names, (path, asked - names)


TESTS = ROOT.parent / "tests"
OUTSIDE = [*TESTS.rglob("*.py"), *(ROOT.parent / "benchmarks").rglob("*.py")]
OWN = {"shapejit", "benchmarks", "attack", *(path.stem for path in TESTS.glob("*.py"))}


def private_names(path):
    """The underscored names of other modules of the project that a module mentions."""
    own, found = set(), []
    nodes = list(ast.walk(ast.parse(path.read_text())))
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


@pytest.mark.parametrize(
    "path", [*modules(), *OUTSIDE], ids=lambda p: str(p.relative_to(ROOT.parent))
)
def test_underscored_names_stay_in_their_module(path):
    assert private_names(path) == []


def test_every_room_has_a_name():
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
def test_views_and_small_copies_do_not_import_numba(use):
    code = f"import sys, numpy, shapejit as sj; {use}; sys.exit('numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
