"""The suite of packing formats: 4-bit weights from one to another, beside NumPy on nibbles."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..packings.packing import Stored
from ..packings.repacking import repack
from ..packings.rows import formats
from .cases import Case, pattern
from .packed import Group, PackedCase, packed_by_numpy, raw_of, unpacked_by_numpy

SUITE = "repack"
BLOCK = 32  # of MatMulNBits
_EVEN = 128  # what dims of smaller cases are multiples of

Nibbles = NDArray[np.uint8]


def _high_first(x: Nibbles, rows: int, columns: int) -> Nibbles:
    return x.reshape(rows, columns // 2, 2)[..., ::-1]


def _awq(x: Nibbles, rows: int, columns: int) -> Nibbles:
    """Nibble i of a word holds column [0, 2, 4, 6, 1, 3, 5, 7][i]."""
    return x.reshape(columns, rows // 8, 2, 4).transpose(1, 3, 2, 0)


def _halves(skip: int) -> Callable[[Nibbles, int, int], Nibbles]:
    """Blocks of 32 behind `skip` bytes: the low nibbles are the first half."""

    def look(x: Nibbles, rows: int, columns: int) -> Nibbles:
        codes = x.reshape(rows, columns // 32, -1)[..., 2 * skip :]
        return codes.reshape(rows, columns // 32, 16, 2).transpose(0, 1, 3, 2)

    return look


# How NumPy sees the nibbles of a stored array, low ones first, as rows (out) of columns (in).
LOOKS: dict[str, Callable[[Nibbles, int, int], Nibbles]] = {
    **dict.fromkeys(
        ["lsb", "awq:gemv", "onnx:matmulnbits", "compressed-tensors", "gpt-oss:blocks"],
        lambda x, rows, columns: x.reshape(rows, columns),
    ),
    **dict.fromkeys(["openvino@2023", "bitsandbytes", "torchao:tinygemm"], _high_first),
    "gptq:qweight": lambda x, rows, columns: x.reshape(columns // 8, rows, 8).transpose(1, 0, 2),
    "awq:gemm": _awq,
    "gguf:q4_0": _halves(2),
    "gguf:mxfp4": _halves(1),
}


@dataclass(frozen=True)
class RepackCase(PackedCase):
    """Codes of `shape` (out, in), stored as `source_format`, as `target_format` has them."""

    source_format: str = "lsb"
    target_format: str = "lsb"

    def scaled(self, factor: float) -> Case:
        """About `factor` times the bytes, in dims that all formats can hold."""
        made = super().scaled(factor)
        assert isinstance(made, RepackCase)
        shape = tuple(-(-size // _EVEN) * _EVEN for size in made.shape)
        return RepackCase(**{**vars(made), "shape": shape})

    @property
    def source_nbytes(self) -> int:
        """Bytes of the stored array."""
        return self._stored(self.source_format).nbytes

    @property
    def nbytes(self) -> int:
        """Bytes of the result."""
        return self._stored(self.target_format).nbytes

    @property
    def moved(self) -> int:
        """Half the bytes that are read and written: so many does a memcpy of as many copy."""
        return (self.source_nbytes + self.nbytes) // 2

    def source(self) -> NDArray[Any]:
        """A stored array of bytes that look random."""
        stored = self._stored(self.source_format)
        return pattern(stored.nbytes).view(stored.unit).reshape(stored.shape)

    def output(self) -> NDArray[Any]:
        """Mapped memory for the result."""
        stored = self._stored(self.target_format)
        made = np.empty(stored.shape, stored.unit)
        made.fill(0)
        return made

    def ours(self, base: Any, out: Any) -> Callable[[], object]:
        """The call that is measured."""
        settings: dict[str, Any] = {"shape": self._shape_of(self.source_format), "out": out}
        settings |= {"source": self.source_format, "target": self.target_format}
        settings |= {"dtype": self.dtype, "block_size": self._block_size}
        return lambda: repack(base, **settings)

    def rivals(self) -> dict[str, Callable[[], object]]:
        """NumPy: a byte per code, put in order, packed again."""
        base = self.source()
        return {"numpy": lambda: self._by_numpy(base)}

    def asked(self) -> dict[str, Any]:
        """The repacking that a peer is asked for."""
        names = {"source": self.source_format, "target": self.target_format}
        return {"work": "repack", "shape": self._shape_of(self.source_format), **names}

    def proved(self, base: Any, out: Any) -> bool:
        """Whether our result is, bit for bit, what NumPy makes of the codes."""
        return np.array_equal(raw_of(out), self._by_numpy(base))

    def _by_numpy(self, base: NDArray[Any]) -> NDArray[np.uint8]:
        codes = unpacked_by_numpy(raw_of(base), 4, 2 * base.nbytes)
        seen = LOOKS[self.source_format](codes, *self.shape)
        made = np.zeros(2 * self.nbytes, np.uint8)
        into = LOOKS[self.target_format](made, *self.shape)
        into[...] = seen.reshape(self.shape).reshape(into.shape)
        return packed_by_numpy(made, 4)

    @property
    def _block_size(self) -> int | None:
        names = self.source_format, self.target_format
        return BLOCK if any(formats[name].blocks for name in names) else None

    def _shape_of(self, name: str) -> tuple[int, ...]:
        return self.shape[::-1] if formats[name].inputs_first else self.shape

    def _stored(self, name: str) -> Stored:
        block_size = BLOCK if formats[name].blocks else None
        return formats[name].stored(self._shape_of(name), self.dtype, block_size)


_SHIFTED = Group("nibbles swapped, or bits as they are", 1.3)
_MOVED = Group("any two 4-bit formats", 2.0)


def cases() -> tuple[RepackCase, ...]:
    """All of the suite, group by group."""
    return tuple(_cases())


def _cases() -> Iterator[RepackCase]:
    shifted = (
        ("openvino@2023", "lsb"), ("lsb", "openvino@2023"), ("bitsandbytes", "torchao:tinygemm"),
        ("lsb", "bitsandbytes"), ("lsb", "compressed-tensors"), ("awq:gemv", "onnx:matmulnbits"),
    )  # fmt: skip
    moved = (
        ("awq:gemm", "gptq:qweight"), ("gptq:qweight", "awq:gemm"),
        ("gptq:qweight", "onnx:matmulnbits"), ("awq:gemm", "onnx:matmulnbits"),
        ("awq:gemm", "compressed-tensors"), ("compressed-tensors", "awq:gemm"),
        ("gguf:q4_0", "lsb"), ("lsb", "gguf:q4_0"), ("gpt-oss:blocks", "gguf:mxfp4"),
        ("gptq:qweight", "bitsandbytes"), ("gguf:q4_0", "gptq:qweight"),
        ("gptq:qweight", "gguf:q4_0"), ("awq:gemm", "gguf:q4_0"), ("gguf:q4_0", "awq:gemm"),
    )  # fmt: skip
    for group, pairs in ((_SHIFTED, shifted), (_MOVED, moved)):
        for source, target in pairs:
            name = f"{source}-to-{target}"
            yield RepackCase(SUITE, name, "uint4", (4096, 14336), group=group,
                             source_format=source, target_format=target)  # fmt: skip
