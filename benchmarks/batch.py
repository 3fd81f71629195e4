"""Many unlike tensors: their shapes in one compiled call, their copies in one launch."""

import numpy as np

from . import ratios
from .ratios import OURS, OverNumpy, Ratios, TimeOfACall, installed
from .tables import cases

MOST = 4000  # tensors, or shapes
SMALL = 64, 16 * 1024  # bytes of the smallest and the largest tensor


def unlike(count, rng):
    """Arrays of two dims whose sizes in bytes are log-uniform."""
    made = []
    for _ in range(count):
        elements = 2.0 ** rng.uniform(*np.log2(np.array(SMALL) / 4))
        rows = 2.0 ** rng.uniform(1, np.log2(elements) - 1)
        shape = round(rows), round(elements / rows)
        made.append(cases.pattern(4 * shape[0] * shape[1]).view(np.float32).reshape(shape))
    return made


class Reshapes(OverNumpy):
    """Many unlike tensors to 1-D, copied or not"""

    params = ["transposed", "views", "mixed", "out"]
    version = "1"

    def setup_cache(self):
        return self.measured()

    def ways(self, case):
        sj = installed("reshape_batch")
        count = max(2, min(MOST, ratios.NBYTES // 2048))
        tensors = unlike(count, np.random.default_rng(0))
        if case != "views":
            step = 2 if case == "mixed" else 1
            tensors = [x if i % step else x.T for i, x in enumerate(tensors)]
        if case != "out":
            return {
                OURS: lambda: sj.reshape_batch(tensors, (-1,)),
                "numpy": lambda: [x.reshape(-1) for x in tensors],
            }
        outs = [np.ones(x.size, x.dtype) for x in tensors]
        targets = [to.reshape(x.shape) for to, x in zip(outs, tensors, strict=True)]

        def loop():
            for to, x in zip(targets, tensors, strict=True):
                np.copyto(to, x)

        return {OURS: lambda: sj.reshape_batch(tensors, (-1,), out=outs), "numpy": loop}


class Shapes(Ratios):
    """Many shapes resolved as ONNX says, beside a loop of resolve"""

    params = ["ragged", "array"]
    baseline = "loop"
    version = "1"

    def setup_cache(self):
        return self.measured()

    def ways(self, case):
        sj = installed("resolve_batch", "resolve")
        count, rng = max(2, min(MOST, ratios.NBYTES // 2048)), np.random.default_rng(0)
        ranks = rng.integers(2, 5, count) if case == "ragged" else np.full(count, 3)
        shapes = [tuple(rng.integers(1, 200, rank).tolist()) for rank in ranks]
        request = sj.onnx.request([0, -1, 1])
        given = np.array(shapes) if case == "array" else shapes
        return {
            OURS: lambda: sj.resolve_batch(given, request),
            "loop": lambda: [sj.resolve(shape, request) for shape in shapes],
        }

    def track_over_loop(self, found, case):
        return self.over(found, case, "loop")

    track_over_loop.unit = "time / a loop's"


class ReshapesTime(TimeOfACall):
    """Many unlike tensors"""

    of = Reshapes
    params = Reshapes.params
    version = "1"
