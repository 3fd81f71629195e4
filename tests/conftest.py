"""Which loops the tests run: every size through compiled kernels, serial or parallel."""

from collections.abc import Iterator

import pytest
from hypothesis import settings

from shapejit import operations, planner

# A first call compiles: time says nothing about an example.
settings.register_profile("shapejit", deadline=None)
settings.load_profile("shapejit")


def _clear() -> None:
    planner.plan.cache_clear()
    operations._array_plan.cache_clear()


@pytest.fixture(params=["serial", "parallel", "streamed"])
def kernels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """No size is small enough for NumPy's copy, and every copy is serial or parallel."""
    monkeypatch.setattr(planner, "NUMPY_BELOW", 0)
    monkeypatch.setattr(planner, "PARALLEL_FROM", 2**63 if request.param == "serial" else 0)
    monkeypatch.setattr(planner, "STREAM_FROM", 0 if request.param == "streamed" else 2**63)
    _clear()
    yield request.param
    _clear()
