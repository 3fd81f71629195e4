"""Counters instead of times: equal on every machine, so that any change is caused by the code."""

import tracemalloc

import numpy as np

from .tables import called, measured

PAGE, NBYTES = 4096, 1 << 20
CALLS_EACH = 5
CALLS = {
    "view": lambda sj, x: sj.reshape(x, (-1, 64)),
    "reshape-copied": lambda sj, x: sj.reshape(x.T, (-1,)),
    "ascontiguous": lambda sj, x: sj.ascontiguous(x.T),
    "pack": lambda sj, x: sj.pack(x.view(np.uint8) & 15, "uint4"),
    "unpack": lambda sj, x: sj.Tensor.frombuffer(x.reshape(-1), "uint4", (x.nbytes, 2)).unpack(),
    "cast": lambda sj, x: sj.cast(x, "float16"),
    "concat": lambda sj, x: sj.concat([x, x]),
}


class Allocated:
    """Bytes at the peak of a call on 1 MiB, its result included: the least of several calls

    What other threads of the process allocate meanwhile is counted, too.
    """

    params = list(CALLS)
    param_names = ("call",)
    version = "1"

    def setup(self, call):
        self.x = np.zeros((512, NBYTES // 2048), np.float32)
        keep = getattr(measured(), "set_result_cache", lambda nbytes: None)
        keep(0)  # or the result is memory that was there
        for _ in range(3):  # compiled, and planned: the first one of its kind is not
            called(lambda: CALLS[call](measured(), self.x))

    def track_bytes(self, call):
        return min(self.peak(call) for _ in range(CALLS_EACH))

    def peak(self, call):
        """Whole pages at the peak of one call, in bytes."""
        tracemalloc.start()
        try:
            before, _ = tracemalloc.get_traced_memory()
            kept = CALLS[call](measured(), self.x)
            _, peak = tracemalloc.get_traced_memory()
            del kept
        finally:
            tracemalloc.stop()
        return (peak - before) // PAGE * PAGE

    track_bytes.unit = "bytes"


def allocated():
    """What every call allocates, in this process."""
    found, counter = {}, Allocated()
    for call in CALLS:
        counter.setup(call)
        found[call] = counter.track_bytes(call)
    return found


class Memory:
    """Peak memory of a process: a copy, or an iterator of tensors, however many come"""

    params = ["copy", "imap/64", "imap/1024"]
    param_names = ("call",)
    version = "1"

    def setup(self, call):
        sj = measured()
        if call == "copy":
            x = np.ones((8192, 1024), np.float32).T
            self.run = lambda: sj.ascontiguous(x)
            return
        program = called(lambda: sj.plan((256, 512), "float32", lambda t: t.permute_dims((1, 0))))
        count = int(call.split("/")[1])

        def run():
            for _ in program.imap(np.full((256, 512), i, np.float32) for i in range(count)):
                pass

        self.run = run

    def peakmem_call(self, call):
        self.run()
