import numpy as np
import pytest

from shapejit import planner
from shapejit.layout import Layout
from shapejit.planner import Strategy, plan

BIG = 1 << 10


def view(shape, bits, *views):
    layout = Layout.row_major(shape, bits)
    for name, *arguments in views:
        layout = getattr(layout, name)(*arguments)
    return layout


@pytest.mark.parametrize(
    ("layout", "strategy", "width"),
    [
        (view((0, 5), 8), Strategy.NOTHING, 1),
        (view((BIG, BIG), 32), Strategy.ONE_RUN, 1),
        (view((3, 5), 4), Strategy.ONE_RUN, 1),
        (view((BIG, BIG), 8, ("narrow", 1, 1, 1000, 1)), Strategy.ROWS, 1000),
        (view((BIG, BIG, 3), 8, ("permute", (1, 0, 2))), Strategy.ROWS, 3),
        (view((BIG, BIG), 32, ("permute", (1, 0))), Strategy.TILES, 4),
        (view((BIG, BIG, 2), 32, ("permute", (1, 0, 2))), Strategy.TILES, 8),
        (view((BIG, BIG), 32, ("flip", (1,))), Strategy.TILES, 4),
        (view((BIG, BIG), 4, ("permute", (1, 0))), Strategy.BITS, 4),
        (view((BIG, BIG, 4), 4, ("permute", (1, 0, 2))), Strategy.TILES, 2),
        (view((BIG, BIG, 6), 4, ("permute", (1, 0, 2))), Strategy.ROWS, 3),
        (view((BIG, BIG), 4, ("narrow", 1, 1, 1000, 1)), Strategy.BITS, 4),
        (view((4, 4), 32, ("permute", (1, 0))), Strategy.NUMPY, 4),
    ],
    ids=str,
)
def test_strategy(layout, strategy, width):
    made = plan(layout, layout.bits)
    assert (made.strategy, made.width) == (strategy, width)


def test_unpacking_is_a_plan_of_bits():
    made = plan(view((8, 8), 4), 8)
    assert (made.strategy, made.width, made.unit, made.nbytes) == (Strategy.BITS, 4, 8, 64)


def test_neighbours_merge():
    made = plan(view((8, 16, 32, 64), 32, ("permute", (2, 3, 0, 1))), 32)
    assert made.loops == ()
    assert [loop.size for loop in made.inner] == [2048, 128]


def test_plans_are_values():
    layout = view((BIG, BIG), 16, ("permute", (1, 0)))
    planner.plan.cache_clear()
    first = plan(layout, 16)
    planner.plan.cache_clear()
    assert plan(layout, 16) == first
    assert hash(plan(layout, 16)) == hash(first)
    assert plan(layout, 16) is plan(layout, 16)


def test_plans_print_which_way_the_bytes_go():
    text = str(plan(view((64, BIG, BIG), 32, ("permute", (0, 2, 1))), 32))
    assert text.splitlines() == [
        "tiles: 2-D blocks of elements; 4 bytes at a time, 268435456 bytes",
        "  loop 64: source +4194304, target +4194304 bytes",
        "    tile 1024: source +4, target +4096 bytes",
        "      tile 1024: source +4096, target +4 bytes",
        "split over the threads",
    ]


def test_blocks_cover_a_tile_exactly():
    made = plan(view((1000, 130), 32, ("permute", (1, 0))), 32)
    assert made.table[:, 0].tolist() == [-(-130 // planner.TILE), -(-1000 // planner.TILE)]
    assert made.count == np.prod(made.table[:, 0])
