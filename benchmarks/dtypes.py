"""Every dtype of the table looked up, beside numpy.dtype."""

import numpy as np

from .ratios import OURS, OverNumpy, installed
from .tables import dtypes

CALLS = ("name", "numpy")


class Lookup(OverNumpy):
    """Every dtype looked up, beside numpy.dtype"""

    params = list(CALLS)
    param_names = ("by",)
    version = "1"

    def setup_cache(self):
        return self.measured()

    def ways(self, case):
        sj = installed("dtype")
        known = [kind for kind in dtypes.all() if kind.numpy is not None and kind.bits]
        words = [kind.name if case == "name" else kind.numpy for kind in known]
        scalars = [kind.numpy.type for kind in known]
        return {
            OURS: lambda: [sj.dtype(word) for word in words],
            "numpy": lambda: [np.dtype(scalar) for scalar in scalars],
        }
