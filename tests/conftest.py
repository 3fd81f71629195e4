"""Which loops the tests run: every size through compiled kernels, serial or parallel."""

from collections.abc import Iterator

import pytest
import thresholds
from hypothesis import settings

# A first call compiles: time says nothing about an example.
settings.register_profile("shapejit", deadline=None)
settings.load_profile("shapejit")


@pytest.fixture(params=["serial", "parallel", "streamed"])
def kernels(request: pytest.FixtureRequest) -> Iterator[str]:
    """No size is small enough for NumPy's copy, and every copy is serial or parallel."""
    parallel_from = thresholds.NEVER if request.param == "serial" else 0
    stream_from = 0 if request.param == "streamed" else thresholds.NEVER
    with thresholds.using(parallel_from=parallel_from, stream_from=stream_from):
        yield request.param
