"""Copies into parts of a larger row-major array, such as the middle of a padded one."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..engine import routes
from ..engine.addresses import byte_of
from ..engine.copying import is_numpys
from ..kernels.constants import MAX_RANK
from ..planning import planner, thresholds
from ..runtime.cpu_caches import LINE
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
    is_array = isinstance(region, np.ndarray)
    if is_array and _by_numpy(x, region):
        region[...] = x
        return
    if region.size == 0:
        return
    if x.shape != region.shape:
        x = broadcast_to(x, region.shape)
    source, layout = byte_of(x)
    target, into = byte_of(region)
    made = routes.copies(layout, into=into)
    if made.by_numpy:
        if is_array:
            region[...] = x
            return
        made = routes.compiled(layout, into=into)
    routes.run(made, [source], [target], fresh)


def _by_numpy(x: NDArray[Any], region: NDArray[Any]) -> bool:
    """Whether NumPy fills a region of an ndarray as fast as a kernel, or only NumPy can."""
    nbytes, itemsize = region.nbytes, region.itemsize
    if nbytes < thresholds.NUMPY_BELOW or is_numpys(region.dtype) or x.ndim > MAX_RANK:
        return True
    if x.size == 1 or region.shape[-1] * itemsize < LINE:  # NumPy fills short rows faster
        return True
    dense = x.strides[-1:] == (itemsize,)
    run = x.shape[-1] * itemsize if dense else itemsize
    return nbytes < planner.numpys_below(run, gaps=True)
