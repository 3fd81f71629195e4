"""The suite of joins: arrays that lie apart, stacked or concatenated into memory that is there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..dtypes.table import dtype
from ..operations import joining
from .cases import pattern
from .packed import PackedCase, raw_of

SUITE = "joins"


@dataclass(frozen=True)
class JoinCase(PackedCase):
    """`count` arrays of `shape`, by `work` ("stack" or "concat") along `axis`."""

    count: int = 2
    axis: int = 0

    def rivals_case(self, most: float) -> PackedCase:
        """NumPy joins just these."""
        return self

    @property
    def part(self) -> str:
        """The part of its suite that is summed up with this case."""
        return self.work

    @property
    def source_nbytes(self) -> int:
        """Bytes of all arrays."""
        return self.count * prod(self.shape) * self.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of the result."""
        return self.source_nbytes

    @property
    def moved(self) -> int:
        """Half the bytes that are read and written: so many does a memcpy of as many copy."""
        return self.nbytes

    @property
    def _result_shape(self) -> tuple[int, ...]:
        part = np.broadcast_to(np.empty((), np.uint8), self.shape)
        shape: tuple[int, ...] = self._joined([part] * self.count, np).shape
        return shape

    def source(self) -> Any:
        """The arrays, each in memory of its own: bytes that look random."""
        kind = dtype(self.dtype).numpy
        assert kind is not None
        whole = pattern(self.source_nbytes).view(kind).reshape(self.count, *self.shape)
        return [part.copy() for part in whole]

    def output(self) -> NDArray[Any]:
        """Mapped memory for the result."""
        kind = dtype(self.dtype).numpy
        assert kind is not None
        made = np.empty(self._result_shape, kind)
        raw_of(made).fill(0)
        return made

    def ours(self, base: Any, out: Any) -> Callable[[], object]:
        """The call that is measured."""
        return partial(self._joined, base, joining, out)

    def rivals(self) -> dict[str, Callable[[], object]]:
        """NumPy, which has its own types' loops."""
        carrier = np.dtype(f"u{dtype(self.dtype).bits // 8}")
        base, out = self.source(), self.output().view(carrier)
        return {"numpy": partial(self._joined, [x.view(carrier) for x in base], np, out)}

    def asked(self) -> dict[str, Any]:
        """The join that a peer is asked for."""
        facts = {"shape": self.shape, "axis": self.axis, "count": self.count}
        return {"work": self.work, "itemsize": self.itemsize, **facts}

    def proved(self, base: Any, out: Any) -> bool:
        """Whether our result is NumPy's, bit for bit."""
        return np.array_equal(raw_of(out), raw_of(self._joined(base, np)))

    def _joined(self, parts: Any, module: Any, out: Any = None) -> Any:
        """The parts as `module` joins them: `joining`, or NumPy."""
        if self.work == "stack":
            return module.stack(parts, axis=self.axis, out=out)
        join = module.concatenate if module is np else module.concat
        return join(parts, axis=self.axis, out=out)


_CASES: tuple[tuple[str, int, tuple[int, ...], int, tuple[str, ...], str], ...] = (
    ("stack", 3, (4096, 4096), 2, ("uint8", "float32"), "colours beside each other"),
    ("stack", 2, (4096, 4096), 2, ("bfloat16", "float32"), "real and imaginary parts"),
    ("stack", 4, (1 << 22,), 1, ("uint8", "float32"), "corners of boxes"),
    ("stack", 7, (1 << 21,), 1, ("uint8", "float32", "float64"), "columns of a table"),
    ("stack", 16, (1 << 20,), 1, ("bfloat16", "float32"), "columns of a table"),
    ("stack", 100, (1 << 18,), 1, ("uint8", "float32"), "columns of a table"),
    ("stack", 8, (1 << 19, 3), 1, ("uint8", "float32"), "points of several scans"),
    ("stack", 32, (4096, 128), 1, ("bfloat16", "float32"), "keys by layer"),
    ("stack", 8, (64, 64, 4096), 1, ("float32",), "experts behind a dim"),
    ("stack", 256, (3, 224, 224), 0, ("uint8", "float32"), "a batch of images"),
    ("stack", 4096, (1024,), 0, ("float32",), "many small arrays"),
    ("stack", 20000, (16,), 0, ("float32",), "many small arrays"),
    ("stack", 8, (16,), 0, ("float32",), "a call"),
    ("stack", 8, (16,), 1, ("float32",), "a call"),
    ("stack", 3, (64, 64), 2, ("uint8",), "a small image"),
    ("stack", 3, (512, 512), 2, ("uint8", "float32"), "an image"),
    ("concat", 2, (8, 16, 1024, 64), 2, ("bfloat16", "float32"), "keys of a cache"),
    ("concat", 16, (8, 2048, 64), 2, ("bfloat16", "float32"), "heads merged"),
    ("concat", 8, (4096, 255), 1, ("float32",), "rows off lines"),
    ("concat", 26, (65536, 16), 1, ("float32",), "embeddings of a recommender"),
    ("concat", 8, (1024, 4096), 0, ("bfloat16",), "shards of a weight"),
    ("concat", 8, (4096, 512), 1, ("bfloat16",), "shards of a weight"),
)


def cases() -> tuple[JoinCase, ...]:
    """Arrays of models, images and tables that are joined."""
    return tuple(
        JoinCase(SUITE, _name(*row[:4]), kind, row[2], None, None, row[5],
                 work=row[0], count=row[1], axis=row[3])
        for row in _CASES
        for kind in row[4]
    )  # fmt: skip


def _name(work: str, count: int, shape: tuple[int, ...], axis: int) -> str:
    return f"{work}-{'x'.join(map(str, (count, *shape)))}-{axis}"
