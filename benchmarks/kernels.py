"""Copies that move every element: the cases of `shapejit bench`, smaller."""

import shapejit as sj
from shapejit.bench import comparison, suites
from shapejit.bench.cases import MIB

NBYTES = 16 * MIB  # of each source; beyond the second-level caches
ROUNDS = 7


def few(*names):
    """The quick cases of the suites, by id."""
    return {case.id: case for case in suites.select(names, quick=True)}


COPIES = few("ttc", "ttc-dtypes", "workloads", "views", "odd", "tiny-dims")
FRESH = few("fresh")
SMALL = few("small")


class Copies:
    """A warm out= against memcpy and NumPy."""

    params = list(COPIES)
    param_names = ("case",)
    version = "2"
    timeout = 120

    def setup(self, case):
        self.case = COPIES[case].sized(NBYTES)
        self.base, self.out = self.case.source(), self.case.output()
        self.view = self.case.view(self.base)
        sj.ascontiguous(self.view, out=self.out)

    def time_copy(self, case):
        sj.ascontiguous(self.view, out=self.out)

    def track_over_memcpy(self, case):
        return comparison.measure(self.case, rounds=ROUNDS).over("memcpy")

    track_over_memcpy.unit = "x memcpy, all threads"

    def track_times_faster_than_numpy(self, case):
        return comparison.measure(self.case, rounds=ROUNDS).times_faster("numpy")

    track_times_faster_than_numpy.unit = "x as fast as numpy.copyto"


class Fresh:
    """A result that the call allocates."""

    params = list(FRESH)
    param_names = ("case",)
    version = "1"
    timeout = 120

    def setup(self, case):
        self.case = FRESH[case].sized(NBYTES)

    def track_times_faster_than_numpy(self, case):
        return comparison.measure(self.case, rounds=ROUNDS).times_faster("numpy")

    track_times_faster_than_numpy.unit = "x as fast as numpy.ascontiguousarray"


class Small:
    """What a call costs."""

    params = list(SMALL)
    param_names = ("case",)
    version = "1"

    def setup(self, case):
        self.case = SMALL[case]

    def track_microseconds_beyond_numpy(self, case):
        seconds = comparison.measure(self.case, rounds=ROUNDS).seconds
        return 1e6 * (seconds["shapejit"] - seconds["numpy"])

    track_microseconds_beyond_numpy.unit = "us beyond numpy.copyto"


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
