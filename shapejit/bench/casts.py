"""Benchmarks of casts and of block-scaled codes, compared with ml_dtypes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import product
from math import prod
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from .cases import OURS, Copy, Ints, Ways, bits_of, packed_nbytes
from .worker import numbers, scales

GROUP = "casts"


@dataclass(frozen=True)
class Cast(Copy):
    """A cast of `dtype` to `target`; with `blocks`, a dequantization with a scale per block.

    The source is viewed in the order of `axes`; scales are in the source's own order.
    """

    target: str = "float32"
    blocks: Ints = ()

    @property
    def moved(self) -> int:
        """Half the bytes that are read and written, including scales and zero points."""
        pairs = zip(self.shape, self.blocks, strict=False)
        operands = 8 * prod(-(-size // block) for size, block in pairs) if self.blocks else 0
        return (self.source_nbytes + operands + packed_nbytes(self.shape, self.target)) // 2

    def ways(self, sj: Any) -> Ways:
        """Ours, and by ml_dtypes and NumPy: convert, scale, permute."""
        base = sj.cast(sj.asarray(numbers(self.job)), self.dtype)
        seen = base.permute_dims(self.axes)
        memory = np.full(packed_nbytes(self.shape, self.target), 0, np.uint8)
        out = sj.Tensor.frombuffer(memory, self.target, seen.shape)
        values, call = base.unpack(), partial(sj.cast, seen, self.target, out=out)
        if self.blocks:
            assert self.axes is not None
            scale, zero = (x.transpose(self.axes) for x in scales(self.job))
            blocks = tuple(self.blocks[axis] for axis in self.axes)
            more = {"zero_point": zero, "block_shape": blocks, "dtype": self.target}
            call = partial(sj.dequantize, seen, scale, out=out, **more)
        packed = bits_of(self.target) < 8

        def theirs() -> Any:
            made = np.ascontiguousarray(self._converted(values).transpose(self.axes))
            return sj.pack(made, self.target) if packed else made  # the same bytes as ours

        # What `pack` takes is not ml_dtypes' time, and little beside it.
        return {OURS: call, "ml_dtypes": theirs}

    @property
    def job(self) -> dict[str, Any]:
        """The cast and its scales, as a request for peers."""
        facts = {"dtype": self.dtype, "target": self.target, "shape": self.shape}
        return {"work": "cast", **facts, "axes": self.axes, "blocks": self.blocks}

    def _converted(self, x: NDArray[Any]) -> NDArray[Any]:
        if "int" in self.target:
            kind = getattr(ml_dtypes, self.target, self.target)
            ends: Any = ml_dtypes.iinfo(kind)  # type: ignore[no-untyped-call]  # it has no types
            return np.clip(np.trunc(x.astype(np.float32)), ends.min, ends.max).astype(kind)
        if not self.blocks:
            whole = bits_of(self.dtype) < 16 and bits_of(self.target) < 32
            return (x.astype(np.float32) if whole else x).astype(self.target)
        scale, zero = scales(self.job)
        for axis, (size, block) in enumerate(zip(self.shape, self.blocks, strict=True)):
            at = np.arange(size) // block
            scale, zero = scale.take(at, axis), zero.take(at, axis)
        return ((x.astype(np.float32) - zero) * scale).astype(self.target)


_NARROW_DTYPES = (
    "float8_e4m3fn",
    "float8_e5m2",
    "float6_e2m3fn",
    "float4_e2m1fn",
    "int4",
    "int8",
    "uint8",
)
_SHAPES = {2: (8192, 4096), 4: (300, 224, 224, 3)}  # by the number of dims
_FLOAT_DTYPES = ("float32", "bfloat16")
_BOTH_WIDE = [("float32", "bfloat16"), ("bfloat16", "float32")]
_PAIRS = [
    *_BOTH_WIDE, ("float32", "float16"), ("float16", "float32"),
    *product(_NARROW_DTYPES, _FLOAT_DTYPES), *product(_FLOAT_DTYPES, _NARROW_DTYPES),
]  # fmt: skip
_TRANSPOSED = [
    *_BOTH_WIDE, ("float8_e4m3fn", "bfloat16"), ("float32", "float8_e4m3fn"),
    ("int4", "bfloat16"), ("int8", "float32"),
]  # fmt: skip
_ROWS: list[tuple[str, tuple[str, str], Ints, Ints]] = [
    *(("rows", pair, (0, 1), ()) for pair in _PAIRS),
    *(("transposed", pair, (1, 0), ()) for pair in _TRANSPOSED),
    *((f"block-{block}", (source, "bfloat16"), (0, 1), (1, block))
      for source in ("int4", "uint4", "float4_e2m1fn") for block in (16, 32, 128)),
    ("block-128x128", ("float8_e4m3fn", "bfloat16"), (0, 1), (128, 128)),
    ("images", ("uint8", "float32"), (0, 3, 1, 2), (300, 224, 224, 1)),
]  # fmt: skip


def cases() -> tuple[Cast, ...]:
    """All cases of the group."""
    return tuple(
        Cast(GROUP, f"{name}/{source}-{target}", source, _SHAPES[len(axes)], axes,
             target=target, blocks=blocks)
        for name, (source, target), axes, blocks in _ROWS
    )  # fmt: skip
