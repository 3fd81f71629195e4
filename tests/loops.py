"""Which loops run: those that the sizes call for, or one kind whatever the size."""

from contextlib import contextmanager

from shapejit import copying, planner

NEVER = 2**62
AS_THEY_ARE = {n: v for n, v in vars(planner).items() if n.endswith(("_BELOW", "_FROM"))}
PLANNED = dict.fromkeys(AS_THEY_ARE, 0) | {"PARALLEL_FROM": NEVER, "STREAM_FROM": NEVER}

# The planner's thresholds, in bytes.
LIMITS = {
    "by size": AS_THEY_ARE,
    "small": PLANNED | {"SMALL_BELOW": NEVER, "ONCE_BELOW": NEVER},
    "serial": PLANNED,
    "parallel": PLANNED | {"PARALLEL_FROM": 0},
    "streamed": PLANNED | {"PARALLEL_FROM": 0, "STREAM_FROM": 0},
    "streamed by one thread": PLANNED | {"STREAM_FROM": 0},
}


def use(kind):
    """From now on, plans are made with these limits."""
    vars(planner).update(LIMITS[kind])
    forget_plans()


@contextmanager
def used(kind):
    """The same, for a while."""
    use(kind)
    try:
        yield
    finally:
        use("by size")


def forget_plans():
    """Empty the caches of plans."""
    planner._plan.cache_clear()
    copying._plans.clear()
    copying._once.clear()
