"""Benchmarks of weights decoded to bfloat16 and encoded from it, compared with NumPy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from math import prod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from .cases import OURS, Case, Ways
from .plain_schemes import DECODED
from .worker import pattern

GROUP, ENCODING = "schemes", "encode"
WITHOUT = "without kernels"  # what a call does before its kernels are ready, by NumPy
_ROW_MULTIPLE = 128  # what rows of all schemes are multiples of; columns are of 512

# Bits of an element of a weight, with its scales.
DECODED_BITS = {
    "fp8:block": 8,
    "fp8:channel": 8,
    "mxfp4:gpt-oss": 4.25,
    "nvfp4:modelopt": 4.5,
    "nvfp4:compressed-tensors": 4.5,
    "nvfp4:comfyui": 4.5,
    "int4:compressed-tensors": 4.5,
    "gptq": 4.16,
    "awq": 4.16,
    "matmulnbits": 5,
    "bnb:nf4": 4.5,
    "bnb:fp4": 4.5,
    "mlx": 4.5,
    "gguf:q4_0": 4.5,
    "gguf:q4_1": 5,
    "gguf:q5_0": 5.5,
    "gguf:q5_1": 6,
    "gguf:q8_0": 8.5,
    "mxfp4:gguf": 4.25,
    "gguf:q4_k": 4.5,
    "gguf:q5_k": 5.5,
    "gguf:q6_k": 6.5625,
}
ENCODED_BITS = {
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
_ENCODE_SETTINGS: dict[str, dict[str, Any]] = {
    "int4:compressed-tensors": {"group_size": 32},
    "gptq": {"symmetric": False},
    "awq": {"symmetric": False},
}


@dataclass(frozen=True)
class Weight(Case):
    """A weight of `shape` (out, in) in the scheme `name`."""

    bits: ClassVar[Mapping[str, float]]
    shape: tuple[int, int] = (4096, 4096)

    @property
    def moved(self) -> int:
        """Half the bytes that are read and written."""
        return int(prod(self.shape) * (self.bits[self.name] + 16)) // 16

    def scaled(self, factor: float) -> Case:
        """The case with about `factor` times the rows; also fewer columns if few rows are left."""
        rows = max(_ROW_MULTIPLE, round(self.shape[0] * factor / _ROW_MULTIPLE) * _ROW_MULTIPLE)
        return replace(self, shape=(rows, self.shape[1] if rows > _ROW_MULTIPLE else 512))

    def numbers(self) -> NDArray[np.float32]:
        """The numbers of the weight, whose rows repeat."""
        x = np.sin(np.arange(32 * self.shape[1], dtype=np.float32)).reshape(32, -1)
        return np.tile(x, (self.shape[0] // 32, 1))


class DecodedWeight(Weight):
    """A stored weight, decoded to bfloat16."""

    bits = DECODED_BITS

    def ways(self, sj: Any) -> Ways:
        """Ours, and plain NumPy's, or that of the scheme's package."""
        scheme, (rows, columns) = sj.schemes[self.name], self.shape
        if self.name.endswith("_k"):  # which is only decoded, from blocks of 256 elements
            raw = pattern(int(rows * columns * self.bits[self.name]) // 8) & np.uint8(0x3B)
            parts = {"weight": raw.reshape(rows, -1)}  # of float16, too, small numbers only
        else:
            parts = scheme.encode(self.numbers(), **_ENCODE_SETTINGS.get(self.name, {}))
        ours = partial(scheme.decode, parts, dtype="bfloat16")
        ours = partial(ours, out=ours())
        if self.name not in DECODED:
            return {OURS: ours, WITHOUT: partial(_without_kernels, sj, ours)}

        def by_numpy() -> Any:
            stored = {key: x.numpy() if isinstance(x, sj.Tensor) else x for key, x in parts.items()}
            return DECODED[self.name](stored, rows, columns).astype("bfloat16")

        return {OURS: ours, "numpy": by_numpy}


class Encoded(Weight):
    """A bfloat16 weight, encoded."""

    bits = ENCODED_BITS

    def ways(self, sj: Any) -> Ways:
        """Ours, with and without kernels."""
        ours = partial(sj.schemes[self.name].encode, self.numbers().astype("bfloat16"))
        return {OURS: ours, WITHOUT: partial(_without_kernels, sj, ours)}

    def result(self, sj: Any, made: Any) -> Any:
        """The parts, sorted by name."""
        return made and [made[name] for name in sorted(made)]


def _without_kernels(sj: Any, call: Callable[[], Any]) -> Any:
    with import_module(f"{sj.__name__}.engine.patience").force_numpy():
        return call()


def cases() -> tuple[DecodedWeight, ...]:
    """One case per scheme that is decoded."""
    return tuple(DecodedWeight(GROUP, name) for name in DECODED_BITS)


def encodings() -> tuple[Encoded, ...]:
    """One case per scheme that is encoded."""
    return tuple(Encoded(ENCODING, name) for name in ENCODED_BITS)
