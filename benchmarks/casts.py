"""Casts and scales: numbers converted in one pass, beside memcpy of the bytes they take."""

from functools import partial

import numpy as np

from . import ratios
from .memcpy import memcpy_of
from .ratios import OURS, OverMemcpy, installed

# Of each case the source, the target and the elements that share a scale (0: none).
CASES = {
    "float32-bfloat16": ("float32", "bfloat16", 0),
    "bfloat16-float32": ("bfloat16", "float32", 0),
    "float8-bfloat16": ("float8_e4m3fn", "bfloat16", 0),
    "float32-float8": ("float32", "float8_e4m3fn", 0),
    "int8-float32": ("int8", "float32", 0),
    "int4-blocks-of-32": ("int4", "bfloat16", 32),
    "float4-blocks-of-16": ("float4_e2m1fn", "bfloat16", 16),
    "quantize-int8-rows": ("float32", "int8", 1024),
}


class Casts(OverMemcpy):
    """Casts, dequantizations and quantizations, rows and transposed"""

    params = [f"{case}{turn}" for case in CASES for turn in ("", "-transposed")]
    compared = params[::3]
    version = "1"

    def setup_cache(self):
        return self.measured()

    def ways(self, case):
        sj = installed("cast", "dequantize", "quantize")
        source, target, block = CASES[case.removesuffix("-transposed")]
        numbers = np.arange(-100, 100, dtype=np.float32)
        x = sj.cast(sj.asarray(np.resize(numbers, (1024, ratios.NBYTES // 4096))), source)
        scale = np.full((1024, max(1, x.shape[1] // (block or x.shape[1]))), 0.5, np.float32)
        blocks = (1, block)
        if case.endswith("transposed"):
            x, scale, blocks = x.T, scale.T, blocks[::-1]
        out = sj.cast(x, target)
        if block:
            settings = {"block_shape": blocks, "dtype": target, "out": out}
            scaled = sj.dequantize if target == "bfloat16" else sj.quantize
            ours = partial(scaled, x, scale, **settings)
        else:
            ours = partial(sj.cast, x, target, out=out)
        return {OURS: ours, "memcpy": memcpy_of((x.nbytes + out.nbytes) // 2)}
