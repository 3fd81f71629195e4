"""The standard's own tests of its manipulation functions, run with shapejit's in NumPy's place.

No package index has them: the environment variable ARRAY_API_TESTS names a clone of
data-apis/array-api-tests with its submodule, and needs ndindex and pytest-json-report installed.
"""

import os
import subprocess
import sys

import pytest

import shapejit as sj

VERSION = "2025.12"
NAMES = ("broadcast_arrays", "broadcast_to", "concat", "expand_dims", "flip", "moveaxis",
         "permute_dims", "repeat", "reshape", "roll", "squeeze", "stack", "take",
         "take_along_axis", "tile", "unstack")  # fmt: skip
NAMESPACE = f"""
import numpy, shapejit
globals().update(vars(numpy), **{{name: getattr(shapejit, name) for name in {NAMES}}})
__array_api_version__ = "{VERSION}"
"""


@pytest.mark.slow
def test_manipulation_functions(tmp_path):
    suite = os.environ.get("ARRAY_API_TESTS")
    if suite is None:
        pytest.skip("ARRAY_API_TESTS names no clone of array-api-tests")
    (tmp_path / "namespace.py").write_text(NAMESPACE)
    paths = [
        str(tmp_path),
        os.path.dirname(os.path.dirname(sj.__file__)),
        os.environ.get("PYTHONPATH", ""),
    ]
    facts = {"ARRAY_API_TESTS_MODULE": "namespace", "ARRAY_API_TESTS_VERSION": VERSION}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k",
               " or ".join(f"test_{name}" for name in NAMES), "--disable-deadline",
               "--max-examples", "200", "array_api_tests"]  # fmt: skip
    done = subprocess.run(
        command,
        cwd=suite,
        env=os.environ | facts | {"PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-5000:]
    assert all(word not in done.stdout.splitlines()[-1] for word in ("skipped", "failed"))
