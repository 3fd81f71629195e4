"""A parallel function that does next to nothing: what a first call costs with any kernel."""

from __future__ import annotations

import numpy as np
from numba import njit, prange
from numpy.typing import NDArray


@njit(nogil=True, parallel=True, cache=True)  # type: ignore[untyped-decorator]  # numba is not type-checked
def trivial(source: int, target: int, table: NDArray[np.int64], count: int) -> None:
    """One store an iteration; the arguments are of the kinds that kernels take."""
    for i in prange(count):
        table[i] = source + target


def call() -> None:
    """Load or compile it, start the threads, run it."""
    trivial(1, 2, np.empty(64, np.int64), 64)
