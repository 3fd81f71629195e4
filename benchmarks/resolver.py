"""Shapes without data: what a dialect's words cost to resolve, beside numpy.reshape."""

from itertools import count

import numpy as np

from .ratios import OURS, OverNumpy, TimeOfAThousandCalls, installed

TOKENS = [0, 0, -1, 64]
SOURCE = (8, 2048, 2048)

DIALECTS = {
    "onnx": lambda sj: sj.onnx.request(TOKENS),
    "openvino": lambda sj: sj.openvino.request(TOKENS, special_zero=True),
    "onednn": lambda sj: sj.onednn.request(TOKENS, special_zero=True),
}
CALLS = ("request", "resolve", "resolve-unseen")


class Resolve(OverNumpy):
    """Shapes resolved without data"""

    params = [f"{dialect}/{call}" for dialect in DIALECTS for call in CALLS]
    compared = params[: len(CALLS)]
    version = "1"

    def setup_cache(self):
        return self.measured()

    def ways(self, case):
        dialect, call = case.split("/")
        sj = installed(f"{dialect}.request", "resolve")
        make = DIALECTS[dialect]
        request, sizes = make(sj), count(1)
        calls = {
            "request": lambda: make(sj),
            "resolve": lambda: sj.resolve(SOURCE, request),
            "resolve-unseen": lambda: sj.resolve((8, next(sizes), 2048), request),
        }
        # No byte is behind it: NumPy, too, has only a shape to find.
        shapes_only = np.broadcast_to(np.empty((), np.uint8), SOURCE)
        return {OURS: calls[call], "numpy": lambda: shapes_only.reshape(8, 2048, -1, 64)}


class ResolveTime(TimeOfAThousandCalls):
    """Shapes resolved"""

    of = Resolve
    params = Resolve.params
    version = "1"
