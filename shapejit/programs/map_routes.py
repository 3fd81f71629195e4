"""Routes of `Program.map`: as many ndarrays of one kind as in an earlier call, without checks."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..engine import array_structs, outputs
from ..engine.execution import Work
from ..engine.patience import READY
from ..runtime.kernels import called
from ..runtime.launches import Addresses


class MapRoute(NamedTuple):
    """The launch of a program for a number of ndarrays of one kind, into the rows of one slab.

    `kind` is that of the sources, as kernels read it; it contains the address of `dtype`.
    """

    work: Work
    kind: Addresses
    dtype: np.dtype[Any]
    made: np.dtype[Any]
    shape: tuple[int, ...]  # of the slab

    def results(self, items: tuple[Any, ...]) -> list[Any] | None:
        """The results; None if an item is of another kind, or kernels are not to run."""
        places = np.empty((2, len(items)), np.int64)
        read = called(array_structs.READ_ALIKE)
        if self.work.kind not in READY or read(items, len(items), self.kind, 0, places[0]) < len(
            items
        ):
            return None
        slab, fresh = outputs.new_array(self.made, self.shape)
        begin, row = slab.__array_interface__["data"][0], slab.strides[0]
        places[1] = np.arange(begin, begin + row * len(items), row)
        places <<= 3
        places += [[self.work.source], [self.work.target]]
        if not self.work.launch.bits:
            places >>= 3
        self.work.run(places, len(items), fresh)
        return list(slab)
