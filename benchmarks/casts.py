"""Casts and scales: numbers converted in one pass, beside memcpy of the bytes they take."""

from functools import partial
from typing import NamedTuple

import numpy as np

from . import ratios
from .memcpy import memcpy_of
from .ratios import OURS, OverMemcpy, installed

IMAGE = 224, 224, 3


class Cast(NamedTuple):
    """From and to which dtype; with `blocks` by a scale for each."""

    source: str
    target: str
    blocks: tuple[int, ...] = ()


CASES = {
    "float32-bfloat16": Cast("float32", "bfloat16"),
    "bfloat16-float32": Cast("bfloat16", "float32"),
    "float32-float16": Cast("float32", "float16"),
    "float16-float32": Cast("float16", "float32"),
    "float8-bfloat16": Cast("float8_e4m3fn", "bfloat16"),
    "float32-float8": Cast("float32", "float8_e4m3fn"),
    "float6-bfloat16": Cast("float6_e2m3fn", "bfloat16"),
    "float4-bfloat16": Cast("float4_e2m1fn", "bfloat16"),
    "bfloat16-float4": Cast("bfloat16", "float4_e2m1fn"),
    "int4-bfloat16": Cast("int4", "bfloat16"),
    "int8-float32": Cast("int8", "float32"),
    "float32-int8": Cast("float32", "int8"),
    "int4-blocks-of-32": Cast("int4", "bfloat16", (1, 32)),
    "int4-blocks-of-128": Cast("int4", "bfloat16", (1, 128)),
    "float4-blocks-of-16": Cast("float4_e2m1fn", "bfloat16", (1, 16)),
    "float8-blocks-of-128x128": Cast("float8_e4m3fn", "bfloat16", (128, 128)),
    "quantize-int8-rows": Cast("float32", "int8", (1, 1024)),
}
IMAGES = "images-channels-first"


class Casts(OverMemcpy):
    """Casts, dequantizations and quantizations, rows and transposed, and images normalised"""

    params = [*(f"{case}{turn}" for case in CASES for turn in ("", "-transposed")), IMAGES]
    compared = params[::6]
    version = "2"

    def setup_cache(self):
        return self.measured()

    def ways(self, case):
        sj = installed("cast", "dequantize", "quantize")
        if case == IMAGES:
            return self._images(sj)
        source, target, blocks = CASES[case.removesuffix("-transposed")]
        numbers = np.arange(-100, 100, dtype=np.float32)
        x = sj.cast(sj.asarray(np.resize(numbers, (1024, ratios.NBYTES // 4096))), source)
        blocks = tuple(min(n, size) for n, size in zip(blocks, x.shape, strict=False))
        counts = [-(-size // n) for n, size in zip(blocks, x.shape, strict=False)]
        scale = np.full(counts, 0.5, np.float32)
        if case.endswith("transposed"):
            x, scale, blocks = x.T, scale.T, blocks[::-1]
        out = sj.cast(x, target)
        nbytes = x.nbytes + out.nbytes
        if blocks:
            settings = {"block_shape": blocks, "dtype": target, "out": out}
            scaled = sj.dequantize if target == "bfloat16" else sj.quantize
            ours, nbytes = partial(scaled, x, scale, **settings), nbytes + scale.nbytes
        else:
            ours = partial(sj.cast, x, target, out=out)
        return {OURS: ours, "memcpy": memcpy_of(nbytes // 2)}

    def _images(self, sj):
        """A batch of images into a slab, by a program."""
        pixels = int(np.prod(IMAGE))
        images = np.resize(
            np.arange(256, dtype=np.uint8), (max(1, ratios.NBYTES // pixels), *IMAGE)
        )
        scale, mean = (np.full((3, 1, 1), value, np.float32) for value in (0.25, 128))
        program = sj.plan(
            IMAGE,
            "uint8",
            lambda t: t.permute_dims((2, 0, 1)).dequantize(scale, zero_point=mean),
        )
        slab = program.map(images)
        return {
            OURS: partial(program.map, images, out=slab),
            "memcpy": memcpy_of((images.nbytes + slab.nbytes) // 2),
        }
