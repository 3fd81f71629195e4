"""Which loops run: those that the sizes call for, or one kind whatever the size."""

from shapejit import operations, planner

# From how many elements on compiled loops run, from how many bytes on several threads do,
# and from how many on results are streamed past the caches.
LIMITS = {
    "by size": (planner.NUMPY_BELOW, planner.PARALLEL_FROM, planner.STREAM_FROM),
    "serial": (0, 2**63, 2**63),
    "parallel": (0, 0, 2**63),
    "streamed": (0, 0, 0),
}


def use(kind):
    """From now on, plans are made with these limits."""
    planner.NUMPY_BELOW, planner.PARALLEL_FROM, planner.STREAM_FROM = LIMITS[kind]
    planner.plan.cache_clear()
    operations._array_plan.cache_clear()
