"""Copies into parts of a larger row-major array, such as the middle of a padded one."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..engine import routes
from ..engine.addresses import byte_of
from ..engine.copying import choose
from ..engine.patience import NEVER
from .views import broadcast_to


def fill_region(x: Any, region: Any, fresh: bool = False) -> None:
    """Copy `x` to `region`, a sub-view of a row-major array of the same type and dtype.

    `x` is broadcast to the region's shape; it may be in the same array if it does not overlap the
    region. The region has the strides of the whole array, which are positive. `fresh` as in
    `routes.run`.

    >>> whole = np.zeros((2, 4), np.int8)
    >>> fill_region(np.ones((2, 1), np.int8), whole[:, 1:3])
    >>> whole.tolist()
    [[0, 1, 1, 0], [0, 1, 1, 0]]
    """
    route = choose(x, True, region) if isinstance(region, np.ndarray) else None
    if route is not None and route.kind is NEVER:
        region[...] = x
        return
    if region.size == 0:
        return
    if x.shape != region.shape:
        x = broadcast_to(x, region.shape)
    source, layout = byte_of(x)
    target, into = byte_of(region)
    routes.run(route or routes.compiled(layout, into=into), [source], [target], fresh)
