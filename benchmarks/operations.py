"""Reshapes that are views."""

import numpy as np

import shapejit as sj
from shapejit.bench.measure import interleaved

X = np.zeros((64, 64, 64), np.float32)
VIEWS = {
    "contiguous": (X, (4096, 64)),
    "inferred": (X, (64, -1)),
    "sliced": (X[:, :, :32], (4096, 4, 8)),
    "permuted": (X.transpose(2, 0, 1), (64, 4096)),
    "flipped": (X[::-1], (64, 4096)),
}


class Views:
    params = list(VIEWS)
    param_names = ("view",)
    version = "1"

    def setup(self, view):
        self.x, self.shape = VIEWS[view]
        self.t = sj.asarray(self.x)

    def time_ndarray(self, view):
        sj.reshape(self.x, self.shape)

    def time_tensor(self, view):
        sj.reshape(self.t, self.shape)

    def track_ndarray_over_numpy(self, view):
        ways = {
            "shapejit": lambda: sj.reshape(self.x, self.shape),
            "numpy": lambda: np.reshape(self.x, self.shape),
        }
        taken = interleaved(ways)
        return taken["shapejit"] / taken["numpy"]

    track_ndarray_over_numpy.unit = "x numpy.reshape"
