"""Benchmarks of stack and concat into allocated memory."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from .cases import OURS, Copy, Ints, Ways, filled, named, plain

GROUP = "joins"


@dataclass(frozen=True)
class Join(Copy):
    """`count` arrays of `shape`, by `work` ("stack" or "concat") along `axis`."""

    work: str = "stack"
    count: int = 2
    axis: int = 0

    @property
    def source_nbytes(self) -> int:
        """Bytes of all arrays."""
        return self.count * super().source_nbytes

    @property
    def moved(self) -> int:
        """Bytes of the result."""
        return self.source_nbytes

    def ways(self, sj: Any) -> Ways:
        """Ours and NumPy's, which has loops for its own types."""
        parts = [part.copy() for part in filled((self.count, *self.shape), self.dtype)]
        by_numpy = np.stack if self.work == "stack" else np.concatenate
        out = by_numpy(parts, axis=self.axis)
        ours = partial(getattr(sj, self.work), parts, axis=self.axis, out=out)
        theirs = partial(by_numpy, [plain(x) for x in parts], axis=self.axis, out=plain(out))
        return {OURS: ours, "numpy": theirs}

    @property
    def job(self) -> dict[str, Any] | None:
        """The join as a request for peers."""
        facts = {"shape": self.shape, "axis": self.axis, "count": self.count}
        return {"work": self.work, "itemsize": self.itemsize, **facts}


_CASES: tuple[tuple[str, int, Ints, int, tuple[str, ...]], ...] = (
    ("stack", 3, (4096, 4096), 2, ("uint8", "float32")),  # colours beside each other
    ("stack", 2, (4096, 4096), 2, ("bfloat16", "float32")),  # real and imaginary parts
    ("stack", 4, (1 << 22,), 1, ("uint8", "float32")),  # corners of boxes
    ("stack", 7, (1 << 21,), 1, ("uint8", "float32", "float64")),  # columns of a table
    ("stack", 16, (1 << 20,), 1, ("bfloat16", "float32")),
    ("stack", 100, (1 << 18,), 1, ("uint8", "float32")),
    ("stack", 8, (1 << 19, 3), 1, ("uint8", "float32")),  # points of several scans
    ("stack", 32, (4096, 128), 1, ("bfloat16", "float32")),  # keys by layer
    ("stack", 8, (64, 64, 4096), 1, ("float32",)),  # experts behind a dim
    ("stack", 256, (3, 224, 224), 0, ("uint8", "float32")),  # a batch of images
    ("stack", 4096, (1024,), 0, ("float32",)),
    ("stack", 20000, (16,), 0, ("float32",)),
    ("stack", 8, (16,), 0, ("float32",)),
    ("stack", 8, (16,), 1, ("float32",)),
    ("stack", 3, (64, 64), 2, ("uint8",)),
    ("stack", 3, (512, 512), 2, ("uint8", "float32")),
    ("concat", 2, (8, 16, 1024, 64), 2, ("bfloat16", "float32")),  # keys of a cache
    ("concat", 16, (8, 2048, 64), 2, ("bfloat16", "float32")),  # heads merged
    ("concat", 8, (4096, 255), 1, ("float32",)),  # rows off lines
    ("concat", 26, (65536, 16), 1, ("float32",)),  # embeddings of a recommender
    ("concat", 8, (1024, 4096), 0, ("bfloat16",)),  # shards of a weight
    ("concat", 8, (4096, 512), 1, ("bfloat16",)),
)


def cases() -> tuple[Join, ...]:
    """Arrays of models, images and tables that are joined."""
    return tuple(
        Join(GROUP, named(work, (count, *shape), (axis,), kind), kind, shape,
             work=work, count=count, axis=axis)
        for work, count, shape, axis, kinds in _CASES
        for kind in kinds
    )  # fmt: skip
