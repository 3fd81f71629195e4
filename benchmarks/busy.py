"""Copies while other programs compute on every core, beside one thread of ours and NumPy."""

from functools import partial

import numpy as np
from numba import get_num_threads, set_num_threads

from . import ratios
from .ratios import OURS, Ratios, installed
from .tables import cases, spinning

SIZES = {"64KiB": 2**16, "1MiB": 2**20, "4MiB": 2**22, "32MiB": 2**25}


def transposed(nbytes):
    """A float32 view of about so many bytes, and an array for its elements."""
    side = max(4, int((min(nbytes, ratios.NBYTES) / 4) ** 0.5))
    view = cases.pattern(4 * side * side).view(np.float32).reshape(side, side).T
    return view, np.ones(view.shape, view.dtype)


class Busy(Ratios):
    """Copies, joins and batches beside one endlessly computing process per core"""

    params = [*(f"transposed-{size}" for size in SIZES), "concat-8x4MiB", "reshape_batch-64x256KiB"]
    compared = ["transposed-4MiB"]
    baseline = "numpy"
    version = "1"

    def setup_cache(self):
        with spinning.spinning():
            return self.measured()

    def ways(self, case):
        sj = installed("ascontiguous", "concat", "reshape_batch")
        what, _, size = case.partition("-")
        if what == "transposed":
            view, out = transposed(SIZES[size])
            ours = partial(sj.ascontiguous, view, out=out)
            numpys = partial(np.copyto, out, view)
        elif what == "concat":
            arrays = [transposed(2**22)[0].T for _ in range(8)]
            out = np.concatenate(arrays)
            ours = partial(sj.concat, arrays, out=out)
            numpys = partial(np.concatenate, arrays, out=out)
        else:
            views, targets = zip(*(transposed(2**18) for _ in range(64)), strict=True)
            outs = [to.reshape(-1) for to in targets]  # of both: others would lie differently
            ours = partial(sj.reshape_batch, list(views), (-1,), out=outs)

            def numpys():
                for to, view in zip(targets, views, strict=True):
                    np.copyto(to, view)

        return {OURS: ours, "one thread": partial(alone, ours), "numpy": numpys}

    def track_over_one_thread(self, found, case):
        return self.over(found, case, "one thread")

    def track_over_numpy(self, found, case):
        return self.over(found, case, "numpy")

    track_over_one_thread.unit = "time / one thread's"
    track_over_numpy.unit = "time / NumPy's"


def alone(way):
    """Call a function with numba held to one thread."""
    before = get_num_threads()
    set_num_threads(1)
    try:
        way()
    finally:
        set_num_threads(before)
