"""Calls that go from Python straight to a kernel, which checks both arrays itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from . import headers
from .engine import movers_ready
from .runtime.launches import Addresses


class FastCall(NamedTuple):
    """A kernel that does a whole call, if both arrays are as its `key` says."""

    fill: Callable[[Any, Any, Addresses], bool]
    key: Addresses
    dtypes: tuple[np.dtype[Any], ...]  # the kernel knows them by their address


def fast_call(
    fill: Callable[[Any, Any, Addresses], bool],
    x: NDArray[Any],
    out: NDArray[Any],
    plan: Addresses,
    reach: tuple[int, int],
) -> FastCall | None:
    """The fast call that copies arrays like `x` into arrays like `out`, if its mover is ready.

    `fill` is the kernel `headers.FILL`; `reach` are the bits that `x` reaches around its first
    element.
    """
    if not movers_ready(plan, 0, headers.ASKED):
        return None
    source, target = (headers.kind_of(a.dtype, a.shape, a.strides) for a in (x, out))
    low, high = (bits // 8 for bits in reach)
    key = headers.fast_call_key(source, target, plan, low, high, out.nbytes)
    return FastCall(fill, key, (x.dtype, out.dtype))
