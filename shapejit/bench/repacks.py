"""Benchmarks of repacking 4-bit weights from one format to another, compared with NumPy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .cases import OURS, Copy, Ways
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
    """Blocks of 32 after their scales: the low nibbles are the first half."""
    blocks = x.reshape(rows, columns // 32, -1)
    codes = blocks[..., blocks.shape[-1] - 32 :]
    return codes.reshape(rows, columns // 32, 16, 2).transpose(0, 1, 3, 2)


# How NumPy sees the nibbles of a stored array, low ones first, as rows (out) of columns (in).
NIBBLE_VIEWS: dict[str, Callable[[Nibbles, int, int], Nibbles]] = {
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
    """Codes of `shape` (out, in), converted from `source_format` to `target_format`."""

    source_format: str = "lsb"
    target_format: str = "lsb"

    def scaled(self, factor: float) -> Any:
        """The case with about `factor` times the bytes, in dims that all formats can hold."""
        made = super().scaled(factor)
        return replace(made, shape=tuple(-(-size // _EVEN) * _EVEN for size in made.shape))

    @property
    def moved(self) -> int:
        """The bytes of the codes: scales beside them are neither read nor written."""
        return self.source_nbytes

    def ways(self, sj: Any) -> Ways:
        """Ours, and NumPy's: unpack to bytes, permute, pack."""
        source, target = self.source_format, self.target_format
        base: Any = pattern(self.source_nbytes)
        if source != "lsb":
            base = sj.repack(base, **self._words("lsb", source)).reshape(-1)
        words = self._words(source, target)
        out = sj.repack(base, **words)
        nbytes, raw = out.nbytes, base.view(np.uint8)

        def by_numpy() -> NDArray[np.uint8]:
            codes = unpacked_by_numpy(raw, 4, 2 * raw.size)
            made = np.zeros(2 * nbytes, np.uint8)
            into = NIBBLE_VIEWS[target](made, *self.shape)
            into[...] = (
                NIBBLE_VIEWS[source](codes, *self.shape).reshape(self.shape).reshape(into.shape)
            )
            return packed_by_numpy(made, 4)

        return {OURS: partial(sj.repack, base, out=out, **words), "numpy": by_numpy}

    def _words(self, source: str, target: str) -> dict[str, Any]:
        block = 32 if "onnx:matmulnbits" in (source, target) else None
        shape = self.shape[::-1] if source in _INPUTS_FIRST else self.shape
        words = {"shape": shape, "dtype": self.dtype, "block_size": block}
        return {**words, "source": source, "target": target}


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
    """All cases of the group."""
    return tuple(
        Repack(GROUP, f"{source}-to-{target}", "uint4", (4096, 14336),
               source_format=source, target_format=target)
        for source, target in _PAIRS
    )  # fmt: skip
