import numpy as np
import pytest

from shapejit.planning import tables
from shapejit.planning.cast_plans import Scales
from shapejit.planning.casts import cast_plan
from shapejit.planning.planner import joined, plan
from shapejit.planning.strategies import Strategy
from shapejit.shapes.layout import Layout

BIG = 1 << 10

pytestmark = pytest.mark.usefixtures("l2")


def view(shape, bits, *views):
    layout = Layout.row_major(shape, bits)
    for name, *arguments in views:
        layout = getattr(layout, name)(*arguments)
    return layout


@pytest.mark.parametrize(
    ("layout", "strategy", "width"),
    [
        (view((0, 5), 8), Strategy.NOTHING, 1),
        (view((BIG, BIG), 32), Strategy.ONE_RUN, 32 * BIG * BIG),
        (view((3, 5), 4), Strategy.ONE_RUN, 60),
        (view((4, 5), 4), Strategy.ONE_RUN, 80),
        (view((3 * BIG, BIG), 16, ("narrow", 1, 1, 1000, 1)), Strategy.ROWS, 2000),
        (view((BIG, BIG), 16, ("narrow", 1, 1, 1000, 1)), "NumPy", 2000),
        (view((BIG, BIG), 8, ("narrow", 1, 1, 1000, 1)), "NumPy", 1000),
        (view((BIG, BIG, 3), 8, ("permute", (1, 0, 2))), Strategy.BOXES, 3),
        (view((8, BIG, 60), 16, ("permute", (1, 0, 2))), Strategy.ROWS, 120),
        (view((32, BIG, 60), 16, ("permute", (1, 0, 2))), Strategy.SCATTER, 120),
        (view((32, BIG, 30), 16, ("permute", (1, 0, 2))), Strategy.SHUFFLE, 60),
        (view((32, 8 * BIG, 30), 16, ("permute", (1, 0, 2))), Strategy.RUN_TILES, 60),
        (view((32, BIG, 128), 16, ("permute", (1, 0, 2))), Strategy.SCATTER, 256),
        (view((32, 997, 128), 16, ("permute", (1, 0, 2))), Strategy.RUN_TILES, 256),
        (view((BIG, 32, 128), 16, ("permute", (1, 0, 2))), Strategy.SCATTER, 256),
        (view((64, BIG, 2000), 8, ("permute", (1, 0, 2))), Strategy.SCATTER, 2000),
        (view((64, 997, 2000), 8, ("permute", (1, 0, 2))), Strategy.ROWS, 2000),
        (view((7, 8 * BIG, 128), 8, ("permute", (1, 0, 2))), Strategy.ROWS, 128),
        (view((2 * BIG, BIG, 3), 8, ("permute", (0, 2, 1))), Strategy.SHUFFLE, 32),
        (view((BIG, BIG, 3), 8, ("permute", (0, 2, 1))), Strategy.SHUFFLE, 32),
        (view((BIG, 3, BIG), 8, ("permute", (0, 2, 1))), Strategy.SHUFFLE, 32),
        (view((BIG, BIG, 5), 8, ("permute", (0, 2, 1))), Strategy.SHUFFLE, 16),
        (view((BIG, BIG), 32, ("narrow", 1, 0, 512, 2)), Strategy.SHUFFLE, 64),
        (view((BIG, BIG), 32, ("narrow", 1, 0, 200, 5)), Strategy.SHUFFLE, 32),
        (view((BIG, 5 * BIG), 32, ("narrow", 1, 0, BIG, 5)), Strategy.SHUFFLE, 64),
        (view((BIG, BIG, 3), 8, ("flip", (2,))), Strategy.SHUFFLE, 126),
        (view((BIG, BIG, 4), 32, ("flip", (2,))), Strategy.SHUFFLE, 64),
        (view((BIG, BIG, 3), 32, ("flip", (2,))), Strategy.SHUFFLE, 120),
        (view((BIG, 1), 32, ("broadcast_to", (BIG, BIG))), Strategy.TILES, 4),
        (view((BIG, BIG), 32, ("permute", (1, 0))), Strategy.TILES, 4),
        (view((BIG, BIG, 2), 32, ("permute", (1, 0, 2))), Strategy.TILES, 8),
        (view((BIG, BIG), 32, ("flip", (1,))), Strategy.SHUFFLE, 64),
        (view((BIG, BIG), 4, ("permute", (1, 0))), Strategy.BIT_TILES, 4),
        (view((BIG, BIG), 4, ("permute", (1, 0)), ("flip", (0, 1))), Strategy.BIT_TILES, 4),
        (view((BIG, 20), 6, ("permute", (1, 0))), Strategy.CODE_BOXES, 6),
        (view((BIG, 9), 4, ("permute", (1, 0))), Strategy.BIT_TILES, 4),
        (view((BIG, 5), 4, ("permute", (1, 0))), Strategy.CODE_BOXES, 4),
        (view((9, BIG), 4, ("permute", (1, 0))), Strategy.BIT_TILES, 4),
        (view((5, BIG), 4, ("permute", (1, 0))), Strategy.CODE_BOXES, 4),
        (view((BIG, BIG), 4, ("narrow", 1, 0, 512, 2)), Strategy.SHUFFLE, 64),
        (view((BIG, 3, BIG), 4, ("permute", (0, 2, 1))), Strategy.SHUFFLE, 32),
        (view((BIG * BIG,), 4, ("narrow", 0, 1, BIG, 1)), Strategy.ONE_RUN, 4 * BIG),
        (view((BIG, BIG, 3), 4, ("permute", (1, 0, 2))), Strategy.SHUFFLE, 12),
        (view((BIG, BIG, 4), 4, ("permute", (1, 0, 2))), Strategy.TILES, 2),
        (view((BIG, BIG, 6), 4, ("permute", (1, 0, 2))), Strategy.BOXES, 3),
        (view((BIG, BIG), 4, ("narrow", 1, 1, 1000, 1)), Strategy.BIT_ROWS, 4000),
        (view((4, 4), 32, ("permute", (1, 0))), "NumPy", 4),
    ],
    ids=str,
)
def test_strategy(layout, strategy, width):
    made = plan(layout, layout.bits)
    assert ("NumPy" if made.by_numpy else made.strategy, made.width) == (strategy, width)


def test_blocks_of_packed_elements_are_not_written_apart():
    """Along the source their targets are lines apart: tiles collect whole lines."""
    made = plan(view((97, 64, 101, 256), 4, ("permute", (3, 0, 2, 1))), 4)
    assert made.strategy is Strategy.BIT_TILES


@pytest.mark.parametrize(
    ("shape", "axes", "strategy"),
    [
        ((BIG * BIG + 1, 25, 3), (0, 2, 1), Strategy.CODE_BOXES),
        ((BIG * BIG + 1, 3, 25), (0, 2, 1), Strategy.CODE_BOXES),
        ((3, 64 * BIG * BIG + 1), (1, 0), Strategy.CODE_BOXES),
        ((64 * BIG * BIG + 1, 3), (1, 0), Strategy.CODE_BOXES),
        ((64 * BIG * BIG + 1, 9), (1, 0), Strategy.BIT_TILES),
    ],
)
def test_short_runs_of_interleaved_codes_are_boxes(shape, axes, strategy):
    assert plan(view(shape, 1, ("permute", axes)), 1).strategy is strategy


@pytest.mark.parametrize(
    ("bits", "run", "offset", "strategy", "width"),
    [
        (1, 2, 0, Strategy.BIT_TILES, 2),
        (1, 6, 6, Strategy.BIT_TILES, 6),
        (2, 3, 0, Strategy.BIT_TILES, 6),
        (1, 20, 0, Strategy.CODE_BOXES, 4),
        (1, 2, 1, Strategy.CODE_BOXES, 1),
    ],
)
def test_runs_of_packed_elements_are_wider_elements(bits, run, offset, strategy, width):
    shape, strides = (BIG + 1, BIG - 1, run), (bits * run, bits * run * (BIG + 1), bits)
    made = plan(Layout.of(shape, strides, offset, bits), bits)
    assert (made.strategy, made.width) == (strategy, width)


def test_casts_with_scales_have_runs_as_long_as_those_without():
    shape = (BIG * BIG // 32, 32)
    source, scale = Layout.row_major(shape, 4), Layout.of(shape, (32, 0), 0, 32)
    runs = {cast_plan(source, 16, None, x, 1).run_length for x in (None, Scales(32, scale))}
    assert runs == {16384}


def test_unpacking_is_a_plan_of_codes():
    made = plan(view((8, 8), 4), 8)
    assert (made.strategy, made.width, made.unit, made.nbytes) == (Strategy.CODE_BOXES, 4, 8, 64)


def test_neighbours_merge():
    made = plan(view((32, 16, 32, 64), 32, ("permute", (2, 3, 0, 1))), 32)
    assert made.loops == ()
    assert [loop.size for loop in made.columns] == [2048]
    assert [loop.size for loop in made.rows] == [512]


def test_a_tile_takes_dims_until_it_is_a_block():
    """A full reversal: rows are the target's last dims, columns the source's."""
    made = plan(view((15, 16, 17, 18, 19, 20), 32, ("permute", (5, 4, 3, 2, 1, 0))), 32)
    assert [loop.size for loop in made.rows] == [17, 16, 15]
    assert [loop.size for loop in made.columns] == [19, 20]
    assert [loop.size for loop in made.loops] == [18]


def test_plans_are_values():
    layout = view((BIG, BIG), 16, ("permute", (1, 0)))
    first = plan(layout, 16)
    assert plan(layout, 16) == first
    assert hash(plan(layout, 16)) == hash(first)


def test_plans_print_which_way_the_bytes_go():
    text = str(plan(view((64, BIG, BIG), 32, ("permute", (0, 2, 1))), 32))
    assert text.splitlines() == [
        "tiles: blocks transposed in registers; 4 bytes at a time, 268435456 bytes",
        "  loop 64: source +4194304, target +4194304 bytes",
        "  column 1024: source +4, target +4096 bytes",
        "  row 1024: source +4096, target +4 bytes",
        "  split over the threads, whole lines streamed past the caches",
    ]


@pytest.mark.parametrize("bits", [8, 16, 32, 64, 128])
def test_offsets_are_those_of_the_elements(bits):
    """However a side of a tile is cut, its table gives each element's place."""
    layout = view((5, 6, 7, 8, 9), bits, ("permute", (4, 3, 0, 2, 1)))
    made = plan(layout, bits)
    count, start, inner, stride, block, _ = made.sides.tile[0].tolist()
    places = np.zeros(1, int)
    for size, source, _ in made.rows:
        places = (places[:, None] + np.arange(size) * source).reshape(-1)
    assert count == len(places)
    for first in range(0, count, block):
        step, rest = divmod(first, inner)
        some = made.sides.offsets[start + rest : start + rest + min(block, count - first)]
        assert np.array_equal(step * stride + some, places[first : first + block])


def test_units_of_work():
    assert plan(view((3, 5000), 8), 8).count == 5  # pages that it may touch
    assert plan(view((9000,), 4, ("flip", (0,))), 4).count == 3  # blocks of codes
    made = plan(view((1000, 130), 32, ("permute", (1, 0))), 32)
    assert made.count == -(-1000 // (tables.ROW_BYTES[4] // 4))


@pytest.mark.parametrize(("mebibytes", "streamed"), [(8, False), (16, True)])
def test_runs_are_streamed_only_where_no_cache_holds_them(mebibytes, streamed):
    part = Layout.row_major((mebibytes << 16,), 8)
    into = Layout.row_major((16, mebibytes << 16), 8).narrow(0, 0, 1, 1).reshape(part.shape)
    assert joined(part, into, 16, 8 * part.size).streaming is streamed
    assert plan(Layout.row_major((1024, mebibytes << 8), 32).permute((1, 0))).streaming


def test_tables_of_interleaved_arrays_stay_small():
    """Those of few rows have an offset for each row."""
    for arrays, strategy in ((40, Strategy.TILES), (2048, None)):
        layout = Layout.row_major((1000, 16), 8).permute((1, 0))
        into = Layout.of((16, 1000), (8000 * arrays, 8), 0, 8)
        made = joined(layout, into, arrays, 8000)
        assert (made.array_stride > 0) == (strategy is not None)
        tables, _ = made.row.tables(made, 32)
        assert sum(table.nbytes for table in tables) < 4 * 2**20
