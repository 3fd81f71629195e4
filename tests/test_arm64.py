"""A short run on an emulated arm64 processor, if its environment is built (see `arm64`)."""

import shutil
import subprocess
import sys

import pytest
from arm64.environment import PYTHON, variables
from arm64.shards import FILES, TESTS, results

pytestmark = pytest.mark.skipif(
    not PYTHON.exists() or shutil.which("qemu-aarch64-static") is None,
    reason="the emulated arm64 environment is not built",
)

SCRIPT = """
import platform, ml_dtypes, numpy as np, shapejit as sj
assert platform.machine() == "aarch64"
x = np.arange(300 * 200, dtype=np.uint16).reshape(300, 200)
assert (sj.ascontiguous(x.T) == x.T).all()
halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
wide = halves.astype(np.float32)
assert np.array_equal(sj.cast(halves, "float32"), wide, equal_nan=True)
some = np.linspace(-7e4, 7e4, 100_003, dtype=np.float32)
with np.errstate(over="ignore"):
    wanted = some.astype(np.float16)
assert (sj.cast(some, "float16") == wanted).all()
print("right")
"""


def test_copies_and_casts_to_float16():
    done = subprocess.run(
        [PYTHON, "-c", SCRIPT], env=variables("generic"), capture_output=True, text=True
    )
    assert done.stdout == "right\n", done.stderr[-2000:]


@pytest.mark.slow
@pytest.mark.parametrize("file", FILES)
def test_all_that_is_run_there(file):
    subprocess.run([sys.executable, "-m", "arm64", "run", file], cwd=TESTS, check=True)
    assert results()["generic"][file]["failed"] == 0
