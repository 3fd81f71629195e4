"""First calls of new processes: how long NumPy does the work before kernels take over.

`benchmarks.tools.tiers` repeats each case in new processes, with and without kernels on disk.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from .batches import mapped, unlike
from .cases import MIB, OURS, CallCase, Case, Copy, Ints, Ways, filled, ways_of
from .casts import Cast
from .copies import SmallCopy
from .joins import Join
from .repacks import Repack
from .schemes import DecodedWeight

GROUP = "tiers"
SMALL: tuple[tuple[Ints, Ints, str], ...] = (
    ((8, 8), (1, 0), "float32"),
    ((16, 12), (1, 0), "uint8"),
    ((3, 8, 8), (1, 2, 0), "uint8"),
    ((4, 6, 5), (2, 1, 0), "float64"),
    ((2, 4, 16), (0, 2, 1), "uint16"),
    ((12, 3), (1, 0), "complex128"),
    ((4, 4, 4, 4), (0, 2, 1, 3), "float32"),
    ((5, 7), (1, 0), "int64"),
)


def _kinds(sj: Any, nbytes: int) -> Ways:
    views = [filled(shape, kind).transpose(axes) for shape, axes, kind in SMALL]
    copy, by_numpy = sj.ascontiguous, np.ascontiguousarray
    return {OURS: lambda: [copy(x) for x in views], "numpy": lambda: [by_numpy(x) for x in views]}


def cases() -> tuple[Case, ...]:
    """Work of all kinds and sizes, mostly cases of other suites."""
    others = {
        "cast-8M/bfloat16-float32": Cast(
            "", "", "bfloat16", (2048, 4096), (0, 1), target="float32"
        ),
        "concat-16x512KiB": Join("", "", "uint8", (MIB // 2,), work="concat", count=16),
        "decode/fp8:block": DecodedWeight("", "fp8:block"),
        "repack/lsb-gptq:qweight": Repack(
            "", "", "uint4", (4096, 4096), target_format="gptq:qweight"
        ),
    }
    large = (
        Copy(GROUP, f"transposed-4096x4096/{kind}", kind, (4096, 4096), (1, 0), fresh=True)
        for kind in ("bfloat16", "float32")
    )
    return (
        *large,
        CallCase(GROUP, "reshape-batch-10000", partial(unlike, 1, False), 10_000 * 4096),
        CallCase(
            GROUP, "map-64-images", partial(mapped, (128, 128, 3), (2, 0, 1), "uint8"), 3 * MIB
        ),
        CallCase(GROUP, "small-arrays-of-eight-kinds", _kinds),
        *(CallCase(GROUP, name, partial(ways_of, one), one.moved) for name, one in others.items()),
        SmallCopy(GROUP, "transposed-32x32/float32-out", "float32", (32, 32), (1, 0)),
    )
