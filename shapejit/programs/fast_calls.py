"""Small calls of a Program that go from Python straight to a kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..launches import Addresses
from ..places import FEW, headers
from .specialization import Specialization

MOST = 4  # kinds of arrays whose calls go straight to a kernel
CALLS = 3  # small calls before numba is imported for their sake


class FastCall(NamedTuple):
    """A kernel that does a whole call, if both arrays are as its `key` says."""

    fill: Callable[[int, int, Addresses], bool]
    key: Addresses
    dtypes: tuple[np.dtype[Any], ...]  # the kernel knows them by their address


class FastCalls:
    """The fast calls of a Program, the last one found first; threads may add to them at once."""

    def __init__(self) -> None:
        self.known: tuple[FastCall, ...] = ()
        self._calls = 0

    def add(self, special: Specialization, x: NDArray[Any], out: NDArray[Any]) -> bool:
        """Let later calls with arrays like these be fast, if they may; whether `out` is filled."""
        self._calls += 1
        # numba is only imported for the sake of whoever calls several times.
        kernels = headers(FEW if self._calls >= CALLS else 1, "fill")
        if kernels is None or special.small_plan is None:
            return False
        low, high = special.source.span
        kinds = [kernels.kind_of(a.dtype, a.shape, a.strides) for a in (x, out)]
        key = kernels.fast_call_key(*kinds, special.small_plan, low // 8, high // 8, out.nbytes)
        made = FastCall(kernels.fill, key, (x.dtype, out.dtype))
        done = made.fill(id(x), id(out), key)
        if done:
            self.known = (made, *self.known[: MOST - 1])
        return done
