import os
import platform
import subprocess
import sys
import threading
from pathlib import Path

import loops
import numpy as np
import pytest
from compiled import COMPILED
from guarded import guarded
from hypothesis import HealthCheck, given, settings, strategies as st
from views import arrays

import shapejit as sj
from shapejit.engine.addresses import layout_of
from shapejit.planning import planner
from shapejit.planning.strategies import Strategy

EDGES = [1, 2, 3, 4, 7, 15, 16, 17, 31, 33, 63, 64, 65, 127, 130, 515]
WIDTHS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64, 16: np.complex128}


@settings(
    max_examples=150,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(x=arrays(st.sampled_from([*WIDTHS.values(), "V3", "V24"]), max_rank=8, max_side=5))
def test_any_view(x, kernels):
    assert sj.ascontiguous(x).tobytes() == x.tobytes()
    assert sj.reshape(x, -1 if x.size else 0, copy=True).tobytes() == x.tobytes()


@settings(max_examples=300)
@given(x=arrays(st.sampled_from([*WIDTHS.values(), "V3", "V24"]), max_rank=8, max_side=5))
def test_any_view_without_a_plan(x):
    """What is small, or met for the first time, goes by a kernel that keeps nothing."""
    with loops.used("small"):
        assert sj.ascontiguous(x).tobytes() == x.tobytes()
        assert sj.reshape(x, -1 if x.size else 0, copy=True).tobytes() == x.tobytes()


@pytest.mark.parametrize("dtype", [np.uint8, np.float16, np.float32])
def test_images_of_every_size_without_a_plan(dtype):
    """Three channels, apart and in turn, go by whole vectors that reach back at the end."""
    for size in (1, 5, 15, 16, 17, 31, 32, 63, 64, 65, 200):
        image = np.arange(size * 7 * 3).astype(dtype)
        planes, pixels = image.reshape(3, size, 7), image.reshape(size, 7, 3)
        with loops.used("small"):
            for view in (planes.transpose(1, 2, 0), pixels.transpose(2, 0, 1), pixels[::-1].T):
                assert sj.ascontiguous(view).tobytes() == view.tobytes()


@pytest.mark.parametrize("width", [1, 4, 8])
def test_blocks_as_large_as_can_be(width):
    """Long and many rows, which gather on a stage whose end is guarded."""
    x = np.arange(240_000).astype(WIDTHS[width])
    views = [
        *(x.reshape(turns, -1).T for turns in (2, 3, 4)),
        *(x.reshape(20, turns, -1).transpose(0, 2, 1) for turns in (2, 3, 4)),
        *(x.reshape(turns, 40, -1)[..., : 2000 // width].transpose(1, 2, 0) for turns in (3, 4)),
        *(x[::step] for step in (-1, 2, -3, 4, 7)),
        *(x.reshape(100, -1)[:, ::step] for step in (-1, 2, 7)),
        *(x.reshape(-1, group)[:, ::-1] for group in (2, 3, 4)),
    ]
    with loops.used("streamed"):
        for view in views:
            assert sj.ascontiguous(view).tobytes() == view.tobytes()


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("rows", EDGES)
def test_tiles_at_every_edge(width, rows, kernels):
    for columns in EDGES:
        raw = np.random.default_rng(0).integers(0, 256, rows * columns * width + 3, np.uint8)
        x = np.ndarray((rows, columns), WIDTHS[width], raw.data, 3)
        for view in (x.T, x[::-1].T, x.T[::-1], x[:, ::-1], x.T[::2]):
            assert sj.ascontiguous(view).tobytes() == view.tobytes()


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("lines", [2, 9, 35])
def test_tiles_whose_lines_go_straight_to_the_target(width, lines, kernels):
    """Targets whose rows are whole lines, and begin anywhere within one."""
    rows = lines * 64 // width
    for columns in (16, 17, 130):
        raw = np.random.default_rng(0).integers(0, 256, 2 * 3 * rows * columns * width, np.uint8)
        x = raw.view(WIDTHS[width]).reshape(2, 3, rows, columns)
        for view in (x.transpose(1, 0, 3, 2), x.transpose(3, 0, 1, 2), x.transpose(0, 3, 1, 2)):
            memory = np.full(x.nbytes + 192, 0xAB, np.uint8)
            begin = -memory.ctypes.data % 64
            for shift in {0, width, 16, 64 - width, 63, 1}:
                at = begin + shift
                out = np.ndarray(view.shape, view.dtype, memory.data, at)
                sj.ascontiguous(view, out=out)
                written = memory[at : at + x.nbytes]
                assert written.tobytes() == view.tobytes()
                written[...] = 0xAB
                assert (memory == 0xAB).all()


@pytest.mark.parametrize("width", [2, 4, 8])
def test_large_tiles_whose_lines_go_straight_to_the_target(width):
    """Several blocks of rows and of columns, by several threads, and in batches."""
    x = np.arange(2 * 1500 * 64 // width * 333, dtype=f"u{max(width, 4)}").astype(WIDTHS[width])
    views = x.reshape(-1, 333).T, x.reshape(2, -1, 333).transpose(2, 0, 1)
    with loops.used("streamed"):
        for view in views:
            memory = np.empty(x.nbytes + 128, np.uint8)
            for shift in (0, 16, 64 - width, 3):
                at = -memory.ctypes.data % 64 + shift
                out = np.ndarray(view.shape, view.dtype, memory.data, at)
                sj.ascontiguous(view, out=out)
                assert np.array_equal(out, view)
        shape = 33 * 64 // width, 40
        parts = [x[i : i + shape[0] * 40].reshape(shape) for i in range(9)]
        turn = sj.plan(shape, x.dtype, lambda t: t.T)
        slab = np.empty(9 * parts[0].size + 1, x.dtype)[1:].reshape(9, *shape[::-1])
        assert all(map(np.array_equal, turn.map(parts, out=slab), [x.T for x in parts]))


@pytest.mark.parametrize("width", [1, 2, 8])
def test_rows_that_vectors_do_not_fill(width, kernels):
    """Rows of a few elements that are picked, take turns, or are turned around in groups."""
    raw = np.random.default_rng(0).integers(0, 256, 90 * 12 * 37 * width + 3, np.uint8)
    x = np.ndarray((90, 12, 37), WIDTHS[width], raw.data, 3)
    picked = x[:, ::3, :33:2], x[::2, :, 20:1:-1], x[:, 1::3, ::3]
    turned = x[:, :, :16].reshape(90, 12, 16 // width, width)[..., ::-1]
    for view in (*picked, x[:, :3].transpose(0, 2, 1), x[:, :2].transpose(0, 2, 1), turned):
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
        (np.zeros((600, 500), "f4").T, Strategy.TILES, "tiles.tiles"),
        (np.zeros((32, 997, 64), "f4").transpose(1, 0, 2), Strategy.RUN_TILES, "tiles.tiles"),
        (np.zeros((600, 50, 32), "f4").transpose(1, 0, 2), Strategy.SCATTER, "scatters.scatter"),
        (np.zeros((600, 500), "f4")[:, 1:], Strategy.ROWS, "copies.rows"),
        (np.zeros(999_999, "f4")[::7], Strategy.BOXES, "boxes.boxes"),
        (np.zeros((600, 500), "f4"), Strategy.ONE_RUN, "bits.bit_run"),
    ],
)
def test_large_copies_take_compiled_kernels(view, strategy, name, kernels):
    assert planner.plan(layout_of(view)).strategy is strategy
    sj.reshape(view, -1, copy=True)
    label = f"shapejit_{name.replace('.', '_')}_"
    assert {
        kernel.state for found, kernel in sj.kernel_status().items() if found.startswith(label)
    } == {"ready"}


def views_of_every_strategy(dtype):
    """Views with rows and columns around every size of block, of elements and of runs."""
    raw = np.random.default_rng(0).integers(0, 256, 200_003 * np.dtype(dtype).itemsize, np.uint8)
    x = np.ndarray(200_000, dtype, raw.data, 3)
    for rows, columns in ((67, 70), (300, 21), (130, 600), (5, 5000), (5000, 4), (3, 9999)):
        plane = x[: rows * columns].reshape(rows, columns)
        yield from (plane.T, plane[::-1].T, plane[:, ::-1], plane[:, ::2], plane[1:, 1:])
    yield from (x[: 6 * 40 * 50 * 3].reshape(6, 40, 50, 3).transpose(a) for a in PERMUTATIONS)
    yield from (x[::step] for step in (-4, -3, -2, -1, 2, 3, 4, 5))
    yield from (x[: 30_030 - 30_030 % n].reshape(-1, n)[:, ::-1] for n in (2, 3, 4, 5, 7, 15))
    yield x[:30_000].reshape(100, 100, 3)[1:, 3:, ::-1]
    yield from (x[: 3 * 70 * n].reshape(-1, 3, n).transpose(1, 0, 2) for n in (67, 80, 99))
    yield x[: 9 * 130 * 5 * 30].reshape(9, 130, 5, 30).transpose(2, 0, 1, 3)
    yield np.broadcast_to(x[:999, None], (999, 50))


def runs_in_the_sources_order():
    """Long runs whose target is met in many places: sizes that have equal parts, and none."""
    x = np.arange(5 << 20, dtype=np.uint32).view(np.uint8)
    sizes = (70, 520), (96, 1472), (34, 130), (8, 4096), (66, 777), (67, 600), (400, 64), (250, 100)
    for places, run in sizes:
        rows = 130
        plane = x[: rows * places * run].reshape(rows, places, run)
        yield from (plane.transpose(1, 0, 2), plane[66::-1].transpose(1, 0, 2))
        yield plane[:67, :, 1:].transpose(1, 0, 2)
        yield plane.reshape(65, 2, places, run).transpose(2, 1, 0, 3)
        yield plane.reshape(2, 65, places, run).transpose(1, 2, 0, 3)


def test_long_runs_in_the_sources_order(kernels):
    met = {planner.plan(layout_of(view)).strategy for view in runs_in_the_sources_order()}
    assert {Strategy.SCATTER, Strategy.ROWS} <= met
    for view in runs_in_the_sources_order():
        for shift in (0, 5):
            memory = np.full(view.nbytes + 80, 0xA5, np.uint8)
            out = memory[shift : shift + view.nbytes].reshape(view.shape)
            assert sj.ascontiguous(view, out=out).tobytes() == view.tobytes()
            assert (memory[:shift] == 0xA5).all()
            assert (memory[shift + view.nbytes :] == 0xA5).all()


@pytest.mark.parametrize("run", [64, 100, 127, 200])
@pytest.mark.parametrize("at_end", [False, True])
def test_runs_at_the_edges_of_memory(run, at_end, kernels):
    """Lines that two runs share: nothing before the first run or after the last one is read."""
    source = guarded(130 * 300 * run)
    source[:] = np.random.default_rng(0).integers(0, 256, source.size, np.uint8)
    x = source[source.size - 130 * 300 * run :] if at_end else source[: 130 * 300 * run]
    plane = x.reshape(130, 300, run)
    for view in (plane.transpose(1, 0, 2), plane[::-1].transpose(1, 0, 2)):
        for shift in (0, 1, 16, 63):
            target = guarded(view.nbytes + 64)[shift : shift + view.nbytes]
            out = target.reshape(view.shape)
            assert sj.ascontiguous(view, out=out).tobytes() == view.tobytes()


PERMUTATIONS = [(0, 3, 1, 2), (0, 2, 1, 3), (3, 2, 1, 0), (1, 3, 0, 2), (2, 0, 3, 1)]


@pytest.mark.parametrize("width", WIDTHS)
def test_every_strategy(width, kernels):
    for view in views_of_every_strategy(WIDTHS[width]):
        out = np.empty(view.nbytes + 9, np.uint8)[5:-4].view(view.dtype).reshape(view.shape)
        assert sj.ascontiguous(view, out=out).tobytes() == view.tobytes()


def test_every_strategy_is_met():
    views = [*views_of_every_strategy(np.uint16), np.zeros(10**6, np.uint8), np.zeros((0, 2)).T]
    views += [
        np.zeros((4000, 300), np.float32)[:, 1:],
        np.zeros((9, 9)).T,
        np.zeros((400, 300, 5)).transpose(1, 0, 2),
        np.zeros((400, 30, 50)).transpose(1, 0, 2),
    ]
    met = {planner.plan(layout_of(v)).strategy for v in views}
    met.add(planner.plan(layout_of(np.zeros((9, 9)).T), count=2).strategy)
    narrow = {s for s in Strategy if s.row.bits} - {Strategy.ONE_RUN}
    assert met == set(Strategy) - narrow - {Strategy.INTERLEAVED_ROWS}


X86 = platform.machine() in ("x86_64", "AMD64")


@pytest.mark.skipif(not (COMPILED and X86), reason="machine code of x86 is looked at")
def test_vector_kernels_are_vector_kernels():
    """Blocks are shuffled in the widest registers, and whole lines leave by streaming stores."""
    code = """
import numpy as np, shapejit as sj, re
from shapejit.builder.objects import optimised
from shapejit.runtime import kernels, processor
x = np.zeros((2048, 2048), np.float32)
with kernels.recorded() as asked: sj.ascontiguous(x.T, out=np.empty_like(x))
(tile,) = {n for n in asked if getattr(n, "kernel", "") == "transpositions.transpose"}
text = processor.target_machine().emit_assembly(optimised(tile, "tile"))
register = {64: "zmm", 32: "ymm", 16: "xmm"}[kernels.vector()]
for shuffles in ("unpck|vperm|vshuf", "movnt"):
    found = re.findall(rf"^.*(?:{shuffles}).*%{register}", text, re.MULTILINE)
    assert len(found) >= (8 if "unpck" in shuffles else 1), (shuffles, found)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.skipif(not (COMPILED and X86), reason="the features named are those of x86")
@pytest.mark.parametrize(
    ("cpu", "features", "vector", "dtype"),
    [
        ("generic", "", 16, "complex128"),  # a vector is one element
        ("haswell", "+avx2,+bmi,+bmi2", 32, "uint8"),
    ],
    ids=["SSE2", "AVX2"],
)
def test_narrower_vectors(cpu, features, vector, dtype):
    """What is compiled for lesser machines is right too."""
    code = f"""
import sys, numpy as np, shapejit as sj
sys.path.insert(0, {str(Path(__file__).parent)!r})
import loops
from shapejit.runtime import kernels
from test_kernels import views_of_every_strategy
assert kernels.vector() == {vector}
loops.use("streamed by one thread")
for view in views_of_every_strategy({dtype!r}):
    assert sj.ascontiguous(view, out=np.empty(view.shape, {dtype!r})).tobytes() == view.tobytes()
"""
    environment = {
        **os.environ,
        "NUMBA_CPU_NAME": cpu,
        "NUMBA_CPU_FEATURES": features,
    }
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]


def test_eight_threads_at_once():
    """Each has a job of its own; every stage is its thread's own."""
    views = [*views_of_every_strategy(np.uint8)]
    faults = []

    def work(seed):
        order = np.random.default_rng(seed).permutation(len(views))
        faults.extend(i for i in order if sj.ascontiguous(views[i]).tobytes() != views[i].tobytes())

    with loops.used("streamed"):
        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not faults
