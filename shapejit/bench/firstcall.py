"""The first call of a new process: with numba's disk cache warm, and without one."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any, NamedTuple


class Call(NamedTuple):
    """A call of shapejit (`sj`) on `a`, 4 MiB of a dtype, and the seconds that it may take.

    They count beyond those of a trivial parallel function, with nothing in numba's disk cache.
    """

    dtype: str
    code: str
    limit: float = 1.0


CALLS = {
    "transpose-float32": Call("float32", "sj.ascontiguous(a.T)"),
    "transpose-uint8": Call("uint8", "sj.ascontiguous(a.T)"),
    "transpose-complex128": Call("complex128", "sj.ascontiguous(a.T)"),
    "flip-float32": Call("float32", "sj.ascontiguous(a[:, ::-1])"),
    "rows-float32": Call("float32", "sj.ascontiguous(a[:, 3:-2])"),
    "transpose-64MiB": Call("float32", "sj.ascontiguous(sj.broadcast_to(a, (16, *a.shape)).T)"),
    "pack-4x4": Call("uint8", "sj.pack(a[:4, :4], 'int4')"),
    "transpose-packed-4x4": Call("uint8", "sj.ascontiguous(sj.pack(a[:4, :4], 'int4').T)"),
    "cast-64x64": Call("float32", "sj.cast(a[:64, :64], 'bfloat16')"),
    "reshape-batch-100": Call(
        "float32", "sj.reshape_batch([a[:9, :k].T for k in range(100)], -1)", 1.5
    ),
    "map-100": Call(
        "float32", "sj.plan((8, 9), 'float32', lambda t: t.T).map([a[:8, :9]] * 100)", 1.5
    ),
    "demo": Call("float32", "demo.run(lambda text: None)", 6.0),
}

# Both sides import NumPy before the clock starts and end with one call.
CLOCK = """
import time, numpy
a = numpy.ones(4 << 20, numpy.uint8).view({dtype!r}).reshape(1024, -1)
start = time.perf_counter()
{call}
print(time.perf_counter() - start)
"""
OURS = "import shapejit as sj; from shapejit.bench import demo; {code}"
# By its path: a sibling is imported without the package and what it imports.
_TRIVIAL = "import sys; sys.path.insert(0, {folder!r}); import trivial; trivial.call()"


@dataclass(frozen=True)
class FirstCall:
    """Seconds from the import to the end of one call, each in a new process.

    `warm` and `warm_trivial` (a trivial parallel numba function instead) with
    numba's disk cache filled, `cold` and `cold_trivial` with an empty one. `limit` is how
    much longer `cold` may take than `cold_trivial`.
    """

    name: str
    cold: float
    cold_trivial: float
    warm: float
    warm_trivial: float
    limit: float = 1.0

    @property
    def cold_beyond(self) -> float:
        """Seconds of ours beyond the trivial function, nothing cached."""
        return self.cold - self.cold_trivial

    @property
    def warm_beyond(self) -> float:
        """Seconds of ours beyond the trivial function, both cached."""
        return self.warm - self.warm_trivial

    def as_json(self) -> dict[str, Any]:
        """As JSON has it."""
        beyond = {"warm_beyond": self.warm_beyond, "cold_beyond": self.cold_beyond}
        return {"suite": "first-call", **asdict(self), **beyond}


def measured(names: list[str], rounds: int, tell: Callable[[str], object]) -> Iterator[FirstCall]:
    """One FirstCall a name; `rounds` warm processes of each kind, in turn; their medians."""
    for name in names:
        tell(f"first-call/{name}")
        made = CALLS[name]
        ours = CLOCK.format(dtype=made.dtype, call=OURS.format(code=made.code))
        folder = os.path.dirname(os.path.abspath(__file__))
        other = CLOCK.format(dtype=made.dtype, call=_TRIVIAL.format(folder=folder))
        with tempfile.TemporaryDirectory(prefix="shapejit-") as cache:
            cold, cold_other = seconds_of(ours, cache), seconds_of(other, cache)
            pairs = [(seconds_of(ours, cache), seconds_of(other, cache)) for _ in range(rounds)]
        warm, warm_other = (median(taken) for taken in zip(*pairs, strict=True))
        yield FirstCall(name, cold, cold_other, warm, warm_other, made.limit)


def seconds_of(code: str, cache: str) -> float:
    """What code of its own process prints, with kernels cached in the folder `cache`."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": cache}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"the first call failed: {done.stderr}")
    return float(done.stdout)
