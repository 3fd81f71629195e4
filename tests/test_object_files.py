"""What object code depends on besides the kernel's name: see `object_files.stamp`."""

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from compiled import COMPILED

import shapejit as sj
from shapejit.runtime import processor

ROOT = Path(sj.__file__).parent

# Which files of a copy of the package change its stamp, of those that are named.
EDITS = """
import os, sys
from pathlib import Path
from shapejit.runtime import object_files
stamp = object_files.stamp.__wrapped__  # it is kept as long as the process lives
first = stamp()
for name in sys.argv[1:]:
    file = Path(name)
    source, times = file.read_bytes(), (file.stat().st_atime_ns, file.stat().st_mtime_ns)
    assert source.endswith(b"\\n") or not source
    file.write_bytes(source[:-1] + b" ")  # neither size nor time tells
    os.utime(file, ns=times)
    if stamp() != first: print(name)
    file.write_bytes(source)
    assert stamp() == first
"""


@pytest.fixture
def package(tmp_path):
    copy = tmp_path / "shapejit"
    shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns("__pycache__"))
    return copy


def sources(package):
    """The files of kernels and builder, and those of the package that kernels import."""
    kernels = sorted(package.glob("kernels/*.py"))
    found = {*kernels, *package.glob("builder/*.py")}
    for file in kernels:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and node.level:
                folder = file.parents[node.level - 1]
                names = [node.module] if node.module else [alias.name for alias in node.names]
                found |= {folder / f"{name.replace('.', '/')}.py" for name in names}
            elif isinstance(node, ast.Import):
                assert not any(alias.name.startswith("shapejit") for alias in node.names)
    return {file for file in found if file.exists()}


def run(code, home, *arguments, **environment):
    """What code prints in a new process, for which the package lies in a folder."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", code, *arguments],
        env={**os.environ, "PYTHONPATH": str(home), **environment},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_an_edit_of_the_sources_of_kernels_makes_another_stamp_and_no_other_edit(package):
    files = sorted(package.rglob("*.py"))
    changed = {Path(name) for name in run(EDITS, package.parent, *files).splitlines()}
    assert changed == sources(package)
    names = {file.name for file in changed}
    assert {"jit.py", "arithmetic.py", "objects.py"} < names
    assert not {"errors.py", "resolver.py", "kernels.py"} & names


def test_another_processor_has_another_stamp():
    code = "from shapejit.runtime import object_files; print(object_files.stamp().hex())"
    processors = [
        {},
        {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""},
        {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": "+avx2"},
        {"NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": ""},
    ]
    stamps = [run(code, ROOT.parent, **processor) for processor in processors]
    assert len({*stamps}) == len(processors)
    assert run(code, ROOT.parent) == stamps[0]


BUNDLED = """
import sys
import numpy as np, shapejit as sj
from shapejit.programs import warming
from shapejit.builder import bundle
x = np.zeros((1500, 2000), np.uint32)
warming.WORK = {"copies": lambda: iter([sj.ascontiguous(x.T)])}
bundle.build(*sys.argv[1:])
"""
COPIED = """
import time, numpy as np, shapejit as sj
from shapejit.runtime import kernels
x, end = np.arange(1500 * 2000, dtype=np.uint32).reshape(1500, 2000), time.monotonic() + 60
while not sj.kernel_status() or kernels._coming:  # a thread looks for them, and loads them
    assert time.monotonic() < end
    assert (sj.ascontiguous(x.T) == np.ascontiguousarray(x.T)).all()
print(*{kernel.state for kernel in sj.kernel_status().values()})
"""


@pytest.mark.skipif(not COMPILED, reason="nothing is compiled with the JIT off")
@pytest.mark.skipif(not processor.levels(), reason="wheels have none for this processor")
def test_objects_of_a_wheel_are_taken_where_this_processor_has_none(package, tmp_path):
    """With an empty cache; neither others' nor damaged ones."""
    level, caches = (
        processor.levels()[0],
        {"NUMBA_CACHE_DIR": str(tmp_path), "SHAPEJIT_PATIENCE": "inf"},
    )
    variables = {"NUMBA_CPU_NAME": level, "NUMBA_CPU_FEATURES": processor.LEVELS[level]}
    folder = package / "objects" / level
    run(BUNDLED, package.parent, str(folder), level, **variables)
    assert run(COPIED, package.parent, **caches).split() == ["ready"]
    assert not list(tmp_path.glob("shapejit/*.o"))
    less = {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""}
    assert run(COPIED, package.parent, **caches, **less).split() == ["missing"]
    for path in folder.glob("*.o"):
        path.write_bytes(path.read_bytes()[:-1])
    assert run(COPIED, package.parent, **caches).split() == ["missing"]
