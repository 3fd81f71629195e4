import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from views import arrays

import shapejit as sj
from shapejit.kernels.jit import COMPILED
from shapejit.operations import _array_plan
from shapejit.planner import Strategy

EDGES = [1, 2, 3, 4, 7, 15, 16, 17, 31, 33, 63, 64, 65, 127, 130, 515]
WIDTHS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64, 16: np.complex128}


@settings(
    max_examples=150 if COMPILED else 25,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(x=arrays(st.sampled_from([*WIDTHS.values(), "V3", "V24"]), max_rank=8, max_side=5))
def test_any_view(x, kernels):
    assert sj.ascontiguous(x).tobytes() == x.tobytes()
    assert sj.reshape(x, -1 if x.size else 0, copy=True).tobytes() == x.tobytes()


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("rows", EDGES if COMPILED else [3, 65])
def test_tiles_at_every_edge(width, rows, kernels):
    for columns in EDGES if COMPILED else [65]:
        raw = np.random.default_rng(0).integers(0, 256, rows * columns * width + 3, np.uint8)
        x = np.ndarray((rows, columns), WIDTHS[width], raw.data, 3)
        for view in (x.T, x[::-1].T, x.T[::-1], x[:, ::-1], x.T[::2]):
            assert sj.ascontiguous(view).tobytes() == view.tobytes()


def test_many_tiny_dims(kernels):
    x = np.arange(1 << 12, dtype=np.float32).reshape((2,) * 12)
    view = x.transpose([*range(0, 12, 2), *range(1, 12, 2)])
    assert sj.ascontiguous(view).tobytes() == view.tobytes()


def test_nothing_outside_the_target_is_written(kernels):
    memory = np.full(10_000, 0xAB, np.uint8)
    for offset, shape in ((1, (33, 65)), (7, (3, 100)), (3, (64, 1))):
        x = np.random.default_rng(0).integers(0, 256, shape[::-1], np.uint8).T
        out = memory[offset : offset + x.size].reshape(shape)
        sj.ascontiguous(x, out=out)
        assert np.array_equal(out, x)
        out[...] = 0xAB
        assert (memory == 0xAB).all()


@pytest.mark.skipif(not COMPILED, reason="with the JIT off nothing is compiled")
@pytest.mark.parametrize(
    ("view", "strategy", "name"),
    [
        (np.zeros((600, 500), np.float32).T, Strategy.TILES, "tiles"),
        (np.zeros((600, 500, 3), np.float32).transpose(1, 0, 2), Strategy.RUN_TILES, "run_tiles"),
        (np.zeros((600, 500), np.float32)[:, 1:], Strategy.ROWS, "rows"),
        (np.zeros((3, 99_999), np.float32).T, Strategy.INTERLEAVE, "interleave_rows"),
        (np.zeros((99_999, 3), np.float32).T, Strategy.PICK, "pick_rows"),
        (np.zeros(99_999, np.float32)[::-1], Strategy.PICK, "pick_rows"),
        (np.zeros(999_999, np.float32)[::7], Strategy.GATHER, "gather"),
        (np.zeros((600, 500), np.float32), Strategy.ONE_RUN, "run"),
    ],
)
def test_large_copies_run_compiled_kernels(view, strategy, name, kernels, monkeypatch):
    from shapejit.kernels import copies

    monkeypatch.delattr(np, "copyto")
    calls = []
    name = name + ("" if kernels == "serial" else "_parallel")
    compiled = getattr(copies, name)
    monkeypatch.setattr(copies, name, lambda *a: (calls.append(name), compiled(*a)))
    assert _array_plan(view.shape, view.strides, view.dtype).strategy is strategy
    sj.reshape(view, -1, copy=True)
    assert calls == [name]
    assert compiled.signatures


@pytest.mark.skipif(not COMPILED, reason="this is the run with the JIT off")
def test_the_same_with_the_jit_off():
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", __file__, "-p", "no:cacheprovider"],
        env={**os.environ, "NUMBA_DISABLE_JIT": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-3000:]
