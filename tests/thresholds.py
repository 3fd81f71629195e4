"""Which loops run: lets tests send every size through compiled kernels, serial or parallel."""

from contextlib import contextmanager

from shapejit import copying, planner

NEVER = 2**62


def use(
    *,
    numpy_below: int = 0,
    parallel_from: int = NEVER,
    stream_from: int = NEVER,
    small_below: int = 0,
) -> None:
    """Set the planner's thresholds (bytes) and forget the plans that were made with others."""
    planner.NUMPY_BELOW = planner.NUMPYS_OWN_BELOW = numpy_below
    planner.SMALL_BELOW = planner.ONCE_BELOW = small_below
    planner.PARALLEL_FROM, planner.STREAM_FROM = parallel_from, stream_from
    forget_plans()


def forget_plans() -> None:
    """Empty the caches of plans."""
    planner._plan.cache_clear()
    copying._plans.clear()
    copying._once.clear()


@contextmanager
def using(**thresholds: int):
    """`use` them, and those of before again afterwards."""
    before = {n: v for n, v in vars(planner).items() if n.endswith(("_BELOW", "_FROM"))}
    use(**thresholds)
    try:
        yield
    finally:
        vars(planner).update(before)
        forget_plans()
