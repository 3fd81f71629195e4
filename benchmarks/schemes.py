"""Schemes: quantised weights decoded, beside memcpy of the bytes they take."""

from functools import partial

import numpy as np

from . import ratios
from .memcpy import memcpy_of
from .ratios import OURS, OverMemcpy, installed

# Schemes that encode plainly, and what they are told.
CASES = {
    "fp8:block": {},
    "nvfp4:modelopt": {},
    "nvfp4:comfyui": {},
    "mxfp4:gpt-oss": {},
    "int4:compressed-tensors": {"group_size": 32},
    "gptq": {"symmetric": False},
    "awq": {"symmetric": False},
    "matmulnbits": {},
    "bnb:nf4": {},
    "mlx": {},
    "gguf:q4_0": {},
    "gguf:q5_0": {},
    "gguf:q8_0": {},
}


class Schemes(OverMemcpy):
    """Quantised weights decoded to bfloat16"""

    params = list(CASES)
    compared = params[::4]
    version = "1"

    def setup_cache(self):
        return self.measured()

    def ways(self, case):
        sj = installed("schemes")
        scheme = sj.schemes[case]
        rows = np.sin(np.arange(64 * 1024, dtype=np.float32)).reshape(64, 1024)
        x = np.tile(rows, (max(2, ratios.NBYTES // (2 * rows.size)), 1))
        parts = scheme.encode(x, **CASES[case])
        out = scheme.decode(parts)
        nbytes = out.nbytes + sum(part.nbytes for part in parts.values())
        ours = partial(scheme.decode, parts, out=out)
        return {OURS: ours, "memcpy": memcpy_of(nbytes // 2)}
