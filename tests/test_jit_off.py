"""The same tests with the JIT off, where NumPy does what kernels do."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from compiled import COMPILED

# By file, the words that leave out what one thread has no use for.
FILES = {
    "test_batch.py": [],
    "test_casts.py": [],
    "test_kernels.py": [],
    "test_mixed_blocks.py": [],
    "test_packed.py": ["-k", "not parallel"],
    "test_program.py": [],
    "test_repacking.py": ["-k", "not every_pair"],
}


def run(file):
    path = Path(__file__).with_name(file)
    words = ["-q", "-x", "-p", "no:cacheprovider", *FILES[file]]
    return subprocess.run(
        [sys.executable, "-m", "pytest", path, *words],
        env={**os.environ, "NUMBA_DISABLE_JIT": "1"},
        capture_output=True,
        text=True,
    )


@pytest.fixture(scope="module")
def runs():
    """Two at a time: one process computes on one core."""
    with ThreadPoolExecutor(2) as pool:
        yield {file: pool.submit(run, file) for file in FILES}


@pytest.mark.skipif(not COMPILED, reason="this is the run with the JIT off")
@pytest.mark.parametrize("file", FILES)
def test_the_same_with_the_jit_off(file, runs):
    done = runs[file].result()
    assert done.returncode == 0, done.stdout[-3000:]
