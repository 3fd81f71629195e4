"""Copies with short dims on either side, which go in boxes that reach back at their edges."""

import tracemalloc

import loops
import numpy as np
import pytest
from compiled import COMPILED
from test_kernels import WIDTHS
from test_packed import Guarded, run_alone  # noqa: F401 (for the script)

import shapejit as sj
from shapejit.engine import routes
from shapejit.planning import planner
from shapejit.planning.strategies import Strategy
from shapejit.planning.tables import offsets_of
from shapejit.runtime import kernels
from shapejit.runtime.launches import address_of
from shapejit.shapes.layout import Layout

# Shapes, and the views of them: axes, then a step for each dim of the source.
SHORT = [
    ((3, 31, 17, 5, 15), (4, 2, 0, 3, 1), (1, 1, 1, 1, 1)),
    ((3, 31, 17, 5, 15), (4, 2, 0, 3, 1), (1, -1, 2, -1, -1)),
    ((170, 47, 8), (2, 1, 0), (1, 1, 1)),
    ((999, 7), (1, 0), (-1, 1)),
    ((999, 7), (1, 0), (1, -2)),
    ((3, 999), (1, 0), (-1, -1)),
    ((10, 6, 5, 9, 3), (1, 4, 0, 3, 2), (1, 1, 1, -1, 1)),
    ((24, 9, 7, 41), (1, 2, 0, 3), (1, -1, 1, -1)),
    ((40, 5, 130), (2, 0, 1), (1, -3, 3)),
    ((60, 3, 31, 2), (1, 3, 0, 2), (1, 1, 1, 1)),
    ((5, 60, 33, 2), (2, 0, 1, 3), (1, 1, -1, -1)),
    ((2, 33, 4, 19), (0, 2, 1, 3), (1, 1, 1, 5)),
]
KINDS = {**WIDTHS, 3: "V3", 20: "V20"}


def views(memory, kind):
    """A view of the same elements for each row of the table."""
    for shape, axes, steps in SHORT if COMPILED else SHORT[::3]:
        count = int(np.prod(shape)) * np.dtype(kind).itemsize
        x = np.ndarray(shape, kind, memory(count))
        yield x[tuple(slice(None, None, step) for step in steps)].transpose(axes)


@pytest.fixture
def small(kernels):
    """Boxes of few bytes, in a copy of any size."""
    loops.use_boxes()
    return kernels


def dirty(nbytes):
    return np.random.default_rng(nbytes).integers(0, 256, nbytes + 3, np.uint8).data[3:]


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_short_dims(kind, small):
    met = set()
    for x in views(dirty, kind):
        memory = np.full(x.nbytes + 200, 0xAB, np.uint8)
        out = np.ndarray(x.shape, kind, memory.data, 77)
        sj.ascontiguous(x, out=out)
        assert out.tobytes() == x.tobytes()
        assert (memory[:77] == 0xAB).all()
        assert (memory[77 + x.nbytes :] == 0xAB).all()
        strides = [8 * s for s in x.strides]
        bits = 8 * x.itemsize
        met.add(planner.plan(Layout.of(x.shape, strides, 0, bits), bits).strategy)
    assert Strategy.BOXES in met or not COMPILED


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_several_elements_at_one_place(kind, small):
    """Broadcasts, and windows that overlap."""
    x = np.ndarray((11, 18), kind, dirty(11 * 18 * np.dtype(kind).itemsize))[::-1].T
    windows = np.lib.stride_tricks.sliding_window_view(x, 7, axis=0)
    for view in (np.broadcast_to(x, (2, 18, 11)), windows.transpose(0, 2, 1), windows):
        assert sj.ascontiguous(view).tobytes() == view.tobytes()


@pytest.mark.parametrize("nbytes", [3, 5, 6, 7])
def test_short_runs_stay_within_their_column(nbytes, small):
    """Mirrored columns are put in the stage from the last one on, beside ones that are there."""
    x = np.ndarray((20, 6, 576), f"V{nbytes}", dirty(20 * 6 * 576 * nbytes))[..., ::9]
    view, gap = x.transpose(0, 2, 1)[::-1, ::-1], np.zeros((20, 64, 2), x.dtype)
    joined = sj.concat([view, gap], axis=2)
    assert joined.tobytes() == np.concatenate([view, gap], axis=2).tobytes()


@pytest.mark.skipif(not COMPILED, reason="NumPy copies")
@pytest.mark.parametrize(
    ("shape", "strides", "into", "first", "bits"),
    [
        ((80, 32, 4), (-4, 320, 1), (388, 4, 1), 316, 1),
        ((3, 7, 32, 15), (-15, -45, 315, 1), (3570, 510, 15, 1), 300, 1),
        ((2, 100, 3, 8), (-2400, 24, -4800, 3), (14400, 144, 24, 3), 12000, 3),
    ],
)
def test_short_runs_of_codes_stay_within_their_column(shape, strides, into, first, bits, small):
    """While no network is compiled for them."""
    layout, target = Layout.of(shape, strides, first, bits), Layout.of(shape, into, 3 * bits, bits)
    source, out = (np.frombuffer(dirty(x.span[1] // 8 + 9), np.uint8) for x in (layout, target))
    out = out.copy()
    wanted = np.unpackbits(out, bitorder="little")
    into, found = (np.add.outer(offsets(x), np.arange(bits)) for x in (target, layout))
    wanted[into] = np.unpackbits(source, bitorder="little")[found]
    route = routes.copies(layout, bits, target, 1, False)
    assert kernels.wait(route.names())
    routes.run(route, [8 * address_of(source)], [8 * address_of(out)])
    assert np.array_equal(np.unpackbits(out, bitorder="little"), wanted)


def offsets(layout):
    """Those of all elements, in bits."""
    return layout.offset + offsets_of([*zip(layout.shape, layout.strides, strict=True)])


@pytest.mark.parametrize("at_end", [False, True])
def test_no_byte_beside_the_source_is_read(at_end):
    run_alone(
        f"""
from test_boxes import *
loops.use("streamed")
loops.use_boxes()
place = Guarded({at_end})
for kind in (np.uint8, np.uint16, "V3"):
    for x in views(lambda nbytes: place(nbytes)[0].data, kind):
        out = place(x.nbytes)[0].view(kind).reshape(x.shape)
        assert sj.ascontiguous(x, out=out).tobytes() == x.tobytes()
"""
    )


PIXELS = [
    ((223, 301, 3), (1, 0, 2)),
    ((5, 150, 4, 61, 3), (0, 3, 2, 1, 4)),
    ((41, 999, 3), (1, 0, 2)),
]


@pytest.mark.parametrize("at_end", [False, True])
def test_pixels_of_three_bytes_are_transposed_in_blocks(at_end):
    run_alone(
        f"""
from test_boxes import *
place = Guarded({at_end})
for shape, axes in PIXELS:
    for back in (1, -1):
        x = place(int(np.prod(shape)))[0].reshape(shape)
        x[...] = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
        x = x[:, ::back].transpose(axes)
        out = place(x.nbytes)[0].reshape(x.shape)
        for _ in range(3):
            out[...] = 0
            assert sj.ascontiguous(x, out=out).tobytes() == x.tobytes()
        layout = Layout.of(x.shape, [8 * s for s in x.strides], 0, 8)
        made = planner.plan(layout, 8)
        assert made.strategy is Strategy.BOXES and made.step > 0 and made.width == 3
"""
    )


@pytest.mark.skipif(not COMPILED, reason="NumPy copies")
def test_the_last_box_near_the_end_of_a_page():
    """Whole vectors of its rows are read, if they end in the page where the source does."""
    run_alone(
        """
loops.use_boxes()
for columns in (9, 12, 13, 15):
    nbytes = 8191 * columns
    for left in (0, 1, 2, 3, 7, 15, 16, 64):
        pages = guarded(nbytes + left)
        memory = pages[pages.size - nbytes - left : pages.size - left]
        memory[...] = dirt(nbytes, nbytes)
        for shape in ((8191, columns), (columns, 8191)):
            x = memory.reshape(shape).T
            assert sj.ascontiguous(x).tobytes() == x.tobytes()
"""
    )


@pytest.mark.usefixtures("l2")
@pytest.mark.parametrize(
    ("shape", "axes", "dtype", "strategy"),
    [
        ((512, 31, 17, 33, 15), (4, 2, 0, 3, 1), np.uint8, Strategy.BOXES),
        ((9, 41, 512, 37, 7), (2, 0, 4, 1, 3), np.uint16, Strategy.BOXES),
        ((999_999, 15), (1, 0), np.uint8, Strategy.BOXES),
        ((573, 61, 9, 16, 5), (0, 1, 3, 2, 4), np.float32, Strategy.BOXES),
        ((4096, 4096), (1, 0), np.uint8, Strategy.TILES),
    ],
)
def test_what_is_copied_in_boxes(shape, axes, dtype, strategy):
    layout = Layout.row_major(shape, 8 * np.dtype(dtype).itemsize)
    made = planner.plan(layout.permute(axes), layout.bits)
    assert made.strategy is strategy
    if strategy is not Strategy.TILES:
        # A box is long runs on both sides, and stays in a cache.
        dims = sorted([*made.rows, *made.columns], key=lambda loop: loop.target)
        run = made.width
        for loop in dims:
            run *= loop.size if loop.target == run else 1
        assert run >= 500
        assert made.width * np.prod([loop.size for loop in dims]) <= 256 * 1024


def test_a_plan_says_how_its_last_boxes_reach_back():
    made = planner.plan(Layout.row_major((999_999, 15), 8).permute((1, 0)), 8)
    (loop,) = made.loops
    (rows,) = made.rows
    assert 0 <= loop.size * rows.size - 999_999 < loop.size
    assert (loop.part, loop.most) == (rows.size, 999_999 - rows.size)


@pytest.mark.skipif(not COMPILED, reason="takes long with the JIT off")
def test_plans_that_are_remembered_stay_small():
    memory = np.zeros(4000 * 230, np.uint8)

    def move(rows):
        sj.ascontiguous(memory[: rows * 230].reshape(rows, 230)[:, ::5].T)

    with loops.used("boxes"):
        move(4000)  # loads the kernels
        tracemalloc.start()
        try:
            for rows in range(3740, 4000):
                move(rows)
            held, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert held < 16 * 2**20
