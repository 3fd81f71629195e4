"""Which loops run: those that the sizes call for, or one kind whatever the size."""

from contextlib import contextmanager

from shapejit.engine import copying, routes
from shapejit.operations import casts
from shapejit.planning import boxes, thresholds
from shapejit.runtime import result_memory

NEVER = 2**62
AS_THEY_ARE = {n: v for n, v in vars(thresholds).items() if n.endswith(("_BELOW", "_FROM"))}
BY_BOXES = dict.fromkeys(("BOXES_FROM", "GATHERED_FROM", "PICKED_FROM"), 0)
NOT_PLANNED = ("PARALLEL_FROM", "STREAM_FROM", "SHUFFLES_FROM", *BY_BOXES)
PLANNED = dict.fromkeys(AS_THEY_ARE, 0) | dict.fromkeys(NOT_PLANNED, NEVER)

# The planner's thresholds, in bytes.
LIMITS = {
    "by size": AS_THEY_ARE,
    "small": PLANNED
    | dict.fromkeys(
        ("NO_PLAN_MAX_BYTES", "SCALAR_MAX_BYTES", "MANY_BELOW", "PLAN_ON_FIRST_USE_FROM"), NEVER
    ),
    "serial": PLANNED,
    "boxes": PLANNED | BY_BOXES | {"TILES_FROM": NEVER},
    "shuffles": PLANNED | {"SHUFFLES_FROM": 0},
    "shuffles streamed": PLANNED | {"SHUFFLES_FROM": 0, "PARALLEL_FROM": 0, "STREAM_FROM": 0},
    "parallel": PLANNED | {"PARALLEL_FROM": 0},
    "streamed": PLANNED | {"PARALLEL_FROM": 0, "STREAM_FROM": 0},
    "streamed by one thread": PLANNED | {"STREAM_FROM": 0},
}

# Bytes of a box, and of its runs; matrices of any number.
SMALL_BOXES = {"BOX_BYTES": 6000, "TARGET_RUN": 300, "SOURCE_RUN": 150, "MATRIX_PART": 1}
BOXES = {name: getattr(boxes, name) for name in SMALL_BOXES}

# Casts of transposed sources go by tiles, or in boxes.
# Results of any size lie in memory that was used before, and is full of something else.
USED_MEMORY = ("parallel", "streamed")
RESULTS_FROM, TAKE = result_memory.FROM, result_memory.ResultMemory.take


def use(kind):
    """From now on, plans are made with these limits."""
    vars(thresholds).update(LIMITS[kind])
    vars(boxes).update(BOXES)
    result_memory.FROM = 1 if kind in USED_MEMORY else RESULTS_FROM
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
    vars(thresholds).update(BY_BOXES)
    vars(boxes).update(SMALL_BOXES)
    forget_plans()


def forget_plans():
    """Empty the caches of plans."""
    for known in (copying.routes, *casts.routes.values(), routes):
        known.clear()
