"""First calls of new processes: how long NumPy does the work until kernels take over.

`benchmarks.tools.tiers` lets fresh processes call a case again and again, with kernels on disk
and without.
"""

from __future__ import annotations

from functools import partial
from math import isqrt
from typing import Any

from . import batches
from .cases import MIB, OURS, Call, Case, Copy, Make, Ways, filled
from .copies import SmallCopy
from .packed import packed_by_numpy, unpacked_by_numpy
from .plain_schemes import DECODED
from .repacks import LOOKS

GROUP = "tiers"
SMALL: tuple[tuple[tuple[int, ...], tuple[int, ...], str], ...] = (
    ((8, 8), (1, 0), "float32"),
    ((16, 12), (1, 0), "uint8"),
    ((3, 8, 8), (1, 2, 0), "uint8"),
    ((4, 6, 5), (2, 1, 0), "float64"),
    ((2, 4, 16), (0, 2, 1), "uint16"),
    ((12, 3), (1, 0), "complex128"),
    ((4, 4, 4, 4), (0, 2, 1, 3), "float32"),
    ((5, 7), (1, 0), "int64"),
)


def _cast(sj: Any, np: Any, nbytes: int) -> Ways:
    x = (filled((nbytes // 2,), np.uint16) >> 2).view("bfloat16")
    return {OURS: partial(sj.cast, x, "float32"), "numpy": partial(x.astype, np.float32)}


def _images(sj: Any, np: Any, nbytes: int) -> Ways:
    side = isqrt(nbytes // (64 * 3))
    images = list(filled((64, side, side, 3), np.uint8))
    program = sj.plan((side, side, 3), "uint8", lambda t: t.permute_dims((2, 0, 1)))

    def by_numpy() -> Any:
        return np.stack([x.transpose(2, 0, 1) for x in images])

    return {OURS: partial(program.map, images), "numpy": by_numpy}


def _concat(sj: Any, np: Any, nbytes: int) -> Ways:
    parts = list(filled((16, nbytes // 16), np.uint8))
    return {OURS: partial(sj.concat, parts), "numpy": partial(np.concatenate, parts)}


def _kinds(sj: Any, np: Any, nbytes: int) -> Ways:
    views = [filled(shape, kind).transpose(axes) for shape, axes, kind in SMALL]
    copy, by_numpy = sj.ascontiguous, np.ascontiguousarray
    return {OURS: lambda: [copy(x) for x in views], "numpy": lambda: [by_numpy(x) for x in views]}


def _decode(sj: Any, np: Any, nbytes: int) -> Ways:
    side = max(128, isqrt(nbytes) // 128 * 128)
    codes = filled((side, side), np.uint8) & np.uint8(0x3F)
    scales = np.ldexp(np.float32(1), np.arange(-(side // 128), 0)) * np.ones((side // 128, 1))
    parts = {"weight": codes.view("float8_e4m3fn"), "weight_scale_inv": scales.astype(np.float32)}
    ours = partial(sj.schemes["fp8:block"].decode, parts, dtype="bfloat16")
    return {OURS: ours, "numpy": lambda: DECODED["fp8:block"](parts, side, side).astype("bfloat16")}


def _repack(sj: Any, np: Any, nbytes: int) -> Ways:
    side = max(128, isqrt(2 * nbytes) // 128 * 128)
    codes, target = filled((side * side // 2,), np.uint8), "gptq:qweight"
    words = {"shape": (side, side), "dtype": "uint4", "source": "lsb", "target": target}

    def by_numpy() -> Any:
        made = np.zeros(side * side, np.uint8)
        into = LOOKS[target](made, side, side)
        into[...] = unpacked_by_numpy(codes, 4, side * side).reshape(into.shape)
        return packed_by_numpy(made, 4).view(np.int32).reshape(side // 8, side)

    return {OURS: partial(sj.repack, codes, **words), "numpy": by_numpy}


def cases() -> tuple[Case, ...]:
    """Work of all kinds and sizes."""
    (batch,) = (case for case in batches.batches() if case.name == "reshape-transposed")
    table: dict[str, tuple[Make, int]] = {
        "reshape-batch-10000": (batch.make, 10_000 * 4096),
        "cast-8M/bfloat16-float32": (_cast, 16 * MIB),
        "map-64-images": (_images, 3 * MIB),
        "concat-16x512KiB": (_concat, 8 * MIB),
        "small-arrays-of-eight-kinds": (_kinds, 0),
        "decode/fp8:block": (_decode, 16 * MIB),
        "repack/lsb-gptq:qweight": (_repack, 8 * MIB),
    }
    large = (
        Copy(GROUP, f"transposed-4096x4096/{kind}", kind, (4096, 4096), (1, 0), fresh=True)
        for kind in ("bfloat16", "float32")
    )
    calls = (Call(GROUP, name, make, nbytes) for name, (make, nbytes) in table.items())
    small = SmallCopy(GROUP, "transposed-32x32/float32-out", "float32", (32, 32), (1, 0))
    return (*large, *calls, small)
