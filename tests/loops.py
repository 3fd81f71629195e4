"""Which loops run: those that the sizes call for, or one kind whatever the size."""

from contextlib import contextmanager

from shapejit.engine import routes, small_calls
from shapejit.planning import boxes, casts as cast_planning, planner, thresholds, tiles
from shapejit.planning.strategies import Strategy
from shapejit.runtime import result_memory

NEVER = 2**62
AS_THEY_ARE = {
    n: v for n, v in vars(thresholds).items() if n.endswith(("_BELOW", "_FROM", "_MAX_BYTES"))
}
STREAMED = dict.fromkeys(("STREAM_FROM", "RUNS_STREAM_FROM"), 0)
NOT_PLANNED = ("PARALLEL_FROM", "SHUFFLES_FROM", *STREAMED)
PLANNED = dict.fromkeys(AS_THEY_ARE, 0) | dict.fromkeys(NOT_PLANNED, NEVER)

# The planner's thresholds, in bytes.
LIMITS = {
    "by size": AS_THEY_ARE,
    "small": PLANNED
    | dict.fromkeys(("NO_PLAN_MAX_BYTES", "SCALARS_BELOW", "PLAN_ON_FIRST_USE_FROM"), NEVER),
    "serial": PLANNED,
    "boxes": PLANNED,
    "shuffles": PLANNED | {"SHUFFLES_FROM": 0},
    "shuffles streamed": PLANNED | {"SHUFFLES_FROM": 0, "PARALLEL_FROM": 0} | STREAMED,
    "parallel": PLANNED | {"PARALLEL_FROM": 0},
    "streamed": PLANNED | {"PARALLEL_FROM": 0} | STREAMED,
    "streamed by one thread": PLANNED | STREAMED,
}

# Bytes of a box, and of its runs.
SMALL_BOXES = {"BOX_BYTES": 6000, "TARGET_RUN": 300, "SOURCE_RUN": 150}
BOXES = {name: getattr(boxes, name) for name in SMALL_BOXES}

# Results of any size lie in memory that was used before, and is full of something else.
USED_MEMORY = ("parallel", "streamed")
RESULTS_FROM, TAKE = thresholds.RESULT_MEMORY_FROM, result_memory.ResultMemory.take


def use(kind):
    """From now on, plans are made with these limits."""
    vars(thresholds).update(LIMITS[kind])
    cast_planning.tile_of = no_tile if kind == "boxes" else tiles.tile_of
    vars(boxes).update(BOXES)
    choose_boxes(kind in ("by size", "boxes"))
    thresholds.RESULT_MEMORY_FROM = 1 if kind in USED_MEMORY else RESULTS_FROM
    result_memory.ResultMemory.take = take_dirty if kind in USED_MEMORY else TAKE
    forget_plans()


@contextmanager
def used(kind):
    """The same, for a while."""
    use(kind)
    try:
        yield
    finally:
        use("by size")


def take_dirty(kept, nbytes):
    """Memory for a result in which no byte is what it should be, but by chance."""
    taken = TAKE(kept, nbytes)
    if taken is not None:
        taken[0][:] = 0xA5
    return taken


def use_boxes():
    """From now on, copies of any size may go in boxes, of few bytes, until the next `use`."""
    thresholds.LATE_BOXES_FROM = 0
    vars(boxes).update(SMALL_BOXES)
    choose_boxes(True)
    forget_plans()


def choose_boxes(they_pay):
    """Whether copies go in boxes that other loops could make, too."""
    planner.pays = boxes.pays if they_pay else lambda tile, total: tile.strategy is Strategy.BOXES
    planner.codes_pay = (
        boxes.codes_pay if they_pay else lambda tile, *_: tile.strategy is Strategy.CODE_BOXES
    )


def no_tile(loops, width):
    """Casts of transposed sources go in boxes."""
    return tiles.Tile(Strategy.ROWS, width, tuple(loops))


def forget_plans():
    """Empty the caches of plans."""
    for known in (small_calls.KNOWN, small_calls.COPIES, routes.FOUND):
        known.clear()
