"""Schemes: weights decoded to bfloat16 and encoded from it, beside NumPy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from math import prod
from typing import Any, NamedTuple

from .cases import OURS, Case, Ways
from .plain_schemes import DECODED
from .worker import pattern

GROUP, ENCODING = "schemes", "encode"
WITHOUT = "without kernels"  # what a call does before its kernels are ready, by NumPy
_SHAPE = (4096, 4096)
_ROWS = 32  # what rows of all schemes are multiples of; columns are of 512


class Row(NamedTuple):
    """Bits of a weight with what stands beside it, and settings.

    `block` bytes of 256 elements are those of a scheme that is only decoded.
    """

    bits: float
    settings: dict[str, Any] = {}  # noqa: RUF012  # never changed
    block: int = 0


TABLE = {
    "fp8:block": Row(8),
    "fp8:channel": Row(8),
    "mxfp4:gpt-oss": Row(4.25),
    "nvfp4:modelopt": Row(4.5),
    "nvfp4:compressed-tensors": Row(4.5),
    "nvfp4:comfyui": Row(4.5),
    "int4:compressed-tensors": Row(4.5, {"group_size": 32}),
    "gptq": Row(4.16, {"symmetric": False}),
    "awq": Row(4.16, {"symmetric": False}),
    "matmulnbits": Row(5),
    "bnb:nf4": Row(4.5),
    "bnb:fp4": Row(4.5),
    "mlx": Row(4.5),
    "gguf:q4_0": Row(4.5),
    "gguf:q4_1": Row(5),
    "gguf:q5_0": Row(5.5),
    "gguf:q5_1": Row(6),
    "gguf:q8_0": Row(8.5),
    "mxfp4:gguf": Row(4.25),
    "gguf:q4_k": Row(4.5, block=144),
    "gguf:q5_k": Row(5.5, block=176),
    "gguf:q6_k": Row(6.5625, block=210),
}


@dataclass(frozen=True)
class Scheme(Case):
    """A weight of `shape` (out, in), stored as the scheme `name`, decoded to bfloat16."""

    shape: tuple[int, int] = _SHAPE

    @property
    def moved(self) -> int:
        """Half the bytes that are read and written."""
        return int(prod(self.shape) * (TABLE[self.name].bits + 16)) // 16

    def ways(self, sj: Any, np: Any) -> Ways:
        """Ours, and NumPy's as one writes it by hand, or as the package has it."""
        scheme, row, (rows, columns) = sj.schemes[self.name], TABLE[self.name], self.shape
        if row.block:
            raw = pattern(rows * columns // 256 * row.block).reshape(rows, -1) & np.uint8(0x3B)
            parts = {"weight": raw}  # of float16, too, small numbers only
        else:
            x = np.sin(np.arange(_ROWS * columns, dtype=np.float32)).reshape(_ROWS, columns)
            parts = scheme.encode(np.tile(x, (rows // _ROWS, 1)), **row.settings)
        ours = partial(scheme.decode, parts, dtype="bfloat16")
        ours = partial(ours, out=ours())
        if self.name not in DECODED:
            return {OURS: ours, WITHOUT: partial(_without_kernels, sj, ours)}

        def by_numpy() -> Any:
            stored = {key: x.numpy() if isinstance(x, sj.Tensor) else x for key, x in parts.items()}
            return DECODED[self.name](stored, rows, columns).astype("bfloat16")

        return {OURS: ours, "numpy": by_numpy}

    def scaled(self, factor: float) -> Case:
        """About `factor` times the rows, or columns as well where few rows are left."""
        if factor == 1:
            return self
        rows = max(_ROWS, round(self.shape[0] * factor / _ROWS) * _ROWS)
        return Scheme(self.group, self.name, (rows, self.shape[1] if rows > _ROWS else 512))


def _without_kernels(sj: Any, call: Callable[[], Any]) -> Any:
    with import_module(f"{sj.__name__}.engine.patience").force_numpy():
        return call()


def cases() -> tuple[Scheme, ...]:
    """All of the group: one case per scheme."""
    return tuple(Scheme(GROUP, name) for name in TABLE)


BITS = {
    "fp8:block": 8,
    "fp8:channel": 8,
    "mxfp4:compressed-tensors": 4.25,
    "mxfp8:compressed-tensors": 8.25,
    "nvfp4:compressed-tensors": 4.5,
    "int8:compressed-tensors": 8,
    "int4:compressed-tensors": 4.125,
    "gguf:q4_0": 4.5,
    "gguf:q8_0": 8.5,
}
"""Bits of an encoded weight, with its scales."""


@dataclass(frozen=True)
class Encoding(Case):
    """A weight of `shape` (out, in) in bfloat16, encoded to the scheme `name`."""

    shape: tuple[int, int] = _SHAPE

    @property
    def moved(self) -> int:
        """Half the bytes that are read and written."""
        return int(prod(self.shape) * (BITS[self.name] + 16)) // 16

    def ways(self, sj: Any, np: Any) -> Ways:
        """Ours, with kernels and without."""
        rows, columns = self.shape
        x = np.sin(np.arange(_ROWS * columns, dtype=np.float32)).reshape(_ROWS, columns)
        x = np.tile(x, (rows // _ROWS, 1)).astype("bfloat16")
        ours = partial(sj.schemes[self.name].encode, x)
        return {OURS: ours, WITHOUT: partial(_without_kernels, sj, ours)}

    def result(self, sj: Any, made: Any) -> Any:
        """The parts in the order of their names."""
        return made and [made[name] for name in sorted(made)]

    def scaled(self, factor: float) -> Case:
        """About `factor` times the rows."""
        rows = max(128, round(self.shape[0] * factor / 128) * 128)
        return replace(self, shape=(rows, self.shape[1] if rows > 128 else 512))


def encodings() -> tuple[Encoding, ...]:
    """All that are encoded: one case per scheme."""
    return tuple(Encoding(ENCODING, name) for name in BITS)
