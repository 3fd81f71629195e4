"""Copies that move every element."""

import numpy as np

import shapejit as sj
from shapejit.bench.measure import interleaved

SHAPE = (32, 512, 1024)
WIDTHS = {"uint8": np.uint8, "uint16": np.uint16, "float32": np.float32, "float64": np.float64}
COPIES = {
    "one run": lambda a: a,
    "rows": lambda a: a.transpose(1, 0, 2),
    "transpose": lambda a: a.transpose(0, 2, 1),
    "reverse": lambda a: a.transpose(2, 1, 0),
    "flip": lambda a: a[:, :, ::-1],
}


class Copies:
    params = (list(COPIES), list(WIDTHS))
    param_names = ("copy", "dtype")
    version = "1"

    def setup(self, copy, dtype):
        self.x = np.ones(SHAPE, WIDTHS[dtype])
        self.view = COPIES[copy](self.x)
        self.out = np.empty(self.view.shape, self.x.dtype)
        sj.ascontiguous(self.view, out=self.out)

    def time_copy(self, copy, dtype):
        sj.ascontiguous(self.view, out=self.out)

    def track_over_memcpy(self, copy, dtype):
        flat = self.out.reshape(self.x.shape)
        ways = {
            "shapejit": lambda: sj.ascontiguous(self.view, out=self.out),
            "memcpy": lambda: sj.ascontiguous(self.x, out=flat),
        }
        taken = interleaved(ways, rounds=7)
        return taken["shapejit"] / taken["memcpy"]

    track_over_memcpy.unit = "x memcpy, all threads"


class Packed:
    params = ["int4", "uint2", "float6_e2m3fn"]
    param_names = ("dtype",)
    version = "1"

    def setup(self, dtype):
        count = 1 << 20
        kind = sj.dtype(dtype)
        self.t = sj.Tensor.frombuffer(bytes(kind.nbytes(count)), kind, (1024, 1024))
        self.codes = self.t.unpack()
        sj.pack(self.codes)
        sj.ascontiguous(self.t.T)

    def time_pack(self, dtype):
        sj.pack(self.codes)

    def time_unpack(self, dtype):
        self.t.unpack()

    def time_transpose(self, dtype):
        sj.ascontiguous(self.t.T)
