"""Calls that go from Python straight to a kernel, which checks both arrays itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..runtime.launches import Addresses
from . import array_structs
from .execution import unready_movers
from .patience import Kinds


class FastCall(NamedTuple):
    """A kernel that does a whole call, if both arrays are as its `key` says."""

    fill: Callable[[Any, Any, Addresses], bool]
    key: Addresses
    dtypes: tuple[np.dtype[Any], ...]  # the kernel knows them by their address


def fast_call(
    x: NDArray[Any], out: NDArray[Any], plan: Addresses, reach: tuple[int, int]
) -> FastCall | Kinds:
    """The fast call that copies arrays like `x` into arrays like `out`.

    `reach` are the bits that `x` reaches around its first element. Kinds, if kernels of these
    are not ready.
    """
    fill, kinds = array_structs.kernel(array_structs.FILL), unready_movers(plan, 0)
    if fill is None:
        return array_structs.work_of(array_structs.FILL), *kinds
    if kinds:
        return kinds
    source, target = (array_structs.kind_of(a.dtype, a.shape, a.strides) for a in (x, out))
    low, high = (bits // 8 for bits in reach)
    key = array_structs.fast_call_key(source, target, plan, low, high, out.nbytes)
    return FastCall(fill, key, (x.dtype, out.dtype))
