"""Copies that move every element: the cases of `shapejit bench`, smaller."""

from math import prod

import numpy as np

from . import ratios
from .memcpy import memcpy, memcpy_of
from .ratios import (
    OURS,
    OverMemcpy,
    OverNumpy,
    Ratios,
    TimeOfACall,
    TimeOfAThousandCalls,
    installed,
)
from .tables import first_of_each, suite

# Two to six dims, with and without the fastest dim in place: those that come in all widths.
_NAMES = {case.name for case in suite("ttc-dtypes").values()}
TTC = {key: case for key, case in suite("ttc").items() if case.name in _NAMES}
TTC_DTYPES = suite("ttc-dtypes", 3)
WORKLOADS = first_of_each("workloads")
VIEWS = suite("views", 3)
ODD = {**suite("odd", 4), **suite("tiny-dims")}
FRESH = first_of_each("fresh")
SMALL = suite("small", 2)
# Parts by name: their number, the shape of each, the axis along which they are joined.
JOINS = {
    "concat-cache": ("concat", 2, (8, 16, 1024, 64), -2),
    "concat-heads": ("concat", 16, (8, 2048, 64), -1),
    "concat-odd": ("concat", 8, (4096, 255), -1),
    "stack-images": ("stack", 16, (3, 224, 224), 0),
    "stack-channels": ("stack", 3, (1024, 1024), -1),
}


def plain(x):
    """The same elements as NumPy's own type of that width, which it moves best."""
    size = x.dtype.itemsize
    return x.view(np.dtype("complex128") if size == 16 else np.dtype(f"u{size}"))


def copies(case):
    """A warm out= filled, by us, by memcpy and by NumPy."""
    sj = installed("ascontiguous")
    base, out = case.source(), case.output()
    view = case.view(base)
    raw = out.reshape(-1).view(np.uint8)
    lines = base.reshape(-1).view(np.uint8)
    # A slice is smaller than its base, a broadcast larger.
    source = lines[: raw.size] if lines.size >= raw.size else np.ones(raw.size, np.uint8)
    target, elements = plain(out), plain(view)
    return {
        OURS: lambda: sj.ascontiguous(view, out=out),
        "memcpy": memcpy(source, raw),
        "numpy": lambda: np.copyto(target, elements),
    }


def sized(case):
    """About `ratios.NBYTES` in the array or, of a broadcast, in the result."""
    case = case.sized(ratios.NBYTES)
    return case.scaled(min(1.0, ratios.NBYTES / case.nbytes))


class Copies(OverMemcpy, OverNumpy):
    """Cases of `table`."""

    table = {}

    def ways(self, case):
        return copies(sized(self.table[case]))


class Ttc(Copies):
    """TTC's permutations, float32"""

    table = TTC
    params = list(TTC)
    compared = params[::2]
    version = "1"

    def setup_cache(self):
        return self.measured()


class TtcDtypes(Copies):
    """TTC's permutations, other widths"""

    table = TTC_DTYPES
    params = list(TTC_DTYPES)
    compared = params[::4]
    version = "1"

    def setup_cache(self):
        return self.measured()


class Workloads(Copies):
    """Copies of vision and language models"""

    table = WORKLOADS
    params = list(WORKLOADS)
    compared = params[::2]
    version = "1"

    def setup_cache(self):
        return self.measured()


class Views(Copies):
    """Slices, flips and broadcasts made contiguous"""

    table = VIEWS
    params = list(VIEWS)
    compared = params[::3]
    version = "1"

    def setup_cache(self):
        return self.measured()


class Odd(Copies):
    """Rows off cache lines, and 24 dims of size 2"""

    table = ODD
    params = list(ODD)
    compared = params[::2]
    version = "1"

    def setup_cache(self):
        return self.measured()


class Fresh(OverNumpy):
    """Copies into a new array"""

    params = list(FRESH)
    compared = params[::5]
    version = "1"

    def setup_cache(self):
        return self.measured()

    def ways(self, case):
        sj, case = installed("ascontiguous"), sized(FRESH[case])
        view = case.view(case.source())
        elements = plain(view)
        return {
            OURS: lambda: sj.ascontiguous(view),
            "numpy": lambda: np.ascontiguousarray(elements),
        }


class Results(Ratios):
    """Copies into new arrays that are dropped, beside copies into a warm out="""

    params = list(FRESH)[::3]
    baseline = "out="
    compared = params[::2]
    version = "1"

    def setup_cache(self):
        return self.measured()

    def ways(self, case):
        sj, case = installed("ascontiguous", "set_result_cache"), sized(FRESH[case])
        view, out = case.view(case.source()), case.output()
        return {
            OURS: lambda: sj.ascontiguous(view),
            "out=": lambda: sj.ascontiguous(view, out=out),
        }

    def track_over_out(self, found, case):
        return self.over(found, case, "out=")

    track_over_out.unit = "time / out='s"


class Small(OverNumpy):
    """Copies of few bytes"""

    params = list(SMALL)
    compared = params[::2]
    version = "1"

    def setup_cache(self):
        return self.measured()

    def ways(self, case):
        ways = copies(SMALL[case])
        return {OURS: ways[OURS], "numpy": ways["numpy"]}


class Joins(OverMemcpy, OverNumpy):
    """Arrays joined in a warm out=, 16-bit"""

    params = list(JOINS)
    compared = params[::2]
    version = "1"

    def setup_cache(self):
        return self.measured()

    def ways(self, case):
        name, count, shape, axis = JOINS[case]
        sj = installed(name)
        # Tests take less: whole outer slices of each part.
        least = ratios.NBYTES // (2 * count * prod(shape[1:]))
        shape = (max(1, min(shape[0], least)), *shape[1:])
        parts = [np.full(shape, k, np.uint16) for k in range(count)]
        join, numpys = getattr(sj, name), {"concat": np.concatenate, "stack": np.stack}[name]
        out = numpys(parts, axis)  # of both: another would lie differently
        return {
            OURS: lambda: join(parts, axis=axis, out=out),
            "memcpy": memcpy_of(out.nbytes),
            "numpy": lambda: numpys(parts, axis, out=out),
        }


MOVES = {
    "tile": lambda m, x: m.tile(x, (2, 1)),
    "repeat": lambda m, x: m.repeat(x, 2, axis=0),
    "roll": lambda m, x: m.roll(x, 7, axis=1),
}


class Moves(OverNumpy):
    """New arrays of repeated and rolled elements, 16-bit"""

    params = list(MOVES)
    compared = params[:1]
    version = "1"

    def setup_cache(self):
        return self.measured()

    def ways(self, case):
        sj, move = installed("tile", "repeat", "roll"), MOVES[case]
        x = np.ones((max(1, ratios.NBYTES // 8192), 2048), np.uint16)
        return {OURS: lambda: move(sj, x), "numpy": lambda: move(np, x)}


class Unpacked(OverNumpy):
    """Codes of packed elements, a byte each"""

    params = ("uint4",)
    version = "1"

    def setup_cache(self):
        return self.measured()

    def ways(self, case):
        sj = installed("unpack")
        stream = np.ones(ratios.NBYTES // 4, np.uint8)
        t = sj.Tensor.frombuffer(stream, case, (2 * stream.size,))

        def numpys():
            codes = np.empty((stream.size, 2), np.uint8)
            np.bitwise_and(stream, 15, out=codes[:, 0])
            np.right_shift(stream, 4, out=codes[:, 1])

        return {OURS: lambda: sj.unpack(t), "numpy": numpys}


class CopyMemory:
    """Peak memory of a copy: a new array, or out="""

    params = ["new", "out"]
    param_names = ("result",)
    version = "1"

    def setup(self, result):
        self.sj = installed("ascontiguous")
        self.x = np.ones((ratios.NBYTES // 4096, 1024), np.float32).T
        self.out = np.ones(self.x.shape, np.float32) if result == "out" else None

    def peakmem_copy(self, result):
        self.sj.ascontiguous(self.x, out=self.out)


class TtcTime(TimeOfACall):
    """TTC's permutations"""

    of = Ttc
    params = Ttc.params[:4]
    version = "1"


class WorkloadsTime(TimeOfACall):
    """Copies of models"""

    of = Workloads
    params = Workloads.params[:4]
    version = "1"


class SmallTime(TimeOfAThousandCalls):
    """Copies of few bytes"""

    of = Small
    params = Small.params[:2]
    version = "1"
