"""The first copy of a new process: with numba's disk cache warm, and without one."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

# What the copy is, of a 4 MiB array `a`.
COPIES = {
    "transpose-float32": ("float32", "a.T"),
    "transpose-uint8": ("uint8", "a.T"),
    "transpose-complex128": ("complex128", "a.T"),
    "flip-float32": ("float32", "a[:, ::-1]"),
    "rows-float32": ("float32", "a[:, 3:-2]"),
}

# Both sides import NumPy before the clock starts and end with one call.
CLOCK = """
import time, numpy
a = numpy.ones(4 << 20, numpy.uint8).view({dtype!r}).reshape(1024, -1)
start = time.perf_counter()
{call}
print(time.perf_counter() - start)
"""
OURS = "import shapejit; shapejit.ascontiguous({view})"
# By its path: a sibling is imported without the package and what it imports.
_TRIVIAL = "import sys; sys.path.insert(0, {folder!r}); import trivial; trivial.call()"


@dataclass(frozen=True)
class FirstCall:
    """Seconds from the import to the end of one copy, each in a new process.

    `warm` and `warm_trivial` (a trivial parallel numba function instead) with
    numba's disk cache filled, `cold` and `cold_trivial` with an empty one.
    """

    name: str
    cold: float
    cold_trivial: float
    warm: float
    warm_trivial: float

    @property
    def warm_beyond(self) -> float:
        """Seconds of ours beyond the trivial function, both cached."""
        return self.warm - self.warm_trivial

    def as_json(self) -> dict[str, Any]:
        """As JSON has it."""
        return {"suite": "first-call", **asdict(self), "warm_beyond": self.warm_beyond}


def measured(names: list[str], rounds: int, tell: Callable[[str], object]) -> Iterator[FirstCall]:
    """One FirstCall a name; `rounds` warm processes of each kind, in turn; their medians."""
    for name in names:
        tell(f"first-call/{name}")
        dtype, view = COPIES[name]
        ours = CLOCK.format(dtype=dtype, call=OURS.format(view=view))
        folder = os.path.dirname(os.path.abspath(__file__))
        other = CLOCK.format(dtype=dtype, call=_TRIVIAL.format(folder=folder))
        with tempfile.TemporaryDirectory(prefix="shapejit-") as cache:
            cold, cold_other = seconds_of(ours, cache), seconds_of(other, cache)
            pairs = [(seconds_of(ours, cache), seconds_of(other, cache)) for _ in range(rounds)]
        warm, warm_other = (median(taken) for taken in zip(*pairs, strict=True))
        yield FirstCall(name, cold, cold_other, warm, warm_other)


def seconds_of(code: str, cache: str) -> float:
    """What code of its own process prints, with kernels cached in the folder `cache`."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": cache}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"the first call failed: {done.stderr}")
    return float(done.stdout)
