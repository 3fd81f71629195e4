"""Calls that go from Python straight to a kernel, which checks both arrays itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from . import headers
from .planning.small_plans import ready
from .runtime.launches import Addresses


class FastCall(NamedTuple):
    """A kernel that does a whole call, if both arrays are as its `key` says."""

    fill: Callable[[int, int, Addresses], bool]
    key: Addresses
    dtypes: tuple[np.dtype[Any], ...]  # the kernel knows them by their address


def fast_call(
    fill: Callable[[int, int, Addresses], bool],
    x: NDArray[Any],
    out: NDArray[Any],
    plan: Addresses,
    reach: tuple[int, int],
) -> FastCall:
    """The fast call that copies arrays like `x` into arrays like `out` by a small plan.

    `fill` is the kernel `headers.FILL`; `reach` are the bits that `x` reaches around its first
    element.
    """
    source, target = (headers.kind_of(a.dtype, a.shape, a.strides) for a in (x, out))
    low, high = (bits // 8 for bits in reach)
    ready(plan, 0)
    key = headers.fast_call_key(source, target, plan, low, high, out.nbytes)
    return FastCall(fill, key, (x.dtype, out.dtype))
