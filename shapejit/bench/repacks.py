"""Packing formats: 4-bit weights from one to another, beside NumPy on nibbles."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .cases import OURS, Case, Copy, Ways
from .packed import packed_by_numpy, unpacked_by_numpy
from .worker import pattern

GROUP = "repack"
_EVEN = 128  # what dims of smaller cases are multiples of
_INPUTS_FIRST = ("gptq:qweight", "awq:gemm")  # formats whose shape is (in, out)

Nibbles = NDArray[np.uint8]


def _high_first(x: Nibbles, rows: int, columns: int) -> Nibbles:
    return x.reshape(rows, columns // 2, 2)[..., ::-1]


def _awq(x: Nibbles, rows: int, columns: int) -> Nibbles:
    """Nibble i of a word holds column [0, 2, 4, 6, 1, 3, 5, 7][i]."""
    return x.reshape(columns, rows // 8, 2, 4).transpose(1, 3, 2, 0)


def _halves(x: Nibbles, rows: int, columns: int) -> Nibbles:
    """Blocks of 32 behind their scales: the low nibbles are the first half."""
    blocks = x.reshape(rows, columns // 32, -1)
    codes = blocks[..., blocks.shape[-1] - 32 :]
    return codes.reshape(rows, columns // 32, 16, 2).transpose(0, 1, 3, 2)


# How NumPy sees the nibbles of a stored array, low ones first, as rows (out) of columns (in).
LOOKS: dict[str, Callable[[Nibbles, int, int], Nibbles]] = {
    **dict.fromkeys(
        ["lsb", "awq:gemv", "onnx:matmulnbits", "compressed-tensors", "gpt-oss:blocks"],
        lambda x, rows, columns: x.reshape(rows, columns),
    ),
    **dict.fromkeys(["openvino@2023", "bitsandbytes", "torchao:tinygemm"], _high_first),
    **dict.fromkeys(["gguf:q4_0", "gguf:mxfp4"], _halves),
    "gptq:qweight": lambda x, rows, columns: x.reshape(columns // 8, rows, 8).transpose(1, 0, 2),
    "awq:gemm": _awq,
}


@dataclass(frozen=True)
class Repack(Copy):
    """Codes of `shape` (out, in), stored as `source_format`, as `target_format` has them."""

    source_format: str = "lsb"
    target_format: str = "lsb"

    def scaled(self, factor: float) -> Case:
        """About `factor` times the bytes, in dims that all formats can hold."""
        if factor == 1:
            return self
        made = super().scaled(factor)
        shape = tuple(-(-size // _EVEN) * _EVEN for size in made.shape)
        return Repack(**{**vars(made), "shape": shape})

    @property
    def source_nbytes(self) -> int:
        """Bytes of the codes."""
        return self.shape[0] * self.shape[1] // 2

    @property
    def moved(self) -> int:
        """As many: scales beside them are neither read nor written."""
        return self.source_nbytes

    def ways(self, sj: Any, np: Any) -> Ways:
        """Ours, and NumPy's: a byte per code, put in order, packed again."""
        source, target = self.source_format, self.target_format
        base: Any = pattern(self.source_nbytes)
        if source != "lsb":
            words = self._words("lsb", source)
            base = sj.repack(base, shape=self._shape_of(source, "lsb"), **words).reshape(-1)
        shape = self._shape_of(source, target)
        words = self._words(source, target)
        out = sj.repack(base, shape=shape, **words)
        nbytes, raw = out.nbytes, base.view(np.uint8)

        def by_numpy() -> NDArray[np.uint8]:
            codes = unpacked_by_numpy(raw, 4, 2 * raw.size)
            made = np.zeros(2 * nbytes, np.uint8)
            into = LOOKS[target](made, *self.shape)
            into[...] = LOOKS[source](codes, *self.shape).reshape(self.shape).reshape(into.shape)
            return packed_by_numpy(made, 4)

        return {OURS: partial(sj.repack, base, shape=shape, out=out, **words), "numpy": by_numpy}

    @property
    def job(self) -> dict[str, Any] | None:
        """None: no peer has formats of packed codes."""
        return None

    def _words(self, source: str, target: str) -> dict[str, Any]:
        block = 32 if "onnx:matmulnbits" in (source, target) else None
        return {"dtype": self.dtype, "source": source, "target": target, "block_size": block}

    def _shape_of(self, source: str, other: str) -> tuple[int, ...]:
        """The shape of the source's codes; lsb has the order of the other."""
        name = other if source == "lsb" else source
        first = name in _INPUTS_FIRST and source != "lsb"
        return self.shape[::-1] if first else self.shape


_PAIRS = (
    ("openvino@2023", "lsb"), ("lsb", "openvino@2023"), ("bitsandbytes", "torchao:tinygemm"),
    ("lsb", "bitsandbytes"), ("lsb", "compressed-tensors"), ("awq:gemv", "onnx:matmulnbits"),
    ("awq:gemm", "gptq:qweight"), ("gptq:qweight", "awq:gemm"),
    ("gptq:qweight", "onnx:matmulnbits"), ("awq:gemm", "onnx:matmulnbits"),
    ("awq:gemm", "compressed-tensors"), ("compressed-tensors", "awq:gemm"),
    ("gguf:q4_0", "lsb"), ("lsb", "gguf:q4_0"), ("gpt-oss:blocks", "gguf:mxfp4"),
    ("gptq:qweight", "bitsandbytes"), ("gguf:q4_0", "gptq:qweight"),
    ("gptq:qweight", "gguf:q4_0"), ("awq:gemm", "gguf:q4_0"), ("gguf:q4_0", "awq:gemm"),
)  # fmt: skip


def cases() -> tuple[Repack, ...]:
    """All of the group."""
    return tuple(
        Repack(GROUP, f"{source}-to-{target}", "uint4", (4096, 14336),
               source_format=source, target_format=target)
        for source, target in _PAIRS
    )  # fmt: skip
