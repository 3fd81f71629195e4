"""Systems that lack what Linux has: the same results without it (see `without`)."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from without import LACKING, VARIABLE

TESTS = Path(__file__).parent
ALL = ",".join(LACKING)
FILES = ("test_convert_folders.py", "test_files.py", "test_result_memory.py")
MORE = (
    *("test_casts.py", "test_kernels.py", "test_packed.py", "test_program.py", "test_schemes.py"),
    *(
        "test_engine.py",
        "test_main.py",
        "test_onnx_files.py",
        "test_parts.py",
        "test_safetensors.py",
    ),
)

SCRIPT = """
import without, numpy as np, shapejit as sj, sys, warnings
warnings.filterwarnings("ignore", ".*is replaced by two renames")
x = (np.arange(1 << 20) % 251).astype(np.float32).reshape(1024, 1024)
for _ in range(2):
    assert (sj.ascontiguous(x.T) == x.T).all()
assert (sj.cast(x, "float64") == x).all()
where = sys.argv[1]
sj.save_file({"x": x, "y": x.T}, where + "/model.safetensors")
sj.save_file({"x": x[:3]}, where + "/x.safetensors")
sj.files.convert(where + "/model.safetensors", where + "/out", [("cast", ".*=F64")])
sj.files.convert(where + "/out", where + "/out", [("cast", ".*=F32")])
found = sj.load_file(where + "/out")
assert (found["x"].numpy() == x).all() and (found["y"].numpy() == x.T).all()
assert found["y"].dtype == "float32"
"""


def python(without, *arguments, cwd=TESTS):
    done = subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, VARIABLE: without, "PYTHONPATH": f"{TESTS}:{TESTS.parent}"},
        capture_output=True, text=True, cwd=cwd,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]


@pytest.mark.parametrize("names", [",".join(list(LACKING)[k::5]) for k in range(5)])
def test_without_some(names, tmp_path):
    """Rows of which none takes another's place."""
    python(names, "-c", SCRIPT, str(tmp_path))


def test_without_all_of_them():
    python(ALL, "-m", "pytest", "-q", "-p", "without", "-p", "no:cacheprovider", *FILES)


@pytest.mark.slow
@pytest.mark.parametrize("file", [*FILES, *MORE])
@pytest.mark.parametrize("name", [ALL, *LACKING], ids=["all", *LACKING])
def test_more_of_the_suite_without(name, file):
    python(name, "-m", "pytest", "-q", "-p", "without", "-p", "no:cacheprovider", file)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["memfd_create", "pidfd_open", "/proc", "populated maps"])
def test_batches_of_a_loader_without(name):
    pytest.importorskip("torch")
    python(name, "-m", "pytest", "-q", "-p", "without", "-p", "no:cacheprovider", "test_collate.py")
