"""Counted, not timed: the same on every machine, so that any change is one of the code."""

import tracemalloc

import numpy as np

from .operations import TTC_DTYPES, VIEWS, WORKLOADS
from .ratios import installed
from .tables import reshapes

PAGE = 4096
NBYTES = 1 << 20
CALLS = {
    "view": lambda sj, x: sj.reshape(x, (-1, 64)),
    "reshape-copied": lambda sj, x: sj.reshape(x.T, (-1,)),
    "ascontiguous": lambda sj, x: sj.ascontiguous(x.T),
    "pack": lambda sj, x: sj.pack(x.view(np.uint8), "uint4"),
    "unpack": lambda sj, x: sj.Tensor.frombuffer(x.reshape(-1), "uint4", (x.nbytes, 2)).unpack(),
}


class Allocated:
    """Bytes at the peak of a call on 1 MiB, its result included"""

    params = list(CALLS)
    param_names = ("call",)
    counted = True
    version = "1"

    def setup(self, call):
        self.sj = installed("reshape", "ascontiguous", "pack", "Tensor.unpack")
        self.x = np.zeros((512, NBYTES // 512 // 4), np.float32)
        for _ in range(3):  # compiled, and planned: the first one of its kind is not
            CALLS[call](self.sj, self.x)

    def track_bytes(self, call):
        tracemalloc.start()
        try:
            before, _ = tracemalloc.get_traced_memory()
            kept = CALLS[call](self.sj, self.x)
            _, peak = tracemalloc.get_traced_memory()
            del kept
        finally:
            tracemalloc.stop()
        return (peak - before) // PAGE * PAGE

    track_bytes.unit = "bytes"


class Copied:
    """Reshapes of the table that share no memory with their source"""

    counted = True
    version = "1"

    def setup(self):
        self.sj = installed("reshape")

    def track_copies(self):
        made = ((r.view(), r.target) for r in reshapes.RESHAPES)
        return sum(not np.shares_memory(self.sj.reshape(x, shape), x) for x, shape in made)

    track_copies.unit = "copies"


class Compiled:
    """Kernel specialisations that a new process asks for to copy all these cases"""

    counted = True
    version = "1"
    timeout = 300

    def setup(self):
        self.sj = installed("ascontiguous")

    def track_kernels(self):
        from numba.core.dispatcher import Dispatcher

        asked = Dispatcher._compile_for_args
        count = 0

        def counted(*arguments, **keywords):
            nonlocal count
            count += 1
            return asked(*arguments, **keywords)

        # Called for every new combination of types, whether it is then compiled or cached.
        Dispatcher._compile_for_args = counted
        try:
            for case in (*TTC_DTYPES.values(), *WORKLOADS.values(), *VIEWS.values()):
                small = case.sized(4 * NBYTES)
                self.sj.ascontiguous(small.view(small.source()))
        finally:
            Dispatcher._compile_for_args = asked
        return count

    track_kernels.unit = "kernels"
