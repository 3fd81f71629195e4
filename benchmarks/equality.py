"""Whether two tensors are the same, bit for bit, beside NumPy's answer."""

import numpy as np

from . import ratios
from .ratios import OURS, OverNumpy, installed
from .tables import cases

# What lies in memory on each side: as it is read, or as the transposition of that.
CASES = ("alike", "both-transposed", "one-transposed")


class Equal(OverNumpy):
    """Equal arrays, int32"""

    params = list(CASES)
    compared = params[::2]
    turns = 5
    version = "1"

    def setup_cache(self):
        return self.measured()

    def ways(self, case):
        sj = installed("array_equal")
        one = cases.pattern(ratios.NBYTES).view(np.int32).reshape(-1, 1024)
        other = one.copy()
        if case == "both-transposed":
            one, other = one.T, other.T
        elif case == "one-transposed":
            one, other = one.T, np.ascontiguousarray(one.T)
        assert sj.array_equal(one, other)
        return {
            OURS: lambda: sj.array_equal(one, other),
            "numpy": lambda: np.array_equal(one, other),
        }
