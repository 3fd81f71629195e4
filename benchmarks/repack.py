"""Packing formats: 4-bit weights from one to another, beside memcpy of the bytes they take."""

from functools import partial

import numpy as np

from . import ratios
from .memcpy import memcpy_of
from .ratios import OURS, OverMemcpy, installed

# Of each case both formats, and whether the source has the dims (in, out).
CASES = {
    "nibbles-swapped": ("lsb", "bitsandbytes", False),
    "awq-gptq": ("awq:gemm", "gptq:qweight", True),
    "gptq-awq": ("gptq:qweight", "awq:gemm", True),
    "gptq-matmulnbits": ("gptq:qweight", "onnx:matmulnbits", True),
    "awq-matmulnbits": ("awq:gemm", "onnx:matmulnbits", True),
    "awq-compressed-tensors": ("awq:gemm", "compressed-tensors", True),
    "gguf-lsb": ("gguf:q4_0", "lsb", False),
    "lsb-gguf": ("lsb", "gguf:q4_0", False),
    "gptq-bitsandbytes": ("gptq:qweight", "bitsandbytes", True),
    "gguf-gptq": ("gguf:q4_0", "gptq:qweight", False),
}


class Repack(OverMemcpy):
    """4-bit weights from one packing format to another"""

    params = list(CASES)
    compared = params[::3]
    version = "1"

    def setup_cache(self):
        return self.measured()

    def ways(self, case):
        sj = installed("repack", "formats")
        source, target, inputs_first = CASES[case]
        outputs, inputs = 1024, ratios.NBYTES // 512
        codes = np.arange(outputs * inputs // 2).astype(np.uint8)
        given = {"dtype": "uint4", "block_size": 32 if "matmulnbits" in target else None}
        stored = codes
        if source != "lsb":
            lsb = {"shape": (outputs, inputs), "source": "lsb", "target": source}
            stored = sj.repack(codes, dtype="uint4", **lsb)
        given |= {"shape": (inputs, outputs) if inputs_first else (outputs, inputs)}
        given |= {"source": source, "target": target}
        out = sj.repack(stored, **given)
        ours = partial(sj.repack, stored, **given, out=out)
        return {OURS: ours, "memcpy": memcpy_of((stored.nbytes + out.nbytes) // 2)}
