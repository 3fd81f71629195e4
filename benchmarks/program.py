"""Traced programs: one call, many tensors in one launch, and iterators."""

from math import prod

import numpy as np

from . import ratios
from .memcpy import memcpy_of
from .operations import plain
from .ratios import OURS, OverMemcpy, OverNumpy, TimeOfACall, TimeOfAThousandCalls, installed
from .tables import cases, dtypes

MOST = 8192  # tensors

# Shape of one tensor and its permutation, by what is said of its size.
TENSORS = {
    "64B/float32": ((4, 4), (1, 0)),
    "4KiB/bfloat16": ((4, 64, 8), (1, 0, 2)),
    "4KiB/int4": ((64, 128), (1, 0)),
    "512KiB/bfloat16": ((64, 32, 128), (1, 0, 2)),
}
CHAIN = "1KiB/chain"


def chain(t):
    """A view of a view."""
    return t.reshape((8, 8, 16)).permute_dims((1, 0, 2))


def dtype_of(case):
    """The dtype of a case, by its name."""
    return dtypes.dtype(case.split("/")[1])


def tensors_of(sj, case, count):
    """So many tensors: of packed elements Tensors, otherwise ndarrays."""
    kind, shape = dtype_of(case), TENSORS[case][0]
    if kind.packed:
        stream = cases.pattern(kind.nbytes(prod(shape)))
        return [sj.Tensor.frombuffer(stream.copy(), kind.name, shape) for _ in range(count)]
    raw = cases.pattern(kind.nbytes(prod(shape))).view(kind.numpy).reshape(shape)
    return [raw.copy() for _ in range(count)]


class Maps(OverMemcpy, OverNumpy):
    """Many like tensors, permuted into a slab"""

    params = list(TENSORS)
    version = "1"

    def setup_cache(self):
        return self.measured()

    def ways(self, case):
        sj = installed("plan")
        kind, (shape, axes) = dtype_of(case), TENSORS[case]
        count = max(2, min(MOST, ratios.NBYTES // kind.nbytes(prod(shape))))
        program = sj.plan(shape, kind.name, lambda t: t.permute_dims(axes))
        tensors = tensors_of(sj, case, count)
        slab = program.map(sj.stack(tensors))
        slab = sj.concat([slab], axis=0)  # of its own, and touched
        # NumPy has a byte for each packed element.
        theirs = [t.unpack().view(np.uint8) if kind.packed else plain(t) for t in tensors]
        shape = count, *program.shape
        rows = np.ones(shape, np.uint8) if kind.packed else plain(slab).reshape(shape)

        def loop():
            for row, x in zip(rows, theirs, strict=True):
                np.copyto(row, x.transpose(axes))

        return {
            OURS: lambda: program.map(tensors, out=slab),
            "memcpy": memcpy_of(count * program.nbytes),
            "numpy": loop,
        }


class Calls(OverNumpy):
    """One small program call, out= given"""

    params = ["64B/float32", "4KiB/bfloat16", CHAIN]
    version = "1"

    def setup_cache(self):
        return self.measured()

    def ways(self, case):
        sj = installed("plan")
        if case == CHAIN:
            x = cases.pattern(1024).reshape(64, 16)
            program = sj.plan(x.shape, x.dtype, chain)
            seen = x.reshape(8, 8, 16).transpose(1, 0, 2)
        else:
            (x,), axes = tensors_of(sj, case, 1), TENSORS[case][1]
            program = sj.plan(x.shape, x.dtype, lambda t: t.permute_dims(axes))
            seen = plain(x).transpose(axes)
        out = np.ones(program.shape, x.dtype)
        target = plain(out).reshape(seen.shape)
        return {OURS: lambda: program(x, out=out), "numpy": lambda: np.copyto(target, seen)}


class IteratorMemory:
    """Peak memory of an iterator of tensors of 512 KiB: the same however many come"""

    params = ["ring/64", "ring/1024", "slabs/64", "slabs/1024"]
    param_names = ("case",)  # results / tensors
    version = "1"

    def setup(self, case):
        results, count = case.split("/")
        self.count = int(count)
        self.program = installed("plan").plan((256, 512), "float32", lambda t: t.T.reshape((-1,)))
        ring = [np.zeros(256 * 512, np.float32) for _ in range(4)]
        self.out = (lambda i: ring[i % 4]) if results == "ring" else None

    def peakmem_imap(self, case):
        made = (np.full((256, 512), i, np.float32) for i in range(self.count))
        for _ in self.program.imap(made, self.out):
            pass


class MapsTime(TimeOfACall):
    """Many like tensors"""

    of = Maps
    params = Maps.params[1:2]
    version = "1"


class CallsTime(TimeOfAThousandCalls):
    """One small program call"""

    of = Calls
    params = Calls.params
    version = "1"
