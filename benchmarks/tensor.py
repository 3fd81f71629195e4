"""Packed elements: moved without unpacking, packed and unpacked."""

import numpy as np

from .memcpy import memcpy_of
from .ratios import OURS, OverMemcpy, OverNumpy, TimeOfACall, installed
from .tables import cases, dtypes

SHAPE = (2048, 4096)

CALLS = ("transpose", "odd-rows", "pack", "unpack")
# Every call at the width that matters most; of the others what is a kernel of its own.
CASES = (
    *(f"int4/{call}" for call in CALLS),
    "uint2/transpose",
    "uint2/unpack",
    "float6_e2m3fn/transpose",
    "float6_e2m3fn/pack",
    "uint1/transpose",
)
DTYPES = {name: dtypes.dtype(name) for name in dict.fromkeys(c.split("/")[0] for c in CASES)}


def packed(codes, bits):
    """One code a byte to a bit stream, as one writes it with NumPy alone."""
    spread = np.unpackbits(codes.reshape(-1, 1), axis=1, count=bits, bitorder="little")
    return np.packbits(spread.reshape(-1), bitorder="little")


def unpacked(stream, bits, count):
    """A bit stream to one code a byte."""
    spread = np.unpackbits(stream, count=count * bits, bitorder="little").reshape(count, bits)
    return np.packbits(spread, axis=1, bitorder="little").reshape(-1)


class Packed(OverMemcpy, OverNumpy):
    """Packed elements, beside NumPy on one element a byte"""

    params = list(CASES)
    compared = params[: len(CALLS) + 1]
    turns = 5
    version = "1"

    def setup_cache(self):
        return self.measured()

    def ways(self, case):
        name, call = case.split("/")
        sj = installed("Tensor", "pack", "ascontiguous")
        kind, count = DTYPES[name], SHAPE[0] * SHAPE[1]
        stream = cases.pattern(kind.nbytes(count))
        tensor = sj.Tensor.frombuffer(stream, name, SHAPE)
        codes = (cases.pattern(count) % (1 << kind.bits)).reshape(SHAPE)
        if call == "pack":
            pair = lambda: sj.pack(codes, name), lambda: packed(codes, kind.bits)
        elif call == "unpack":
            pair = tensor.unpack, lambda: unpacked(stream, kind.bits, count)
        else:
            seen, moved = ((x.T if call == "transpose" else x[:, 1:-2]) for x in (codes, tensor))
            other, out = np.zeros(seen.shape, np.uint8), sj.ascontiguous(moved)
            pair = lambda: sj.ascontiguous(moved, out=out), lambda: np.copyto(other, seen)
        return {OURS: pair[0], "memcpy": memcpy_of(stream.size), "numpy": pair[1]}


class PackedTime(TimeOfACall):
    """Packed elements"""

    of = Packed
    params = Packed.params[:2]
    version = "1"
