"""Weights decoded by plain NumPy, with a byte per code."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .packed import unpacked_by_numpy
from .repacks import NIBBLE_VIEWS

Numbers = NDArray[np.float32]
Parts = Mapping[str, NDArray[Any]]
Decode = Callable[[Parts, int, int], Numbers]

_MAGNITUDES = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)
FLOAT4 = np.concatenate([_MAGNITUDES, -_MAGNITUDES])


def codes_of(packed: NDArray[Any], rows: int, columns: int, look: str = "lsb") -> NDArray[np.uint8]:
    """4-bit codes, in the order of a packing format."""
    raw = packed.view(np.uint8).reshape(-1)
    codes = NIBBLE_VIEWS[look](unpacked_by_numpy(raw, 4, 2 * raw.size), rows, columns)
    return codes.reshape(rows, columns)


def scaled(values: NDArray[Any], scales: NDArray[Any], zeros: Any = None) -> Numbers:
    """(values - zero points) * scales; a row has several scales."""
    groups = values.astype(np.float32).reshape(*scales.shape, -1)
    if zeros is not None:
        groups -= np.asarray(zeros, np.float32)[..., None]
    groups *= scales.astype(np.float32)[..., None]
    return groups.reshape(values.shape)


def _fp8_block(parts: Parts, rows: int, columns: int) -> Numbers:
    return scaled(parts["weight"], parts["weight_scale_inv"].repeat(128, 0)[:rows])


def _gpt_oss(parts: Parts, rows: int, columns: int) -> Numbers:
    """(in, out); exponents are those of float8_e8m0fnu."""
    codes = codes_of(parts["blocks"], columns, rows)
    scales = np.ldexp(np.float32(1), parts["scales"].astype(np.int32) - 127)
    return scaled(FLOAT4[codes], scales).T


def _awq(parts: Parts, rows: int, columns: int) -> Numbers:
    scales = parts["scales"].T
    zeros = codes_of(parts["qzeros"], rows, scales.shape[1], "awq:gemm")
    return scaled(codes_of(parts["qweight"], rows, columns, "awq:gemm"), scales, zeros)


DECODED: dict[str, Decode] = {
    "fp8:block": _fp8_block,
    "fp8:channel": lambda p, *_: scaled(p["weight"], p["weight_scale"]),
    "mxfp4:gpt-oss": _gpt_oss,
    "awq": _awq,
}
