"""Which loops the tests run: every size through compiled kernels, serial or parallel."""

import os
import signal
from collections.abc import Callable, Iterator

import guarded
import loops
import pytest
from hypothesis import HealthCheck, settings

from shapejit.runtime import cpu_caches

# They make the fixtures, in an environment of their own.
collect_ignore_glob = ["fixtures/*"]

# A first call compiles, and others have the cores: time says nothing about an example.
settings.register_profile("shapejit", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shapejit")

# No work is too small for kernels; processes that tests start have it, too.
os.environ["SHAPEJIT_PATIENCE"] = "0"

# Behind nohup it is ignored, and processes that tests start would ignore it, too.
signal.signal(signal.SIGINT, signal.default_int_handler)

guarded.guard_stages()


@pytest.fixture(params=["serial", "parallel", "streamed"])
def kernels(request: pytest.FixtureRequest) -> Iterator[str]:
    """No size is small enough for NumPy's copy, and every copy is serial or parallel."""
    with loops.used(request.param):
        yield request.param


@pytest.fixture
def l2(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], None]]:
    """Plans are made for the default size of a cache, or from a call on for so many bytes."""

    def set_size(nbytes: int) -> None:
        monkeypatch.setattr(cpu_caches, "data_caches", lambda: [(2, nbytes)])
        cpu_caches.l2.cache_clear()
        loops.forget_plans()

    set_size(cpu_caches.DEFAULT)
    yield set_size
    cpu_caches.l2.cache_clear()
    loops.forget_plans()
